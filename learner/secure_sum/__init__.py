"""Runs the learner's side of secure sums."""
