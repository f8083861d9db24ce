"""Where a program's steps are computed: aside from the event loop, unless they are known to be short.

What a program does between two rounds may take long: a global fit must not keep the service from answering. But to
hand every step to a thread and back costs a tenth of a round. So a step runs on the loop only between two rounds that
ask the same question, and only if the last such step was short; the first, the last, and any between two phases of an
algorithm run in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial

from parley.common.protocol.messages import Query, Question

_SHORT = 5e-3
"""Seconds that a step may take on the loop."""


class ProgramSteps:
    """The steps of one program, which asks these questions; an `Advance` for `drive`."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = questions
        self._answered = 0
        self._is_short = False

    async def __call__(self, step: Callable[[], Query]) -> Query:
        """The next query, computed on the loop or in a thread."""
        answered, self._answered = self._answered, self._answered + 1
        between_alike = (
            0 < answered < len(self._questions) and self._questions[answered - 1] == self._questions[answered]
        )
        timed = partial(_timed, step)
        query, seconds = timed() if between_alike and self._is_short else await asyncio.to_thread(timed)
        self._is_short = between_alike and seconds < _SHORT
        return query


def _timed(step: Callable[[], Query]) -> tuple[Query, float]:
    """A step's query and the seconds that it took, without those that it waited for its thread."""
    started = time.perf_counter()
    return step(), time.perf_counter() - started
