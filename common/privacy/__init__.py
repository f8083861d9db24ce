"""Private randomness, noise scales, what releases cost and how costs compose."""
