"""Forecasts of what a run will achieve, from public facts alone."""
