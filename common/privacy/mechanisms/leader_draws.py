"""How a private leader draws its actions: anew each round, or seldom, by a shrinking dartboard.

Chances are in proportion to exp(-C_j / lambda), C the sums of costs in [-1, 1] so far. Rounding: sums are exact
integers. With u = 2^-53, a logarithm of a weight is off by at most u (2 T / lambda + 16) and the factor before it by
parts in 8 u; both neighbours' weights are.

*Dartboard* (Geulen, Vöcking & Winkler, "Regret Minimization for Online Buffering Problems Using the Weighted Majority
Algorithm", COLT 2010; privately Asi, Feldman, Koren & Talwar, "Private Online Prediction from Experts: Separations and
Faster Rates", COLT 2023). After a round that cost its action c, the action is kept with chance (1 - gamma)
exp(-(1 + c) / lambda), and drawn anew otherwise. If it had chances in proportion to w_j before, those of index j and
kept are in proportion to (1 - gamma) w_j exp(-(1 + c_j) / lambda), which is as the new weights are; so those of the
next action are the same as if it were drawn anew each round, as long as no cost hangs on an action before.

*Its privacy*, where one cost vector is replaced, whatever later costs hang on. Let whoever attacks see which rounds
drew anew. Given all that was seen, the round after that vector tosses one coin whose chance of drawing anew lies
between public numbers, gamma and 1 - (1 - gamma) exp(-2 / lambda); all other coins are the same in both worlds. Of two
laws of a coin, of chances p < q, a test has one corner, and the Gaussian release of mu = Phi^-1(q) - Phi^-1(p) passes
it: so it covers both (as in `parley.common.privacy.draws`), and the most of all is mu of the two ends. Each draw anew
is of a `DrawEvent`'s spread, and there are at most K: after as many the action is kept for good.

*What that costs.* Without the last rule, heads of T - 1 coins, none of them likelier than q, are more than K - 1 with
chance 1 / (2 T) at most (Bernstein's inequality): so it adds at most 1 to expected regret.

Chances of the coin are whole numbers of 2^-52, between ends that are: nothing of them is rounded beside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from parley.common.arrays import IntArray
from parley.common.encoding.fixed_point import FEATURE_BITS
from parley.common.privacy.calibration import ROUNDING, bisect, gaussian_epsilon, gaussian_mu, mu_of_draws
from parley.common.privacy.draws import concentrated_epsilon, largest_rho, rho_of_draws
from parley.common.privacy.events import DrawEvent, GaussianEvent, SequentialEvent
from parley.common.privacy.noise import Noise

COST_UNIT = 2**FEATURE_BITS
"""A cost of 1, in the integers that are added up."""
_U = 2.0**-53
_LEAST_WEIGHT, _MOST_WEIGHT = 2**52, 2**53 - 1
_OFF = 16
"""How many times u two quantiles of the normal distribution are off together, at most, in parts of the larger."""
_WHOLE = 2**52
"""The chances of a coin add up to so many."""
_TIMES_EPSILON = (0.2, 200.0)
"""Between which gamma * lambda * epsilon is looked for: wherever the search ends, the bound holds."""
_TRIED = 32
_CHANCES = (2.0**-40, 0.5)
"""Between which gamma lies: of less, 2^-52 would be too coarse."""
_LEAST_SCALE = 1.0


def draw(totals: IntArray, scale: float, noise: Noise) -> int:
    """An action, from 0, by the sums (p,) of the costs so far in units of 1 / `COST_UNIT`, and lambda."""
    powers = (totals - totals.min()) * (-1 / (COST_UNIT * scale * math.log(2)))
    exponents = np.floor(powers)
    mantissas = np.clip(np.trunc(np.exp2(powers - exponents) * _LEAST_WEIGHT), _LEAST_WEIGHT, _MOST_WEIGHT)
    return int(noise.categorical(mantissas.astype(np.int64), exponents.astype(np.int64), 1)[0])


def spread_of_a_draw(scale: float, horizon: int) -> float:
    """The widest range of the log-chances of an action on neighbouring costs, rounding included."""
    return 4 / scale * (1 + 8 * _U) + 4 * _U * (2 * horizon / scale + 16)


@dataclass(frozen=True, slots=True)
class Dartboard:
    """Public numbers of a leader over ``horizon`` T rounds that draws anew with chance ``chance`` gamma at least.

    ``scale`` is lambda. Chances of keeping are whole numbers of 2^-52.
    """

    horizon: int
    scale: float
    chance: float

    def kept(self, cost: int) -> int:
        """The chance that an action is kept that has just cost so much, in units of 1 / `COST_UNIT`, times 2^52."""
        return min(max(self._kept(cost), self._kept(COST_UNIT)), self._kept(-COST_UNIT))

    def _kept(self, cost: int) -> int:
        return int(_WHOLE * (1 - self.chance) * math.exp(-(1 + cost / COST_UNIT) / self.scale))

    def keeps(self, cost: int, noise: Noise) -> bool:
        """Whether it is, by a coin."""
        kept = self.kept(cost)
        shifts = np.array([53 - kept.bit_length(), 53 - (_WHOLE - kept).bit_length()])
        weights = np.array([kept << int(shifts[0]), (_WHOLE - kept) << int(shifts[1])])
        return int(noise.categorical(weights, -shifts, 1)[0]) == 0

    @property
    def chances(self) -> tuple[float, float]:
        """The least and the most chance of a draw, whatever a round costs: whole numbers of 2^-52, as floats are."""
        return 1 - self._kept(-COST_UNIT) / _WHOLE, 1 - self._kept(COST_UNIT) / _WHOLE

    @property
    def draws(self) -> int:
        """K: the most draws, the first action's among them."""
        mean, log = self.horizon * self.chances[1], math.log(2 * self.horizon)
        return min(self.horizon, 1 + math.ceil(mean + log / 3 + math.sqrt(log**2 / 9 + 2 * mean * log)))

    @property
    def event(self) -> SequentialEvent:
        """What all actions together cost: one coin, and all draws."""
        return SequentialEvent((GaussianEvent(self._coin), DrawEvent(self._spread, self.draws)))

    @property
    def mu(self) -> float:
        """That of the Gaussian release which covers all that."""
        return math.hypot(self._coin, mu_of_draws(self._spread, self.draws))

    @property
    def rho(self) -> float:
        """The zCDP of all that."""
        return self._coin**2 / 2 + rho_of_draws(DrawEvent(self._spread, self.draws))

    def epsilon(self, delta: float) -> float:
        """The epsilon of all actions at ``delta``: the less of two bounds."""
        return min(gaussian_epsilon(self.mu, delta), concentrated_epsilon(self.rho, delta))

    @property
    def _coin(self) -> float:
        """The mu of the Gaussian release which covers one coin."""
        least, most = (float(ndtri(chance)) for chance in self.chances)
        return (most - least) * (1 + ROUNDING) + _OFF * _U * max(-least, abs(most))

    @property
    def _spread(self) -> float:
        return spread_of_a_draw(self.scale, self.horizon)


