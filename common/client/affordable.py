"""Chooses what a run leaves open among what the parties' accounts pay for.

Candidates come in order, the most accurate first. The first that every account pays for is taken: by the account as the
caller's own runs have left it, and by the party's yes or no to a price (`PartyClient.room`). A party is asked about
another candidate only if the ones before do not fit, and never about one that is at least as dear as one that it has
refused. So choosing costs nothing, and tells the caller nothing that it could not ask anyway.
"""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

from parley.common.client.approval import views_of
from parley.common.client.party import PartyClient
from parley.common.client.peer import ask_all
from parley.common.encoding.texts import as_told, first_names
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.privacy.account import Account, Cost, larger
from parley.common.privacy.guarantee import View
from parley.common.protocol.algorithm import Algorithm, Choice
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.pricing import highest_charge
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import BudgetReport, StudyFacts

Charge = Cost | BudgetExhaustedError
"""What a run would be charged to a party at most, or why no budget allows it."""
AskRoom = Callable[[RunSpec, Mapping[str, Charge]], Awaitable[Mapping[str, bool]]]
"""Asks the parties whether their charges for a run, by name, fit what all runs have left; their answers are by name."""
Pricing = Callable[[RunSpec], Mapping[str, Charge]]
"""Returns what a run would be charged to each party, by name. It may take seconds."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A run with all chosen that was left open, and ``reasons`` that say why, by parameter or ``algorithm``.

    ``instead`` says what would be more accurate, and whose accounts do not pay for it, if that is so.
    """

    spec: RunSpec
    reasons: Mapping[str, str]
    instead: str | None = None

    @classmethod
    def of(cls, spec: RunSpec, choices: Mapping[str, Choice], reasons: Mapping[str, str] | None = None) -> Candidate:
        """Return the candidate of these choices, with ``reasons`` for what was chosen before them."""
        return cls(spec, dict(reasons or {}) | {name: choice.why for name, choice in choices.items()})


@dataclass(frozen=True, slots=True)
class Follower:
    """An evaluation that follows a run, and what each party will be charged for it.

    It is of held-out rows, apart from those that the run is about.
    """

    spec: RunSpec
    charges: Mapping[str, Charge]


@dataclass(frozen=True, slots=True)
class Priced:
    """A candidate with its charges, by party, and whether they fit what all runs have left, where a party says so.

    ``alone`` are the charges without those of what follows the run.
    """

    candidate: Candidate
    alone: Mapping[str, Charge]
    charges: Mapping[str, Charge]
    room: Mapping[str, bool]


async def affordable(
    candidates: Iterator[Candidate],
    price: Pricing,
    follower: Follower | None,
    accounts: Mapping[str, Account],
    ask: AskRoom,
) -> Priced:
    """Return the first candidate that all parties' accounts pay for, or the first of all if they pay for none.

    ``accounts`` are as far as the caller knows them, by party, for the rows that the run is about. Those that the
    ``follower`` is about have lost what evaluations cost, so it and the run need not fit together. Raises
    InvalidInputError if the first candidate cannot be run.
    """
    later = follower.charges if follower else {}
    room_later = await ask(follower.spec, later) if follower else {}
    preferred: Priced | None = None
    short_first: list[str] = []
    refused: dict[str, list[Cost]] = {}
    while (candidate := await asyncio.to_thread(next, candidates, None)) is not None:
        try:
            alone = await asyncio.to_thread(price, candidate.spec)
        except InvalidInputError:
            if preferred is None:
                raise
            continue
        join = larger if candidate.spec.charged_rows == "training" else operator.add  # a record is in one kind of rows
        charges = {
            name: _together(charge, later[name], join) if name in later else charge for name, charge in alone.items()
        }
        costs = {name: charge for name, charge in alone.items() if isinstance(charge, Cost)}
        payable = all(isinstance(charge, Cost) for charge in charges.values())
        dear = {name for name, cost in costs.items() if any(not least.exceeds(cost) for least in refused.get(name, ()))}
        dear |= {name for name, cost in costs.items() if name in accounts and not accounts[name].fits(cost)}
        room = dict(await ask(candidate.spec, alone)) if preferred is None or not dear else {}
        short = sorted(name for name in costs if not room.get(name, name not in dear))
        room |= {name: fits and room.get(name, True) for name, fits in room_later.items()}
        priced = Priced(candidate, alone, charges, room)
        if preferred is None and (not short or not payable or not all(room_later.values())):
            return priced
        if preferred is None:
            preferred, short_first = priced, short
        elif not short and payable:
            return _in_place_of(preferred, priced, short_first)
        for name in short:
            refused.setdefault(name, []).append(costs[name])
    if preferred is None:
        raise InvalidInputError("there is nothing to choose among")
    return preferred


