"""Random courses of runs in several studies: all that was released, composed again, is no more than the ledger says."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy.optimize import brentq
from scipy.stats import norm

from parley.common.errors import BudgetExhaustedError, ParleyError
from parley.common.privacy.account import MICRO, Account, Cost, Price, limit
from parley.common.privacy.events import ApproximateEvent, Event, GaussianEvent, LaplaceEvent
from parley.common.privacy.guarantee import Composition
from parley.common.runs.pricing import price
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.session import Identity
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.accounts import StudyTerms
from parley.party.ledger.books import NOTHING, OWNER
from parley.party.ledger.ledger import Ask, Ledger
from parley.party.ledger.records import Answered, Ended
from tests.support.cluster import made_up
from tests.support.ledgers import KEY, open_ledger
from tests.support.nightly import repeats

COURSES, STEPS = repeats(10, 500), 80
GRID = 2e-3
"""The grid of privacy losses of the composition."""
ROUGH = 1 + 2e-3
"""How much the grid may add to an epsilon: the composition is an upper bound too."""
ROUNDED = 1e-8
"""A part of a budget that rounding a square up, to a unit of 1e-12, is less than."""
LEARNERS = ("ann", "bob", "eve")


# ── the composition, without the account's code ──────────────────────────────


def composed(released: Sequence[Event], delta: float) -> float:
    """The epsilon at ``delta`` of all these events together, by dp_accounting; without a delta the sum of epsilons."""
    if delta == 0:
        return math.fsum(cast("ApproximateEvent", event).epsilon for event in released)
    whole = pld.identity(value_discretization_interval=GRID)
    for event, times in Counter(released).items():
        whole = whole.compose(loss_of(event).self_compose(times))
    return float(whole.get_epsilon_for_delta(delta))


def loss_of(event: Event) -> pld.PrivacyLossDistribution:
    """The privacy loss of one release."""
    match event:
        case GaussianEvent(mu=mu):
            return pld.from_gaussian_mechanism(1 / mu, value_discretization_interval=GRID)
        case LaplaceEvent(epsilon=epsilon):
            return pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=GRID)
        case ApproximateEvent(epsilon=epsilon, delta=delta):
            parameters = pld.common.DifferentialPrivacyParameters(epsilon, delta)
            return pld.from_privacy_parameters(parameters, value_discretization_interval=GRID)
    raise AssertionError(event)


def profile(epsilon: float, mu: float) -> float:
    """The delta of a Gaussian release of this mu at an epsilon (Balle & Wang 2018, Theorem 5)."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def part_of(epsilon: float, delta: float, share: float) -> float:
    """The epsilon at ``delta`` of a share of the mu^2 that has this epsilon."""
    mu = brentq(lambda mu: profile(epsilon, mu) - delta, 1e-4, 50, xtol=1e-14)
    shared = mu * math.sqrt(share)
    return float(brentq(lambda part: profile(part, shared) - delta, 0, epsilon, xtol=1e-12))


# ── a course ─────────────────────────────────────────────────────────────────


@dataclass
class Releases:
    """A run of these events, as `price` asks an algorithm about it."""

    events: tuple[Event, ...]

    def adjacency_of(self, unit: str) -> str:
        return unit

    def questions(self, _: object) -> tuple[Event, ...]:
        return self.events

    def event(self, round: int, _: object) -> Event:
        return self.events[round - 1]

    def claims(self, _: object) -> tuple[()]:
        return ()


@dataclass
class Run:
    """A run that was approved, and the rounds that were answered."""

    learner: str
    name: str
    study: str
    events: tuple[Event, ...]
    price: Price
    answered: list[int] = field(default_factory=list)


