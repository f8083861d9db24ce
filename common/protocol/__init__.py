"""A program asks, parties answer, a log remembers: the contract between an algorithm and its federation."""
