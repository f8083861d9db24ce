"""What the owner does: its page, the runs that wait for its word, its own model, and its own stream of decisions."""
