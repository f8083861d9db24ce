"""How often tests repeat what chance decides: a few times where people wait, many times in `make nightly`."""

from __future__ import annotations

import os

import pytest

NIGHTLY = "PARLEY_NIGHTLY" in os.environ
nightly = pytest.mark.skipif(not NIGHTLY, reason="tried in make nightly")
"""Marks a test, or a case of one, that `make nightly` alone tries."""


def repeats(usual: int, nightly: int) -> int:
    """Return how often to try: ``nightly`` if the environment holds PARLEY_NIGHTLY, otherwise ``usual``."""
    return nightly if NIGHTLY else usual
