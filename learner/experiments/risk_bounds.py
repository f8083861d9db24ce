"""What private models surely cost: bounds on their expected excess risk that no dimension enters.

Excess risk is the mean loss of n examples less that of any weights w0 one likes to compare with, regularised or not,
in expectation over the noise. Jain & Thakurta, "(Near) Dimension Independent Risk Bounds for Differentially Private
Learning", ICML 2014, bound it for output perturbation (Theorem 1), objective perturbation (Theorem 2) and samples from
the simplex (Theorem 4). The constants here are ours, by the proofs below; their orders are the paper's or better.

*A rise.* Where a score is moved by z of mean 0 and variance v, the expected loss rises by at most L sqrt(v), as its
slope is at most L; and by at most c v / 2, as its curvature is at most c. Noise b of any law that is alike in all
directions moves the score of a row of norm R by variance R^2 s^2, s its deviation in one coordinate: for Gaussian noise
that knows no dimension; for noise of density exp(-beta |b|) it is (d + 1) / beta^2.

*Output.* The minimiser has F <= F(w0), so its mean loss is at most that of w0 and Lambda |w0|^2 / (2n), Lambda being
the regularization on the sum scale. The noise adds a rise.

*Objective.* With a tilt b, let v = w + b / Lambda: the private w is where sum loss(<v, x_i> - <b, x_i> / Lambda) +
(Lambda / 2) |v|^2 is least, by completing the square. At v = w0 that is the risk of w0 whose scores are moved, so the
mean loss of w is at most that of w0, Lambda |w0|^2 / (2n) and a rise for noise b / Lambda: as if b / Lambda had been
added to the output. The blur that hides the solver's error adds its variance. By rounding, what a solver may leave
grows with the entries of a row, and so, slightly, does the blur: where rows have few, no dimension enters there either.

*Simplex.* See `parley.common.privacy.mechanisms.sampling.SimplexSampling.excess`.

*A constraint set* breaks all of it: projected onto the positive orthant, noise has a mean, so that a score is moved by
up to sqrt(d) times as much; `scripts.figures.jain` shows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Loss
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation
from parley.common.privacy.mechanisms.output import OutputPerturbation
from parley.common.privacy.mechanisms.site import SiteRelease, SiteTerms

_NARROWINGS = 80
_LEAST, _MOST = 1e-9, 1e6  # of lambda


@dataclass(frozen=True, slots=True)
class RiskBound:
    """At most so much excess risk, by ``regularization`` (lambda of the mean loss) and by ``noise``, in nats."""

    regularization: float
    by_regularization: float
    by_noise: float

    @property
    def excess(self) -> float:
        """The bound."""
        return self.by_regularization + self.by_noise


def rise(loss: Loss, deviation: float) -> float:
    """The largest expected rise of a loss, as its score is moved by noise of mean 0 and this deviation."""
    return min(loss.lipschitz * deviation, loss.smoothness / 2 * deviation**2) if deviation else 0.0


def release_bound(release: SiteRelease, norm: float, radius: float = 1.0) -> RiskBound:
    """Of a site's private model over weights w0 of this norm; rows have norms up to ``radius``.

    Of the hinge, for which the narrowest Huber loss that can be solved stands in, half of its half-width is added at
    most: the two losses are a quarter of it apart, at w0 and at the model.
    """
    terms = release.terms
    strength, deviation, apart = terms.strength, release.deviation, 0.0
    if isinstance(release, ObjectivePerturbation):
        strength, deviation = release.strength, math.hypot(deviation, release.blur_deviation)
    elif isinstance(release, OutputPerturbation) and isinstance(release.loss, Huber) and release.loss != terms.loss:
        apart = release.loss.h / 2
    bias = strength * norm**2 / (2 * terms.n_examples) + apart
    return RiskBound(terms.regularization, bias, rise(terms.loss, radius * deviation))


def best_release_bound(mechanism: Callable[[SiteTerms], SiteRelease], terms: SiteTerms, norm: float) -> RiskBound:
    """The least bound over lambda, with the lambda that has it.

    Raises InvalidInputError where the mechanism can be set for no lambda.
    """
    return least_bound(lambda strength: release_bound(mechanism(replace(terms, regularization=strength)), norm))


def least_bound(bound: Callable[[float], RiskBound]) -> RiskBound:
    """The least of bounds over lambda in [1e-9, 1e6]: they fall, then rise; below some lambda there may be none."""
    low, high = math.log(_LEAST), math.log(_MOST)
    for _ in range(_NARROWINGS):
        left, right = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, right) if _excess(bound, left) < _excess(bound, right) else (left, high)
    return bound(math.exp(high))


def _excess(bound: Callable[[float], RiskBound], log_regularization: float) -> float:
    try:
        return bound(math.exp(log_regularization)).excess
    except InvalidInputError:
        return math.inf
