"""Hospitals that run, for tutorials and pictures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.demonstrations.hospitals import Hospitals


@pytest.fixture(scope="module")
def hospitals() -> Iterator[Hospitals]:
    """Five hospitals, a key holder and a learner, as processes."""
    started = Hospitals.start()
    yield started
    started.stop()
