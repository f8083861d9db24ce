"""The learner's side of secure sums."""
