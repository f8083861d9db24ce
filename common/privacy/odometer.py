"""What all answers so far reveal, as an epsilon that holds whenever it is read: an odometer beside the filter.

A filter promises a limit. An *odometer* promises the figure of a moment, for every way in which questions, and the
moment itself, are chosen by what earlier answers were (Rogers, Roth, Ullman & Vadhan, "Privacy Odometers and Filters",
2016; Whitehouse, Ramdas, Rogers & Wu, "Fully Adaptive Composition in Differential Privacy", 2023, whose odometers by
mixtures of martingales bound the loss itself where this one bounds a profile, which is less).

**What it means.** A learner asks, and stops at a moment of its choice. P and Q are the laws of all that it has seen by
then, about neighbours, and b is the sum of mu^2 that the filter counts by then, of covers without slack
(`parley.common.privacy.filter`). For every set S of what it may have seen

    P(S) <= E_Q[e^r(b); S] + delta,

r(b) being `odometer`: as (epsilon, delta)-privacy, but with the epsilon that stands there at the stop. With slack that
is at most s, P(S) exceeds this by at most s: take delta - s. Answers and chance alone may choose the moment, not the
rows beside them.

**Proof.** L = log dP/dQ of all that was seen. For every order a > 1 the numbers

    M_a = exp(a L - a (a - 1) b / 2)

are a supermartingale under Q that begins with 1: an answer that N(0, 1) against N(mu, 1) covers is a function of a draw
of these, and noise of its own (Blackwell), so given all before, E_Q[e^(a l)] of its own loss l is at most that of the
two normal laws, exp(a (a - 1) mu^2 / 2); and mu depends on what was seen before alone. So E_Q[M_a] <= 1 at each moment
of stopping, also among infinitely many answers, since M_a >= 0. Let w be chances of orders, and G(b, y) the mean of
y^a exp(-a (a - 1) b / 2) by them. By definition e^r(b) is the largest y - delta G(b, y), over all y > 0. Put y = e^L:

    P(S) - E_Q[e^r(b); S] = E_Q[e^L - e^r(b); S] <= delta E_Q[G(b, e^L)] = delta E_Q[sum of w_a M_a] <= delta.

Slack takes the part of P away that is not covered, at most s in all, and the proof holds for the remainder.

It needs no more of b than that the filter may be set at any level B: all that is asked while b stays within B, and then
one Gaussian release of mu^2 = B - b, is together covered by mu = sqrt(B). For then the mean of M_a over all that stops
within B, times exp(a (a - 1) B / 2), is at most the mean of e^(a L) of a Gaussian release of sqrt(B), which is this
factor; and B is arbitrary. So b may be any sum of a filter that allows this, and any b that is too large will do.

**Orders.** They are 1 + 2^(k/2), k from 0 to 20, and an order's chance is proportional to 1 / (16 + (k - 9)^2): public,
and the same for all budgets. So r does not know the limit: one that is changed later, by what was answered too, changes
no reading. Nor do they depend on delta; as delta G grows with delta, readings at several deltas hold together at the
largest. y - delta G(b, y) is concave, so that its maximum is where its slope is 0. Beside the epsilon of one Gaussian
release of mu = sqrt(b) at the same delta, which holds if nothing was chosen by answers:

| of the budget (as mu^2) | 1 % | 10 % | 50 % | 100 % |
|---|---|---|---|---|
| times as much, of (1, 1e-5) | 1.34 | 1.24 | 1.21 | 1.21 |
| of (5, 1e-5) | 1.23 | 1.20 | 1.21 | 1.21 |

A figure that is always the same multiple, from 1 % to 100 % of one budget, cannot have one below 1.19 for (1, 1e-5) and
1.16 for (5, 1e-5): a learner that stops by what it sees exceeds delta then (`tests/audit/test_stopping.py`). Levels
instead of orders, with a filter and a part of delta for each, come to 1.2 to 1.45. So the reading passes the limit's
epsilon before the limit is reached. Both hold, each with the same delta; the smaller of the two is no promise.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.errors import check_not_negative
from parley.common.privacy.calibration import ROUNDING, bisect

_STEPS = np.arange(21)
_ORDERS = 1 + 2 ** (_STEPS / 2)
_CHANCES = 1 / (16 + (_STEPS - 9) ** 2)
_LOG_CHANCES = np.log(_CHANCES / _CHANCES.sum())
_BEYOND = 700.0  # logarithms of numbers that floating point holds


@lru_cache(maxsize=4096)
def odometer(square: float, delta: float) -> float:
    """Return the epsilon, rounded up, at which answers whose mu^2 add up to ``square`` are private at any moment.

    ``delta`` is what is left of the budget's beside slack. The result is 0 for ``square`` = 0, and infinite for
    ``delta`` = 0.

    >>> round(odometer(0.01, 1e-5), 3), round(odometer(0.1, 1e-5), 3)
    (0.42, 1.444)
    """
    check_not_negative(square=square, delta=delta)
    if square == 0:
        return 0.0
    if delta == 0:
        return math.inf

    def parts(log_y: float) -> FloatArray:
        """Return delta G(b, y) / y, order by order."""
        logs = math.log(delta) + _LOG_CHANCES + (_ORDERS - 1) * (log_y - _ORDERS * square / 2)
        shares: FloatArray = np.exp(np.minimum(logs, _BEYOND))
        return shares

    def rises(log_y: float) -> bool:
        """Return whether y - delta G(b, y) rises at y."""
        return float(_ORDERS @ parts(log_y)) < 1

    if not rises(0.0):
        return 0.0  # its maximum is at some y <= 1, and no larger than that
    log_y, _ = bisect(rises)
    return max(0.0, (log_y + math.log1p(-float(parts(log_y).sum()))) * (1 + ROUNDING))
