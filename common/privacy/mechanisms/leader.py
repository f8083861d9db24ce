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
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from numbers import Integral
from typing import Literal, get_args

from parley.common.arrays import IntArray
from parley.common.errors import InvalidInputError
from parley.common.privacy.calibration import ROUNDING, Calibration, bisect, check_epsilon
from parley.common.privacy.draws import epsilon_of_draws
from parley.common.privacy.events import DrawEvent, SequentialEvent
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.mechanisms.leader_draws import Dartboard, draw, least_dartboard, spread_of_a_draw
from parley.common.privacy.noise import Noise

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
