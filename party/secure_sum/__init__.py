"""The party's side of secure sums."""
