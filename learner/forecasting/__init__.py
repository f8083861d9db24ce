"""Forecasts of a run that has not been started."""
