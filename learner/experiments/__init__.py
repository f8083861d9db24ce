"""Simulations on data sets in this process, for researchers."""
