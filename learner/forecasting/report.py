"""Forecasts what a run would achieve, cost and take, from public facts and without data.

The figures are those of `parley.common.forecast.forecast`, and the charges those of `parley.common.runs.pricing`. The
service adds what only it can find out: the sizes of its parties' shards, their adversary views, what is left in their
ledgers, and how long a round takes. Of its ledger a party tells what this learner's own runs have left, and whether the
run fits into what all runs have left: no more, so that a learner finds out nothing of what others ask.

A forecast also lists the objections of each party: the rules of its owner, as far as it states them, by which it would
refuse the run. So a user sees them before any party is asked to approve the run. By the same review `Foresight.check`
refuses a run that is submitted, for what the parties that answer would refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain, islice, repeat
from typing import Any

import numpy as np

from parley.common.algorithms import fixed_parameters
from parley.common.client.affordable import (
    AskRoom,
    Candidate,
    Charge,
    Follower,
    affordable,
    ask_budgets,
    ask_nobody,
    ask_room,
    charged,
)
from parley.common.client.approval import enlist
from parley.common.client.party import PartyClient
from parley.common.errors import BudgetExhaustedError, InvalidInputError, ParleyError
from parley.common.forecast.forecast import Forecast, NoForecast, forecast
from parley.common.privacy.account import DELTA_UNITS, MICRO, Account, Cost, exhausted
from parley.common.privacy.guarantee import UNIT_NAMES
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.consent import Objection, OwnerRules, ReviewedRun, dear
from parley.common.runs.evaluation import EVALUATE
from parley.common.runs.pricing import costs_of, limit_of, promised_to_shared
from parley.common.runs.self_evaluation import SelfEvaluation, keep_for_evaluation
from parley.common.runs.specification import Budget, Cohort, Member, RunSpec
from parley.common.service.settings import Limits
from parley.common.wire.party_api import BudgetReport, StudyFacts
from parley.learner.forecasting.holders import Heard
from parley.learner.forecasting.pure_runs import RunPayers, bought_by_delta, runs_left
from parley.learner.forecasting.remedies import RefusedRun, Reviewed, smaller_runs
from parley.learner.forecasting.selection import candidates, follower_of
from parley.learner.forecasting.views import CostsView, ForecastView, IntervalView, OutcomeView, OwnerView, RunTime
from parley.learner.secure_sum.coordinator import ForeseenSum, SecureSumCoordinator
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.timing import UNKNOWN, RoundTime, round_time


def objections(
    run: ReviewedRun, member: Member, rules: OwnerRules, charge: Charge, foreseen: ForeseenSum | None
) -> dict[str, str]:
    """Return why a party would refuse the run, one reason for each of its owner's rules that the run breaks, by rule.

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
    return reasons


def _of_charge(run: ReviewedRun, rules: OwnerRules, charge: Charge) -> Iterable[Objection]:
    """Return why the party would refuse its charge."""
    if isinstance(charge, Cost):
        return dear(charge, run.algorithm.adjacency_of(run.spec.study.unit), rules)
    return [(charge.kind, charge.detail)]


Choosing = Callable[[RunSpec, Mapping[str, StudyFacts] | None, int], Iterator[Candidate]]
"""Yields the ways to choose what a run leaves open, within so many rounds; `candidates` is one."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """What is to evaluate a run: the draft that was ``asked`` for, or, ``if_useful``, the usual share of its budget.

    ``has_threshold`` says that a rule then chooses the model's threshold.
    """

    asked: RunSpec | None = None
    if_useful: bool = False
    has_threshold: bool = False

    def of(self, run: RunSpec, rules: Mapping[str, OwnerRules]) -> SelfEvaluation:
        """Return what a run, of known sizes, keeps for it; raises what `keep_for_evaluation` does."""
        return keep_for_evaluation(run, rules, self.asked, if_useful=self.if_useful)


_NOTHING = Keeping()


@dataclass(frozen=True, slots=True)
class PartyAnswers:
    """The parties' answers by name, with ``facts`` None if no party is asked; ``foreseen`` is the run's secure sum.

    ``budgets`` are as this learner's own runs have left them. Of parties that are ``away``, whose errors it has, facts
    are those that they stated last.
    """

    facts: Mapping[str, StudyFacts] | None = None
    budgets: Mapping[str, BudgetReport] = field(default_factory=dict)
    foreseen: ForeseenSum | None = None
    away: Mapping[str, ParleyError] = field(default_factory=dict)

    @property
    def accounts(self) -> dict[str, Account]:
        """The accounts of the parties that tell, as this learner's own runs have left them."""
        return {name: report.account for name, report in self.budgets.items()}


