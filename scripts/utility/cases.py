"""The cases of the benchmark of utility, one entry each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from scripts.utility import examples
from scripts.utility.examples import Examples


@dataclass(frozen=True, slots=True)
class Goal:
    """The goal of a case at an epsilon, and the accuracy that was published for it; None where there is none."""

    least: float | None = None
    published: float | None = None


@dataclass(frozen=True, slots=True)
class Fitness:
    """The largest relative fitness psi (Wu et al. 2020) at a lambda, which is part of the problem that psi is about."""

    regularization: float
    most: float


@dataclass(frozen=True, slots=True)
class Case:
    """A set of examples, dealt evenly to owners, and what is asked of it by epsilon.

    ``value`` names what is measured on the held-out examples: accuracy, r_squared or auc. ``delta`` is None for 1 / n^2
    of n training examples. With ``fitness`` that is measured as well, on the owners' own examples.
    """

    load: Callable[[], Examples]
    goals: Mapping[float, Goal]
    delta: float | None = None
    owners: int = 5
    value: str = "accuracy"
    fitness: Fitness | None = None


CASES: Mapping[str, Case] = {
    "simulated": Case(examples.simulated, {0.1: Goal(0.915)}, delta=0.05),
    "wdbc": Case(examples.wdbc, {1.0: Goal(0.92), 0.1: Goal(0.72)}, delta=1e-5),
    "digits": Case(examples.digits, {1.0: Goal(0.80)}, delta=1e-5),
    "adult": Case(examples.adult, {0.1: Goal(0.820, 0.809), 1.0: Goal(0.850)}),
    "adult-200-owners": Case(partial(examples.adult, rows=20_000), {1.0: Goal(0.81)}, owners=200),
    "cod-rna": Case(examples.cod_rna, {0.1: Goal(0.910), 1.0: Goal(0.930)}),
    "lending-club": Case(examples.lending_club, {1.0: Goal(0.30)}, delta=1e-5, value="r_squared"),
    "card-fraud": Case(
        partial(examples.card_fraud, owned=8_700),
        {1.0: Goal()},
        delta=1e-5,
        owners=3,
        value="auc",
        fitness=Fitness(regularization=0.01, most=0.02),
    ),
    "har": Case(examples.har, {1.0: Goal(0.81)}),
    "kdd99": Case(examples.kdd99, {0.1: Goal(0.987, 0.987)}),
    "mnist": Case(examples.mnist, {1.0: Goal(0.890, 0.886)}),
}
"""By name, the quick ones first. Published: full-batch DP-GD as Yu et al. 2020 tabulate it."""
