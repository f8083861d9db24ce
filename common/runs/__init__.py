"""A run in public terms: its specification, its price, the terms of its secure sum, its model as a document."""
