"""Many draws of an index: what they cost together, in closed form, and how to draw them exactly.

*Cost* (exponential mechanisms, samples of a private mixture). For one draw the chances on neighbouring data differ by a
factor between e^t and e^(t + spread) (`DrawEvent`). Of all such pairs of laws the two-point one is the worst (Dong,
Durfee & Rogers, "Optimal Differential Privacy Composition for Exponential Mechanisms", 2020). Three bounds follow, each
valid if every draw may depend on those before it:

- *pure*: the spreads add up;
- *concentrated*: a draw is spread^2 / 8-zCDP (Cesar & Rogers 2021), rho adds up, and for any alpha > 1 it is (epsilon,
  delta)-private with epsilon = alpha rho + log(1/(alpha delta)) / (alpha - 1) + log(1 - 1/alpha) (Canonne, Kamath &
  Steinke 2020, Proposition 12), at most the rho + 2 sqrt(rho log(1/delta)) that is commonly given;
- *Gaussian*: the worst pair has its corner where a test rejects with chance p on one law and q on the other, and logit
  p - logit q = spread. A Gaussian release covers it if its mu is at least Phi^-1(p) - Phi^-1(q). That is largest at
  logit p = -logit q = spread / 2, because x -> Phi^-1(sigma(x)) is odd, and concave above 0. So a draw is covered by
  `pure_mu(spread / 2)`, where pure epsilon by itself would need `pure_mu(spread)`; squares add up.

>>> most_draws(8.1e-4, 1.0, 1e-5) > 250_000
True

*Exact draws* (`Categories`) have chances in proportion to floats, and use fair bits. Weights are mantissa 2^exponent,
the rationals that floats are, however far apart they lie. A first draw finds the exponent, each as likely as the sum of
its weights: a uniform U is read word by word until it parts from all bounds between exponents, which are rationals.
Fair bits then propose an index of that exponent, and accept it with probability mantissa / 2^53. No chance is ever
rounded. How often a proposal is refused depends on the weights, and so does the time that a draw takes, within a factor
of about four.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate, islice

import numpy as np
import numpy.typing as npt

from parley.common.arrays import IntArray
from parley.common.errors import check_not_negative
from parley.common.privacy.calibration import (
    ROUNDING,
    bisect,
    check_epsilon,
    gaussian_epsilon,
    gaussian_mu,
    mu_of_draws,
    pure_mu,
)
from parley.common.privacy.events import DrawEvent

MOST_DRAWS = 2**40
"""The largest number of draws that is counted."""
_NARROWINGS = 60


def rho_of_draws(event: DrawEvent) -> float:
    """Return the zCDP of all draws."""
    return event.draws * event.spread**2 / 8


def concentrated_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at ``delta``; infinite for delta = 0.

    >>> concentrated_epsilon(0.0209, 1e-5) < 0.0209 + 2 * math.sqrt(0.0209 * math.log(1e5)) < 1.003
    True
    """
    check_not_negative(rho=rho, delta=delta)
    if not delta:
        return math.inf
    centre = math.log(math.sqrt(-math.log(delta) / rho) + 1)
    below, above = centre - 6.0, centre + 6.0  # bounds of log(alpha - 1); the result is valid wherever the search ends
    for _ in range(_NARROWINGS):
        lower, upper = (2 * below + above) / 3, (below + 2 * above) / 3
        below, above = (below, upper) if _at(lower, rho, delta) < _at(upper, rho, delta) else (lower, above)
    return max(0.0, _at((below + above) / 2, rho, delta)) * (1 + ROUNDING)


def _at(log_excess: float, rho: float, delta: float) -> float:
    """Return the epsilon for alpha = 1 + e^log_excess."""
    excess = math.exp(log_excess)
    alpha = 1 + excess
    return alpha * rho - (math.log(delta) + math.log(alpha)) / excess + math.log(excess / alpha)


def epsilon_of_draws(event: DrawEvent, delta: float) -> float:
    """Return the epsilon of all draws at ``delta``: the least of the three bounds."""
    by_gaussian = gaussian_epsilon(mu_of_draws(event.spread, event.draws), delta)
    return min(event.epsilon, concentrated_epsilon(rho_of_draws(event), delta), by_gaussian)


def most_draws(spread: float, epsilon: float, delta: float) -> int:
    """Return how many draws of this spread are (epsilon, delta)-private, perhaps none; ``delta`` may be 0.

    Raises InvalidInputError for an epsilon that is no positive number.
    """
    check_epsilon(epsilon)
    if pure_mu(spread / 2) == 0:  # the spread is too small for a float
        return MOST_DRAWS
    most = epsilon / spread
    if delta:
        by_gaussian = (gaussian_mu(epsilon, delta) / pure_mu(spread / 2)) ** 2
        most = max(most, 8 * largest_rho(epsilon, delta) / spread**2, by_gaussian)
    draws = math.floor(min(most, MOST_DRAWS) * (1 + 10 * ROUNDING)) + 1
    while draws and epsilon_of_draws(DrawEvent(spread, draws), delta) > epsilon:
        draws -= max(1, math.floor(draws * ROUNDING))
    return draws


