"""A plan is written down once a schedule, however many parties share it."""

from __future__ import annotations

from parley.learner.runs.plan import Plan


def test_a_plan_is_read_as_it_was_written() -> None:
    after = tuple(round / 100 for round in range(1, 101))
    others = {f"party-{index}": after for index in range(1000)}
    plan = Plan(100, {"party-a": after[:50] + after[:50], **others}, ({"view": "transcript"},))
    text = plan.to_json()
    assert Plan.from_json(text) == plan
    assert list(Plan.from_json(text).epsilon_after) == list(plan.epsilon_after)
    assert len(text) < 30_000