@dataclass(frozen=True, slots=True)
class Review:
    """A run with all chosen that was left open, and ``chosen`` says why; the rest is by party's name.

    ``charges`` are for the evaluation too that follows the run, if there is one, and ``room`` says whether they fit
    what all runs have left. ``objections`` are by the owner's rule. ``draft`` is the run with what is left open but its
    algorithm, in at most ``most_rounds`` rounds. ``alone`` are the charges without the
    evaluation, which is charged to other rows; ``evaluation`` is its draft, and ``words`` say what evaluates the model,
    or why nothing does. ``has_threshold`` is as in `Keeping`.
    ``roomy`` is the draft at a smaller epsilon that everybody's runs leave room for, where they leave none for the run.
    ``instead`` is as in `Candidate`. ``follower`` is the evaluation, and ``held_out`` are the accounts that pay for it,
    as far as parties tell.
    """

    spec: RunSpec
    chosen: Mapping[str, str]
    charges: Mapping[str, Charge]
    objections: Mapping[str, dict[str, str]]
    room: Mapping[str, bool]
    answers: PartyAnswers
    draft: RunSpec
    most_rounds: int
    alone: Mapping[str, Charge] = field(default_factory=dict)
    evaluation: RunSpec | None = None
    words: str | None = None
    has_threshold: bool = False
    roomy: RunSpec | None = None
    instead: str | None = None
    follower: Follower | None = None
    held_out: Mapping[str, Account] = field(default_factory=dict)

    @property
    def whole(self) -> RunSpec:
        """The draft at the budgets that were asked for, a part of them for an evaluation that is not charged apart."""
        if self.evaluation is None or self.draft.charged_rows == "training":
            return self.draft
        kept = {member.name: member.budget for member in self.evaluation.parties}

        def both(own: Budget, part: Budget) -> Budget:
            return own.model_copy(update={"epsilon": own.epsilon + part.epsilon, "delta": own.delta + part.delta})

        return self.draft.with_budgets(
            {member.name: both(member.budget, kept[member.name]) for member in self.draft.parties}
        )

    def account(self, name: str) -> Account | None:
        """Return a party's account as this learner's own runs have left it; None if it does not tell."""
        return self.answers.budgets[name].account if name in self.answers.budgets else None

    def refused(self) -> RefusedRun | None:
        """Return the run with why parties would refuse it; None if none would."""
        if not (refusals := self.refusals()):
            return None
        accounts = {name: account for name, account in self.answers.accounts.items() if name not in self.crowded()}
        return RefusedRun(
            self.whole, refusals, self.answers.facts or {}, accounts, self.reviewed_again, roomy=self.roomy
        )

    def reviewed_again(self, draft: RunSpec) -> Iterator[Reviewed]:
        """Yield the charges and objections of a run on other terms, by the same answers, for each way to choose."""
        for way in self.ways(draft):
            charges = charged(way.spec, self.answers.facts)
            yield charges, _objected(way.spec, charges, self.answers)

    def ways(self, draft: RunSpec) -> Iterator[Candidate]:
        """Yield the ways to choose what a run on other terms leaves open, the most accurate first."""
        return candidates(draft, self.answers.facts, self.most_rounds, any_algorithm=False)

    def crowded(self) -> set[str]:
        """Return the parties whose accounts would pay for the run if others had not spent or reserved too much."""
        accounts, costs = self.answers.accounts, {**self.charges, **self.alone}
        return {
            name
            for name, fits in self.room.items()
            if not fits and name in accounts and isinstance(cost := costs[name], Cost) and accounts[name].fits(cost)
            if self.follows(name) is None
        }

    def follows(self, name: str) -> str | None:
        """Return why the evaluation does not fit what this learner's own runs have left of rows held out, or None."""
        later, account = self.follower and self.follower.charges.get(name), self.held_out.get(name)
        if not isinstance(later, Cost) or account is None or account.fits(later):
            return None
        return f"the evaluation that follows, of the rows held out: {_lacking(account, later)}"

    def lacking(self, name: str) -> dict[str, str]:
        """Return why the charges do not fit what a party has left, by rule; nothing if they do, or it does not say."""
        charge, own = self.alone.get(name, self.charges[name]), self.account(name)
        if not isinstance(charge, Cost) or self.room.get(name) is not False:
            return {}
        fits = own is None or own.fits(charge)
        if fits and (follows := self.follows(name)) is not None:
            return {f"{EVALUATE}.{BudgetExhaustedError.kind}": follows}
        return {BudgetExhaustedError.kind: _lacking(own, charge)}

    def more_runs(self, name: str) -> int | None:
        """Return how many more runs like this one, with its evaluation, a party's account would pay for after it."""
        charge, own = self.alone.get(name, self.charges[name]), self.account(name)
        if own is None or not isinstance(charge, Cost) or not self.room.get(name) or not own.fits(charge):
            return None
        later, held_out = self.follower and self.follower.charges.get(name), self.held_out.get(name)
        counts = [runs_left(own, charge)]
        if isinstance(later, Cost) and held_out is not None:
            counts.append(runs_left(held_out, later))
        return max(0, min(counts) - 1)

    def refusals(self) -> dict[str, dict[str, str]]:
        """Return why parties would refuse the run, by party and rule: of those alone that answer now."""
        refused = {}
        for name in self.charges:
            reasons = dict(self.objections.get(name, {}))
            reasons |= self.lacking(name)
            if reasons and name not in self.answers.away:
                refused[name] = reasons
        return refused


