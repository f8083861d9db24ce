"""Forecasts a run before it is started."""
