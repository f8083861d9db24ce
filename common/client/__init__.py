"""Asking services over HTTP: what a learner's service, and an owner who learns with others, have in common."""
