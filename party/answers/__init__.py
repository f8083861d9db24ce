"""From a learner's question to an answer that may leave, by itself or in a secure sum."""