@lru_cache(maxsize=1024)
def least_dartboard(horizon: int, epsilon: float, delta: float, floor: float = _LEAST_SCALE) -> Dartboard | None:
    """The (epsilon, delta)-private one of the least lambda from ``floor`` up; of several, the most private.

    >>> board = least_dartboard(100_000, 1.0, 1e-6)
    >>> round(board.scale), round(board.chance, 4), board.draws
    (462, 0.0123, 1859)

    None where none was found.
    """
    less = epsilon * (1 - ROUNDING)  # lest what is worked out back is a bit more
    allowed = gaussian_mu(less, delta), largest_rho(less, delta)
    tried = (product / epsilon for product in np.geomspace(*_TIMES_EPSILON, _TRIED).tolist())
    boards = filter(None, (_least_of(horizon, allowed, product, floor) for product in tried))
    return min(boards, key=lambda board: (board.scale, board.epsilon(delta)), default=None)


def _least_of(horizon: int, allowed: tuple[float, float], product: float, floor: float) -> Dartboard | None:
    """The one of the least lambda, of those with gamma = product / lambda, of whom mu or rho is allowed."""
    least, most = _CHANCES[0] / product, min(_CHANCES[1] / product, 1 / max(floor, _LEAST_SCALE))

    def board(inverse: float) -> Dartboard:
        return Dartboard(horizon, 1 / inverse, product * inverse)

    def holds(inverse: float) -> bool:
        if not least <= inverse <= most:
            return False
        mine = board(inverse)
        return mine.mu <= allowed[0] or mine.rho <= allowed[1]

    inverse = bisect(holds)[0]
    return board(inverse) if inverse else None
