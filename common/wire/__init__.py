"""What services say to each other, as models of JSON."""