async def foresee_owners(
    draft: RunSpec, sizes: Mapping[str, int], seconds: float, *, settle: Choosing, keeping: Keeping = _NOTHING
) -> ForecastView:
    """Return the forecast of a run among owners of these sizes, without asking them; raises InvalidInputError.

    ``seconds`` is how long the run's rounds may take.
    """
    review = await _review(draft.with_sizes(sizes), PartyAnswers(), UNKNOWN, seconds, settle=settle, keeping=keeping)
    return await _foresee(review, UNKNOWN)


@dataclass(frozen=True, slots=True)
class Foresight:
    """What forecasts and reviews are made with: the parties by name, the store, and how long parties may take.

    ``settle`` chooses what runs leave open.
    """

    roster: Mapping[str, PartyClient]
    store: RunStore
    sums: SecureSumCoordinator
    deadline: float
    settle: Choosing

    async def forecast(  # noqa: PLR0913 -- a run, what is known of its parties, and what is guessed
        self,
        draft: RunSpec,
        heard: Heard,
        seconds: float,
        *,
        cohort: Cohort | None = None,
        keeping: Keeping = _NOTHING,
        rows_per_person: float = 1.0,
    ) -> ForecastView:
        """Return the forecast of a run among its parties; of those that are away, by what they said last.

        For a ``cohort`` it is among the parties that answer now. ``seconds`` is how long the run's rounds may take. The
        budgets of parties that report none are left out. ``keeping`` says what evaluates it. ``rows_per_person`` is a
        guess that the time allows for; how many rounds are chosen does not depend on it.

        Raises the errors of `enlist`, and InvalidInputError.
        """
        said = [
            heard.silent[name] if cohort and name in heard.silent else heard.about(name, draft.study)
            for name in draft.names
        ]
        recruited = await asyncio.to_thread(enlist, "", draft, said, cohort)
        answers = await self._ask(recruited.spec, recruited.facts, heard)
        members = [self.roster[name] for name in recruited.spec.names if name not in answers.away]
        time = await round_time(recruited.spec, members, self.store, self.deadline)
        reviewed = await self._reviewed(recruited.spec, answers, time, seconds, keeping, cohort=cohort)
        return await _foresee(reviewed, time.if_each_has(rows_per_person))

    async def check(  # noqa: PLR0913 -- as above
        self,
        draft: RunSpec,
        heard: Heard,
        seconds: float,
        *,
        cohort: Cohort | None = None,
        keeping: Keeping = _NOTHING,
        any_algorithm: bool = False,
    ) -> None:
        """Raise ForeseenRefusalError for a run that its parties would refuse, InvalidInputError for one that cannot be.

        A party that is away, or that says nothing of the study, refuses nothing here. For a ``cohort`` it is refused if
        too few parties would take part, by the rules that they state: it asks none about its budget.
        """
        said = {name: heard.about(name, draft.study) for name in draft.names}
        facts = {name: stated for name, stated in said.items() if isinstance(stated, StudyFacts)}
        if not facts:
            return
        spec = await asyncio.to_thread(_sized, draft, facts)
        answers = await self._ask(spec, facts, heard, budgets=cohort is None)
        members = [self.roster[name] for name in facts if name not in answers.away]
        time = UNKNOWN
        if any_algorithm or "n_rounds" in (await asyncio.to_thread(spec.settled))[1]:
            time = await round_time(spec, members, self.store, self.deadline)
        reviewed = await self._reviewed(spec, answers, time, seconds, keeping, cohort=cohort, budgets=cohort is None)
        refused = reviewed.refused()
        if refused and (cohort is None or len(draft.names) - len(refused.refusals) < cohort.least):
            raise await asyncio.to_thread(refused.error)

    async def _ask(
        self, spec: RunSpec, facts: Mapping[str, StudyFacts], heard: Heard, *, budgets: bool = True
    ) -> PartyAnswers:
        """Ask those that answer for the keys that they pin, and for their ``budgets`` unless these do not count."""
        away = {name: heard.silent[name] for name in spec.names if name in heard.silent}
        members = [self.roster[name] for name in spec.names if name in facts and name not in away]
        budget_reports = ask_budgets(members if budgets else [], spec, self.deadline)
        if spec.secure_sum == "none":
            reports, foreseen = await budget_reports, None
        else:
            reports, foreseen = await asyncio.gather(budget_reports, self.sums.foresee(members, self.deadline))
        return PartyAnswers(facts, reports, foreseen, away)

    async def _reviewed(  # noqa: PLR0913 -- a run, and all that is known of it
        self,
        spec: RunSpec,
        answers: PartyAnswers,
        time: RoundTime,
        seconds: float,
        keeping: Keeping,
        *,
        cohort: Cohort | None,
        budgets: bool = True,
    ) -> Review:
        """Review a run, whose parties are asked whether its charge fits, unless their ``budgets`` do not count.

        Of a ``cohort`` those that would refuse take no part, so their accounts change nothing that is chosen.
        """
        payers = (answers.facts or {}) if budgets else ()
        members = [self.roster[name] for name in payers if name not in answers.away]
        ask = partial(ask_room, members, self.deadline)

        def settle(*terms: Any) -> Iterator[Candidate]:  # noqa: ANN401 -- those of `Choosing`
            return islice(self.settle(*terms), 1 if cohort else None)

        async def accounts(run: RunSpec) -> Mapping[str, Account]:
            reports = await ask_budgets(members, run, self.deadline)
            return {name: report.account for name, report in reports.items()}

        return await _review(
            spec, answers, time, seconds, settle=settle, ask=ask, ask_accounts=accounts, keeping=keeping
        )


