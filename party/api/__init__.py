"""The party over HTTP."""
