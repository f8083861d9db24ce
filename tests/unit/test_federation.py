"""Rounds of a federation over HTTP: whose answers make a reply, and who is silent, late, dropped or charged."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from parley.common.client import federation
from parley.common.client.federation import HttpFederation, RoundReport
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import from_wire
from parley.common.errors import PartyRefusedError, QuorumLostError, UnavailableError
from parley.common.protocol.messages import Query
from parley.common.runs.specification import Budget, Member, RunSpec

NAMES = ("ann", "bob", "eve")
SPEC = RunSpec(
    study=Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("a", "b"))),
    algorithm="dp_gd",
    parameters={"n_rounds": 9},
    parties=tuple(Member(name=name, n_examples=5, budget=Budget(epsilon=1, delta=1e-5)) for name in NAMES),
    minimum_contributors=2,
    answer_every=2,
).settled()[0]
AWAY = UnavailableError("eve cannot be reached", party="eve")
ANSWER = np.array([2**20, -(2**21)])


class Rounds:
    """A federation whose parties answer as a test says; ``asked`` has the names that each round asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *recent: tuple[int, ...]) -> None:
        self.outcomes: dict[str, object] = {}
        self.took: dict[str, float] = {}
        self.asked: list[list[str]] = []
        parties = [SimpleNamespace(name=name) for name in NAMES]
        self.federation = HttpFederation(SPEC, cast("Any", parties), 4.0, recent)
        monkeypatch.setattr(federation, "ask_all", self.ask_all)

    async def ask_all(
        self, parties: Sequence[Any], _: object, seconds: float, took: MutableMapping[str, float]
    ) -> list[object]:
        assert seconds == 4.0
        self.asked.append([party.name for party in parties])
        took.update(self.took)
        return [self.outcomes.get(party.name, ANSWER) for party in parties]

    async def round(self, number: int, reveal: Any = "sum") -> tuple[tuple[int, ...], RoundReport]:  # noqa: ANN401
        """Ask a round. Returns who contributed, and the report."""
        query = Query(number, "gradient", np.zeros(2), reveal)
        reply = await self.federation.answer("run", query)
        count = len(reply.contributors)
        expected = from_wire(
            ANSWER * count if reveal == "sum" else np.tile(ANSWER, (count, 1)), SPEC.facts().wire_shift
        )
        assert reply.value.tolist() == expected.tolist()
        return reply.contributors, self.federation.report


async def test_a_round_goes_on_without_the_silent_and_drops_who_misses_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = Rounds(monkeypatch)
    rounds.took = {"ann": 2.0, "bob": 2.1}
    contributors, report = await rounds.round(1)
    assert contributors == (0, 1, 2)
    assert (report.stragglers, report.dropped, report.missed, report.opened) == (("bob",), {}, {}, {})
    assert 0 < report.seconds < 60
    rounds.outcomes = {"eve": AWAY}
    contributors, report = await rounds.round(2, "each")
    assert (contributors, report.dropped, report.missed) == ((0, 1), {}, {"eve": "eve cannot be reached"})
    contributors, report = await rounds.round(3)
    assert (contributors, report.dropped, report.missed) == ((0, 1), {"eve": "eve cannot be reached"}, {})
    await rounds.round(4)
    assert rounds.asked == [["ann", "bob", "eve"]] * 3 + [["ann", "bob"]]


async def test_too_few_answers_name_the_silent_and_the_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(monkeypatch)
    rounds.outcomes = {"ann": UnavailableError("ann is away"), "eve": AWAY}
    with pytest.raises(QuorumLostError) as lost:
        await rounds.round(1)
    assert lost.value.detail == (
        "round 1: 1 of the 2 parties that are needed answered; silent: ann is away; eve cannot be reached; "
        "charged to those that answered, once however often it is asked: bob"
    )
    assert lost.value.facts == {"silent": ["ann", "eve"], "charged": ["bob"]}
    rounds.outcomes["bob"] = UnavailableError("bob is away")
    with pytest.raises(QuorumLostError, match="however often it is asked: nobody") as lost:
        await rounds.round(1)
    assert lost.value.facts == {"silent": ["ann", "bob", "eve"], "charged": []}
    rounds.outcomes = {}
    assert (await rounds.round(1))[0] == (0, 1, 2), "a round that was not concluded drops nobody"


async def test_a_refusal_ends_the_round(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Rounds(monkeypatch)
    rounds.outcomes = {"ann": AWAY, "bob": PartyRefusedError("bob refused", party="bob")}
    with pytest.raises(PartyRefusedError, match="bob refused"):
        await rounds.round(1)


def test_a_run_that_goes_on_asks_those_of_its_last_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for recent, active in (
        ([], (0, 1, 2)),
        ([(0, 1)], (0, 1, 2)),
        ([(2,), (1,)], (1, 2)),
        ([(0,), (2,), (1,)], (1, 2)),
    ):
        pool = Rounds(monkeypatch, *recent).federation
        assert pool.active == active
        assert [party.name for party in pool.active_parties] == [NAMES[index] for index in active]
