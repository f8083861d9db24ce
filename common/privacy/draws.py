"""What many draws of an index cost together, in closed form: exponential mechanisms, samples of a private mixture.

Of one draw the chances on neighbouring data differ by a factor between e^t and e^(t + spread) (`DrawEvent`). Of all
such pairs of laws the two-point one is the worst (Dong, Durfee & Rogers, "Optimal Differential Privacy Composition for
Exponential Mechanisms", 2020). Three bounds follow, each valid where every draw may hang on those before it:

- *pure*: the spreads add up;
- *concentrated*: a draw is spread^2 / 8-zCDP (Cesar & Rogers 2021), rho adds up, and for any alpha > 1 it is (epsilon,
  delta)-private with epsilon = alpha rho + log(1/(alpha delta)) / (alpha - 1) + log(1 - 1/alpha) (Canonne, Kamath &
  Steinke 2020, Proposition 12), at most the rho + 2 sqrt(rho log(1/delta)) that is commonly given;
- *Gaussian*: the worst pair has its corner where a test rejects with chance p on one law and q on the other, and
  logit p - logit q = spread. A Gaussian release covers it if its mu is at least Phi^-1(p) - Phi^-1(q). That is largest
  at logit p = -logit q = spread / 2, because x -> Phi^-1(sigma(x)) is odd, and concave above 0. So a draw is covered by
  `pure_mu(spread / 2)`, where pure epsilon by itself would need `pure_mu(spread)`; squares add up.

>>> most_draws(8.1e-4, 1.0, 1e-5) > 250_000
True
"""

from __future__ import annotations

import math
from functools import lru_cache

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
"""More are not counted."""
_NARROWINGS = 60


def rho_of_draws(event: DrawEvent) -> float:
    """The zCDP of all draws."""
    return event.draws * event.spread**2 / 8


def concentrated_epsilon(rho: float, delta: float) -> float:
    """The epsilon of rho-zCDP at ``delta``; infinite for delta = 0.

    >>> concentrated_epsilon(0.0209, 1e-5) < 0.0209 + 2 * math.sqrt(0.0209 * math.log(1e5)) < 1.003
    True
    """
    check_not_negative(rho=rho, delta=delta)
    if not delta:
        return math.inf
    centre = math.log(math.sqrt(-math.log(delta) / rho) + 1)
    below, above = centre - 6.0, centre + 6.0  # of log(alpha - 1); wherever the search ends, the bound holds
    for _ in range(_NARROWINGS):
        left, right = (2 * below + above) / 3, (below + 2 * above) / 3
        below, above = (below, right) if _at(left, rho, delta) < _at(right, rho, delta) else (left, above)
    return max(0.0, _at((below + above) / 2, rho, delta)) * (1 + ROUNDING)


def _at(log_excess: float, rho: float, delta: float) -> float:
    """The epsilon for alpha = 1 + e^log_excess."""
    excess = math.exp(log_excess)
    alpha = 1 + excess
    return alpha * rho - (math.log(delta) + math.log(alpha)) / excess + math.log(excess / alpha)


def epsilon_of_draws(event: DrawEvent, delta: float) -> float:
    """The epsilon of all draws at ``delta``: the least of the three bounds."""
    by_gaussian = gaussian_epsilon(mu_of_draws(event.spread, event.draws), delta)
    return min(event.epsilon, concentrated_epsilon(rho_of_draws(event), delta), by_gaussian)


def most_draws(spread: float, epsilon: float, delta: float) -> int:
    """How many draws of this spread are (epsilon, delta)-private, perhaps none; ``delta`` may be 0.

    Raises InvalidInputError for an epsilon that is no positive number.
    """
    check_epsilon(epsilon)
    if pure_mu(spread / 2) == 0:  # a spread that no float tells from none
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
    """The largest rho whose zCDP is (epsilon, delta)-private."""
    return bisect(lambda rho: rho == 0 or concentrated_epsilon(rho, delta) <= epsilon)[0]
