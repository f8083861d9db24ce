"""When a service's collector of garbage looks at all objects: by a clock and a count of the test's own."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from parley.common.service.serve import FullCollections


class Stage:
    """A service's objects, and the times at which all of them were looked at."""

    def __init__(self) -> None:
        self.now, self.count, self.at = 1000.0, 100_000, list[float]()
        self.collections = FullCollections(lambda: self.now, lambda: self.count)

    def pass_by(self, seconds: int) -> list[float]:
        """Tend it each second; when all was looked at, in seconds from the beginning."""
        begin = len(self.at)
        for _ in range(seconds):
            self.now += 1
            self.collections.tend()
        return [each - 1000 for each in self.at[begin:]]


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    stage, thresholds = Stage(), gc.get_threshold()
    monkeypatch.setattr(gc, "collect", lambda: stage.at.append(stage.now))
    stage.collections.begin()
    yield stage
    gc.set_threshold(*thresholds)


def test_few_objects_are_looked_at_every_half_minute(stage: Stage) -> None:
    assert stage.pass_by(100) == [30, 60, 90]


def test_many_more_objects_than_there_were_are_not_looked_at_while_they_come_and_go(stage: Stage) -> None:
    stage.count += 2_000_000
    assert stage.pass_by(100) == []
    stage.count -= 2_000_000
    assert stage.pass_by(20) == [101]


def test_many_objects_that_stay_are_rarely_looked_at(stage: Stage) -> None:
    stage.count += 2_000_000
    assert stage.pass_by(1300) == [600, 1200]


def test_the_collector_looks_at_all_objects_at_no_other_time(stage: Stage) -> None:
    begun = gc.get_stats()[2]["collections"]
    kept: list[list[object]] = [[] for _ in range(1_000_000)]
    assert gc.get_stats()[2]["collections"] == begun
    assert len(kept) == 1_000_000