def _sized(draft: RunSpec, facts: Mapping[str, StudyFacts]) -> RunSpec:
    """Return the draft with the parties' sizes; those that are not known count as the largest of the others.

    Raises InvalidInputError if too few rows can be held out.
    """
    sizes = {name: stated.n_examples for name, stated in facts.items()}
    draft.among(facts).with_sizes(sizes)
    return draft.with_sizes({name: sizes.get(name, max(sizes.values())) for name in draft.names})


async def _review(  # noqa: PLR0913 -- the run, what is known of its parties, and what decides
    draft: RunSpec,
    answers: PartyAnswers,
    time: RoundTime,
    seconds: float,
    *,
    settle: Choosing,
    keeping: Keeping = _NOTHING,
    ask: AskRoom = ask_nobody,
    ask_accounts: Callable[[RunSpec], Awaitable[Mapping[str, Account]]] | None = None,
) -> Review:
    """Return the review of a run. Its parts run in threads, because a thousand owners take a second."""
    kept = await asyncio.to_thread(keeping.of, draft, answers.facts or {})
    evaluation = kept.evaluation or keeping.asked
    follower: Follower | None = None
    if evaluation is not None:
        follower = await asyncio.to_thread(follower_of, evaluation, kept.run, answers.facts)
    held_out = await ask_accounts(follower.spec) if follower and ask_accounts else {}
    most_rounds = time.rounds_in(seconds)
    ways = settle(kept.run, answers.facts, most_rounds)
    price = partial(charged, facts=answers.facts)
    priced = await affordable(ways, price, follower, answers.accounts, ask)
    spec = priced.candidate.spec
    objected = await asyncio.to_thread(_objected, spec, priced.alone, answers)
    if follower is not None:
        await asyncio.to_thread(_object_later, follower, answers, objected)
    review = Review(
        spec,
        priced.candidate.reasons,
        priced.charges,
        objected,
        priced.room,
        answers,
        kept.run if kept.run.algorithm == spec.algorithm else spec.model_copy(update={"parameters": {}}),
        most_rounds,
        priced.alone,
        evaluation,
        kept.words,
        keeping.has_threshold,
        instead=priced.candidate.instead,
        follower=follower,
        held_out=held_out,
    )
    return replace(review, roomy=await _roomy(review, ask)) if review.crowded() else review


