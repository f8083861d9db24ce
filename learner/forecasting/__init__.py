"""Forecasts for whoever asks the learner before a run."""