@lru_cache(maxsize=1024)
def largest_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho whose zCDP is (epsilon, delta)-private."""
    return bisect(lambda rho: rho == 0 or concentrated_epsilon(rho, delta) <= epsilon)[0]


Words = npt.NDArray[np.uint64]
Reader = Callable[[int], Words]
"""A function that returns this many uniform words of 64 bits."""
_WORD = 64
_LEAST_MANTISSA = 2**52
_PROPOSALS = 512  # the fewest at a time, so that the last few draws take few turns


class Categories:
    """Weights mantissas[i] 2^exponents[i], sorted by exponent, the largest first.

    ``mantissas`` (k,) are integers from 2^52 to 2^53 - 1, ``exponents`` (k,) integers. Raises ValueError for others.
    """

    def __init__(self, mantissas: IntArray, exponents: IntArray) -> None:
        if not (mantissas.size and mantissas.ndim == 1 and mantissas.shape == exponents.shape):
            raise ValueError(f"weights must be one mantissa and one exponent each, not {mantissas.shape}")
        if not bool(((mantissas >= _LEAST_MANTISSA) & (mantissas < 2 * _LEAST_MANTISSA)).all()):
            raise ValueError("mantissas must lie between 2^52 and 2^53 - 1")
        self._order = np.argsort(-exponents, kind="stable")
        self._mantissas = mantissas[self._order].astype(np.uint64)
        sorted_exponents = exponents[self._order]
        self._starts = np.flatnonzero(np.diff(sorted_exponents, prepend=sorted_exponents[0] + 1))
        self._sizes = np.diff(self._starts, append=mantissas.size)
        self._spare = np.array([_WORD - max((size - 1).bit_length(), 1) for size in self._sizes.tolist()], np.uint64)
        self._shifts = (sorted_exponents[self._starts] - sorted_exponents[-1]).tolist()
        self._total = deque(self._ends(), maxlen=1)[0]
        below = islice(self._ends(), len(self._starts) - 1)
        self._bounds = np.array([(end << _WORD) // self._total for end in below], np.uint64)

    def draw(self, words: Reader, n: int) -> IntArray:
        """Draw ``n`` indices, (n,)."""
        group = self._groups(words, n)
        result, done = np.empty(n, np.int64), np.zeros(n, np.bool_)
        while (pending := np.flatnonzero(~done)).size:
            tried = np.repeat(pending, max(_PROPOSALS // pending.size, 1))
            place, uniform = words(2 * tried.size).reshape(2, -1)
            group_of_trial = group[tried]
            place = place >> self._spare[group_of_trial]
            accepted = place < self._sizes[group_of_trial].astype(np.uint64)
            candidate = self._starts[group_of_trial] + np.where(accepted, place, np.uint64(0)).astype(np.int64)
            accepted &= (uniform >> np.uint64(_WORD - 53)) < self._mantissas[candidate]
            hit = tried[accepted]
            result[hit], done[hit] = candidate[accepted], True
        return np.asarray(self._order[result])

    def _ends(self) -> Iterator[int]:
        """Yield the sums of the weights up to each exponent's last.

        They are as long as the exponents are apart, so they are made one at a time.
        """
        ends = zip(self._starts.tolist(), self._sizes.tolist(), self._shifts, strict=True)
        return accumulate(_exact_sum(self._mantissas[start : start + size]) << shift for start, size, shift in ends)

    def _groups(self, words: Reader, n: int) -> IntArray:
        """Draw ``n`` exponents, each as its position among the distinct ones."""
        uniform = words(n)
        group = np.searchsorted(self._bounds, uniform, side="left")
        for i in np.flatnonzero(np.searchsorted(self._bounds, uniform, side="right") > group):
            group[i] = self._resolved(int(uniform[i]), words)
        return np.asarray(group, dtype=np.int64)

    def _resolved(self, word: int, words: Reader) -> int:
        """Return the exponent of a uniform whose binary digits begin with ``word``.

        Reads on until the uniform parts from all bounds.
        """
        bits, total = _WORD, self._total
        while True:
            low, high = word * total, (word + 1) * total
            if all((end << bits) <= low or (end << bits) >= high for end in self._ends()):
                return sum((end << bits) <= low for end in self._ends())
            word = word << _WORD | int(words(1)[0])
            bits += _WORD


def _exact_sum(values: Words) -> int:
    """Return the sum of integers below 2^53, in two halves so that it does not overflow."""
    return (int((values >> np.uint64(32)).sum()) << 32) + int((values & np.uint64(2**32 - 1)).sum())
