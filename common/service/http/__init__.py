"""What lies between the network and a service's routes: connections, TLS, bodies in JSON, the reference's page."""
