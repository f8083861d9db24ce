"""Decisions online: a private leader that picks one of p actions a round, before the round's costs are known.

>>> leader = Leader(actions=3, horizon=100, bound=10.0, epsilon=4.0, delta=1e-6)
>>> 0 <= leader.act() <= 2
True
>>> leader.observe([10.0, -2.5, 0.0])
>>> print(leader.guarantee)
(4, 1e-06) transcript replace_one [tight]
>>> round(leader.regret)
298

Jain & Thakurta, "(Near) Dimension Independent Risk Bounds for Differentially Private Learning", ICML 2014; proofs of
privacy and regret are in `parley.common.privacy.mechanisms.leader`. It hides one whole cost vector, replaced by any
other within the bound; a person is hidden only where all that a person adds is one cost vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real

import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.errors import InvalidInputError
from parley.common.privacy.calibration import Calibration, check_budget
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.mechanisms.leader import COST_UNIT, Adversary, LeaderTerms
from parley.common.privacy.noise import Noise, SystemNoise


@dataclass(frozen=True, slots=True, eq=False)
class LeaderState:
    """The state of a leader: the sums (p,) of its costs in units of bound / 2^16, after ``rounds`` rounds.

    ``acted`` says that the next round has its action already, and that its cost comes next. ``action`` is the last
    action, and ``paid`` its cost in those units, if that is known; ``draws`` counts all draws so far.
    """

    totals: IntArray
    rounds: int = 0
    acted: bool = False
    action: int = 0
    paid: int = 0
    draws: int = 0


class Leader:
    """A private leader over a horizon of T rounds, whose whole privacy cost is that of all T, however many there are.

    ``bound`` is R: each cost is in [-R, R]; costs are rounded to its 2^-16th. An ``adversary`` is "adaptive", whose
    costs may depend on all actions before their round's, or "oblivious", whose costs depend on none: regret is several
    times less then, over many rounds. ``noise`` is the operating system's if not given. ``state`` is that of an earlier
    leader of the same terms, to go on from: a cost that it has observed must not be observed again, or it is not hidden
    as promised.
    """

    def __init__(  # noqa: PLR0913 -- what an online problem consists of
        self,
        actions: int,
        horizon: int,
        bound: float,
        epsilon: float,
        delta: float,
        *,
        noise: Noise | None = None,
        calibration: Calibration = "tight",
        adversary: Adversary = "adaptive",
        state: LeaderState | None = None,
    ) -> None:
        """Raise InvalidInputError for invalid terms or an invalid bound, and for a ``state`` of other terms."""
        if not (math.isfinite(bound) and 1e-300 < bound < 1e300):  # noqa: PLR2004 -- its 2^-16th is a number
            raise InvalidInputError(f"the bound must be positive, between 1e-300 and 1e300, not {bound:g}")
        check_budget(epsilon, delta)
        self.terms = LeaderTerms(actions, horizon, epsilon, delta, calibration, adversary)
        self.bound = bound
        self.noise: Noise = SystemNoise() if noise is None else noise
        if state is not None and state.totals.shape != (actions,):
            raise InvalidInputError(f"the state must hold {actions} sums, one an action, not {state.totals.size}")
        self.state = LeaderState(np.zeros(actions, np.int64)) if state is None else state

    @property
    def guarantee(self) -> Guarantee:
        """The promise of all actions together; its assumption says what costs may depend on."""
        return self.terms.guarantee

    @property
    def regret(self) -> float:
        """The bound on the expected sum of costs less that of the best action; rounding of costs included."""
        return float(self.bound * (self.terms.regret + self.terms.horizon / COST_UNIT))

    def act(self) -> int:
        """Return the next round's action, from 0.

        Raises InvalidInputError before the last round's cost, or after the horizon.
        """
        if self.state.acted:
            raise InvalidInputError(f"round {self.state.rounds + 1} has its action: its cost comes next")
        self._check_horizon()
        at = self.state
        is_kept = at.rounds > 0 and self.terms.keeps(at.paid, at.draws, self.noise)
        action = at.action if is_kept else self.terms.draw(at.totals, self.noise)
        self.state = replace(at, acted=True, action=action, draws=at.draws + (not is_kept))
        return action

    def observe(self, cost: Sequence[float] | FloatArray) -> None:
        """Take the cost vector (p,) of the round that has its action.

        Raises InvalidInputError for a vector of another length, or beyond the bound, before the round's action, or
        after the horizon; the state is unchanged then.
        """
        self._check_horizon()
        if not self.state.acted:
            raise InvalidInputError(f"round {self.state.rounds + 1} has no action yet: its cost comes after")
        integers = cost_in_units(cost, self.terms.actions, self.bound)
        at, paid = self.state, int(integers[self.state.action])
        self.state = replace(at, totals=at.totals + integers, rounds=at.rounds + 1, acted=False, paid=paid)

    def _check_horizon(self) -> None:
        if self.state.rounds >= self.terms.horizon:
            raise InvalidInputError(f"the horizon of {self.terms.horizon} rounds is over")


def cost_in_units(cost: Sequence[float] | FloatArray, actions: int, bound: float) -> IntArray:
    """Return a cost vector (p,) in units of bound / 2^16, rounded. Raises InvalidInputError if it is invalid.

    Neither text nor a truth value is a number.
    """
    values = _numbers(cost)
    if values is None:
        raise InvalidInputError(f"a cost must be {actions} numbers")
    if values.shape != (actions,):
        raise InvalidInputError(f"a cost must be {actions} numbers, one an action, not of shape {values.shape}")
    if not bool((np.abs(values) <= bound).all()):  # NaN is not within it
        place = int((~(np.abs(values) <= bound)).argmax())
        raise InvalidInputError(f"the cost of action {place} is not a number within the bound of {bound:g}")
    return np.asarray(np.rint(values / bound * COST_UNIT), dtype=np.int64)


def _numbers(cost: Sequence[float] | FloatArray) -> FloatArray | None:
    """Return real numbers if all types are numbers; None otherwise."""
    try:
        kinds = {cost.dtype.type} if isinstance(cost, np.ndarray) else set(map(type, cost))
        are_numbers = all(issubclass(kind, Real) and not issubclass(kind, bool) for kind in kinds)
        return np.asarray(cost, dtype=np.float64) if are_numbers else None
    except (TypeError, ValueError, OverflowError):
        return None
