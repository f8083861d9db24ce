"""Keeps the learner's state on disk: runs, replies, secure sums, the roster and public rows."""
