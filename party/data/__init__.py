"""The owner's data, as the party holds it."""