async def _roomy(review: Review, ask: AskRoom) -> RunSpec | None:
    """Return the run at the largest of a few parts of its epsilon that all runs leave room for; None if none is known.

    The parties at which others leave too little are asked about each part as they were about the run: yes or no.
    """
    answers, crowded = review.answers, review.crowded()

    async def ask_crowded(run: RunSpec, charges: Mapping[str, Charge]) -> Mapping[str, bool]:
        return await ask(run, {name: charge for name, charge in charges.items() if name in crowded})

    price = partial(charged, facts=answers.facts)
    for draft in smaller_runs(review.whole):
        try:
            priced = await affordable(review.ways(draft), price, None, answers.accounts, ask_crowded)
        except InvalidInputError:
            continue
        if all(isinstance(charge, Cost) for charge in priced.charges.values()) and all(map(priced.room.get, crowded)):
            return draft
    return None


def _objected(spec: RunSpec, charges: Mapping[str, Charge], answers: PartyAnswers) -> dict[str, dict[str, str]]:
    """Return what parties that stated their rules object to in a run that is charged so, by name and rule."""
    stated, run = answers.facts or {}, ReviewedRun.of(spec)
    return {
        member.name: objections(run, member, stated[member.name], charges[member.name], answers.foreseen)
        for member in spec.parties
        if member.name in stated
    }


def _object_later(follower: Follower, answers: PartyAnswers, objected: Mapping[str, dict[str, str]]) -> None:
    """Add to what parties object to in a run what they object to in the evaluation that follows it alone."""
    for name, reasons in _objected(follower.spec, follower.charges, answers).items():
        new = {rule: why for rule, why in reasons.items() if why not in objected[name].values()}
        objected[name].update({f"{EVALUATE}.{rule}": why for rule, why in new.items()})


