"""How often tests repeat what chance decides: a few times where people wait, many times in `make nightly`."""

from __future__ import annotations

import os

NIGHTLY = "PARLEY_NIGHTLY" in os.environ


def repeats(usual: int, nightly: int) -> int:
    """Return how often to try: ``nightly`` if the environment holds PARLEY_NIGHTLY, otherwise ``usual``."""
    return nightly if NIGHTLY else usual
