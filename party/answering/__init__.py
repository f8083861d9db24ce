"""From a learner's question to an answer that may leave."""