@dataclass
class Course:
    """An owner's ledger, what its settings say of studies, and what happens to it."""

    root: Path
    rng: np.random.Generator
    runs: list[Run] = field(default_factory=list)
    refused: int = 0

    def __post_init__(self) -> None:
        rng = self.rng
        self.delta = float(rng.choice([0.0, 1e-6, 1e-5, 1e-3]))
        composition: Composition = "basic" if rng.random() < 0.25 else "filter"
        self.limit = limit(float(rng.uniform(0.5, 8)), self.delta, composition=composition)
        self.terms = self._terms()
        open_ledger(self.root, self.limit).close()
        self.ledger = self.opened()
        self.mus = rng.choice([0.05, 0.08, 0.13, 0.21, 0.34], 2, replace=False).tolist()
        self.epsilons = rng.choice([0.05, 0.1, 0.2, 0.4], 2, replace=False).tolist()

    def _terms(self) -> dict[str, StudyTerms]:
        """Studies of one to three groups of people, some with a share of their account."""
        rng = self.rng
        groups = ["", "ward-7", "clinic"][: rng.integers(1, 4)]
        left = dict.fromkeys(groups, MICRO)
        terms = {}
        for number in range(rng.integers(2, 7)):
            people = str(rng.choice(groups))
            share = int(left[people] * rng.uniform(0.1, 0.6)) if rng.random() < 0.5 else None
            left[people] -= share or 0
            terms[f"study-{number}"] = StudyTerms(people, share)
        return terms

    def opened(self) -> Ledger:
        """The ledger, opened again."""
        return Ledger(self.root, Identity("party", KEY), self.limit, self.terms)

    def new_run(self) -> tuple[str, tuple[Event, ...], Price]:
        """A study, and a run's events and price: Gaussian, pure, pure with a delta, or with slack."""
        rng, study, rounds = self.rng, str(self.rng.choice([*self.terms])), int(self.rng.integers(1, 16))
        kind = str(rng.choice(["gaussian", "gaussian", "mixed", "laplace", "pure", "slack"]))
        own_epsilon, own_delta = float(self.limit.epsilon_limit / MICRO), self.delta * float(rng.choice([0.05, 0.5, 1]))
        mu, epsilon = float(rng.choice(self.mus)), float(rng.choice(self.epsilons))
        events: tuple[Event, ...]
        match kind:
            case "gaussian":
                events = (GaussianEvent(mu),) * rounds
            case "mixed":
                events = tuple(GaussianEvent(float(rng.choice(self.mus))) for _ in range(rounds))
            case "laplace":
                events = (LaplaceEvent(epsilon),) * rounds
            case "pure":
                events = (ApproximateEvent(epsilon),) * rounds
            case _:
                events = (ApproximateEvent(epsilon, self.delta / 200),) * rounds
        if rng.random() < 0.3:  # a delta that pure events do not need, if epsilon is small
            own_epsilon = 1e-3
        facts = SimpleNamespace(own_agreed=(own_epsilon, own_delta), overlap=1, secure_sum=False, unit="replace_one")
        return study, events, price(cast("Any", Releases(events)), cast("Any", facts))

    def step(self, number: int) -> None:
        """Something that happens."""
        rng = self.rng
        kind = rng.choice(
            ["propose", "ask", "ask again", "end", "release", "fail", "own", "fit", "reopen"],
            p=[0.2, 0.58, 0.04, 0.05, 0.03, 0.01, 0.04, 0.03, 0.02],
        )
        if kind in {"propose", "own", "fit"} or not self.runs:
            self._begin(str(kind), number)
            return
        run = self.runs[rng.integers(len(self.runs))]
        match kind:
            case "ask":
                self._ask(run)
            case "ask again" if run.answered:
                self._answer(run, int(rng.choice(run.answered)))
            case "end":
                self.ledger.consents.end(run.learner, run.name)
            case "release":
                self.ledger.consents.release(run.learner, run.name)
            case "fail":
                self.ledger.consents.fail(run.learner, run.name)
            case "reopen":
                self.ledger.close()
                self.ledger = self.opened()

    def _begin(self, kind: str, number: int) -> None:
        """Propose a run, or begin one of the owner's, or a fit."""
        (study, events, price), name = self.new_run(), f"run-{number}"
        learner = OWNER if kind in {"own", "fit"} else str(self.rng.choice(LEARNERS))
        run = Run(learner, name, study, events, price)
        consents = self.ledger.consents
        if kind == "own":
            consents.begin_own(name, "stream", b"{}", len(events), price, study)
        elif kind == "fit":
            consents.charge_fit(name, "fit", b"{}", price, study)
            run.answered = [*range(1, len(events) + 1)]
        else:
            consents.approve(learner, RunProposal(run=name, spec=spec_of(study)), price)
        self.runs.append(run)

    def _ask(self, run: Run) -> None:
        """Ask some next rounds of a run, and skip some."""
        for _ in range(self.rng.integers(1, 6)):
            last = max(run.answered, default=0)
            if last == len(run.events):
                return
            round = min(len(run.events), last + int(self.rng.choice([1, 1, 1, 2, 3])))
            self._answer(run, round)
            run.answered.append(round)

    def _answer(self, run: Run, round: int) -> None:
        ask = Ask(run.learner, run.name, round, f"query {round}")
        self.ledger.rounds.answer(ask, lambda earlier: (b"answer", earlier))

    def released(self, people: str, studies: Iterable[str] | None = None) -> list[Event]:
        """The events of all rounds that were answered about people, in some studies or in all."""
        picked = set(self.terms if studies is None else studies)
        return [
            run.events[round - 1]
            for run in self.runs
            if run.study in picked and self.terms[run.study].people == people
            for round in run.answered
        ]


