"""Commands for a model's document, away from any learner."""
