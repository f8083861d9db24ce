"""Traces of rounds by OpenTelemetry, for services whose settings name a collector."""
