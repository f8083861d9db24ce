"""Models that a learner made, taken elsewhere: rows of files as they score them."""
