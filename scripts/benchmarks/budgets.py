"""How many runs fit a budget, by kind and in mixed courses, beside the most that any account could allow.

    python -m scripts.benchmarks.budgets [--epsilon 5]

A column each for what an account takes with its defaults, for the ceiling, their ratio, and for what it takes if
epsilons add up (``composition = "basic"``). The ceiling is what dp_accounting composes, for runs that do not depend on
answers, from the worst pair of each release (`scripts.benchmarks.worst_pairs`): an account under which answers may
choose the next run can allow no more. Both count the same releases.

Runs are larger if the budget is: a kind's epsilon is a part of the budget's. In a course, *half by* a kind means as
many runs of it as of the other, in proportion to how many of each the ceiling allows alone. Runs follow each other as a
course's name says, and what counts is how many fit in all. The exit code is 1 if a kind is below `KIND_BAR`, or a
course below `COURSE_BAR`.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import Any, cast

import numpy as np

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.evaluate import Evaluate
from parley.common.algorithms.psgd import Psgd
from parley.common.algorithms.release import Releases
from parley.common.errors import BudgetExhaustedError
from parley.common.learning.losses import Logistic, Loss, Softmax, bounded_slope
from parley.common.privacy.account import Cost, limit
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.events import DrawEvent
from parley.common.privacy.guarantee import Composition
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.runs.pricing import price
from scripts.benchmarks.worst_pairs import (
    WorstPair,
    all_of,
    draws,
    either,
    gaussian,
    l2_laplace,
    laplace,
    most,
    objective,
    together,
)

KIND_BAR, COURSE_BAR = 0.85, 0.75
DELTA = 1e-5
BUDGETS = 1.0, 5.0
N, D, CLASSES, ROWS, ROUNDS = 2_000, 16, 3, 50, 10

LOSS = Logistic()

Released = Callable[[Any, OwnFacts], Mapping[WorstPair, int]]
"""The releases of a run of an algorithm, of the class that its name means."""


@dataclass(frozen=True)
class Kind:
    """A kind of run: its algorithm and its own budget, ``epsilon`` as a part of the account's, and its releases."""

    name: str
    algorithm: str
    parameters: Mapping[str, Any]
    epsilon: float
    delta: float
    releases: Released
    loss: Loss = LOSS
    d: int = D

    def run(self, epsilon: float) -> Run:
        """Return a run of this kind under an account of this epsilon."""
        public = np.random.default_rng(1).uniform(-0.2, 0.2, (ROWS, self.d))
        rows = public if self.algorithm.startswith("ensemble") else public[: self.loss.outputs]
        facts = FederationFacts.uniform(
            np.full(2, N), epsilon=self.epsilon * epsilon, delta=self.delta, n_features=self.d, loss=self.loss,
            public=rows, public_shape=rows.shape,
        )  # fmt: skip
        plain = build_algorithm(self.algorithm, dict(self.parameters))
        chosen = type(plain).choose(facts, dict(self.parameters), ROUNDS)
        values = {name: choice.value for name, choice in chosen.items()}
        return Run(self, build_algorithm(self.algorithm, dict(self.parameters) | values), facts.of(0))


@dataclass(frozen=True, eq=False)
class Run:
    """A run whose price and worst pair are counted."""

    kind: Kind
    algorithm: Algorithm
    facts: OwnFacts

    @cached_property
    def cost(self) -> Cost:
        """What it costs an account."""
        return price(self.algorithm, self.facts).total

    @cached_property
    def pair(self) -> WorstPair:
        """The worst pair of all its releases."""
        releases = self.kind.releases(self.algorithm, self.facts)
        return next(iter(releases)) if sum(releases.values()) == 1 else all_of(releases)


# ── kinds ────────────────────────────────────────────────────────────────────


def epsilon_of(facts: OwnFacts) -> float:
    """Return the run's own epsilon."""
    return float(facts.own_epsilon)


