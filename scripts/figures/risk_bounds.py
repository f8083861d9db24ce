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

The least fitness that any weights have, with a certificate: what relative fitness (psi) is measured from.

Fitness is the mean loss plus (lambda / 2) |w|^2, as `parley.common.learning.metrics.fitness`.

*The hinge* has no curvature for Newton's method, so its smoothed kin is minimised, Huber's loss of half-width h, for h
ever smaller. Its slopes are a point alpha in [0, 1]^n of the hinge's dual problem (Shalev-Shwartz & Zhang, "Stochastic
Dual Coordinate Ascent Methods for Regularized Loss Minimization", JMLR 2013, eq. 2), and any such point bounds the
least fitness from below:

    mean(alpha) - (lambda / 2) |w(alpha)|^2,    w(alpha) = sum_i alpha_i y_i x_i / (lambda n)

*A smooth loss* with lambda > 0 is within |gradient|^2 / (2 lambda) of its least. *Least squares* need no lambda: the
gradient lies in the span of the rows, on which the curvature is at least the least eigenvalue above 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Hinge, Huber, Loss, Squared
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.learning.solvers import Risk
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
        """The bound on the expected excess risk."""
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
        lower, upper = (2 * low + high) / 3, (low + 2 * high) / 3
        low, high = (low, upper) if _excess(bound, lower) < _excess(bound, upper) else (lower, high)
    return bound(math.exp(high))


def _excess(bound: Callable[[float], RiskBound], log_regularization: float) -> float:
    try:
        return bound(math.exp(log_regularization)).excess
    except InvalidInputError:
        return math.inf


EXACT = 1e-5
_BANDS = (1e-3, 1e-4, 1e-5, 1e-6)
_NOT_ZERO = 1e-10  # eigenvalues below this part of the largest are rounding


@dataclass(frozen=True, slots=True, eq=False)
class Optimum:
    """Weights (d,) of least fitness, their ``fitness``, and the largest part ``gap`` of it that another's is less."""

    model: Model
    fitness: float
    gap: float


def optimum(loss: Loss, shard: Shard, regularization: float, exact: float = EXACT) -> Optimum:
    """The weights of least fitness on one party's examples (n, d), by a loss of one score, to a relative ``exact``.

    Raises InvalidInputError where no certificate is as good, or regularization is 0 and the loss not squared.
    """
    for weights, least in _candidates(loss, shard, regularization):
        reached = fitness(loss, Model(weights), shard, regularization)
        gap = max(reached - least, 0.0) / reached if reached > 0 else 0.0
        if gap <= exact:
            return Optimum(Model(weights), reached, gap)
    raise InvalidInputError(f"no weights are known to be within {exact:g} of the least fitness")


def _candidates(loss: Loss, shard: Shard, regularization: float) -> Iterator[tuple[FloatArray, float]]:
    """Weights, and what the least fitness is at least."""
    if isinstance(loss, Hinge):
        for half_width in _BANDS:
            huber = Huber(half_width)
            weights = minimise(huber, shard, regularization * len(shard.y))
            yield weights, _dual(huber, weights, shard, regularization)
        return
    if isinstance(loss, Squared):
        weights, convexity = _least_squares(shard, regularization)
    else:
        weights, convexity = minimise(loss, shard, regularization * len(shard.y)), regularization
    gradient = Risk(loss, shard, np.asarray(regularization * len(shard.y))).gradient(weights) / len(shard.y)
    yield weights, fitness(loss, Model(weights), shard, regularization) - float(gradient @ gradient) / (2 * convexity)


def _dual(huber: Huber, weights: FloatArray, shard: Shard, regularization: float) -> float:
    """The dual objective of the hinge at the slopes of its smoothed kin."""
    slopes = huber.slope(shard.scores(weights[None])[:, 0], shard.y)
    pulled = shard.weighted_sum(-slopes[:, None])[0] / (regularization * len(shard.y))
    return float(np.abs(slopes).mean() - regularization / 2 * (pulled @ pulled))


def _least_squares(shard: Shard, regularization: float) -> tuple[FloatArray, float]:
    """The shortest of the weights of least fitness, and the least curvature along the rows."""
    n = len(shard.y)
    curvatures, directions = np.linalg.eigh(shard.X.T @ shard.X / n)
    is_positive = curvatures > _NOT_ZERO * curvatures.max()
    along = directions[:, is_positive]
    convexity = curvatures[is_positive] + regularization
    return along @ ((along.T @ (shard.X.T @ shard.y) / n) / convexity), float(convexity.min())
