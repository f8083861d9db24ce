"""How a party answers a learner's question, by a noisy answer alone or within a secure sum."""
