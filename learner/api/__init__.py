"""Serves the learner over HTTP: routes, schemas, and the page for people."""
