"""The command ``parley-learner``."""
