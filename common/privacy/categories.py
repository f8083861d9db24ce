"""Draws of an index with chances in proportion to floats, exactly, by fair bits.

Weights are mantissa 2^exponent, the rationals that floats are, however far apart they lie. A first draw finds the
exponent, each as likely as the sum of its weights: a uniform U is read word by word until it parts from all bounds
between exponents, which are rationals. Fair bits then propose an index of that exponent, and accept it with probability
mantissa / 2^53. No chance is ever rounded. How often a proposal is refused depends on the weights, so the time that a
draw takes does, within a factor of about four.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate, islice

import numpy as np
import numpy.typing as npt

from parley.common.arrays import IntArray

Words = npt.NDArray[np.uint64]
Reader = Callable[[int], Words]
"""So many uniform words of 64 bits."""
_WORD = 64
_LEAST_MANTISSA = 2**52
_PROPOSALS = 512  # made at least at a time, so that the last few draws take few turns


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
        """``n`` indices."""
        group = self._groups(words, n)
        result, done = np.empty(n, np.int64), np.zeros(n, np.bool_)
        while (pending := np.flatnonzero(~done)).size:
            tried = np.repeat(pending, max(_PROPOSALS // pending.size, 1))
            place, uniform = words(2 * tried.size).reshape(2, -1)
            own = group[tried]
            place = place >> self._spare[own]
            accepted = place < self._sizes[own].astype(np.uint64)
            found = self._starts[own] + np.where(accepted, place, np.uint64(0)).astype(np.int64)
            accepted &= (uniform >> np.uint64(_WORD - 53)) < self._mantissas[found]
            hit = tried[accepted]
            result[hit], done[hit] = found[accepted], True
        return np.asarray(self._order[result])

    def _ends(self) -> Iterator[int]:
        """The sums of the weights up to each exponent's last: as long as exponents are apart, so one at a time."""
        ends = zip(self._starts.tolist(), self._sizes.tolist(), self._shifts, strict=True)
        return accumulate(_exact_sum(self._mantissas[start : start + size]) << shift for start, size, shift in ends)

    def _groups(self, words: Reader, n: int) -> IntArray:
        """Which exponent, as a place among those that there are."""
        uniform = words(n)
        group = np.searchsorted(self._bounds, uniform, side="left")
        for i in np.flatnonzero(np.searchsorted(self._bounds, uniform, side="right") > group):
            group[i] = self._resolved(int(uniform[i]), words)
        return np.asarray(group, dtype=np.int64)

    def _resolved(self, word: int, words: Reader) -> int:
        """The exponent of a uniform whose binary digits begin with ``word``, read on until it parts from all bounds."""
        bits, total = _WORD, self._total
        while True:
            low, high = word * total, (word + 1) * total
            if all((end << bits) <= low or (end << bits) >= high for end in self._ends()):
                return sum((end << bits) <= low for end in self._ends())
            word = word << _WORD | int(words(1)[0])
            bits += _WORD


def _exact_sum(values: Words) -> int:
    """The sum of integers below 2^53, in two halves, lest it wrap."""
    return (int((values >> np.uint64(32)).sum()) << 32) + int((values & np.uint64(2**32 - 1)).sum())
