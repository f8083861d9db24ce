"""Clients of services over HTTP, for a learner's service and for an owner who learns with others."""
