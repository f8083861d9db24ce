"""Losses, exact gradient sums, risk minimisation, and how good a model is."""