def spec_of(study: str) -> RunSpec:
    """A specification on a study of this name; what its run costs is said apart."""
    member = Member(name="party", n_examples=40, budget=Budget(epsilon=1.0, delta=1e-5))
    return RunSpec(
        study=made_up(1).model_copy(update={"name": study}),
        algorithm="dp_gd",
        parameters={"n_rounds": 1, "step": 0.1},
        parties=(member,),
        minimum_contributors=1,
    )


# ── what holds ───────────────────────────────────────────────────────────────


def check_account(course: Course, people: str, account: Account) -> float:
    """Compose all that was released about these people: the part of what the account says that it comes to."""
    epsilon = composed(course.released(people), course.delta)
    assert epsilon <= account.epsilon_nonadaptive * ROUGH, (people, account)
    assert epsilon <= account.epsilon_limit / MICRO * ROUGH, (people, account)
    return epsilon / account.epsilon_nonadaptive if epsilon else 0.0


def check_parts(course: Course, people: str) -> int:
    """Compose what was released in each study with a share, and in the rest, against its part; how many there are."""
    mine = {study: terms.share for study, terms in course.terms.items() if terms.people == people}
    shares = {study: share / MICRO for study, share in mine.items() if share}
    parts: list[tuple[list[str], float]] = [([study], share) for study, share in shares.items()]
    if shares:
        parts.append(([study for study in mine if study not in shares], 1 - sum(shares.values())))
    for studies, share in parts:
        released = course.released(people, studies)
        if not released:
            continue
        epsilon, delta = course.limit.epsilon_limit / MICRO, course.delta
        if course.limit.composition == "basic" or not delta:
            most, at = epsilon * share, delta * share
        else:
            most, at = part_of(epsilon, delta / 2, share), (1 + share) * delta / 2
        assert composed(released, at) <= most * ROUGH, (studies, share)
    return len(parts)


def check_lines(course: Course) -> None:
    """Compare the account with the sum of its lines, and with that of the records, in whole units."""
    people_of = {(run.learner, run.name): course.terms[run.study].people for run in course.runs}
    charged: dict[str, Cost] = defaultdict(lambda: NOTHING)
    for entry in course.ledger.entries():
        if isinstance(entry.record, Answered | Ended):
            charged[people_of[entry.record.learner, entry.record.run]] += entry.record.cost
    books = course.ledger.books
    for statement in course.ledger.statements():
        account = statement.account
        uses = [use for key, use in books.uses.items() if key.people == statement.people]
        assert account.spent == charged[statement.people] == sum((use.spent for use in uses), NOTHING)
        assert account.reserved == sum((use.reserved for use in uses), NOTHING)
        assert math.fsum(account.parts.values()) == pytest.approx(1, abs=ROUNDED)
        for whole, lines in (
            (account.parts["spent"], [usage.spent for usage in statement.usages]),
            (account.parts["reserved"], [usage.reserved for usage in statement.usages]),
        ):
            assert math.fsum(lines) == pytest.approx(whole, abs=ROUNDED), (statement, account.parts)


@pytest.mark.slow
def test_all_that_was_released_is_no_more_than_the_ledger_says(tmp_path: Path) -> None:
    ratios: list[float] = []
    counts: Counter[str] = Counter()
    for number in range(COURSES):
        course = Course(tmp_path / str(number), np.random.default_rng([41, number]))
        for step in range(STEPS):
            try:
                course.step(step)
            except BudgetExhaustedError:
                counts["refused by the budget"] += 1
            except ParleyError as error:
                counts[type(error).__name__] += 1
        for people, account in course.ledger.books.accounts.items():
            ratios.append(check_account(course, people, account))
            counts["parts"] += check_parts(course, people)
        check_lines(course)
        counts["runs"] += len(course.runs)
        counts["rounds"] += sum(len(run.answered) for run in course.runs)
        course.ledger.close()
    at_most = max(ratios)
    print(f"{COURSES} random courses, {len(ratios)} accounts, {dict(counts)}: 0 beyond what the ledger says")
    print(f"  composed again, at most {at_most:.4f} of it, in the mean {np.mean([r for r in ratios if r]):.3f}")
    assert counts["refused by the budget"] > COURSES, "budgets are reached"
