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


async def test_short_steps_between_the_same_questions_run_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    gradient, share = Question("gradient", (3,), 3), Question("share", (2, 3), 2)
    for questions, expected in (
        ([gradient] * 4, "aside aside loop loop aside"),
        (
            [gradient, share, share, share, gradient, gradient, gradient],
            "aside aside aside loop aside aside loop aside",
        ),
    ):
        steps, ran = ProgramSteps(questions), list[str]()

        def step(ran: list[str] = ran) -> Query:
            ran.append("loop" if threading.current_thread() is threading.main_thread() else "aside")
            return Query(1, "gradient", np.zeros(3))

        for _ in range(len(questions) + 1):
            await steps(step)
        assert " ".join(ran) == expected
