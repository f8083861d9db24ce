"""The interval of a ratio of two noisy numbers."""

from __future__ import annotations

import math

Spread = tuple[float, float, float]
"""The variance of a top, its covariance with the bottom, the variance of the bottom."""


def ratio_ends(top: float, bottom: float, reach: Spread) -> tuple[float, float] | None:
    """The ends of all r for which (top - r bottom)^2 is no more than noise explains; None where the bottom may be 0.

    ``reach`` is a `Spread` times the square of as many deviations as are allowed for. Exact for Gaussian noise
    (Fieller, "Some Problems in Interval Estimation", JRSS B 1954).
    """
    of_top, of_both, of_bottom = reach
    certain = bottom**2 - of_bottom
    if bottom <= 0 or certain <= 0:
        return None
    middle = top * bottom - of_both
    width = math.sqrt(max(middle**2 - certain * (top**2 - of_top), 0.0))
    return (middle - width) / certain, (middle + width) / certain