async def _foresee(review: Review, time: RoundTime) -> ForecastView:
    """Return the forecast of a reviewed run."""
    spec, answers = review.spec, review.answers
    algorithm, facts = spec.build(), spec.facts()
    outcome = await asyncio.to_thread(_forecast, algorithm, facts, review.has_threshold)
    costs = costs_of(spec, getattr(Limits(), limit_of(spec)))
    refused = review.refused()
    owners = tuple(_owners(review, facts, outcome))
    return ForecastView(
        algorithm=spec.algorithm,
        parameters=spec.parameters,
        chosen=dict(review.chosen),
        rounds=len(spec.questions()),
        unit=UNIT_NAMES[spec.study.unit],
        evaluation=review.words,
        shared=await asyncio.to_thread(promised_to_shared, algorithm, facts),
        outcome=OutcomeView.of(outcome) if isinstance(outcome, Forecast) else None,
        no_forecast=outcome.reason if isinstance(outcome, NoForecast) else None,
        owners=owners,
        more_runs=None
        if refused or any(owner.fits is False for owner in owners)
        else min((owner.more_runs for owner in owners if owner.more_runs is not None), default=None),
        instead=review.instead,
        delta_buys=await asyncio.to_thread(_bought, review),
        helps=await asyncio.to_thread(refused.helpful_options) if refused else (),
        key_holders=answers.foreseen.hindrances_of(costs.answered, len(spec.parties)) if answers.foreseen else (),
        run_time=RunTime.of(time, len(spec.questions())),
        costs=CostsView.of(costs),
    )


def _bought(review: Review) -> str | None:
    """Say what a small delta would buy a run that spends none; None if that is not worth telling."""
    payers = RunPayers(review.answers.facts or {}, review.answers.accounts)
    return bought_by_delta(review.spec, fixed_parameters(review.draft.parameters), payers, review.ways)


def _forecast(algorithm: Algorithm, facts: FederationFacts, has_threshold: bool) -> Forecast | NoForecast:  # noqa: FBT001
    """Return the forecast; it has no figures if the noise is beyond the range of numbers."""
    with np.errstate(all="ignore"):
        return forecast(algorithm, facts, has_threshold=has_threshold)


def _owners(review: Review, facts: FederationFacts, outcome: Forecast | NoForecast) -> Iterator[OwnerView]:
    """Yield for each owner what the run would cost and bring it, and why its party would refuse it."""
    deltas = facts.everyone.own_delta.tolist()
    forecasts = outcome.owners if isinstance(outcome, Forecast) else repeat(None)
    for member, delta, owner_forecast in zip(review.spec.parties, deltas, forecasts, strict=False):
        charge, now = review.charges[member.name], review.account(member.name)
        cost = charge if isinstance(charge, Cost) else None
        fits = review.room.get(member.name)
        away = review.answers.away.get(member.name)
        due = review.alone.get(member.name, charge)
        after = (now, due) if now and isinstance(due, Cost) and fits and now.fits(due) else None
        yield OwnerView(
            name=member.name,
            n_examples=member.n_examples,
            epsilon=cost and cost.epsilon / MICRO,
            delta=cost.delta / DELTA_UNITS if cost else delta,
            epsilon_now=now and now.epsilon_left,
            epsilon_left=after and _epsilon_after(*after),
            more_runs=review.more_runs(member.name),
            fits=fits,
            exhausted=next(iter(review.lacking(member.name).values()), None),
            objections=tuple(review.objections.get(member.name, {}).values()),
            away=away and away.detail,
            value=owner_forecast and owner_forecast.value,
            recommended=owner_forecast and owner_forecast.recommended,
            alone=owner_forecast and IntervalView.of(owner_forecast.alone),
            worth_joining=owner_forecast and owner_forecast.worth_joining,
        )


@lru_cache(maxsize=4096)  # many owners of a run have equal accounts
def _epsilon_after(account: Account, cost: Cost) -> float:
    """Return the epsilon that is left for one more run after one of this cost."""
    return account.charge(cost).epsilon_left


def _lacking(own: Account | None, cost: Cost) -> str:
    """Return why a cost does not fit a ledger; ``own`` is its account as this learner's own runs have left it."""
    if own is not None and not own.fits(cost):
        return f"as far as your own runs go, {exhausted(own, cost).detail}"
    epsilon, delta = cost.epsilon / MICRO, cost.delta / DELTA_UNITS
    return (
        f"epsilon {epsilon:g}, delta {delta:g} are asked for; other studies or learners of this owner have spent or "
        "reserved what your own runs have left"
    )