def gaussian_run(_: Algorithm, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return the release of all Gaussian answers together."""
    return {gaussian(gaussian_mu(epsilon_of(facts), float(facts.own_delta))): 1}


def by_objective(algorithm: Releases, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return the exact minimiser, and the blur that hides the solver's error."""
    site = cast("ObjectivePerturbation", algorithm.own_sites(facts)[0])
    determinant = math.log1p(facts.loss.smoothness / site.strength)
    blur = gaussian_mu(FOR_THE_SOLVER * site.epsilon, FOR_THE_SOLVER * float(facts.own_delta))
    return {objective(2 * bounded_slope(facts.loss) / site.tilt, determinant): 1, gaussian(blur): 1}


def one_l2_laplace(_: Algorithm, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return one release of all weights."""
    return {l2_laplace(epsilon_of(facts), facts.n_weights): 1}


def by_centroids(_: Algorithm, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return a record's move by 2 within a class, or by 1 in two of them."""
    epsilon, d = epsilon_of(facts), facts.n_features
    two = all_of({l2_laplace(epsilon / 2, d): 2})
    return {either(l2_laplace(epsilon, d), two): 1}


def by_psgd(algorithm: Psgd, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return what is seen of each round."""
    return {l2_laplace(algorithm.slack(facts)[1], facts.n_features): algorithm.n_rounds}


def by_votes(_: Algorithm, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return a party's vote on each row: it moves one count by one."""
    return {laplace(epsilon_of(facts) / ROWS): ROWS}


def drawn(algorithm: Algorithm, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return all draws, which the first round pays for."""
    event = cast("DrawEvent", algorithm.event(1, facts))
    return {draws(event.spread, event.draws): 1}


def by_rounds(_: Algorithm, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return Laplace noise on sums that a record moves by as much in the 1-norm, at worst in one number."""
    return {laplace(epsilon_of(facts) / ROUNDS): ROUNDS}


def evaluated(algorithm: Evaluate, facts: OwnFacts) -> Mapping[WorstPair, int]:
    """Return two rounds, a record moving two counts by one in both."""
    parts = [algorithm.part(round, facts) for round in (1, 2)]
    return Counter([laplace(part * epsilon_of(facts) / 2) for part in parts for _ in range(2)])


INSIDE = {"mechanism": "objective", "law": "gaussian"}
OUTSIDE = {"mechanism": "output"}
KINDS = (
    Kind("dp_gd", "dp_gd", {"n_rounds": ROUNDS}, 0.1, 1e-6, gaussian_run),
    Kind("objective", "release", INSIDE, 0.1, 1e-6, by_objective),
    Kind("small objective", "release", INSIDE, 0.04, 1e-7, by_objective),
    Kind("large objective", "release", INSIDE, 0.2, 1e-6, by_objective),
    Kind("output, Gaussian", "release", OUTSIDE | {"law": "gaussian"}, 0.1, 1e-6, gaussian_run),
    Kind("output, pure", "release", OUTSIDE | {"law": "l2_laplace"}, 0.1, 0.0, one_l2_laplace),
    Kind("centroids, pure", "release", {"mechanism": "centroids", "law": "l2_laplace"}, 0.1, 0.0, by_centroids,
         loss=Softmax(CLASSES), d=64),
    Kind("psgd", "psgd", {"n_rounds": ROUNDS, "calibration": "better_branch"}, 0.02, 1e-6, by_psgd),
    Kind("votes, pure", "ensemble_vote", {"auxiliary_rows": ROWS}, 0.1, 0.0, by_votes),
    Kind("votes, Gaussian", "ensemble_vote", {"auxiliary_rows": ROWS}, 0.1, 1e-6, gaussian_run),
    Kind("statistic, pure", "ensemble_soft", {"auxiliary_rows": ROWS, "release": "statistic"}, 0.1, 0.0,
         one_l2_laplace),
    Kind("simplex", "simplex", {}, 0.1, 1e-6, drawn),
    Kind("ftrl", "ftrl", {"n_rounds": 100}, 0.1, 1e-6, drawn),
    Kind("wu_subgradient, pure", "wu_subgradient", {"n_rounds": ROUNDS, "calibration": "paper"}, 0.1, 0.0, by_rounds),
    Kind("evaluate", "evaluate", {}, 0.04, 0.0, evaluated),
)  # fmt: skip


# ── courses ──────────────────────────────────────────────────────────────────

Course = Sequence[tuple[str, int]]
"""So many runs of a kind, and then so many of another."""


def turns(*names: str) -> Callable[[int], Course]:
    """Return kinds that take turns, a run each."""
    return lambda length: [(name, 1) for name in islice(cycle(names), length)]


def halves(first: str, then: str, ceiling: Callable[[str], int]) -> Callable[[int], Course]:
    """Return runs of a kind and then of another, in proportion to how many of each the ceiling allows alone."""
    return lambda length: [(first, length), (then, math.ceil(length * ceiling(then) / max(1, ceiling(first))))]


def after(last: str, before: str) -> Callable[[int], Course]:
    """Return one run of a kind after many of another."""
    return lambda length: [(before, length), (last, 1)]


def courses(ceiling: Callable[[str], int]) -> dict[str, Callable[[int], Course]]:
    """Return mixed courses of any length by name; ``ceiling`` is that of a kind alone."""
    return {
        "six kinds in turn": turns("dp_gd", "objective", "output, pure", "centroids, pure", "votes, pure", "evaluate"),
        "all kinds in turn": turns(*(kind.name for kind in KINDS)),
        "pure and Gaussian in turn": turns("output, pure", "output, Gaussian"),
        "objective and evaluate in turn": turns("objective", "evaluate"),
        "pure kinds in turn": turns("evaluate", "centroids, pure", "votes, pure", "wu_subgradient, pure"),
        "large and small in turn": turns("large objective", *5 * ("small objective",), "psgd", "simplex"),
        "half by dp_gd, then objective": halves("dp_gd", "objective", ceiling),
        "half by objective, then dp_gd": halves("objective", "dp_gd", ceiling),
        "half by ftrl, then evaluate": halves("ftrl", "evaluate", ceiling),
        "objective after many dp_gd": after("objective", "dp_gd"),
        "dp_gd after many objective": after("dp_gd", "objective"),
    }


@dataclass(frozen=True)
class Budget:
    """A budget of this epsilon and `DELTA`."""

    epsilon: float

    @cached_property
    def runs(self) -> Mapping[str, Run]:
        """A run of each kind."""
        return {kind.name: kind.run(self.epsilon) for kind in KINDS}

    def taken(self, course: Callable[[int], Course], composition: Composition = "filter") -> int:
        """Return how long a course an account takes, run by run as it comes."""
        return most(lambda length: self._takes(course(length), composition))

    def ceiling(self, course: Callable[[int], Course]) -> int:
        """Return how long a course is private by the budget, if no run depends on an answer."""
        return most(lambda length: self._private(course(length)))

    @cached_property
    def ceilings(self) -> Mapping[str, int]:
        """How many runs of each kind alone are private."""
        return {name: self.ceiling(turns(name)) for name in self.runs}

    def _takes(self, course: Course, composition: Composition) -> bool:
        account = limit(self.epsilon, DELTA, composition=composition)
        try:
            for name, times in course:
                account = account.charge(self.runs[name].cost * times)
        except BudgetExhaustedError:
            return False
        return True

    def _private(self, course: Course) -> bool:
        counts: Counter[str] = Counter()
        for name, times in course:
            counts[name] += times
        composed = together({self.runs[name].pair: times for name, times in counts.items()})
        return bool(composed.get_delta_for_epsilon(self.epsilon) <= DELTA)


@dataclass(frozen=True)
class Row:
    """How many runs are taken, how many could be, and how many if epsilons add up."""

    budget: float
    name: str
    taken: int
    ceiling: int
    added: int
    bar: float

    @property
    def ratio(self) -> float:
        """The part of the ceiling that is taken."""
        return self.taken / self.ceiling if self.ceiling else 1.0


def length_of(course: Course) -> int:
    """Return how many runs a course has."""
    return sum(times for _, times in course)


def rows(budget: Budget) -> Iterable[Row]:
    """Yield a row for each kind and each course."""
    alone = {name: turns(name) for name in budget.runs}
    for bar, group in ((KIND_BAR, alone), (COURSE_BAR, courses(budget.ceilings.__getitem__))):
        for name, course in group.items():
            lengths = budget.taken(course), budget.ceiling(course), budget.taken(course, "basic")
            counts = [length_of(course(length)) if length else 0 for length in lengths]
            yield Row(budget.epsilon, name, counts[0], counts[1], counts[2], bar)


def main() -> int:
    """Print a table, and how long it took; return 1 if something is below its bar."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, nargs="*", default=BUDGETS, help="of the budgets; delta is 1e-5")
    began, below = time.perf_counter(), []
    print("| budget | runs | taken | ceiling | of it | if epsilons add up |  |\n|---|---|---:|---:|---:|---:|---|")
    for epsilon in parser.parse_args().epsilon:
        for row in rows(Budget(epsilon)):
            short = row.ratio < row.bar
            below += [row] * short
            mark = f"below {row.bar:g}" if short else ""
            counts = f"{row.taken} | {row.ceiling} | {row.ratio:.3f} | {row.added}"
            print(f"| ({epsilon:g}, {DELTA:g}) | {row.name} | {counts} | {mark} |", flush=True)
    print(f"\n{len(below)} below the bar; {time.perf_counter() - began:.0f} s")
    return int(bool(below))


if __name__ == "__main__":
    sys.exit(main())
