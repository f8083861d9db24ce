"""Following the regularised leader on the simplex: a private action in each round, by the sums of the costs before it.

Of p actions one is drawn in each of T rounds, before its cost vector c_t in [-1, 1]^p is known, with chances in
proportion to exp(-C_j / lambda), C = c_1 + ... + c_(t-1): the mixture that minimises <C, theta> + lambda sum theta log
theta (Jain & Thakurta, ICML 2014; as a forecaster, Littlestone & Warmuth 1994). Costs beyond [-1, 1] are divided by
their bound first, and so is lambda here.

*Privacy.* One cost vector replaced moves each C_j by at most 2, so log-chances by a range of 4 / lambda: each action is
a `DrawEvent` of that spread, for all actions before it. This also holds if later costs are chosen by someone who has
seen all actions so far: given those, both worlds' costs are the same except for the one that was replaced. All rounds
are 2 T / lambda^2-zCDP, which is the paper's 2 T / lambda^2 + sqrt(8 T log(1/delta)) / lambda <= epsilon (``"paper"``);
``"tight"`` is the least lambda by all bounds of `parley.common.privacy.draws`.

*Regret.* With W_t = sum_j exp(-C_j / lambda) after t rounds, log(W_t / W_(t-1)) = log E exp(-c_t[a_t] / lambda) <= -E
c_t[a_t] / lambda + 1 / (2 lambda^2), by Hoeffding's lemma for a variable in [-1, 1]. Summed up, and as W_T >=
exp(-min_j C_j / lambda) and W_0 = p:

    E sum c_t[a_t] - min_j sum c_t[j] <= lambda log p + T / (2 lambda)

for all costs, as long as a round's cost does not depend on its action. It is least at lambda = sqrt(T / (2 log p)),
where it is sqrt(2 T log p). Privacy needs a lambda that does not depend on p: if that is the larger, regret grows as
log p, not as its root.

*Fewer draws* (`Dartboard`). An *oblivious* adversary, whose costs depend on no action at all, cannot tell whether
actions are drawn again each round or rarely, with the same chances. Fewer draws need a lambda of some (T
log(1/delta))^(1/3) / epsilon, not (T log(1/delta))^(1/2) / epsilon (Asi, Feldman, Koren & Talwar 2023), if delta > 0.
Someone who sees an action then knows what the next ones most likely are: costs that depend on it may make regret as
large as T.

A shrinking dartboard (Geulen, Vöcking & Winkler, "Regret Minimization for Online Buffering Problems Using the Weighted
Majority Algorithm", COLT 2010; privately Asi, Feldman, Koren & Talwar, "Private Online Prediction from Experts:
Separations and Faster Rates", COLT 2023) keeps an action, after a round in which it cost c, with chance (1 - gamma)
exp(-(1 + c) / lambda), and draws again otherwise. If it had chances in proportion to w_j before, those of index j and
kept are in proportion to (1 - gamma) w_j exp(-(1 + c_j) / lambda), which is as the new weights are; so those of the
next action are the same as if it were drawn again each round, as long as no cost depends on an action before.

*The dartboard's privacy*, if one cost vector is replaced, for every dependence of later costs. Let the attacker see
which rounds drew again. Given all that was seen, the round after that vector tosses one coin whose chance of drawing
again lies between public numbers, gamma and 1 - (1 - gamma) exp(-2 / lambda); all other coins are the same in both
worlds. Of two laws of a coin, of chances p < q, a test has one corner, and the Gaussian release of mu = Phi^-1(q) -
Phi^-1(p) passes it: so it covers both (as in `parley.common.privacy.draws`), and the largest mu is that of the two
ends. Each further draw has a `DrawEvent`'s spread, and there are at most K: after that many the action is kept for
good.

*What that costs.* Without the last rule, heads of T - 1 coins, none of them likelier than q, are more than K - 1 with
chance 1 / (2 T) at most (Bernstein's inequality): so it adds at most 1 to expected regret.

*Rounding.* Sums of costs are exact integers. With u = 2^-53, a logarithm of a weight is off by at most u (2 T / lambda
+ 16) and the factor before it by parts in 8 u; both neighbours' weights are. Chances of the coin are whole numbers of
2^-52, between ends that are: they need no other allowance for rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Integral
from typing import Literal, get_args

import numpy as np
from scipy.special import ndtri

from parley.common.arrays import IntArray
from parley.common.encoding.fixed_point import FEATURE_BITS
from parley.common.errors import InvalidInputError
from parley.common.privacy.calibration import (
    ROUNDING,
    Calibration,
    bisect,
    check_epsilon,
    gaussian_epsilon,
    gaussian_mu,
    mu_of_draws,
)
from parley.common.privacy.draws import concentrated_epsilon, epsilon_of_draws, largest_rho, rho_of_draws
from parley.common.privacy.events import DrawEvent, GaussianEvent, SequentialEvent
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.noise import Noise

COST_UNIT = 2**FEATURE_BITS
"""A cost of 1, in the integers that are added up."""
_U = 2.0**-53
_LEAST_WEIGHT, _MOST_WEIGHT = 2**52, 2**53 - 1
_OFF = 16
"""The joint error of two quantiles of the normal distribution, at most, in units of u times the larger."""
_WHOLE = 2**52
"""The sum of a coin's two chances, in its unit."""
_TIMES_EPSILON = (0.2, 200.0)
"""The range in which gamma * lambda * epsilon is searched; the bound holds wherever the search ends."""
_TRIED = 32
_CHANCES = (2.0**-40, 0.5)
"""The range of gamma: for less, 2^-52 would be too coarse."""
_LEAST_SCALE = 1.0


