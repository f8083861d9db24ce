"""Receipts both ways with every request, and those of others that a service keeps."""
