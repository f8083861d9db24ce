"""What a list of parties says of those that answer, hang and are away, and how soon."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from parley.common.errors import UnavailableError
from parley.common.wire.party_api import PartyFacts
from parley.learner.api.party_reports import PartyReports
from parley.learner.storage.known_parties import KnownParties

DEADLINE = 0.3


class FakeParty:
    """A party that answers, hangs, or cannot be reached."""

    role = "party"

    def __init__(self, name: str) -> None:
        self.name, self.is_up, self.hangs, self.asked = name, True, False, 0

    async def facts(self) -> PartyFacts:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if not self.is_up:
            raise UnavailableError(f"{self.name} cannot be reached", party=self.name)
        return PartyFacts(name=self.name, version="1", studies=())


def reports_of(*parties: FakeParty, monkeypatch: pytest.MonkeyPatch, folder: Path) -> PartyReports:
    monkeypatch.setattr("parley.learner.api.party_reports.PartyClient", FakeParty)
    settings = SimpleNamespace(deadline_seconds=DEADLINE, parties=())
    roster, known = {party.name: party for party in parties}, KnownParties(folder / "known")
    learner = SimpleNamespace(settings=settings, studies={}, roster=roster, known=known)
    return PartyReports(cast("Any", learner))


async def test_those_that_hang_or_are_away_hold_nobody_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parties = [FakeParty(name) for name in ("ann", "bob", "cat")]
    reports = reports_of(*parties, monkeypatch=monkeypatch, folder=tmp_path)
    first = await reports.soon(1.0)
    assert [(view.awaited, view.as_of is None) for view in first] == [(False, False)] * 3, (
        "all answer, none is waited for"
    )
    parties[1].hangs, parties[2].is_up = True, False
    began = time.monotonic()
    ann, bob, cat = await reports.soon(0.05)
    assert time.monotonic() - began < 0.25
    assert (ann.awaited, bob.awaited, cat.awaited) == (False, True, True)
    assert bob.facts == first[1].facts, "what it stated before"
    assert bob.as_of == first[1].as_of
    await asyncio.gather(*(reports.soon(0.01) for _ in range(5)))
    assert parties[1].asked == 2, "however many wait for it, it is asked once at a time"
    ann, bob, cat = await reports.soon(5 * DEADLINE)
    assert [view.problem.detail for view in (bob, cat) if view.problem] == [
        f"bob did not answer within {DEADLINE:g} s",
        "cat cannot be reached",
    ]
    assert (bob.awaited, bob.as_of) == (False, first[1].as_of)
    again = (await reports.soon(0.01))[2]
    assert (again.awaited, again.problem) == (True, cat.problem), "it is asked again, and was away"
    parties[2].is_up = True
    back = (await reports.soon(5 * DEADLINE))[2]
    assert (back.awaited, back.problem) == (False, None)


async def test_without_a_time_what_is_not_answered_by_the_deadline_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    party = FakeParty("ann")
    reports = reports_of(party, monkeypatch=monkeypatch, folder=tmp_path)
    (view,) = await reports.now()
    assert view.facts is not None
    party.is_up = False
    (view,) = await reports.now()
    assert view.facts is None, "what it stated before is not shown as if it were true now"
    assert view.problem is not None
    assert (view.problem.detail, view.problem.status, view.awaited) == ("ann cannot be reached", 503, False)


async def test_one_that_was_never_heard_of_is_awaited_without_facts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    party = FakeParty("ann")
    party.hangs = True
    (view,) = await reports_of(party, monkeypatch=monkeypatch, folder=tmp_path).soon(0)
    assert (view.facts, view.problem, view.as_of, view.awaited) == (None, None, None, True)


async def test_the_facts_of_one_that_is_away_outlive_the_learner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    party = FakeParty("ann")
    (told,) = await reports_of(party, monkeypatch=monkeypatch, folder=tmp_path).now()
    party.is_up = False
    reports = reports_of(party, monkeypatch=monkeypatch, folder=tmp_path)
    (soon,) = await reports.soon(0)
    assert (soon.facts, soon.as_of, soon.awaited) == (told.facts, None, True)
    (later,) = await reports.soon(5 * DEADLINE)
    assert later.facts == told.facts
    assert later.problem is not None
    assert (await reports.now())[0].facts is None
