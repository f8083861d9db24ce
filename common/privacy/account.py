"""A party's budget in whole units, and what is charged to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from common.errors import BudgetExhaustedError, InvalidInputError
from common.privacy.guarantee import Adjacency

MICRO = 10**6
"""Micro-units to one epsilon."""


DELTA_UNITS = 10**18
"""Units to one delta."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What an answer costs: epsilon in micro-units, delta in units of 1e-18; whole, and not negative.

    Nothing is the cost of a round in which a party has no part; a run that costs nothing is refused.
    """

    epsilon: int
    delta: int
    gdp: int = 0
    slack: int = 0

    def __post_init__(self) -> None:
        if self.epsilon < 0 or self.delta < 0:
            raise InvalidInputError("a cost must not be negative")

    @property
    def units(self) -> tuple[int, int, int, int]:
        return (self.epsilon, self.delta, self.gdp, self.slack)

    def __add__(self, other):
        return Cost(*(a + b for a, b in zip(self.units, other.units)))

    def __sub__(self, other):
        return Cost(*(a - b for a, b in zip(self.units, other.units)))


Composition = Literal["filter", "basic"]


@dataclass(frozen=True, slots=True)
class Account:
    epsilon_limit: int
    delta_limit: int
    spent: Cost = Cost(0, 0)
    reserved: Cost = Cost(0, 0)
    adjacency: Adjacency = "replace_one"
    composition: Composition = "filter"

    def bears(self, cost):
        t = self.spent + self.reserved + cost
        return t.epsilon <= self.epsilon_limit and t.delta <= self.delta_limit

    def reserve(self, cost):
        if not self.bears(cost):
            raise exhausted(self, cost)
        return replace(self, reserved=self.reserved + cost)

    def charge(self, cost, reserved=Cost(0, 0)):
        rest = replace(self, reserved=self.reserved - reserved)
        if not rest.bears(cost):
            raise exhausted(self, cost)
        return replace(rest, spent=self.spent + cost)

    def release(self, cost):
        return replace(self, reserved=self.reserved - cost)

    @property
    def epsilon_spent(self):
        return self.spent.epsilon / MICRO

    @property
    def delta_spent(self):
        return self.spent.delta / DELTA_UNITS

    @property
    def epsilon_left(self):
        return max(0, self.epsilon_limit - self.spent.epsilon - self.reserved.epsilon) / MICRO

    @property
    def delta_left(self):
        return max(0, self.delta_limit - self.spent.delta - self.reserved.delta) / DELTA_UNITS


def exhausted(account: Account, cost: Cost) -> BudgetExhaustedError:
    """The refusal of a cost that an account cannot bear."""
    epsilon, delta = cost.epsilon / MICRO, cost.delta / DELTA_UNITS
    return BudgetExhaustedError(
        f"epsilon {epsilon:g}, delta {delta:g} are asked for; "
        f"epsilon {account.epsilon_left:g}, delta {account.delta_left:g} are left",
        epsilon_left=account.epsilon_left,
        delta_left=account.delta_left,
    )


def limit(epsilon: float, delta: float, adjacency: Adjacency = "replace_one", composition="filter") -> Account:
    """An unspent account of this budget, rounded down to whole units."""
    units = math.floor(epsilon * MICRO + 1e-6), math.floor(delta * DELTA_UNITS + 1e-6)
    return Account(*units, adjacency=adjacency, composition=composition)


@dataclass(frozen=True, slots=True)
class Price:
    epsilon: tuple[int, ...]
    delta: tuple[int, ...]
    gdp: tuple[int, ...] = ()
    slack: tuple[int, ...] = ()
    adjacency: Adjacency = "replace_one"

    @property
    def whole(self) -> Cost:
        return self.step(len(self.epsilon), 0)

    def _at(self, n):
        return (
            Cost(*((c[n - 1] if c else 0) for c in (self.epsilon, self.delta, self.gdp, self.slack)))
            if n
            else Cost(0, 0)
        )

    def step(self, round: int, last: int) -> Cost:
        return self._at(round) - self._at(last)
