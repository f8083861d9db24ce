"""Limits what each user of a learner may have at a time, beside connections and requests.

`parley.common.service.fair_use` says how shares and turns work.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Self

from parley.common.service.fair_use import CallerTurns, Share
from parley.learner.settings import LearnerShares


@dataclass(frozen=True, slots=True)
class FairUse:
    """The shares of users, and the turns of their long work: each user has one piece of it done at a time."""

    streams: Share
    queued_runs: Share
    uploads: Share
    forecasts: Share
    long_work: CallerTurns = field(default_factory=lambda: CallerTurns(per_caller=1))

    @classmethod
    def by(cls, shares: LearnerShares) -> Self:
        """Return the shares that the settings state."""
        return cls(
            Share("streams", shares.streams, "event streams open", "close some, or watch all runs by /v1/events", 5),
            Share(
                "queued_runs",
                shares.queued_runs,
                "runs that have not come to an end",
                "wait until one ends, or cancel some",
                60,
            ),
            Share("uploads", shares.uploads, "uploads under way", "wait until one is done", 5),
            Share("forecasts", shares.forecasts, "forecasts under way", "wait until one is done", 5),
        )

    @asynccontextmanager
    async def turn(self, share: Share, user: str) -> AsyncIterator[None]:
        """Hold a user's turn of long work, which counts towards a share; raises ShareUsedUpError."""
        with share.taken_by(user):
            async with self.long_work.turn(user):
                yield
