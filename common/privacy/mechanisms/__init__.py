"""Mechanisms: how a private value becomes one that may be released."""
