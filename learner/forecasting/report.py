"""Forecasts what a run would achieve, cost and take, from public facts and without data.

The figures are those of `parley.common.forecast.forecast`, and the charges those of `parley.common.runs.pricing`. The
service adds what only it can find out: the sizes of its parties' shards, their adversary views, what is left in their
ledgers, and how long a round takes. Of its ledger a party tells what this learner's own runs have left, and whether the
run fits into what all runs have left: no more, so that a learner finds out nothing of what others ask.

A forecast also lists the objections of each party: the rules of its owner, as far as it states them, by which it would
refuse the run. So a user sees them before any party is asked to approve the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, repeat

import numpy as np

from parley.common.client.approval import recruit, views_of, with_sizes
from parley.common.client.party import PartyClient
from parley.common.client.peer import ask_all
from parley.common.errors import BudgetExhaustedError
from parley.common.forecast.forecast import Forecast, NoForecast, forecast
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Cost, exhausted
from parley.common.privacy.guarantee import View
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.consent import Objection, OwnerRules, ReviewedRun, dear
from parley.common.runs.pricing import costs_of, highest_charge, limit_of
from parley.common.runs.self_evaluation import SelfEvaluation
from parley.common.runs.specification import Cohort, Member, RunSpec
from parley.common.service.settings import Limits
from parley.common.wire.party_api import BudgetReport, StudyFacts
from parley.learner.forecasting.views import CostsView, ForecastView, IntervalView, OutcomeView, OwnerView, RunTime
from parley.learner.secure_sum.coordinator import ForeseenSum, SecureSumCoordinator
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.timing import UNKNOWN, RoundTime, round_time

Charge = Cost | BudgetExhaustedError
"""What a run would be charged to a party at most, or why no budget allows it."""


def objections(
    run: ReviewedRun, member: Member, rules: OwnerRules, charge: Charge, foreseen: ForeseenSum | None
) -> tuple[str, ...]:
    """Return why a party would refuse the run, one reason for each of its owner's rules that the run breaks.

    ``foreseen`` is the run's secure sum.
    """
    pins = foreseen.pins.get(member.name) if foreseen else None
    pinned = () if foreseen is None else run.spec.names if pins is None else pins.known
    broken = chain(
        run.objections(member, rules, pinned),
        _of_charge(run, rules, charge),
        foreseen.objections(member.name, rules) if foreseen else (),
    )
    reasons: dict[str, str] = {}
    for rule, reason in broken:
        reasons.setdefault(rule, reason)
    return tuple(reasons.values())


def _of_charge(run: ReviewedRun, rules: OwnerRules, charge: Charge) -> Iterable[Objection]:
    """Return why the party would refuse its charge."""
    if isinstance(charge, Cost):
        return dear(charge, run.algorithm.adjacency, rules)
    return [(charge.kind, charge.detail)]


Choosing = Callable[[RunSpec, Mapping[str, StudyFacts] | None, int], tuple[RunSpec, dict[str, str]]]
"""Chooses what a run leaves open, within so many rounds, and gives the reasons; `settled` is one."""


Keeping = Callable[[RunSpec, Mapping[str, OwnerRules]], SelfEvaluation]
"""Keeps a part of a run's budget for its evaluation; `keep_for_evaluation` is one."""


def _keep_nothing(run: RunSpec, _rules: Mapping[str, OwnerRules]) -> SelfEvaluation:
    """Keep no part of the budget: a `Keeping` of runs that nothing evaluates."""
    return SelfEvaluation(run)


AskRoom = Callable[[Mapping[str, Charge]], Awaitable[Mapping[str, bool]]]
"""Asks the parties whether their charges, by name, fit what all runs have left; their answers are by name."""


async def _ask_nobody(_charges: Mapping[str, Charge]) -> dict[str, bool]:
    """Return no answer: an `AskRoom` without parties."""
    return {}


@dataclass(frozen=True, slots=True)
class _Answers:
    """The parties' answers by name, with ``facts`` None if no party is asked; ``foreseen`` is the run's secure sum.

    ``budgets`` are as this learner's own runs have left them; ``room`` says whether the run fits what all have left.
    """

    facts: Mapping[str, StudyFacts] | None = None
    budgets: Mapping[str, BudgetReport] = field(default_factory=dict)
    foreseen: ForeseenSum | None = None
    room: Mapping[str, bool] = field(default_factory=dict)


async def foresee_owners(
    draft: RunSpec, sizes: Mapping[str, int], seconds: float, *, settle: Choosing, keep: Keeping = _keep_nothing
) -> ForecastView:
    """Return the forecast of a run among owners of these sizes, without asking them; raises InvalidInputError.

    ``seconds`` is how long the run's rounds may take.
    """
    return await _foresee(with_sizes(draft, sizes), _Answers(), UNKNOWN, seconds, settle=settle, keep=keep)


async def foresee_parties(  # noqa: PLR0913 -- the run, its parties, the store, and limits of time
    draft: RunSpec,
    parties: Sequence[PartyClient],
    store: RunStore,
    deadline: float,
    seconds: float,
    *,
    settle: Choosing,
    keep: Keeping = _keep_nothing,
    sums: SecureSumCoordinator,
    cohort: Cohort | None = None,
) -> ForecastView:
    """Return the forecast of a run among parties, which have ``deadline`` seconds to state their sizes and budgets.

    For a ``cohort`` it is among the parties that answer now. ``seconds`` is how long the run's rounds may take. The
    budgets of parties that report none are left out.

    Raises the errors of `recruit`, and InvalidInputError.
    """
    recruited = await recruit("", parties, draft, deadline, cohort)
    members = [party for party in parties if party.name in recruited.facts]
    study = draft.study.digest
    reports = await ask_all(members, lambda party: party.budget(study), deadline)
    budgets = {
        party.name: report for party, report in zip(members, reports, strict=True) if isinstance(report, BudgetReport)
    }
    foreseen = None if draft.secure_sum == "none" else await sums.foresee(members, deadline)
    time = await round_time(recruited.spec, members, store, deadline)
    answers, ask_room = _Answers(recruited.facts, budgets, foreseen), partial(_ask_room, members, study, deadline)
    return await _foresee(recruited.spec, answers, time, seconds, settle=settle, keep=keep, ask_room=ask_room)