async def chosen_among(
    candidates: Iterator[Candidate],
    price: Pricing,
    payers: Sequence[PartyClient],
    seconds: float,
    *,
    follower: Callable[[], Follower] | None = None,
) -> Candidate:
    """Return the first candidate that the accounts of the ``payers`` pay for, as `affordable` does.

    They are asked only if there is a choice, and have so many ``seconds`` to answer; one that does not counts as if
    all fitted. ``follower`` works out what follows the run.
    """
    first_two = await asyncio.to_thread(lambda: [*islice(candidates, 2)])
    if len(first_two) == 1 or not payers:
        return first_two[0]
    more = None if follower is None else await asyncio.to_thread(follower)
    reports = await ask_budgets(payers, first_two[0].spec, seconds)
    accounts = {name: report.account for name, report in reports.items()}
    ask = partial(ask_room, payers, seconds)
    return (await affordable(chain(first_two, candidates), price, more, accounts, ask)).candidate


def _in_place_of(preferred: Priced, taken: Priced, short: Sequence[str]) -> Priced:
    """Return the candidate that is taken, with the reason: whose accounts do not pay for the preferred one."""
    before, after = preferred.candidate.spec, taken.candidate.spec
    reasons = dict(taken.candidate.reasons)
    values = {name: (_chosen(before, name), _chosen(after, name)) for name in reasons}
    name = next((name for name, (first, second) in values.items() if first != second), None)
    if name is None:
        return taken
    accounts = f"{short[0]}'s account does" if len(short) == 1 else f"the accounts of {first_names(short)} do"
    why = f"{values[name][0]} would be more accurate, but {accounts} not pay for it"
    reasons[name] = f"{why}; {reasons[name]}"
    return replace(taken, candidate=Candidate(after, reasons, f"{name} = {values[name][1]}: {why}"))


def _chosen(spec: RunSpec, name: str) -> str:
    """Return what a candidate has for a parameter, or for its algorithm, as people read it."""
    value = spec.algorithm if name == "algorithm" else spec.parameters.get(name, "")
    return as_told(value) if isinstance(value, float | int | str) else str(value)


def charges_of(algorithm: Algorithm, facts: FederationFacts, views: Mapping[str, View]) -> dict[str, Charge]:
    """Return the largest charge of a run for each owner, by name.

    An owner without a view has the view of the transcript, the parties' default.
    """

    def charge(index: int, name: str) -> Charge:
        try:
            return highest_charge(algorithm, facts.of(index), views.get(name, "transcript"))
        except BudgetExhaustedError as error:
            return error

    return {name: charge(index, name) for index, name in enumerate(facts.parties)}


def charged(spec: RunSpec, facts: Mapping[str, StudyFacts] | None) -> dict[str, Charge]:
    """Return what a run would be charged to each party at most, by what parties say of themselves."""
    return charges_of(spec.build(), spec.facts(), views_of(facts or {}))


def _together(first: Charge, second: Charge, join: Callable[[Cost, Cost], Cost]) -> Charge:
    """Return the charge of two runs, whose costs ``join`` makes one, or why no budget allows one of them."""
    if isinstance(first, Cost) and isinstance(second, Cost):
        return join(first, second)
    return second if isinstance(first, Cost) else first


async def ask_budgets(members: Sequence[PartyClient], run: RunSpec, seconds: float) -> dict[str, BudgetReport]:
    """Ask parties, once, for the account that pays for a run; without those that do not say, by name."""
    study, rows = run.study.digest, run.charged_rows
    reports = await ask_all(members, lambda party: party.budget(study, rows), seconds, once=True)
    return {
        party.name: report for party, report in zip(members, reports, strict=True) if isinstance(report, BudgetReport)
    }


async def ask_room(
    members: Sequence[PartyClient], seconds: float, run: RunSpec, charges: Mapping[str, Charge]
) -> dict[str, bool]:
    """Ask as an `AskRoom` does; without the parties that do not say."""
    costs = {name: charge for name, charge in charges.items() if isinstance(charge, Cost)}
    charged = [party for party in members if party.name in costs]
    study, rows = run.study.digest, run.charged_rows
    answers = await ask_all(charged, lambda party: party.room(study, costs[party.name], rows), seconds, once=True)
    return {party.name: fits for party, fits in zip(charged, answers, strict=True) if isinstance(fits, bool)}


async def ask_nobody(_run: RunSpec, _charges: Mapping[str, Charge]) -> dict[str, bool]:
    """Return no answer: an `AskRoom` without parties."""
    return {}
