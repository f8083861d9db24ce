"""Lambda without tuning: as much as holds the noise down, and no more.

*The rule.* Noise of deviation s on each coordinate of the mean gradient moves the minimiser of a regularised risk by
s / lambda along directions without curvature, and by less along others; noise that is added to a minimiser is
s / lambda outright, for its sensitivity is. So lambda is to a minimiser what 1 / way is to a descent
(`common.algorithms._heavy_ball`), and

    lambda = s / drift

lets noise move the scores of rows of norm 1 by the drift. *What was chosen by looking at data*: the drifts, by the
excess risk on five of the public sets that ``scripts/benchmarks/forecast_quality.py`` trains on; four others have the
same optima, and twice as much or half as much makes little difference. No epsilon counts that.
"""

from __future__ import annotations

from collections.abc import Mapping

from common.algorithms._parameters import rounded
from common.protocol.algorithm import Choice

_LEAST = 1e-6


def choose_regularization(given: Mapping[str, float], noise: float, drift: float) -> dict[str, Choice]:
    """Lambda, if it is not ``given``, for noise that moves weights by ``noise`` at lambda = 1."""
    if "regularization" in given:
        return {}
    chosen = max(_LEAST, rounded(noise / drift))
    return {
        "regularization": Choice(chosen, f"noise moves scores by about {noise / chosen:.2g}, and by more with less")
    }
