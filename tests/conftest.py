"""Hypothesis tries the same examples in every run, and no example fails for being slow on a busy machine."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("reproducible", derandomize=True, deadline=None)
settings.load_profile("reproducible")
