"""How parties are asked round by round: who answered, who is dropped, and what a round adds up to."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from parley.common.arrays import IntArray
from parley.common.client import federation
from parley.common.client.federation import HttpFederation, RoundReport
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line
from parley.common.encoding.fixed_point import FRACTION_BITS
from parley.common.errors import PartyRefusedError, QuorumLostError, UnavailableError
from parley.common.protocol.messages import Query

SHIFT = 40
UNIT = 2.0 ** (SHIFT - FRACTION_BITS)


class Round:
    """A federation of three parties, whose answers a test sets by name."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        quorum: int = 1,
        every: int = 1,
        recent: Sequence[tuple[int, ...]] = (),
        width: int = 2,
    ) -> None:
        self.says: dict[str, Any] = {}
        self.asked: list[tuple[str, str, Query, int]] = []
        self.now = 50.0
        spec = SimpleNamespace(
            questions=lambda: [SimpleNamespace(answer=99), SimpleNamespace(answer=width)],
            facts=lambda: SimpleNamespace(wire_shift=SHIFT),
            minimum_contributors=quorum,
            answer_every=every,
        )
        parties = [PartyClient(name, cast("Line", None)) for name in "abc"]
        self.pool = HttpFederation(cast("Any", spec), parties, 10.0, recent)

        async def answer(party: PartyClient, *, run: str, query: Query, width: int) -> IntArray:
            self.asked.append((party.name, run, query, width))
            said = self.says[party.name]
            if isinstance(said, Exception):
                raise said
            return np.asarray(said, dtype=np.int64)

        async def ask_all(parties: Any, request: Any, seconds: float, took: Any) -> list[Any]:  # noqa: ANN401
            assert seconds == 10.0
            outcomes = []
            for party in parties:
                try:
                    outcomes.append(await request(party))
                except (UnavailableError, PartyRefusedError) as error:
                    outcomes.append(error)
                else:
                    took[party.name] = {"a": 5.0, "b": 5.1}.get(party.name, 0.1)
            self.now += 3.0
            return outcomes

        monkeypatch.setattr(PartyClient, "answer", answer)
        monkeypatch.setattr(federation, "ask_all", ask_all)
        monkeypatch.setattr(federation, "time", SimpleNamespace(monotonic=lambda: self.now))

    async def ask(self, reveal: Any = "sum", **says: Any) -> Any:  # noqa: ANN401 -- a reply
        self.says = says
        self.asked.clear()
        self.query = Query(2, "sums", np.zeros(1), reveal)
        return await self.pool.answer("run-1", self.query)


AWAY = UnavailableError("c is away")


async def test_a_round_is_the_sum_or_all_of_the_answers_as_reals(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Round(monkeypatch)
    assert rounds.pool.report == RoundReport()
    reply = await rounds.ask(a=[1, 2], b=[3, 4], c=[5, -7])
    assert (reply.value.tolist(), reply.contributors) == ([9 * UNIT, -1 * UNIT], (0, 1, 2))
    assert rounds.asked == [(name, "run-1", rounds.query, 2) for name in "abc"]
    assert rounds.pool.report == RoundReport(seconds=3.0, stragglers=("b",))
    reply = await rounds.ask("all", a=[1, 2], b=[3, 4], c=AWAY)
    assert (reply.value.tolist(), reply.contributors) == ([[UNIT, 2 * UNIT], [3 * UNIT, 4 * UNIT]], (0, 1))


@pytest.mark.parametrize("reveal", ["sum", "all"])
async def test_a_wide_answer_is_added_piece_by_piece(monkeypatch: pytest.MonkeyPatch, reveal: str) -> None:
    for width in (2**16, 2**17 + 3):
        rounds, row = Round(monkeypatch, width=width), np.arange(width)
        reply = await rounds.ask(reveal, a=row, b=2 * row, c=AWAY)
        expected = 3 * row if reveal == "sum" else np.stack([row, 2 * row])
        np.testing.assert_array_equal(reply.value, expected * UNIT)
    empty = Round(monkeypatch, width=0)
    assert (await empty.ask(reveal, a=[], b=[], c=[])).value.size == 0


async def test_the_silent_are_dropped_at_once_where_every_round_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Round(monkeypatch)
    await rounds.ask(a=[1, 2], b=[3, 4], c=AWAY)
    assert rounds.pool.report.dropped == {"c": "c is away"}
    assert rounds.pool.report.missed == {}
    assert rounds.pool.active == (0, 1)
    assert [party.name for party in rounds.pool.active_parties] == ["a", "b"]
    await rounds.ask(a=AWAY, b=[3, 4])
    assert [name for name, *_ in rounds.asked] == ["a", "b"]
    assert rounds.pool.report.dropped == {"a": "c is away"}
    assert list(rounds.pool.active) == [1]
    rounds.pool.end()


async def test_who_may_miss_a_round_is_dropped_after_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = Round(monkeypatch, every=2)
    await rounds.ask(a=[1, 2], b=[3, 4], c=AWAY)
    assert (rounds.pool.report.dropped, rounds.pool.report.missed) == ({}, {"c": "c is away"})
    await rounds.ask(a=AWAY, b=[3, 4], c=AWAY)
    assert (rounds.pool.report.dropped, rounds.pool.report.missed) == ({"c": "c is away"}, {"a": "c is away"})
    assert rounds.pool.active == (0, 1)
    resumed = Round(monkeypatch, every=2, recent=[(0, 1, 2), (0, 1), (1,)])
    assert resumed.pool.active == (0, 1), "the last two rounds of its log count"


async def test_a_refusal_or_too_few_answers_end_the_round_with_those_who_were_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = Round(monkeypatch, quorum=2)
    with pytest.raises(PartyRefusedError, match="no"):
        await rounds.ask(a=[1, 2], b=PartyRefusedError("no"), c=[1, 2])
    assert len((await rounds.ask(a=[1, 2], b=[3, 4], c=AWAY)).contributors) == 2
    rounds = Round(monkeypatch, quorum=2)
    with pytest.raises(QuorumLostError) as lost:
        await rounds.ask(a=[1, 2], b=UnavailableError("b is away"), c=AWAY)
    assert lost.value.detail == (
        "round 2: 1 of the 2 parties that are needed answered; silent: b is away; c is away; "
        "charged to those that answered, once however often it is asked: a"
    )
    assert lost.value.facts == {"silent": ["b", "c"], "charged": ["a"]}
    with pytest.raises(QuorumLostError, match=r"often it is asked: nobody$") as nobody:
        await rounds.ask(a=AWAY, b=AWAY, c=AWAY)
    assert nobody.value.facts == {"silent": ["a", "b", "c"], "charged": []}
    assert rounds.pool.active == (0, 1, 2), "the round may be asked again of all"
