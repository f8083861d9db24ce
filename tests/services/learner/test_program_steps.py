"""Which steps of a program leave the event loop."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from parley.common.protocol.messages import Query, Question
from parley.learner.execution import engine
from parley.learner.execution.engine import ProgramSteps


async def test_long_steps_never_run_on_the_loop_but_for_one_that_was_short_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0  # a clock of the test's own: how busy the machine is must not tell
    monkeypatch.setattr(engine, "time", SimpleNamespace(perf_counter=lambda: now))
    gradient, share = Question("gradient", (3,), 3), Question("share", (2, 3), 2)
    steps = ProgramSteps([gradient] * 4 + [share])
    took = [0.0, 0.0, 0.02, 0.0, 0.0, 0.02]  # before round 1, after each of rounds 1 to 5
    on_loop = []
    for seconds in took:

        def step(seconds: float = seconds) -> Query:
            nonlocal now
            on_loop.append(threading.current_thread() is threading.main_thread())
            now += seconds
            return Query(1, "gradient", np.zeros(3))

        await steps(step)
    # the first step; then one is tried aside, the next runs on the loop and turns out long, so that the next is aside;
    # the one between two phases and the last are aside after all that may come before
    assert on_loop == [False, False, True, False, False, False]
