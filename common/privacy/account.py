"""A party's budget in whole units, and what is charged to it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

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

    def __post_init__(self) -> None:
        if self.epsilon < 0 or self.delta < 0:
            raise InvalidInputError("a cost must not be negative")


@dataclass(frozen=True, slots=True)
class Account:
    """A party's budget and what it has spent, in the units of `Cost`; ``adjacency`` is what each charge must hide."""

    epsilon_limit: int
    delta_limit: int
    epsilon_spent: int = 0
    delta_spent: int = 0
    adjacency: Adjacency = "replace_one"

    def charge(self, cost: Cost) -> Account:
        """The account after a charge; raises BudgetExhaustedError, saying what is left, when it does not fit."""
        epsilon, delta = self.epsilon_spent + cost.epsilon, self.delta_spent + cost.delta
        if epsilon > self.epsilon_limit or delta > self.delta_limit:
            raise exhausted(self, cost)
        return replace(self, epsilon_spent=epsilon, delta_spent=delta)

    @property
    def epsilon_left(self) -> float:
        """Epsilon left."""
        return (self.epsilon_limit - self.epsilon_spent) / MICRO

    @property
    def delta_left(self) -> float:
        """Delta left."""
        return (self.delta_limit - self.delta_spent) / DELTA_UNITS


def exhausted(account: Account, cost: Cost) -> BudgetExhaustedError:
    """The refusal of a cost that an account cannot bear."""
    epsilon, delta = cost.epsilon / MICRO, cost.delta / DELTA_UNITS
    return BudgetExhaustedError(
        f"epsilon {epsilon:g}, delta {delta:g} are asked for; "
        f"epsilon {account.epsilon_left:g}, delta {account.delta_left:g} are left",
        epsilon_left=account.epsilon_left,
        delta_left=account.delta_left,
    )


def limit(epsilon: float, delta: float, adjacency: Adjacency = "replace_one") -> Account:
    """An unspent account of this budget, rounded down to whole units."""
    units = math.floor(epsilon * MICRO + 1e-6), math.floor(delta * DELTA_UNITS + 1e-6)
    return Account(*units, adjacency=adjacency)


@dataclass(frozen=True, slots=True)
class Price:
    """What a run costs after each of its rounds, in total: epsilon in micro-units, delta in units of 1e-18; (T,).

    ``adjacency`` is what the cost hides. What hides all the data of a party hides a record too, never the reverse.
    """

    epsilon: tuple[int, ...]
    delta: tuple[int, ...]
    adjacency: Adjacency = "replace_one"

    @property
    def whole(self) -> Cost:
        """What all rounds cost."""
        return Cost(self.epsilon[-1], self.delta[-1])

    def step(self, round: int, last: int) -> Cost:
        """What round ``round`` adds when ``last`` (0 for none) was the last one charged: what was skipped is paid."""
        spent = (self.epsilon[last - 1], self.delta[last - 1]) if last else (0, 0)
        return Cost(self.epsilon[round - 1] - spent[0], self.delta[round - 1] - spent[1])
