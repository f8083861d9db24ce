"""Carries runs from the queue to an end, and tells of them."""