async def _ask_room(
    members: Sequence[PartyClient], study: str, deadline: float, charges: Mapping[str, Charge]
) -> dict[str, bool]:
    """Ask as an `AskRoom` does; without the parties that do not say."""
    costs = {name: charge for name, charge in charges.items() if isinstance(charge, Cost)}
    charged = [party for party in members if party.name in costs]
    answers = await ask_all(charged, lambda party: party.room(study, costs[party.name]), deadline)
    return {party.name: fits for party, fits in zip(charged, answers, strict=True) if isinstance(fits, bool)}


async def _foresee(  # noqa: PLR0913 -- the run, what is known of its parties, and what decides
    draft: RunSpec,
    answers: _Answers,
    time: RoundTime,
    seconds: float,
    *,
    settle: Choosing,
    keep: Keeping = _keep_nothing,
    ask_room: AskRoom = _ask_nobody,
) -> ForecastView:
    """Return the forecast of a run. Its parts run in threads, because a thousand owners take a second."""
    most_rounds, views = time.rounds_in(seconds), views_of(answers.facts or {})
    kept = await asyncio.to_thread(keep, draft, answers.facts or {})
    spec, reasons = await asyncio.to_thread(settle, kept.run, answers.facts, most_rounds)
    algorithm, facts = spec.build(), spec.facts()
    outcome = await asyncio.to_thread(_forecast, algorithm, facts)
    charges = await asyncio.to_thread(_charges, algorithm, facts, views)
    answers = replace(answers, room=await ask_room(charges))
    costs = costs_of(spec, getattr(Limits(), limit_of(spec)))
    return ForecastView(
        algorithm=spec.algorithm,
        parameters=spec.parameters,
        chosen=reasons,
        rounds=len(spec.questions()),
        evaluation=kept.words,
        outcome=OutcomeView.of(outcome) if isinstance(outcome, Forecast) else None,
        no_forecast=outcome.reason if isinstance(outcome, NoForecast) else None,
        owners=tuple(_owners(spec, facts, outcome, charges, answers)),
        key_holders=answers.foreseen.hindrances_of(costs.answered, len(spec.parties)) if answers.foreseen else (),
        run_time=RunTime.of(time, len(spec.questions())),
        costs=CostsView.of(costs),
    )


def _forecast(algorithm: Algorithm, facts: FederationFacts) -> Forecast | NoForecast:
    """Return the forecast; it has no figures if the noise is beyond the range of numbers."""
    with np.errstate(all="ignore"):
        return forecast(algorithm, facts)


def _charges(algorithm: Algorithm, facts: FederationFacts, views: Mapping[str, View]) -> dict[str, Charge]:
    """Return the largest charge of the run for each owner, by name.

    An owner without a view has the view of the transcript, the parties' default.
    """

    def charge(index: int, name: str) -> Charge:
        try:
            return highest_charge(algorithm, facts.of(index), views.get(name, "transcript"))
        except BudgetExhaustedError as error:
            return error

    return {name: charge(index, name) for index, name in enumerate(facts.parties)}


def _owners(
    spec: RunSpec,
    facts: FederationFacts,
    outcome: Forecast | NoForecast,
    charges: Mapping[str, Charge],
    answers: _Answers,
) -> Iterator[OwnerView]:
    """Yield for each owner what the run would cost and bring it, and why its party would refuse it."""
    run, party_facts, budgets = ReviewedRun.of(spec), answers.facts or {}, answers.budgets
    deltas = facts.everyone.own_delta.tolist()
    forecasts = outcome.owners if isinstance(outcome, Forecast) else repeat(None)
    for member, delta, owner_forecast in zip(spec.parties, deltas, forecasts, strict=False):
        charge = charges[member.name]
        cost = charge if isinstance(charge, Cost) else None
        now = budgets[member.name].account if member.name in budgets else None
        fits = answers.room.get(member.name)
        yield OwnerView(
            name=member.name,
            n_examples=member.n_examples,
            epsilon=cost and cost.epsilon / MICRO,
            delta=cost.delta / DELTA_UNITS if cost else delta,
            epsilon_now=now and now.epsilon_left,
            epsilon_left=now.charge(cost).epsilon_left if now and cost and fits and now.fits(cost) else None,
            fits=fits,
            exhausted=_lacking(now, cost) if cost and fits is False else None,
            objections=objections(run, member, party_facts[member.name], charge, answers.foreseen)
            if member.name in party_facts
            else (),
            value=owner_forecast and owner_forecast.value,
            recommended=owner_forecast and owner_forecast.recommended,
            alone=owner_forecast and IntervalView.of(owner_forecast.alone),
            worth_joining=owner_forecast and owner_forecast.worth_joining,
        )


def _lacking(own: Account | None, cost: Cost) -> str:
    """Return why a cost does not fit a ledger; ``own`` is its account as this learner's own runs have left it."""
    if own is not None and not own.fits(cost):
        return f"as far as your own runs go, {exhausted(own, cost).detail}"
    epsilon, delta = cost.epsilon / MICRO, cost.delta / DELTA_UNITS
    return (
        f"epsilon {epsilon:g}, delta {delta:g} are asked for; other studies or learners of this owner have spent or "
        "reserved what your own runs have left"
    )
