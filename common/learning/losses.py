"""Losses of linear scores s = w.x against a label y.

Each loss gives its value, its slope dl/ds and its curvature d2l/ds2 with the constants that the privacy proofs need:
``lipschitz`` L bounds the norm of the slope, ``smoothness`` c that of the curvature.

*Class weights* w_k in [0, 1] make a class count for less: an example of class k has w_k times the loss, hence w_k times
the slope and the curvature. What is minimised is (1/n) sum_i w_(y_i) loss(s_i, y_i): divided by n, which is public, and
not by the sum of the weights, which is not. Weights are public and the same for every row, so a weighted loss is a
convex loss of one example, and L and c bound it as they bound that of weight 1. So every proof holds that takes no
more than this from a loss: of noise on sums of clipped gradients; of output perturbation, which takes convexity and L;
of objective perturbation, which takes c too (both of Chaudhuri, Monteleoni & Sarwate 2011, whose proofs use these
bounds on one example's gradient and Hessian alone). Noise is that of weight 1, while the gradients beside it are
shorter. How far it moves a score does not depend on the weights, and that is what steps, rounds and lambda are chosen
by, so they are chosen as they are without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
from scipy.special import expit, lambertw, logsumexp, softmax

from parley.common.arrays import FloatArray
from parley.common.encoding.classes import decode_classes
from parley.common.errors import InvalidInputError

if TYPE_CHECKING:
    from parley.common.data.study import Study


class Loss(Protocol):
    """A convex loss of the scores of an example.

    Of one score (``outputs`` is 1) scores, values, slopes and curvatures are (...), elementwise. Of K scores, one a
    class, scores and slopes are (..., K), values are (...).
    """

    @property
    def outputs(self) -> int:
        """The number of scores of an example."""

    @property
    def class_weights(self) -> tuple[float, ...]:
        """The weight of each class; empty if all are 1."""

    @property
    def one_sided(self) -> bool:
        """Whether slopes by the score have one sign, for each label."""

    @property
    def lipschitz(self) -> float:
        """L: the largest norm of a slope; infinite where there is none."""

    @property
    def smoothness(self) -> float:
        """c: the largest curvature; infinite where there is none."""

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each example, (...)."""

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the derivative by the scores, shaped like them."""

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the second derivative by the scores: elementwise, or (..., K, K)."""

    def curvature_times(self, score: FloatArray, y: FloatArray, direction: FloatArray) -> FloatArray:
        """Return the second derivative along a direction; both are shaped like the scores."""

    def weighted(self, parts: FloatArray, y: FloatArray) -> FloatArray:
        """Return parts of examples of weight 1, (...) or of scores each (..., K), times the weights of their classes.

        No part becomes larger, in floating point too.
        """


@dataclass(frozen=True, slots=True)
class _Weighted:
    """The part that all losses share: the weights of classes."""

    one_sided: ClassVar[bool] = False
    class_weights: tuple[float, ...] = field(default=(), kw_only=True)

    def weights_of(self, y: FloatArray) -> FloatArray:
        """Return the weight of each example, (...)."""
        return np.array(self.class_weights)[decode_classes(y, len(self.class_weights))]


@dataclass(frozen=True, slots=True)
class _OneScore(_Weighted):
    """The part that losses of one score share."""

    outputs: ClassVar[int] = 1

    def weighted(self, parts: FloatArray, y: FloatArray) -> FloatArray:
        """Return parts of examples of weight 1 times the weights of their classes, elementwise."""
        return np.asarray(parts * self.weights_of(y)) if self.class_weights else parts

    def curvature_times(self, score: FloatArray, y: FloatArray, direction: FloatArray) -> FloatArray:
        """Return the second derivative times a direction, elementwise."""
        return np.asarray(self.curvature(score, y) * direction)  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Logistic(_OneScore):
    """log(1 + exp(-y s)): L = 1, c = 1/4."""

    one_sided: ClassVar[bool] = True
    lipschitz: float = 1.0
    smoothness: float = 0.25

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each example, elementwise."""
        return self.weighted(np.logaddexp(0.0, -y * score), y)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the derivative by the score, elementwise."""
        return self.weighted(-y * expit(-y * score), y)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the second derivative by the score, elementwise."""
        p = expit(y * score)
        return self.weighted(y * y * p * (1.0 - p), y)


@dataclass(frozen=True, slots=True)
class Huber(_OneScore):
    """The hinge smoothed over a band of half-width h (Chaudhuri et al. 2011, eq. 7): L = 1, c = 1/(2h)."""

    one_sided: ClassVar[bool] = True
    h: float = 0.5

    @property
    def lipschitz(self) -> float:
        """L, the largest norm of a slope: 1."""
        return 1.0

    @property
    def smoothness(self) -> float:
        """The largest curvature, c = 1/(2h)."""
        return 1.0 / (2.0 * self.h)

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return 0 beyond the margin 1 + h, a linear value below 1 - h, and that of a parabola between."""
        gap = 1.0 + self.h - y * score
        values = np.where(gap <= 0, 0.0, np.where(gap <= 2 * self.h, gap**2 / (4 * self.h), 1.0 - y * score))
        return self.weighted(values, y)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the derivative by the score, elementwise."""
        return self.weighted(-y * np.clip((1.0 + self.h - y * score) / (2.0 * self.h), 0.0, 1.0), y)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the second derivative by the score, elementwise."""
        return self.weighted(np.where(np.abs(1.0 - y * score) <= self.h, y * y / (2.0 * self.h), 0.0), y)