def draw(totals: IntArray, scale: float, noise: Noise) -> int:
    """Draw an action, from 0, by the sums (p,) of the costs so far in units of 1 / `COST_UNIT`, and lambda."""
    powers = (totals - totals.min()) * (-1 / (COST_UNIT * scale * math.log(2)))
    exponents = np.floor(powers)
    mantissas = np.clip(np.trunc(np.exp2(powers - exponents) * _LEAST_WEIGHT), _LEAST_WEIGHT, _MOST_WEIGHT)
    return int(noise.categorical(mantissas.astype(np.int64), exponents.astype(np.int64), 1)[0])


def spread_of_a_draw(scale: float, horizon: int) -> float:
    """Return the widest range of the log-chances of an action on neighbouring costs, rounding included."""
    return 4 / scale * (1 + 8 * _U) + 4 * _U * (2 * horizon / scale + 16)


@dataclass(frozen=True, slots=True)
class Dartboard:
    """Public numbers of a leader over ``horizon`` T rounds that draws again with a chance of at least ``chance`` gamma.

    ``scale`` is lambda. Chances of keeping are whole numbers of 2^-52.
    """

    horizon: int
    scale: float
    chance: float

    def keep_chance(self, cost: int) -> int:
        """Return 2^52 times the chance to keep an action that has just cost ``cost``, in units of 1 / `COST_UNIT`."""
        return min(max(self._unclipped(cost), self._unclipped(COST_UNIT)), self._unclipped(-COST_UNIT))

    def _unclipped(self, cost: int) -> int:
        return int(_WHOLE * (1 - self.chance) * math.exp(-(1 + cost / COST_UNIT) / self.scale))

    def keeps(self, cost: int, noise: Noise) -> bool:
        """Toss the coin: return whether the action is kept."""
        chance = self.keep_chance(cost)
        shifts = np.array([53 - chance.bit_length(), 53 - (_WHOLE - chance).bit_length()])
        weights = np.array([chance << int(shifts[0]), (_WHOLE - chance) << int(shifts[1])])
        return int(noise.categorical(weights, -shifts, 1)[0]) == 0

    @property
    def chances(self) -> tuple[float, float]:
        """The least and the largest chance of a draw, over all costs: whole numbers of 2^-52, as floats are."""
        return 1 - self._unclipped(-COST_UNIT) / _WHOLE, 1 - self._unclipped(COST_UNIT) / _WHOLE

    @property
    def draws(self) -> int:
        """K: the largest number of draws, with the first action's."""
        mean, log = self.horizon * self.chances[1], math.log(2 * self.horizon)
        return min(self.horizon, 1 + math.ceil(mean + log / 3 + math.sqrt(log**2 / 9 + 2 * mean * log)))

    @property
    def event(self) -> SequentialEvent:
        """The event of all actions together: one coin, and all draws."""
        return SequentialEvent((GaussianEvent(self._coin), DrawEvent(self._spread, self.draws)))

    @property
    def mu(self) -> float:
        """The mu of a Gaussian release that covers all actions."""
        return math.hypot(self._coin, mu_of_draws(self._spread, self.draws))

    @property
    def rho(self) -> float:
        """The zCDP of all actions."""
        return self._coin**2 / 2 + rho_of_draws(DrawEvent(self._spread, self.draws))

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of all actions at ``delta``: the smaller of two bounds."""
        return min(gaussian_epsilon(self.mu, delta), concentrated_epsilon(self.rho, delta))

    @property
    def _coin(self) -> float:
        """The mu of a Gaussian release that covers one coin."""
        least, most = (float(ndtri(chance)) for chance in self.chances)
        return (most - least) * (1 + ROUNDING) + _OFF * _U * max(-least, abs(most))

    @property
    def _spread(self) -> float:
        return spread_of_a_draw(self.scale, self.horizon)


@lru_cache(maxsize=1024)
def least_dartboard(horizon: int, epsilon: float, delta: float, floor: float = _LEAST_SCALE) -> Dartboard | None:
    """Return the (epsilon, delta)-private dartboard of the least lambda from ``floor`` up.

    Of several with that lambda it is the most private.

    >>> board = least_dartboard(100_000, 1.0, 1e-6)
    >>> round(board.scale), round(board.chance, 4), board.draws
    (462, 0.0123, 1859)

    Returns None if the search finds none.
    """
    less = epsilon * (1 - ROUNDING)  # so that the epsilon computed back is not larger by rounding
    allowed = gaussian_mu(less, delta), largest_rho(less, delta)
    tried = (product / epsilon for product in np.geomspace(*_TIMES_EPSILON, _TRIED).tolist())
    boards = filter(None, (_least_of(horizon, allowed, product, floor) for product in tried))
    return min(boards, key=lambda board: (board.scale, board.epsilon(delta)), default=None)


def _least_of(horizon: int, allowed: tuple[float, float], product: float, floor: float) -> Dartboard | None:
    """Return the dartboard of the least lambda, with gamma = product / lambda, whose mu or rho is allowed."""
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


Adversary = Literal["adaptive", "oblivious"]
MOST_ROUNDS_LED = 2**30
MOST_ACTIONS = 2**24
REACTS: dict[Adversary, str] = {
    "adaptive": "a round's cost is chosen before its action is seen, or does not depend on it",
    "oblivious": "no cost depends on any action, as if all are chosen before the first",
}
"""What costs may depend on, if the bound on regret is to hold."""
_ANYHOW = (
    ": the bound on regret needs that, and privacy does not; later costs may depend on the actions so far, and on a "
    "hidden cost through these alone"
)


@dataclass(frozen=True)
class LeaderTerms:
    """Public numbers of a leader of ``actions`` p over ``horizon`` T rounds, and the budget of all of them.

    ``scale`` is lambda: the least that the budget allows, or that of the least regret if that is more. If the adversary
    is oblivious, and a dartboard is private with less of lambda, actions are drawn by it, ``board``.

    Raises:
        InvalidInputError: p < 2, T < 1, the budget is none or too small to hide the rounding of weights, or the
            calibration or the adversary is unknown.
    """

    actions: int
    horizon: int
    epsilon: float
    delta: float
    calibration: Calibration = "tight"
    adversary: Adversary = "adaptive"
    scale: float = field(init=False)
    board: Dartboard | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if not _is_whole(self.actions, 2, MOST_ACTIONS):  # with one action there is no choice
            raise InvalidInputError(f"actions must lie between 2 and 2^24, a whole number, not be {self.actions}")
        if not _is_whole(self.horizon, 1, MOST_ROUNDS_LED):  # a part of a round would be led, and not charged
            raise InvalidInputError(
                f"the horizon must lie between 1 and 2^30 rounds, a whole number, not be {self.horizon}"
            )
        check_epsilon(self.epsilon)
        if not 0 <= self.delta < 1:
            raise InvalidInputError(f"delta must be at least 0 and below 1, not {self.delta}")
        if self.calibration not in get_args(Calibration):
            raise InvalidInputError(f"the calibration must be 'tight' or 'paper', not {self.calibration!r}")
        if self.adversary not in REACTS:
            raise InvalidInputError(f"the adversary must be 'adaptive' or 'oblivious', not {self.adversary!r}")
        if self.calibration == "paper" and not self.delta:
            raise InvalidInputError("the paper's calibration needs a delta above 0: take calibration = 'tight'")
        private = least_scale(self.horizon, self.epsilon, self.delta, self.calibration)
        best = best_scale(self.actions, self.horizon)
        object.__setattr__(self, "scale", max(private, best))
        if self.adversary == "oblivious" and self.calibration == "tight" and self.delta and private > best:
            board = least_dartboard(self.horizon, self.epsilon, self.delta, best)
            if board is not None and board.scale < private:
                object.__setattr__(self, "board", board)
                object.__setattr__(self, "scale", board.scale)

    @property
    def event(self) -> DrawEvent | SequentialEvent:
        """The event of all actions together."""
        return self._fresh_draws if self.board is None else self.board.event

    @property
    def _fresh_draws(self) -> DrawEvent:
        """The event of all actions, if one is drawn in each round."""
        return DrawEvent(spread_of_a_draw(self.scale, self.horizon), self.horizon)

    @property
    def guarantee(self) -> Guarantee:
        """The promise of all actions to each round's cost vector; without a delta if pure epsilon needs none."""
        if self.board is not None:
            delta, epsilon = self.delta, self.board.epsilon(self.delta)
        else:
            delta = 0.0 if self._fresh_draws.epsilon <= self.epsilon * (1 + ROUNDING) else self.delta
            epsilon = epsilon_of_draws(self._fresh_draws, delta)
        return Guarantee(epsilon, delta, "transcript", self.calibration, assumptions=(self.assumption,))

    @property
    def assumption(self) -> str:
        """What costs may depend on, if the bound on regret and the promise of privacy are to hold."""
        return REACTS[self.adversary] + _ANYHOW

    @property
    def regret(self) -> float:
        """A bound on the expected regret, for costs in [-1, 1] on their grid; at most 2 for each round."""
        kept_for_good = 0.0 if self.board is None else 1.0
        return min(regret_bound(self.actions, self.horizon, self.scale) + kept_for_good, 2.0 * self.horizon)

    def keeps(self, paid: int, draws: int, noise: Noise) -> bool:
        """Return whether to keep an action that has just cost ``paid``, after ``draws`` draws.

        ``paid`` is in units of 1 / `COST_UNIT`.
        """
        return self.board is not None and (draws >= self.board.draws or self.board.keeps(paid, noise))

    def draw(self, totals: IntArray, noise: Noise) -> int:
        """Draw an action, from 0, by the sums (p,) of the costs so far in units of 1 / `COST_UNIT`."""
        return draw(totals, self.scale, noise)


