"""What the learner keeps on disk."""
