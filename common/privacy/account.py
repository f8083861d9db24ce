"""A party's budget in whole units, and what is charged to it.

Under a *filter*, all runs take from one sum, mu^2 of a Gaussian release, of all kinds of noise, in any order
(`parley.common.privacy.filter`). A budget (epsilon, delta) allows a sum whose exact profile at epsilon is at most
delta.

*Slack* is a delta that no Gaussian release covers: that of a paper's claim about a final model, or of a release about
which nothing is known but epsilon and delta. If there is slack, it and the sum each have a half of delta to itself.
Which case it is, the first charge decides, before anything was answered: someone who could still trade one against the
other, by what was answered, would take slack when the sum reveals little, and more of the sum when it reveals much, and
so get nearly twice the delta. So slack comes first or never: an account that began without slack accepts none, and one
with slack reserved accepts nothing else until it is charged. Where claims are charged, ``composition = basic`` is
better.

Runs without any delta may also simply add up to epsilon: the losses of pure releases do for every sequence of answers.
So on sequences that end within that sum neighbours differ by epsilon alone, on all others the filter holds, and the
deltas of both are one. With a budget of delta = 0 only that sum is possible.

Under *basic* composition epsilons and deltas add up: better if (epsilon, delta) of a run is all that is known. That is
a filter too if each run is charged in full, however early it stops (Rogers, Roth, Ullman & Vadhan, "Privacy Odometers
and Filters", 2016; for concurrent runs, Haney et al., "Concurrent Composition for Interactive Differential Privacy with
Adaptive Privacy-Loss Parameters", 2023): `parley.common.runs.pricing` charges all of a run with a delta at its first
answer. Pure rounds are charged one by one, because each is a pure release by itself.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from parley.common.errors import BudgetExhaustedError, InvalidInputError, check_not_negative
from parley.common.privacy.calibration import gaussian_epsilon
from parley.common.privacy.company import Cover
from parley.common.privacy.filter import largest_square
from parley.common.privacy.guarantee import Adjacency, Composition
from parley.common.privacy.odometer import odometer

MICRO = 10**6
"""Micro-units in an epsilon of 1."""


DELTA_UNITS = 10**18
"""Units in a delta of 1."""


SQUARE_UNITS = 10**12
"""Units in a mu^2 of 1."""


EXCESS_UNITS = SQUARE_UNITS**2
"""Units in an excess of 1: a square's square."""
_LATE = (
    "this delta is slack, about which no more is known than a claim says, which an account that began with other runs "
    "does not accept: an owner who charges claims takes composition = basic"
)
_AHEAD = "runs with slack are reserved, and none is charged yet: another run has to wait until one is"
_MOST_RUNS = 10**9  # `runs_left` counts no further


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an answer or of a run, in integers that are not negative.

    By itself, as basic composition adds it up: ``epsilon`` in micro-units and ``delta`` in units of 1e-18. Under a
    filter, the numbers of a `Cover`: ``gdp``, the mu^2 that covers it alone, in units of 1e-12; ``variance``, which is
    ``gdp`` if none is given, and ``excess``, which cover it in company, in units of 1e-12 and 1e-24; and ``slack``, the
    delta outside of these, in units of 1e-18. A round in which a party has no part costs nothing; a run that costs
    nothing is refused.
    """

    epsilon: int
    delta: int
    gdp: int = 0
    slack: int = 0
    variance: int = -1
    excess: int = 0

    def __post_init__(self) -> None:
        if self.variance == -1:
            object.__setattr__(self, "variance", self.gdp)
        if min(self.units) < 0:
            raise InvalidInputError("a cost must not be negative")

    @classmethod
    def of_units(cls, units: Sequence[int]) -> Cost:
        """Return the cost with these `units`, or with the first four, as earlier versions wrote it.

        Raises TypeError for another number of units, InvalidInputError for a negative one.
        """
        if len(units) not in {4, 6}:
            raise TypeError(f"a cost has 6 units, or 4 of an earlier version, not {len(units)}")
        if min(units) < 0:
            raise InvalidInputError("a cost must not be negative")
        return cls(*units)

    @property
    def units(self) -> tuple[int, int, int, int, int, int]:
        """The numbers as (epsilon, delta, gdp, slack, variance, excess)."""
        return self.epsilon, self.delta, self.gdp, self.slack, self.variance, self.excess

    def __add__(self, other: Cost) -> Cost:
        return Cost(*map(operator.add, self.units, other.units))

    def __sub__(self, other: Cost) -> Cost:
        difference = tuple(map(operator.sub, self.units, other.units))
        if min(difference) < 0:
            raise InvalidInputError("a cost must not be negative")
        return Cost(*difference)

    @property
    def square(self) -> int:
        """What this total takes of the sum of mu^2, in the unit of ``gdp``: alone, or in company, if that is less."""
        return min(self.gdp, self.variance + _root_up(4 * self.excess))

    def square_beside(self, total: Cost) -> float:
        """Return the part of ``total.square`` that this part of the total takes, so that all parts add up to it."""
        if total.square == total.gdp:
            return float(self.gdp)
        root = math.sqrt(total.excess)
        return total.square * (self.variance + 2 * self.excess / root) / (total.variance + 2 * root)

    def split(self, other: Cost) -> tuple[Cost, Cost]:
        """Split this cost into the part that ``other`` covers, in each unit, and the remainder."""
        taken = Cost(*map(min, self.units, other.units))
        return taken, self - taken

    def exceeds(self, other: Cost) -> bool:
        """Return whether this cost is more than another in any unit."""
        return self.split(other)[0] != self

    def is_more_than_agreed(self, agreed: Cost) -> bool:
        """Return whether a run costs more than was agreed, perhaps with a version that knew no cost in company.

        Such a version charges what covers the run alone, which is a cover in company too.
        """
        is_earlier = (agreed.variance, agreed.excess) == (agreed.gdp, 0)
        return (replace(self, variance=self.gdp, excess=0) if is_earlier else self).exceeds(agreed)

    def to_group(self, records: int) -> Cost:
        """Return what this total of releases that hide a record each costs so many records, exchanged at once.

        r records are r steps from one table to the other. So what mu covers for a record, r mu covers for them, and
        pure epsilons are r times as large (Dong, Roth & Su, "Gaussian Differential Privacy", 2022, section 2.4): exact,
        release by release, where noise is Gaussian or Laplace. ``delta`` stays, and is none of theirs: it says that the
        epsilons are not pure. Raises InvalidInputError for slack, about which nothing is known but for one record.
        """
        if self.slack and records > 1:
            raise InvalidInputError("of a claim, or of slack, nothing is known but what it promises to one record")
        square = records**2 * self.gdp
        return Cost(
            records * self.epsilon,
            self.delta,
            square,
            self.slack,
            square if records > 1 else self.variance,
            0 if records > 1 else self.excess,
        )

    def __mul__(self, times: int) -> Cost:
        return Cost(*(times * unit for unit in self.units))


def larger(one: Cost, other: Cost) -> Cost:
    """Return the larger of two costs, in each unit."""
    return Cost(*map(max, one.units, other.units))


_NOTHING = Cost(0, 0)


@dataclass(frozen=True, slots=True)
class Account:
    """A party's budget, what it has spent and what is reserved for runs that it approved, in the units of `Cost`.

    ``adjacency`` is what each charge must hide; ``composition`` is how charges count together. A reserved cost counts
    as spent until it is released.

    ``share`` is the part of the budget that counts here, in millionths: less than all for a part that an owner sets
    aside for a study. Parts of one budget, whose shares add up to 1 at most, never exceed it together: each has its
    share of the Gaussian part beside slack and of the slack, or under basic composition of epsilon and of delta, and
    all of these add up: what covers a release in company of what is left of its part does so in company of what is left
    of all. So a part has no more if nobody takes slack, and pure runs do not simply add up in it.
    """

    epsilon_limit: int
    delta_limit: int
    spent: Cost = _NOTHING
    reserved: Cost = _NOTHING
    adjacency: Adjacency = "replace_one"
    composition: Composition = "filter"
    share: int = MICRO

    def fits(self, cost: Cost) -> bool:
        """Return whether a cost fits into the budget beside all that is spent and reserved."""
        total = self.spent + self.reserved + cost
        adds_up = total.epsilon <= self._share_of(self.epsilon_limit) and total.delta <= self._share_of(
            self.delta_limit
        )
        if self.composition == "basic" or (self._may_add_up(total) and adds_up):
            return adds_up
        if self.trades(cost):
            return False
        allows_slack = total.slack <= self._share_of(self.delta_limit // 2)
        return allows_slack and total.square <= self.square_limit(slack=total.slack > 0)

    def trades(self, cost: Cost) -> bool:
        """Return whether a filter would add slack after other charges, which it does not accept."""
        before = self.spent + self.reserved
        if self.composition == "basic" or before.slack + cost.slack == 0:
            return False
        late = before.gdp > 0 and before.slack == 0
        ahead = before.slack > self.spent.slack == 0 and cost.gdp > cost.slack == 0
        return late or ahead

    def square_limit(self, *, slack: bool) -> int:
        """Return the largest sum of mu^2, in the unit of ``Cost.gdp``, with or without slack beside it."""
        delta = self._gaussian_delta(slack=slack)
        return self._share_of(largest_square(self.epsilon_limit / MICRO, delta, 1 / SQUARE_UNITS))

    def require(self, cost: Cost) -> None:
        """Raise BudgetExhaustedError, which says how much budget is left, unless a cost fits."""
        if not self.fits(cost):
            raise exhausted(self, cost)

    def reserve(self, cost: Cost) -> Account:
        """Return the account after an approval. Raises BudgetExhaustedError if the cost does not fit."""
        self.require(cost)
        return replace(self, reserved=self.reserved + cost)

    def charge(self, cost: Cost) -> Account:
        """Return the account after a charge. Raises BudgetExhaustedError if the cost does not fit."""
        self.require(cost)
        return replace(self, spent=self.spent + cost)

    def totals(self) -> dict[str, list[int]]:
        """Return the spent and the reserved amounts, by `Cost.units`."""
        return {"spent": list(self.spent.units), "reserved": list(self.reserved.units)}

    def settle(self, cost: Cost, reserved: Cost) -> Account:
        """Return the account after a charge that fitted; ``reserved`` of its cost had been reserved."""
        return replace(self, spent=self.spent + cost, reserved=self.reserved - reserved)

    def release(self, cost: Cost) -> Account:
        """Return the account after a reservation ends. Raises InvalidInputError if less than ``cost`` was reserved."""
        return replace(self, reserved=self.reserved - cost)

    def runs_left(self, cost: Cost) -> int:
        """Return how many more runs of this cost fit, counting up to 10^9."""
        return bisect_left(range(_MOST_RUNS), 1, key=lambda runs: int(not self.fits(cost * (runs + 1))))

    @property
    def epsilon_spent(self) -> float:
        """The epsilon of all charges so far, at the budget's delta, that holds whenever it is read.

        It holds however questions, and the moment, depended on answers. Under a filter that is `odometer`, which does
        not know the limit: it may exceed the limit's epsilon, and the limit holds nevertheless. Under basic composition
        it is the sum, because all of a run is charged with its first answer. It is the sum too as long as all answers
        are pure, if that is less: no loss exceeds it, so what a learner has seen by then takes nothing of delta, and
        all of delta is the odometer's. It is infinite if more delta is charged than the budget has. If an owner changes
        the composition because of what was answered, the figures under each take a delta of their own.
        """
        added = self.spent.epsilon / MICRO
        if self.composition == "basic" or self.delta_limit == 0:
            return added if self.spent.delta <= self.delta_limit else math.inf
        if self.spent.slack > self.delta_limit // 2:
            return math.inf
        reading = odometer(self.spent.square / SQUARE_UNITS, self._gaussian_delta(slack=self.spent.slack > 0))
        return min(added, reading) if self.spent.delta == self.spent.slack == 0 else reading

    @property
    def epsilon_nonadaptive(self) -> float:
        """The epsilon of all charges so far at the budget's delta, or their sum if a filter has none.

        Unlike `epsilon_spent` it holds only if no question depended on an answer.
        """
        return self._epsilon_of(self.spent)

    @property
    def epsilon_reserved(self) -> float:
        """The amount by which all reservations would increase `epsilon_nonadaptive`."""
        return max(0.0, self._epsilon_of(self.spent + self.reserved) - self.epsilon_nonadaptive)

    @property
    def parts(self) -> dict[str, float]:
        """The parts of the budget that are spent, reserved and left; they add up to 1.

        Epsilons do not: under a filter squares of mu add up, so `epsilon_nonadaptive` and `epsilon_left` do not either.
        """
        spent, reserved = self.part_of(self.spent), self.part_of(self.reserved)
        return {"spent": spent, "reserved": reserved, "left": 1 - self._part_of(self.spent + self.reserved)}

    def part_of(self, cost: Cost) -> float:
        """Return the part of the budget that some of its charges take, so that the parts of all of them add up.

        Each is measured in the unit in which all that is spent and reserved takes the largest part, as `parts` has it.
        """
        total = self.spent + self.reserved
        limits = self._basic_limits() if self._adds_up(total) else self._filter_limits(total)
        unit = max(limits, key=lambda name: _ratio(getattr(total, name), limits[name]))
        part = cost.square_beside(total) if unit == "square" else getattr(cost, unit)
        return _ratio(part, max(getattr(total, unit), limits[unit]))

    @property
    def delta_spent(self) -> float:
        """The delta that is used up: under a filter, the slack."""
        return (self.spent.delta if self.composition == "basic" else self.spent.slack) / DELTA_UNITS

    @property
    def epsilon_left(self) -> float:
        """The largest epsilon of one more run at `delta_left`, in whole micro-units; under a filter, if Gaussian."""
        total = self.spent + self.reserved
        if self.composition == "basic" or self.delta_limit == 0 or (total == _NOTHING and self.share == MICRO):
            return max(0, self._share_of(self.epsilon_limit) - total.epsilon) / MICRO
        limit = self.square_limit(slack=total.slack > 0)
        room = limit - total.square - 1  # a unit for the rounding of the run's own price
        if not self.fits(Cost(1, 1, gdp=2)):
            return 0.0
        epsilon = gaussian_epsilon(math.sqrt(room / SQUARE_UNITS), self.delta_left)
        return min(self.epsilon_limit, math.floor(epsilon * MICRO)) / MICRO

    @property
    def delta_left(self) -> float:
        """The delta of one more run; under a filter, of a Gaussian run, as such runs do not use it up."""
        total = self.spent + self.reserved
        if self.composition == "basic":
            return max(0, self._share_of(self.delta_limit) - total.delta) / DELTA_UNITS
        return self._gaussian_delta(slack=total.slack > 0)

    def _epsilon_of(self, total: Cost) -> float:
        """Return the epsilon of a total of charges, which is finite."""
        added, slack = total.epsilon / MICRO, total.slack > 0
        if self.composition == "basic" or total.slack > self.delta_limit // 2:
            return added
        epsilon = gaussian_epsilon(math.sqrt(total.square / SQUARE_UNITS), self._gaussian_delta(slack=slack))
        return min(added, epsilon) if total.delta == 0 or epsilon == math.inf else epsilon

    def _part_of(self, total: Cost) -> float:
        """Return the part of the budget that a total of charges takes, of what counts: from 0 to 1."""
        added = _largest_ratio(total, self._basic_limits())
        if self.composition == "basic":
            return added
        filtered = _largest_ratio(total, self._filter_limits(total)) if self.delta_limit else 1.0
        return min(added, filtered) if self._may_add_up(total) else filtered

    def _basic_limits(self) -> dict[str, int]:
        """Return the limits of what adds up under basic composition, by the name of its unit in `Cost`."""
        return {"epsilon": self._share_of(self.epsilon_limit), "delta": self._share_of(self.delta_limit)}

    def _filter_limits(self, total: Cost) -> dict[str, int]:
        """Return the limits of what a filter adds up for a total of charges; its budget has a delta."""
        return {"square": self.square_limit(slack=total.slack > 0), "slack": self._share_of(self.delta_limit // 2)}

    def _gaussian_delta(self, *, slack: bool) -> float:
        """Return the part of delta for the Gaussian part."""
        return (self.delta_limit // 2 if slack or self.share < MICRO else self.delta_limit) / DELTA_UNITS

    def _share_of(self, limit: int) -> int:
        """Return the share of a limit, in whole units."""
        return limit * self.share // MICRO

    def _adds_up(self, total: Cost) -> bool:
        """Return whether `_part_of` counts a total by the sums of epsilon and delta."""
        if self.composition == "basic" or not self.delta_limit:
            return True
        return self._may_add_up(total) and self._part_of(total) < _largest_ratio(total, self._filter_limits(total))

    def _may_add_up(self, total: Cost) -> bool:
        """Return whether the losses of a total may simply add up: it is pure, and does not count beside other parts."""
        return total.delta == total.slack == 0 and (self.share == MICRO or self.delta_limit == 0)


def _ratio(part: float, whole: int) -> float:
    """Return the part of a whole, at most 1; a part of nothing is all of it."""
    return min(1.0, part / whole) if whole else float(part > 0)


def _largest_ratio(total: Cost, limits: Mapping[str, int]) -> float:
    """Return the largest part that a total takes of a limit, by the names of units in `Cost`."""
    return max(_ratio(getattr(total, unit), limit) for unit, limit in limits.items())


def exhausted(account: Account, cost: Cost) -> BudgetExhaustedError:
    """Return the error for a cost that does not fit an account."""
    epsilon, delta = cost.epsilon / MICRO, cost.delta / DELTA_UNITS
    request, remaining = (
        f"epsilon {epsilon:g}, delta {delta:g} are asked for",
        (account.epsilon_left, account.delta_left),
    )
    words = f"{request}; epsilon {remaining[0]:g}, delta {remaining[1]:g} are left"
    if account.trades(cost):
        words = f"{request}; {_LATE if cost.slack else _AHEAD}"
    elif account.composition == "filter" and account.delta_limit > 0:
        total = account.spent + account.reserved
        limit = account.square_limit(slack=total.slack + cost.slack > 0)
        takes, room = (total + cost).square - total.square, max(0, limit - total.square)
        words += (
            f" to a Gaussian run; across runs mu^2 {takes / SQUARE_UNITS:.3g} counts, and {room / SQUARE_UNITS:.3g} "
            "is left"
        )
        if cost.slack > 0:
            words += (
                f", and delta {cost.slack / DELTA_UNITS:.3g} as slack, which has half of the budget's delta in an "
                "account that begins with slack, and nothing in another"
            )
    return BudgetExhaustedError(words, epsilon_left=remaining[0], delta_left=remaining[1])


def _root_up(number: int) -> int:
    """Return the least integer whose square is at least a number that is not negative."""
    return math.isqrt(number - 1) + 1 if number else 0


_MILLIONTH = Decimal("1e-6")
"""A part of a unit that is left out when a number is rounded."""


def _as_written(number: float) -> Decimal:
    """Return a number as people write it: what a budget allows and what a run costs are then rounded from the same."""
    return Decimal(repr(float(number)))


def delta_units(delta: float) -> int:
    """Convert a delta to whole units, rounded up, so that a positive delta is never charged as 0."""
    check_not_negative(delta=delta)
    return max(math.ceil(_as_written(delta) * DELTA_UNITS - _MILLIONTH), int(delta > 0))


def cost_of(epsilon: int, delta: int, cover: Cover) -> Cost:
    """Return the cost of a release in whole units, rounded up; ``epsilon`` and ``delta`` are in the units of `Cost`."""
    alone, variance = (math.ceil(Fraction(square) * SQUARE_UNITS) for square in (cover.alone, cover.variance))
    excess = math.ceil(Fraction(cover.excess) * EXCESS_UNITS)
    return Cost(epsilon, delta, alone, delta_units(cover.slack), variance, excess)


def limit(
    epsilon: float, delta: float, adjacency: Adjacency = "replace_one", composition: Composition = "filter"
) -> Account:
    """Return an unspent account of this budget, rounded down to whole units."""
    check_not_negative(epsilon=epsilon, delta=delta)
    epsilon_limit = math.floor(_as_written(epsilon) * MICRO + _MILLIONTH)
    delta_limit = math.floor(_as_written(delta) * DELTA_UNITS + _MILLIONTH)
    return Account(epsilon_limit, delta_limit, adjacency=adjacency, composition=composition)


@dataclass(frozen=True, slots=True)
class Price:
    """The total cost of a run after each of its rounds: the columns of `Cost`, in its units, (T,) each.

    Rounds after the last of them add nothing: a run that is charged in full with its first round has a column of one.
    Prices of earlier versions have no ``variance`` and ``excess``: ``gdp`` counts in company too then.
    ``adjacency`` is what the cost hides. A cost that hides all the data of a party hides a record too, but never the
    reverse.
    """

    epsilon: tuple[int, ...]
    delta: tuple[int, ...]
    gdp: tuple[int, ...]
    slack: tuple[int, ...]
    adjacency: Adjacency = "replace_one"
    variance: tuple[int, ...] = ()
    excess: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.variance:
            object.__setattr__(self, "variance", self.gdp)
            object.__setattr__(self, "excess", (0,) * len(self.gdp))

    @classmethod
    def of(cls, totals: Sequence[Cost], adjacency: Adjacency = "replace_one") -> Price:
        """Return the price of a run that costs these totals after each of its rounds, one at least."""
        epsilon, delta, gdp, slack, variance, excess = zip(*(total.units for total in totals), strict=True)
        return cls(epsilon, delta, gdp, slack, adjacency, variance, excess)

    @classmethod
    def at_once(cls, cost: Cost, adjacency: Adjacency = "replace_one") -> Price:
        """Return the price of a run that pays this cost with its first round."""
        return cls.of([cost], adjacency)

    @property
    def total(self) -> Cost:
        """The cost of all rounds."""
        return self._after(len(self.epsilon))

    def step(self, round: int, last: int) -> Cost:
        """Return what round ``round`` adds after the charged round ``last`` (0 for none), skipped rounds included."""
        return self._after(round) - self._after(last)

    def remaining(self, last: int) -> Cost:
        """Return the cost that is still reserved after the charged round ``last`` (0 for none)."""
        return self.total - self._after(last)

    def _after(self, round: int) -> Cost:
        """Return the cost of the first rounds, up to this one."""
        if round == 0:
            return _NOTHING
        last = min(round, len(self.epsilon)) - 1
        columns = self.epsilon, self.delta, self.gdp, self.slack, self.variance, self.excess
        return Cost(*(column[last] for column in columns))
