"""Lambda without tuning: as much as holds the noise down, and no more.

*The rule.* Noise of deviation s on each coordinate of the mean gradient moves the minimiser of a regularised risk by
s / lambda along directions without curvature, and by less along others; noise that is added to a minimiser is
s / lambda outright, for its sensitivity is. So lambda is to a minimiser what 1 / way is to a descent
(`parley.common.algorithms._heavy_ball`), and

    lambda = s / drift

lets noise move the scores of rows of norm 1 by the drift. *What was chosen by looking at data*: the drifts, by the
excess risk on five of the public sets that ``scripts/benchmarks/forecast_quality.py`` trains on; four others have the
same optima, and twice as much or half as much makes little difference. No epsilon counts that.

*Noise for a ball* (`parley.common.learning.losses.largest_minimiser`) falls with the root of lambda alone, so the
square of s takes its place. A minimiser that is strongly regularised falls with lambda itself: from some lambda on,
more takes signal from under the noise, and predictions, to which the scale of scores is nothing, are the worse for it.
That lambda was chosen from .003, .01, .03 and .1 by accuracy on scikit-learn's digits, wine and breast cancer and on
two sets of Gaussian clusters; on iris and three other sets of clusters it does no worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping

from parley.common.algorithms._parameters import rounded
from parley.common.protocol.algorithm import Choice

BETTER_BRANCH = Choice("better_branch", "of the paper's two branches, both private, the one with less noise")
"""Of computeSlack (`parley.common.privacy.calibration.slack`), where nobody says which."""
_LEAST = 1e-6
_MOST_FOR_BALL = 0.01


def choose_regularization(given: Mapping[str, float], noise: float, drift: float) -> dict[str, Choice]:
    """Lambda, if it is not ``given``, for noise that moves weights by ``noise`` at lambda = 1."""
    if "regularization" in given:
        return {}
    chosen = max(_LEAST, rounded(noise / drift))
    return {
        "regularization": Choice(chosen, f"noise moves scores by about {noise / chosen:.2g}, and by more with less")
    }


def choose_for_ball(given: Mapping[str, float], noise: float, drift: float) -> dict[str, Choice]:
    """The same for noise that hides all of the ball in which minimisers are, at lambda = 1; never more than helps."""
    if "regularization" not in given and noise**2 / drift > _MOST_FOR_BALL:
        return {
            "regularization": Choice(_MOST_FOR_BALL, "more would take more from what is learnt than from the noise")
        }
    return choose_regularization(given, noise**2, drift)
