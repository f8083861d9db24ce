"""Carries runs from the queue to an end, and reports on them as they go."""
