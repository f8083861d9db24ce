"""Following the regularised leader on the simplex: a draw a round, by the sums of the costs before it.

Of p actions one is drawn in each of T rounds, before its cost vector c_t in [-1, 1]^p is known, with chances in
proportion to exp(-C_j / lambda), C = c_1 + ... + c_(t-1): the mixture that minimises <C, theta> + lambda sum theta log
theta (Jain & Thakurta, ICML 2014; as a forecaster, Littlestone & Warmuth 1994). Costs beyond [-1, 1] are divided by
their bound first, and so is lambda here.

*Privacy.* One cost vector replaced moves each C_j by at most 2, so log-chances by a range of 4 / lambda: each action is
a `DrawEvent` of that spread, whatever the actions before it. So it holds too where later costs are chosen by whoever
has seen all actions so far: given those, both worlds' costs are the same but for the one that was replaced. All rounds
are 2 T / lambda^2-zCDP, which is the paper's 2 T / lambda^2 + sqrt(8 T log(1/delta)) / lambda <= epsilon
(``"paper"``); ``"tight"`` is the least lambda by all bounds of `parley.common.privacy.draws`.

*Regret.* With W_t = sum_j exp(-C_j / lambda) after t rounds, log(W_t / W_(t-1)) = log E exp(-c_t[a_t] / lambda) <=
-E c_t[a_t] / lambda + 1 / (2 lambda^2), by Hoeffding's lemma for a variable in [-1, 1]. Summed up, and as W_T >=
exp(-min_j C_j / lambda) and W_0 = p:

    E sum c_t[a_t] - min_j sum c_t[j] <= lambda log p + T / (2 lambda)

whatever the costs, as long as a round's cost does not hang on its action. It is least at lambda = sqrt(T / (2 log p)),
where it is sqrt(2 T log p). Privacy asks for a lambda of its own, which knows no p: where that is the larger, regret
grows as log p, not as its root.

An *oblivious* adversary, whose costs hang on no action at all, cannot tell whether actions are drawn anew each round or
seldom, with the same chances: by a `Dartboard`. Fewer draws need a lambda of some (T log(1/delta))^(1/3) / epsilon, not
(T log(1/delta))^(1/2) / epsilon (Asi, Feldman, Koren & Talwar 2023), where delta > 0. Who sees an action knows then
what the next ones most likely are: costs that hang on it may make regret as large as T.

How a private leader draws its actions: anew each round, or seldom, by a shrinking dartboard.

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


Adversary = Literal["adaptive", "oblivious"]
MOST_ROUNDS_LED = 2**30
MOST_ACTIONS = 2**24
REACTS: dict[Adversary, str] = {
    "adaptive": "a round's cost is chosen before its action is seen, or does not hang on it",
    "oblivious": "no cost hangs on any action: as where all are chosen before the first",
}
"""What costs may hang on, where the bound on regret is to hold."""
_ANYHOW = (
    ": the bound on regret needs that, and privacy does not; later costs may hang on the actions so far, and on a "
    "hidden cost by these alone"
)


@dataclass(frozen=True)
class LeaderTerms:
    """Public numbers of a leader of ``actions`` p over ``horizon`` T rounds, and the budget of all of them.

    ``scale`` is lambda: the least that the budget allows, or that of the least regret where that is more. Where the
    adversary is oblivious, and less of lambda private by one, ``board`` is the dartboard by which actions are drawn.
    Raises InvalidInputError for p < 2, T < 1, a budget that is none, or too small to hide the rounding of weights, and
    for a calibration or an adversary that there is not.
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
        if not _is_whole(self.actions, 2, MOST_ACTIONS):  # of one there is nothing to choose
            raise InvalidInputError(f"actions must lie between 2 and 2^24, a whole number, not be {self.actions}")
        if not _is_whole(self.horizon, 1, MOST_ROUNDS_LED):  # a part of a round would be led, and not paid
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
        """What all actions together cost."""
        return self._anew if self.board is None else self.board.event

    @property
    def _anew(self) -> DrawEvent:
        """What they cost, drawn anew each round."""
        return DrawEvent(spread_of_a_draw(self.scale, self.horizon), self.horizon)

    @property
    def guarantee(self) -> Guarantee:
        """What all actions together promise to each round's cost vector; no delta, where pure epsilon needs none."""
        if self.board is not None:
            delta, epsilon = self.delta, self.board.epsilon(self.delta)
        else:
            delta = 0.0 if self._anew.epsilon <= self.epsilon * (1 + ROUNDING) else self.delta
            epsilon = epsilon_of_draws(self._anew, delta)
        return Guarantee(epsilon, delta, "transcript", self.calibration, assumptions=(self.assumption,))

    @property
    def assumption(self) -> str:
        """What costs may hang on, where the bound on regret and the promise of privacy are to hold."""
        return REACTS[self.adversary] + _ANYHOW

    @property
    def regret(self) -> float:
        """The bound on the expected regret, of costs in [-1, 1] on their grid: 2 a round, where no better is known."""
        kept_for_good = 0.0 if self.board is None else 1.0
        return min(regret_bound(self.actions, self.horizon, self.scale) + kept_for_good, 2.0 * self.horizon)

    def keeps(self, paid: int, draws: int, noise: Noise) -> bool:
        """Whether an action is kept that has just cost so much, in units of 1 / `COST_UNIT`, after so many draws."""
        return self.board is not None and (draws >= self.board.draws or self.board.keeps(paid, noise))

    def draw(self, totals: IntArray, noise: Noise) -> int:
        """An action, from 0, by the sums (p,) of the costs so far in units of 1 / `COST_UNIT`."""
        return draw(totals, self.scale, noise)


def _is_whole(number: object, least: int, most: int) -> bool:
    """Whether it is an integer within these, and not a real number or a truth value that equals one."""
    return isinstance(number, Integral) and not isinstance(number, bool) and least <= int(number) <= most


def regret_bound(actions: int, horizon: int, scale: float) -> float:
    """At most so much expected regret for costs in [-1, 1]; for a bound R it is R times that.

    >>> round(regret_bound(10, 1_000, best_scale(10, 1_000)), 1), round(regret_bound(10, 1_000, 311), 1)
    (67.9, 717.7)
    """
    return scale * math.log(actions) + horizon / (2 * scale)


def best_scale(actions: int, horizon: int) -> float:
    """The lambda of the least bound on regret, were there no privacy."""
    return math.sqrt(horizon / (2 * math.log(actions)))


@lru_cache(maxsize=1024)
def least_scale(horizon: int, epsilon: float, delta: float, calibration: Calibration) -> float:
    """The least lambda with which all rounds are (epsilon, delta)-private: by the paper's formula, or the least known.

    >>> round(least_scale(1_000, 1.0, 1e-5, "paper")), round(least_scale(1_000, 1.0, 1e-5, "tight"))
    (310, 256)

    Raises InvalidInputError where there is none, as epsilon is less than what rounding costs.
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
