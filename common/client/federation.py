"""Real parties over HTTP as one federation: all are asked at once, and a round goes on without the silent, if enough.

A party that stays silent for as many rounds in a row as the run allows (one, unless rounds are asynchronous) is
dropped: it is not asked again. The contributors of the last replies determine who is dropped, so a run that is resumed
from its log asks the same parties. An answer that comes too late for its round is never used; the party has charged it,
and a party that skipped a round pays for it with its next answer: ledgers charge up to the round that is answered. A
round that too few answered may be asked again: those that have answered answer the same, at no cost.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.client.party import PartyClient
from parley.common.client.peer import ask_all
from parley.common.encoding.fixed_point import from_wire, sum_of_answers
from parley.common.errors import ParleyError, QuorumLostError, UnavailableError
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import Signed
from parley.common.service.tracing import traced_round

_T = TypeVar("_T")
_PIECE = 2**16  # numbers


@dataclass(frozen=True, slots=True)
class RoundReport:
    """How a round went: its ``seconds``, and the ``stragglers``, which took more than half the deadline.

    ``dropped`` and ``missed`` give the reasons of silent parties by name: the dropped will not be asked again, those
    that missed the round will be. ``opened`` has the receipts of the key holders that opened it, by name.
    """

    seconds: float = 0.0
    stragglers: tuple[str, ...] = ()
    dropped: Mapping[str, str] = field(default_factory=dict)
    missed: Mapping[str, str] = field(default_factory=dict)
    opened: Mapping[str, Signed] = field(default_factory=dict)


class PartyPool(ABC):
    """The parties of one run, in the order of its specification ``spec``, asked round by round.

    ``deadline`` is in seconds. ``recent`` has the contributors of the last rounds as the log has them, so many as a
    party may not miss in a row (`RunSpec.answer_every`), fewer at the beginning. ``report`` describes the last round.
    """

    def __init__(
        self,
        spec: RunSpec,
        parties: Sequence[PartyClient],
        deadline: float,
        recent: Sequence[tuple[int, ...]] = (),
    ) -> None:
        self.report = RoundReport()
        self._parties = tuple(parties)
        self._deadline = deadline
        self._questions, self._shift = spec.questions(), spec.facts().wire_shift
        self._quorum = spec.minimum_contributors
        self._recent = deque(recent, maxlen=spec.answer_every)

    @property
    def active(self) -> tuple[int, ...]:
        """The indices of the parties that are asked, ascending: all but the dropped."""
        if len(self._recent) < (self._recent.maxlen or 0):
            return tuple(range(len(self._parties)))
        return tuple(sorted({index for contributors in self._recent for index in contributors}))

    @property
    def active_parties(self) -> tuple[PartyClient, ...]:
        """The parties that are asked, in the order of the specification."""
        return tuple(self._parties[index] for index in self.active)

    @abstractmethod
    async def answer(self, run: str, query: Query) -> Reply:
        """Return what the active parties answer, in a span of its own if rounds are traced.

        Raises PartyRefusedError naming the party that refused, QuorumLostError naming the silent and the charged.
        """

    def end(self) -> None:  # noqa: B027 -- most have nothing to end
        """Release what the pool holds: no party will be asked again."""

    def _conclude(self, round: int, outcomes: Sequence[_T | ParleyError], took: Mapping[str, float]) -> dict[int, _T]:
        """End a round with the ``outcomes`` of the active parties and the seconds that each ``took``.

        Returns the answers by the parties' indices. Raises the errors of `answer`.
        """
        answers: dict[int, _T] = {}
        silent: dict[str, str] = {}
        for index, outcome in zip(self.active, outcomes, strict=True):
            match outcome:
                case UnavailableError():
                    silent[self._parties[index].name] = outcome.detail
                case ParleyError():
                    raise outcome
                case _:
                    answers[index] = outcome
        if len(answers) < self._quorum:
            charged = [self._parties[index].name for index in answers]
            raise QuorumLostError(
                f"round {round}: {len(answers)} of the {self._quorum} parties that are needed answered; "
                f"silent: {'; '.join(silent.values())}; "
                f"charged to those that answered, once however often it is asked: {', '.join(charged) or 'nobody'}",
                silent=list(silent),
                charged=charged,
            )
        self._settle(tuple(answers), silent)
        stragglers = tuple(name for name, seconds in took.items() if seconds > self._deadline / 2)
        self.report = replace(self.report, stragglers=stragglers)
        return answers

    def _settle(self, contributors: tuple[int, ...], silent: Mapping[str, str]) -> None:
        """End a round with these contributors, and report which of the silent parties are dropped."""
        self._recent.append(contributors)
        still = {party.name for party in self.active_parties}
        self.report = RoundReport(
            dropped={name: reason for name, reason in silent.items() if name not in still},
            missed={name: reason for name, reason in silent.items() if name in still},
        )


class HttpFederation(PartyPool):
    """Parties whose answers the learner sees."""

    async def answer(self, run: str, query: Query) -> Reply:
        """Return all active parties' answers, or their exact sum."""
        width = self._questions[query.round - 1].answer
        with traced_round(run, query.round):
            started, took = time.monotonic(), dict[str, float]()
            outcomes = await ask_all(
                self.active_parties,
                partial(PartyClient.answer, run=run, query=query, width=width),
                self._deadline,
                took,
            )
            answers = self._conclude(query.round, outcomes, took)
            self.report = replace(self.report, seconds=time.monotonic() - started)
            contributors, work = tuple(answers), partial(self._value, query, answers)
            return Reply(await asyncio.to_thread(work) if width > _PIECE else work(), contributors)

    def _value(self, query: Query, answers: dict[int, IntArray]) -> FloatArray:
        """Return the sum (m,) of answers (m,), or all, (K, m), as reals; empties ``answers`` to hold no copies."""
        if query.reveal == "sum":
            return from_wire(_summed(list(answers.values())), self._shift)
        value = np.empty((len(answers), self._questions[query.round - 1].answer))
        for row, index in zip(value, list(answers), strict=True):
            row[:] = from_wire(answers.pop(index), self._shift)
        return value


def _summed(answers: Sequence[IntArray]) -> IntArray:
    """Return the exact sum (m,) of answers (m,), added piece by piece so that wide answers are not stacked."""
    starts = range(0, max(len(answers[0]), 1), _PIECE)
    return np.concatenate(
        [sum_of_answers(np.stack([answer[start : start + _PIECE] for answer in answers])) for start in starts]
    )
