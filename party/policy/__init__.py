"""What the owner allows."""
