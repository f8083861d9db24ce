"""The command ``parley-party``."""
