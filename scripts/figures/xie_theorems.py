"""Theorems 4.11 to 4.16 of Xie's thesis, as printed: bounds on the squared distance of joined models to the best one.

The loss is lambda1-strongly convex, the regulariser lambda2-strongly convex, |gradient| has a mean square of at most
C1^2, C2 and C3 bound squared gradients of the regulariser, C4 is De Acosta's constant, g = L(0) - L(f*), and
s = lambda1 + Lambda lambda2. The terms 4 C1^2 fall with no number of rows, so the bounds grow with N for any data; and
lambda1 is 0 for the logistic and the Huber loss, of which they say nothing at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from parley.common.learning.losses import Huber
from parley.common.privacy.mechanisms.output import hessian_bound
from parley.common.privacy.mechanisms.site import SiteTerms

LENGTH = "‖f*‖²"
"""The square of the best model's length."""
NAMES = ("4.12, no noise", "4.14, noise at sites", "4.16, noise everywhere")


@dataclass(frozen=True, slots=True)
class Constants:
    """What the theorems are about: by default an example of ours, in which most constants are 1."""

    rows: int = 789
    aggregator: int = 789
    sites: int = 10
    loss_convexity: float = 0.1
    ridge_convexity: float = 1.0
    regularization: float = 0.01
    slope: float = 1.0
    ridge_slope: float = 1.0
    acosta: float = 1.0
    gap: float = 0.5
    length: float = 5.0
    features: int = 80
    epsilon: float = 0.1
    delta: float = 0.05

    @property
    def convexity(self) -> float:
        """s, of loss and regulariser together."""
        return self.loss_convexity + self.regularization * self.ridge_convexity

    def _sampling(self, n: int) -> float:
        slope = self.slope**2
        return 8 * self.acosta * slope / n + 4 * slope + 2 * self.regularization**2 * self.ridge_slope

    @property
    def _apart(self) -> float:
        """What the first level's term has beside its noise and its sampling."""
        return 8 * self.sites / self.loss_convexity * self.gap + 4 * self.sites * self.length**2

    def first(self, *, private: bool) -> float:
        """A0, of the sites' models (Lemma 4.10); with the noise of private ones as Theorem 4.14 has it."""
        sampled = 8 * self.sites / self.convexity**2 * self._sampling(self.rows)
        if not private:
            return sampled + self._apart
        tail = self.features * math.log(self.features / self.delta) / (self.rows * self.epsilon)
        return 16 * self.sites * (tail / self.convexity) ** 2 + 2 * sampled + self._apart

    def second(self, *, private: bool) -> float:
        """W0, of the aggregator's weights (Lemma 4.8); with the noise of private ones as Theorem 4.16 has it."""
        sampled = 4 / self.convexity**2 * self._sampling(self.aggregator)
        if not private:
            return sampled
        tail = self.sites * math.log(self.sites / self.delta) / (self.aggregator * self.epsilon)
        return 8 * (tail / self.convexity) ** 2 + 2 * sampled

    def bound(self, *, sites_private: bool, aggregator_private: bool) -> float:
        """4 A0 W0 + 4 g / lambda1, which Theorems 4.12, 4.14 and 4.16 print (4.25; the 2 of 4.23 is a slip)."""
        return 4 * self.first(private=sites_private) * self.second(private=aggregator_private) + 2 * self.span

    @property
    def span(self) -> float:
        """2 g / lambda1: on the squared distance of the best model in the span of the sites' (Theorem 4.11)."""
        return 2 / self.loss_convexity * self.gap


def bounds(rows: int) -> dict[str, list[float]]:
    """The three theorems' bounds on the squared distance at m = m0 rows, and the square of the best model's length."""
    case = Constants(rows=rows, aggregator=rows)
    values = [case.bound(sites_private=i > 0, aggregator_private=i > 1) for i in range(3)]
    return {**{name: [value] for name, value in zip(NAMES, values, strict=True)}, LENGTH: [case.length**2]}


def printed_hessian_bound(features: int = 80, half_width: float = 0.5) -> float:
    """(3.8), as ``calibration="thesis"`` has it."""
    return hessian_bound(SiteTerms(Huber(half_width), 1, features, 0.01, 1.0, 0.0, "l2_laplace", "thesis"))