@dataclass(frozen=True, slots=True)
class Squared(_OneScore):
    """(s - y)^2 / 2, for regression: c = 1, and no L; clipping its gradient makes it Huber's robust regression."""

    lipschitz: float = math.inf
    smoothness: float = 1.0

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each example, elementwise."""
        return self.weighted((score - y) ** 2 / 2, y)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the derivative by the score, elementwise."""
        return self.weighted(score - y, y)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the second derivative by the score, elementwise."""
        return self.weighted(np.ones_like(y * score), y)


@dataclass(frozen=True, slots=True)
class Hinge(_OneScore):
    """max(0, 1 - y s), the support vector machine's: L = 1, and no c. The slope at the kink is a subgradient, 0."""

    one_sided: ClassVar[bool] = True
    lipschitz: float = 1.0
    smoothness: float = math.inf

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss of each example, elementwise."""
        return self.weighted(np.maximum(0.0, 1.0 - y * score), y)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return a subderivative by the score, elementwise."""
        return self.weighted(np.where(y * score < 1.0, -y, 0.0), y)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the second derivative wherever there is one: 0."""
        return np.zeros_like(y * score)


@dataclass(frozen=True, slots=True)
class Softmax(_Weighted):
    """log sum_k exp(s_k) - s_c, for the class c of K that the label y encodes: L = sqrt 2, c = 1/2."""

    outputs: int
    lipschitz: ClassVar[float] = math.sqrt(2)
    smoothness: ClassVar[float] = 0.5

    def weighted(self, parts: FloatArray, y: FloatArray) -> FloatArray:
        """Return parts of examples of weight 1, (...), (..., K) or (..., K, K), times the weights of their classes."""
        if not self.class_weights:
            return parts
        return np.asarray(parts * self.weights_of(y)[(..., *(None,) * (parts.ndim - y.ndim))])

    def value(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the loss, (...), of scores (..., K)."""
        of_label = np.take_along_axis(score, decode_classes(y, self.outputs)[..., None], axis=-1)[..., 0]
        return self.weighted(np.asarray(logsumexp(score, axis=-1) - of_label), y)

    def slope(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return the class probabilities less 1 at the label's class, (..., K)."""
        slope: FloatArray = softmax(score, axis=-1)
        classes = decode_classes(y, self.outputs)[..., None]
        np.put_along_axis(slope, classes, np.take_along_axis(slope, classes, axis=-1) - 1.0, axis=-1)
        return self.weighted(slope, y)

    def curvature(self, score: FloatArray, y: FloatArray) -> FloatArray:
        """Return diag(p) - p p^T, (..., K, K)."""
        p = softmax(score, axis=-1)
        return self.weighted(np.asarray(p[..., None] * np.eye(self.outputs) - p[..., None] * p[..., None, :]), y)

    def curvature_times(self, score: FloatArray, y: FloatArray, direction: FloatArray) -> FloatArray:
        """Return (diag(p) - p p^T) v, (..., K), without the K x K matrices."""
        p: FloatArray = softmax(score, axis=-1)
        return self.weighted(np.asarray(p * (direction - (p * direction).sum(axis=-1, keepdims=True))), y)


def build_loss(study: Study, class_weights: tuple[float, ...] | None = None) -> Loss:
    """Return the loss that a study names, with as many scores as the label's classes need.

    Weights of classes are the study's, unless a run has others; () stands for 1 each.
    """
    class_weights = study.weights_of_classes if class_weights is None else class_weights
    match study.loss.kind:
        case "logistic":
            return Logistic(class_weights=class_weights)
        case "huber":
            return Huber(study.loss.h, class_weights=class_weights)
        case "squared":
            return Squared(class_weights=class_weights)
        case "hinge":
            return Hinge(class_weights=class_weights)
        case "softmax":
            return Softmax(study.n_classes, class_weights=class_weights)


def unweighted(loss: Loss) -> Loss:
    """Return the loss with all classes of weight 1."""
    return replace(loss, class_weights=()) if isinstance(loss, _Weighted) and loss.class_weights else loss


def curvature_of(loss: Loss) -> float:
    """Return c; for the hinge, which has none, that of its smooth relative, the Huber loss with h = 1/2."""
    return loss.smoothness if math.isfinite(loss.smoothness) else Huber().smoothness


def loss_at_zero(loss: Loss) -> float:
    """Return the largest loss of an example whose scores are all zero, of the largest weight that a class can have."""
    shape = (1,) if loss.outputs == 1 else (1, loss.outputs)
    return float(unweighted(loss).value(np.zeros(shape), np.ones(1))[0])


def largest_minimiser(loss: Loss, regularization: float) -> float:
    """Return the largest norm of a minimiser w of the mean loss of any rows + (regularization/2) |w|^2.

    As the gradient along w is 0, regularization |w|^2 is the mean of -<s, slope(s)>, which is at most loss(0) by
    convexity, and no more under class weights, nor under weights of rows that add up to at most n; rather at most W((K
    - 1) / e) of softmax of K classes, and of the logistic loss of two, W Lambert's function. Rows in the unit ball
    attain it for a regularization that is small enough.

    >>> round(largest_minimiser(Logistic(), 1e-4), 2)
    52.77
    """
    match loss:
        case Logistic():
            pull = _lambert(1)
        case Softmax(outputs=k):
            pull = _lambert(k - 1)
        case Huber(h=h):
            pull = (1 + h) ** 2 / (8 * h) if 3 * h > 1 else 1 - h
        case _:
            pull = loss_at_zero(loss)
    return math.sqrt(pull / regularization)


def _lambert(others: int) -> float:
    """Return Lambert's W(others / e)."""
    return float(lambertw(others / math.e).real)


def check_one_sided(loss: Loss) -> None:
    """Raise InvalidInputError unless slopes have one sign, as the proof of noise inside a minimisation needs."""
    if not loss.one_sided:
        raise InvalidInputError("the proof of noise inside a minimisation is for slopes of one sign: logistic, huber")


def check_single_score(loss: Loss) -> None:
    """Raise InvalidInputError unless an example has one score: where a proof or a formula is for that alone."""
    if loss.outputs != 1:
        raise InvalidInputError(
            "the algorithm's proof is for a loss of one score, and 'softmax' has one a class: "
            "take dp_gd or local_average"
        )


def slope_within(loss: Loss, reach: float) -> float:
    """Return the largest norm of a slope at scores of at most ``reach``, of labels in [-1, 1].

    >>> slope_within(Squared(), 3.0), round(slope_within(Logistic(), 1.0), 3), slope_within(Huber(), 1.0)
    (4.0, 0.731, 1.0)
    """
    match loss:
        case Squared():
            return reach + 1
        case Logistic(lipschitz):
            return lipschitz / (1 + math.exp(-reach))
        case _:
            return loss.lipschitz


def gradients_apart(loss: Loss, radius: float) -> float:
    """Return how far apart the gradients of two examples can be, in the 2-norm, at the same w of norm up to ``radius``.

    Rows lie in the unit ball; labels and class weights are any. `parley.common.privacy.mechanisms.output` has the
    proof: of the logistic loss it is max over c of 2 sigma(radius c) sqrt(1 - c^2), which pairs of rows attain; of a
    softmax of more than two classes a bound; of all other losses 2 L. Raises InvalidInputError if there is no L.

    >>> [round(gradients_apart(Logistic(), radius), 3) for radius in (0, 1, 4)], gradients_apart(Huber(), 1.0)
    ([1.0, 1.099, 1.533], 2.0)
    >>> [round(gradients_apart(Softmax(3), radius), 3) for radius in (0, 1, 4)]
    [1.633, 2.329, 2.814]
    """
    match loss:
        case Logistic(lipschitz):
            low, high = 0.0, 1.0  # c is where the derivative of the logarithm is 0, and that falls
            while low < (c := (low + high) / 2) < high:
                low, high = (c, high) if radius * (1 - c * c) * expit(-radius * c) > c else (low, c)
            return 2 * lipschitz * float(expit(radius * high)) * math.sqrt(1 - low * low)
        case Softmax(outputs=2):
            return math.sqrt(2) * gradients_apart(Logistic(), math.sqrt(2) * radius)
        case Softmax(outputs=k):
            others = math.log(k - 1)
            wrong = float(expit(math.sqrt(2) * radius + others))
            other = float(expit(math.sqrt(k / (k - 1)) * radius - others))
            return 2 * math.sqrt(wrong * (wrong + other))
        case _:
            return 2 * bounded_slope(loss)


def bounded_slope(loss: Loss) -> float:
    """Return L; raises InvalidInputError if there is none, for then one record moves a minimiser without bound."""
    if math.isinf(loss.lipschitz):
        raise InvalidInputError(
            "a private minimiser needs a loss of bounded slope: under 'squared' one record moves it without bound, "
            "so take dp_gd"
        )
    return loss.lipschitz
