"""Estimates from noisy numbers: they are pulled together by as much as the noise explains their differences.

Once numbers are released with noise of a known deviation, any computation on them keeps the promise. Here the numbers
are of many rows: `smoothed` models the numbers without noise as a linear function of the rows, plus what no such
function explains, both Gaussian, and estimates from the numbers themselves how large each is, by marginal likelihood
(empirical Bayes; Robbins 1956, Efron & Morris 1973). Without noise nothing changes.

*What was chosen by looking at data*: that the function is taken to vary three times as much as is likeliest, so that
shares are pulled to it less, because small differences decide which share of a row is the largest; that the means of
classes are pulled together by themselves; and that no share is left below 0. By test accuracy of votes and of soft
labels on HAR, KDD99, Adult, Cod-RNA, digits, MNIST, breast cancer, card fraud, and sixteen sets made up, with 30 to
1,000 parties, at epsilon .1 to 10 and delta 1e-5. In 25 settings that were looked at afterwards (URL, and seven sets
made up or of scikit-learn, with 20 to 1,000 parties) accuracy rose by up to .5 and fell by up to .04, or .11 of 20
parties with 50 public rows; where classes are rare, at little noise, votes miss them sooner than without, and soft
labels do not.
"""

from __future__ import annotations

import math

import numpy as np

from parley.common.arrays import FloatArray

_LESS = 3.0
_RATIOS = np.geomspace(1e-8, 1e5, 131)
"""Ratios of the function's variance to all other variance, times the rows' largest spread: all that can matter."""
_MATTERS = 1e-10
"""The least spread that matters, as a part of the largest; none of the ratios moves a smaller one."""
_NOTHING = 1e-200
_ROUNDING = 1e-20
"""The largest spread of equal rows: for other rows on the features' grid, one spread is at least 2^-33."""


def shrunk(numbers: FloatArray, deviation: FloatArray | float) -> FloatArray:
    """Pull noisy numbers (..., K) to their mean by as much as noise of deviation (...) explains their differences.

    In the manner of James & Stein 1961.
    """
    mean, spread = numbers.mean(axis=-1, keepdims=True), numbers.var(axis=-1, ddof=1, keepdims=True)
    factor = np.maximum(0.0, 1.0 - np.asarray(deviation)[..., None] ** 2 / np.maximum(spread, _NOTHING))
    return np.asarray(mean + (numbers - mean) * factor)


def smoothed(shares: FloatArray, rows: FloatArray, deviation: float) -> FloatArray:
    """Estimate the shares (N, K) of classes without their noise, given the rows (N, d).

    Each row's shares add up to 1, before and after, and none is below 0 after; ``deviation`` is the noise's on each.
    """
    if not deviation:
        return shares
    n, k = shares.shape
    spread, directions = _spectrum(rows - rows.mean(axis=0))
    if not len(spread):
        return _clipped(shares)
    mean = shares.mean(axis=0)
    seen = directions.T @ shares
    energy = (seen**2).sum(axis=1)
    unexplained = max(0.0, float(((shares - mean) ** 2).sum() - energy.sum()))

    scaled = 1 + np.multiply.outer(_RATIOS / spread[0], spread)  # the variance of each direction, for each ratio
    residual = (energy / scaled).sum(axis=1) + unexplained
    variance = np.maximum(deviation**2, residual / (k * (n - 1)))
    unlikely = k * np.log(scaled).sum(axis=1) + k * (n - 1) * np.log(variance) + residual / variance
    best = int(unlikely.argmin())

    taken = 1 - 1 / (1 + _LESS * (scaled[best] - 1))
    explained = shrunk(mean, deviation * math.sqrt(k / (k - 1) / n)) + directions @ (seen * taken[:, None])
    return _clipped(explained + (1 - deviation**2 / variance[best]) * (shares - explained))


def _clipped(shares: FloatArray) -> FloatArray:
    """Raise negative shares to 0, and scale each row to add up to 1 again."""
    above = np.maximum(shares, 0.0)
    return np.asarray(above / above.sum(axis=1, keepdims=True))


def _spectrum(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the squared singular values (r,) of rows (N, d) that matter, the largest first, and vectors (N, r)."""
    wide = len(rows) <= rows.shape[1]
    squares, vectors = np.linalg.eigh(rows @ rows.T if wide else rows.T @ rows)
    relevant = np.flatnonzero(squares > max(_MATTERS * float(squares.max()), _ROUNDING))[::-1]
    squares, vectors = squares[relevant], vectors[:, relevant]
    return np.asarray(squares), np.asarray(vectors if wide else rows @ vectors / np.sqrt(squares))