def _is_whole(number: object, least: int, most: int) -> bool:
    """Return whether a number is an integer within a range; a real number or a truth value that equals one is not."""
    return isinstance(number, Integral) and not isinstance(number, bool) and least <= int(number) <= most


def regret_bound(actions: int, horizon: int, scale: float) -> float:
    """Return a bound on the expected regret for costs in [-1, 1]; for costs up to R it is R times that.

    >>> round(regret_bound(10, 1_000, best_scale(10, 1_000)), 1), round(regret_bound(10, 1_000, 311), 1)
    (67.9, 717.7)
    """
    return scale * math.log(actions) + horizon / (2 * scale)


def best_scale(actions: int, horizon: int) -> float:
    """Return the lambda of the least bound on regret, without regard to privacy."""
    return math.sqrt(horizon / (2 * math.log(actions)))


@lru_cache(maxsize=1024)
def least_scale(horizon: int, epsilon: float, delta: float, calibration: Calibration) -> float:
    """Return the least lambda with which all rounds are (epsilon, delta)-private: by the paper's formula, or tight.

    >>> round(least_scale(1_000, 1.0, 1e-5, "paper")), round(least_scale(1_000, 1.0, 1e-5, "tight"))
    (310, 256)

    Raises InvalidInputError if there is none, because epsilon is less than the cost of rounding.
    """

    def holds(inverse: float) -> bool:
        event = DrawEvent(spread_of_a_draw(1 / inverse, horizon), horizon) if inverse else None
        return event is None or epsilon_of_draws(event, delta) <= epsilon

    if calibration == "paper":
        linear = math.sqrt(-8 * horizon * math.log(delta))
        inverse = 2 * epsilon / (linear + math.sqrt(linear**2 + 8 * horizon * epsilon))
    else:
        inverse = bisect(holds)[0]
    if not inverse or not holds(inverse):
        raise InvalidInputError(f"epsilon is too small: the rounding of weights costs more than {epsilon:g}")
    return 1 / inverse
