"""The owner's own page, on loopback: what waits for the owner's word, and the word."""
