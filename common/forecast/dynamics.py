"""Ways of training as the forecast sees them: linear near the minimiser, one direction at a time.

Near the minimiser the fitness is a paraboloid with a curvature h in each direction, and every method here is
linear. Two numbers at each curvature say all of it:

    reach r: how far a unit of a constant force on the mean gradient moves the model,
    spread q: the variance of the model by noise of unit variance, fresh in each mean answer.

The data themselves are a constant force, h e for weights of zero that are e from the minimiser, so what is left of e is
1 - h r. Noise drawn once a run and kept is a constant force too. The expected excess f - f* is per direction

    h/2 ((1 - h r) e)^2  +  h/2 r^2 (variance drawn once)  +  h/2 q (variance drawn each round).

Each method also states the bound on the excess on the owners' own examples, J - J*, that can be proven of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

import numpy as np
from scipy.special import xlogy

from parley.common.arrays import FloatArray
from parley.common.learning.losses import Logistic, Loss, Softmax, curvature_of, loss_at_zero
from parley.common.protocol.facts import FederationFacts, OwnFacts

if TYPE_CHECKING:
    from parley.common.data.study import Study


# ── the best constant ────────────────────────────────────────────────────────
#
# The best model that uses no feature, if the study says anything about its label. It predicts each class by its share,
# or the label's mean, for every row. What that gains on weights of zero is learnt at once, because all rows pull that
# way; only features can explain the loss that is left.


@dataclass(frozen=True, slots=True)
class BestConstant:
    """Its mean ``loss``, and by how much that is less than the loss at the weights that a run starts from, ``gain``.

    ``bend`` is the loss's mean curvature there in units of that at zero: where a class is rare, few rows are in doubt.
    A regression starts there, for its study tells the mean: from the ``intercept``, where an example's loss is
    ``most`` at most; classes start from zero, and have neither.
    """

    loss: float
    gain: float = 0.0
    bend: float = 1.0
    intercept: float = 0.0
    most: float | None = None


def best_constant(study: Study | None) -> BestConstant | None:
    """Return the best constant for a study's label and loss; None if the study does not say, or no weights give it.

    >>> from parley.common.data.columns import Feature, Label
    >>> from parley.common.data.study import Study
    >>> label = Label(name="fraud", values=("no", "yes"), shares=(0.95, 0.05))
    >>> constant = best_constant(Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=label))
    >>> round(constant.loss, 3), round(constant.gain, 3), round(constant.bend, 3)
    (0.199, 0.495, 0.19)
    """
    if study is None:
        return None
    if (usual := study.usual_label) is not None:
        return BestConstant(usual.deviation**2 / 2, intercept=usual.intercept, most=(1 + abs(usual.mean)) ** 2 / 2)
    if study.class_shares is None or not study.intercept or study.loss.kind not in {"logistic", "softmax"}:
        return None
    shares = np.array(study.class_shares)
    entropy = -float(shares @ np.log(shares))
    bend = (1 - float(shares @ shares)) / (1 - 1 / len(shares))
    return BestConstant(entropy, max(0.0, math.log(len(shares)) - entropy), bend)


# ── clipping ─────────────────────────────────────────────────────────────────
#
# What clipping costs where descent comes to rest: the model is surer than the labels are.
#
# Take rows that are all in the same doubt: of K classes one is right with probability p, and each other is equally
# likely to be. The model rests where the mean of the clipped slopes is zero. The examples that the model has wrong have
# the long slopes, so they count for less than they should, and it rests at a probability s > p. Its excess is then
# KL(p, s), and p follows from how much loss the labels leave, their entropy. Rows in doubt to different degrees come to
# about the mean: the excess is nearly in proportion to the loss that is left.

_POINTS, _HALVINGS = 200, 50
_TINY = 1e-300


def clipped_excess(outputs: int, clip_norm: float, least_loss: FloatArray) -> FloatArray:
    """Return the excess at rest for slopes clipped to ``clip_norm``, of data with this least mean loss, (W,).

    ``outputs`` are the scores of an example: 1 for the logistic loss of two classes, K for softmax.

    >>> clipped_excess(1, 0.5, np.array([0.0, 0.2, 0.5])).round(3)
    array([0.   , 0.009, 0.022])
    """
    entropy, excess = _of_doubt(max(2, outputs), outputs > 1, clip_norm)
    return np.interp(least_loss, entropy, excess)


@lru_cache(maxsize=16)
def _of_doubt(k: int, softmax: bool, clip_norm: float) -> tuple[FloatArray, FloatArray]:  # noqa: FBT001 -- a key
    """Return the entropy of K classes, one of them likelier, rising, and the excess at rest, (points,) each."""
    p = np.linspace(1, 1 / k, _POINTS)
    low, high = p.copy(), np.ones_like(p)
    for _ in range(_HALVINGS):
        s = (low + high) / 2
        right, wrong = _lengths(s, k) if softmax else (1 - s, s)
        pushed = p * (1 - s) * _part_left(right, clip_norm) > (1 - p) * s * _part_left(wrong, clip_norm)
        low, high = np.where(pushed, s, low), np.where(pushed, high, s)
    entropy = -xlogy(p, p) - xlogy(1 - p, (1 - p) / (k - 1))
    excess = xlogy(p, p / low) + xlogy(1 - p, (1 - p) / np.maximum(1 - low, _TINY))
    return np.asarray(entropy), np.asarray(np.maximum(0.0, excess))


def _lengths(s: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Return the norms of softmax slopes of an example of the likelier class, and of any other, (points,) each."""
    others = (1 - s) / (k - 1)
    return (1 - s) * np.sqrt(1 + 1 / (k - 1)), np.sqrt(s**2 + (1 - others) ** 2 + (k - 2) * others**2)


def _part_left(length: FloatArray, clip_norm: float) -> FloatArray:
    """Return the part of a slope that clipping leaves."""
    return np.minimum(1.0, clip_norm / np.maximum(length, _TINY))


# ── methods ──────────────────────────────────────────────────────────────────

_DIVERGED = 1e60
"""A limit for descents that diverge, whose squares are still finite."""
_ROW_L1 = 0.7
"""Of the 1-norm of a row of norm 1 over the root of d: of d equal numbers it is 1, of normal ones .8."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A learning problem: weights of so many features, and a loss.

    ``constant`` is the best constant, or None if the study says nothing about its label.
    """

    n_features: int
    loss: Loss
    constant: BestConstant | None = None

    @classmethod
    def of(cls, facts: FederationFacts) -> Self:
        """Return the problem of a run."""
        return cls(facts.n_features, facts.loss, best_constant(facts.study))

    @property
    def n_weights(self) -> int:
        """The number of weights of a model; each gets noise."""
        return self.n_features * self.loss.outputs

    @property
    def gap(self) -> float:
        """The largest mean loss at weights of zero, which bounds J(0) - J*."""
        return loss_at_zero(self.loss)

    def most_at_start(self, regularization: float) -> float:
        """Return the largest fitness where a descent starts from, at zero or an intercept: a bound on J - J* there."""
        if self.constant is None or self.constant.most is None:
            return self.gap
        return self.constant.most + regularization / 2 * self.constant.intercept**2

    @property
    def slope_at_zero(self) -> float:
        """The length of an example's slope at weights of zero; for a regression about 1/2, by its labels."""
        if np.isinf(self.loss.lipschitz):
            return 0.5
        shape = (1,) if self.loss.outputs == 1 else (1, self.loss.outputs)
        return float(np.linalg.norm(self.loss.slope(np.zeros(shape), np.ones(1))))

    @property
    def curvature(self) -> float:
        """c; that of the Huber loss with h = 1/2 for the hinge."""
        return curvature_of(self.loss)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """The noise in each owner's answer: a coordinate has the variance, (K,), of ``fresh`` plus ``once``.

    ``fresh`` is drawn each round, ``once`` once a run. ``heaviness`` is by what part the fourth moments of one owner's
    fresh noise exceed a normal's. Noise of density exp(-beta |b|) in d dimensions is sqrt(V) g with g normal and
    V ~ Gamma((d + 1) / 2), so E V^2 / (E V)^2 = (d + 3) / (d + 1) is the ratio of its fourth moments to a normal's.
    """

    fresh: FloatArray
    once: FloatArray
    heaviness: float = 0.0

    @classmethod
    def drawn_each_round(cls, variance: FloatArray, heaviness: float = 0.0) -> Answers:
        """Return answers whose noise, of this variance (K,), is drawn each round."""
        return cls(variance, np.zeros_like(variance), heaviness)

    @classmethod
    def l2_laplace(cls, beta: FloatArray, n_features: int, parts: float = 1.0) -> Answers:
        """Return fresh noise of density exp(-beta |b|), or one of its ``parts`` shares at each owner; beta is (K,)."""
        return cls.drawn_each_round((n_features + 1) / (parts * beta**2), cls.heaviness_of(n_features, parts))

    @staticmethod
    def heaviness_of(n_features: int, parts: float = 1.0) -> float:
        """Return the heaviness of one of ``parts`` shares of noise of density exp(-beta |b|)."""
        return 2 * parts / (n_features + 1)

    @classmethod
    def drawn_once(cls, variance: float) -> Answers:
        """Return the answers of a curator, whose noise of this variance is drawn once a run."""
        return cls(np.zeros(1), np.array([variance]))


@dataclass(frozen=True, slots=True)
class Load:
    """The errors in the mean answer: noise, as a coordinate's variance, and the error of the sample.

    ``heaviness`` is that of the fresh noise; ``sample`` is 1 / n for a model of n examples; for an average of local
    models it is 1 / n of the examples that would do as well.
    """

    fresh: float = 0.0
    once: float = 0.0
    heaviness: float = 0.0
    sample: float = 0.0


@dataclass(frozen=True, slots=True)
class LinearRange:
    """The range in which a method is linear, and what holds outside it.

    ``zigzag`` is the excess by steps across a kink, ``most`` that of any model it can return. Fresh noise of a variance
    beyond ``room`` makes a projection bind; then at least ``saturated`` is left of its excess.
    """

    zigzag: float = 0.0
    most: float = np.inf
    room: float = np.inf
    saturated: float = np.inf


class Forecaster(Protocol):
    """An algorithm as a forecast sees it: how it trains, and the noise in the answers that it gets.

    Both methods take the facts that its parties get, a curator's included. Unless the owners are ``coupled``, the
    dynamics are the same for any participants, and so is each one's noise, but under a secure sum.
    """

    @property
    def curator(self) -> bool:
        """Whether a trusted curator holds all shards."""

    @property
    def coupled(self) -> bool:
        """Whether one owner's examples or budget change how the others' answers are used, or their noise."""

    def dynamics(self, facts: FederationFacts) -> Method:
        """Return the way in which the learner trains; raises InvalidInputError for an algorithm that cannot run."""

    def answers(self, facts: OwnFacts) -> Answers:
        """Return the noise in the owners' answers."""


class Method(ABC):
    """A way of training; hashable, so that what follows from it is worked out once.

    ``slope`` bounds the root mean square of an example's gradient at the minimiser. Where ``joint``, one model is
    trained on all examples, and an owner's answer weighs as much as it has examples; otherwise it is an average of the
    owners' own.
    """

    regularization: float
    slope: float
    joint: ClassVar[bool] = True

    @abstractmethod
    def linear(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the reach and the spread at curvatures h, (m,) each."""

    @abstractmethod
    def bound(self, problem: Problem, load: Load) -> float:
        """Return the proven bound on E J - J*; infinite if nothing is proven."""

    def gradient_share(self, problem: Problem) -> float:  # noqa: ARG002 -- what methods differ in
        """Return the share of the data's gradient that clipping leaves; 1 by default."""
        return 1.0

    def excess_at_rest(self, problem: Problem, least_loss: FloatArray) -> FloatArray:  # noqa: ARG002 -- what methods differ in
        """Return the excess where the method comes to rest, of data with this ``least_loss``, (W,); 0 by default."""
        return np.zeros_like(least_loss)

    def limits(self, problem: Problem) -> LinearRange:  # noqa: ARG002 -- what methods differ in
        """Return the range in which the method is linear; all by default."""
        return LinearRange()


@dataclass(frozen=True, slots=True)
class Descent(Method):
    """w <- P(w + momentum (w - last w) - step_k (mean gradient + (lambda + tilt) w + noise)), from 0.

    ``steps`` (T,), all the same where there is momentum; ``slope`` is the clip norm, ``slope_l1`` that of the 1-norm;
    ``average`` (T,), the weights of the iterates in the model, or None for the last alone; ``diameter`` of the set that
    P projects onto; ``tilt`` is Delta, the regularisation that objective perturbation adds to lambda.
    """

    steps: tuple[float, ...]
    regularization: float
    slope: float = 1.0
    average: tuple[float, ...] | None = None
    diameter: float = np.inf
    tilt: float = 0.0
    momentum: float = 0.0
    slope_l1: float = np.inf

    @property
    def weights(self) -> FloatArray:
        """The part of each iterate in the model, (T,)."""
        last = np.eye(1, len(self.steps), len(self.steps) - 1)[0]
        return last if self.average is None else np.array(self.average)

    def linear(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sum over the rounds of a step times what later rounds leave of it, and the sum of the squares."""
        moved = np.array(self.steps)[:, None] * self._remaining(h + self.tilt)
        return moved.sum(axis=0), (moved**2).sum(axis=0)

    def bound(self, problem: Problem, load: Load) -> float:
        """Return the bound by descent on the tilted objective, then `_untilt`, if smooth and with steps up to 1 / M.

        Otherwise it is Shamir & Zhang's.

        With H = J + (tilt/2)|w|^2 + <e, w>, e the noise drawn once, l = lambda + tilt and M its smoothness, a round has
        E H_{k+1} - H* <= (1 - a_k l)(E H_k - H*) + a_k^2 M E|fresh|^2 / 2, and of the start w E H(w) - H* <= loss(w) +
        (l/2) |w|^2 + E|e|^2 / (2 l).
        Without tilt and e, for steps that fall, onto a set of finite diameter, and weights that rise: the telescoped
        sum of Shamir & Zhang 2013. With momentum nothing is proven here, nor where slopes are clipped below the loss's
        L: what descends is another loss then.
        """
        if self.momentum or self.slope < problem.loss.lipschitz < np.inf:
            return np.inf
        fresh, once = problem.n_weights * load.fresh, problem.n_weights * load.once
        steps, convexity = np.array(self.steps), self.regularization + self.tilt
        if self.average is not None:
            return self._telescoped(problem.loss, fresh) if not (self.tilt or once) else np.inf
        smoothness = problem.loss.smoothness + convexity
        if not bool(np.all(steps * smoothness <= 1 + 1e-12)):
            return np.inf
        after = np.append(np.cumprod((1 - steps * convexity)[:0:-1])[::-1], 1.0)
        start = problem.most_at_start(convexity) + once / (2 * convexity)
        bound = (1 - steps[0] * convexity) * after[0] * start + smoothness * fresh / 2 * (steps**2 @ after)
        return _untilt(problem, self.regularization, self.tilt, once, float(bound))

    def gradient_share(self, problem: Problem) -> float:
        """Return the share for a gradient at weights of zero, of a row of norm 1 and 1-norm ``_ROW_L1`` sqrt(d)."""
        length = problem.slope_at_zero
        longest = length * max(1.0, _ROW_L1 * math.sqrt(problem.n_features))
        return min(1.0, self.slope / length, self.slope_l1 / longest)

    def excess_at_rest(self, problem: Problem, least_loss: FloatArray) -> FloatArray:
        """Return `clipped_excess`: clipping shortens most the slopes of examples on the wrong side."""
        if not isinstance(problem.loss, Logistic | Softmax):  # no likelihood of classes
            return np.zeros_like(least_loss)
        return clipped_excess(problem.loss.outputs, self.slope, least_loss)

    def limits(self, problem: Problem) -> LinearRange:
        """Let kinks cost the mean step times G^2 / 2, and a projection leave room for three deviations of the noise."""
        flat, radius = self.regularization, self.diameter / 2
        zigzag = 0.0 if np.isfinite(problem.loss.smoothness) else float(self.weights @ self.steps) * self.slope**2 / 2
        if np.isinf(radius):
            return LinearRange(zigzag)
        _, spread = replace(self, average=None).linear(np.array([flat]))
        return LinearRange(
            zigzag=zigzag,
            most=max((min(problem.loss.lipschitz, 1 + radius) + flat * radius) * self.diameter, problem.gap),
            room=(radius / 3) ** 2 / (problem.n_weights * float(spread[0])),
            saturated=flat / 2 * (radius / 3) ** 2 * float((self.weights**2).sum()),
        )

    def _remaining(self, h: FloatArray) -> FloatArray:
        """Return the part of a round's step that remains in the model, at curvatures h (m,) of the objective, (T, m).

        With momentum m and the decay 1 - a_k h of a step a_k, the part p_k is w_k + (decay + m) p_{k+1} - m p_{k+2},
        where w_k is the part of the round's iterate in the model.
        """
        decay, m = 1 - np.outer(self.steps, h), self.momentum
        if self.average is None and not m:
            most = max(1.0, _DIVERGED ** (1 / len(decay)))
            return np.vstack([np.cumprod(np.clip(decay[:0:-1], -most, most), axis=0)[::-1], np.ones_like(h)])
        remaining = np.repeat(self.weights[:, None], len(h), axis=1)
        for k in range(len(remaining) - 2, -1, -1):
            remaining[k] += (decay[k + 1] + m) * remaining[k + 1] - (
                m * remaining[k + 2] if m and k + 2 < len(remaining) else 0.0
            )
            np.clip(remaining[k], -_DIVERGED, _DIVERGED, out=remaining[k])
        return remaining

    def _telescoped(self, loss: Loss, energy: float) -> float:
        """Return Shamir & Zhang's sum for noise of this E|noise|^2."""
        steps, average = np.array(self.steps), self.weights
        slope = min(loss.lipschitz, self.slope) + self.regularization * self.diameter / 2
        length = slope**2 + energy
        telescoped = self.diameter**2 / (2 * steps[-1]) + length * steps.sum() / 2
        return float(average.max() * telescoped + slope * length**0.5 * (average @ steps))


@dataclass(frozen=True, slots=True)
class Tilt(Method):
    """w = argmin J + (tilt/2)|w|^2 + <noise drawn once, w>: objective perturbation; without either, the minimiser."""

    regularization: float
    tilt: float = 0.0
    slope: float = 1.0  # L; of the squared loss because its mean at the minimiser is at most 1/2

    def linear(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return a reach of 1 / (h + tilt), the limit of descent, and a spread of 0."""
        return 1 / (h + self.tilt), np.zeros_like(h)

    def bound(self, problem: Problem, load: Load) -> float:
        """Return `_untilt` at the minimiser of the tilted objective."""
        return _untilt(problem, self.regularization, self.tilt, problem.n_weights * load.once, 0.0)


@dataclass(frozen=True, slots=True)
class Average(Method):
    """The plain average of the owners' own minimisers, each with noise in its weights; or ``inside`` its objective.

    ``tilt`` is the regularisation that owners' objective perturbation adds to lambda, on average.
    """

    regularization: float
    tilt: float = 0.0
    inside: bool = False
    joint: ClassVar[bool] = False
    slope: float = 1.0

    def linear(self, h: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return all of a minimiser's reach; noise on it is the model's own, and noise inside goes as far as it."""
        reach = 1 / (h + self.tilt)
        return reach, reach**2 if self.inside else np.ones_like(h)

    def bound(self, problem: Problem, load: Load) -> float:
        """Return (lambda d + c) v / 2 + (2 L^2 / lambda) mean(1 / n_l), v the noise's variance.

        The bound is over a population's samples.

        The noise b is centred and independent of the data, and E (x.b)^2 = v |x|^2 <= v. The rest is of the average
        itself, by convexity at most the mean over owners of E J(w_l) - E J*. The examples of others are new to w_l,
        those of its own are not: with p_l = n_l / n and F the fitness on the population,
        E J(w_l) <= (1 - p_l) E F(w_l) + p_l F*. A minimiser moves by 2 L / (lambda n_l) when an example is replaced, so
        E F(w_l) <= F* + 2 L^2 / (lambda n_l) and F* <= E J* + 2 L^2 / (lambda n) (Bousquet & Elisseeff 2002; Shalev-
        Shwartz et al. 2009). Summed, all but the mean of 1 / n_l cancels.

        For shards that differ at will, nothing so small holds: one small owner, however many its examples, can turn the
        average away from the minimiser of the pooled data by a distance that does not shrink with them, against the
        (K - 1) / (n_min lambda) of Pathak et al. 2010. Of noise inside the objectives nothing is proven here.
        """
        if self.inside:
            return np.inf
        noise = (self.regularization * problem.n_weights + problem.loss.smoothness) * load.fresh / 2
        return noise + 2 * problem.loss.lipschitz**2 / self.regularization * load.sample


def _untilt(problem: Problem, regularization: float, tilt: float, once: float, excess: float) -> float:
    """Return a bound on E J - J* from one on H - H*, E H - H* <= ``excess``, where H = J + (tilt/2)|w|^2 + <e, w>.

    ``once`` is E|e|^2. With G = H - <e, w>, which is l = lambda + tilt strongly convex:

        J - J* <= (G - G*) + (G* - J*),    sqrt(G - G*) <= |e| / sqrt(2 l) + sqrt(H - H*).

    The first, for G >= J. The second, because at H's minimiser |grad G| = |e|, so that G - G* <= |e|^2 / (2 l) there;
    from there to w, G grows by (H - H*) + |e| |w - argmin H| at most, and l |w - argmin H|^2 / 2 <= H - H*.
    And G* - J* <= (tilt / l)(J(0) - J*), by G at (lambda / l) argmin J and the strong convexity of J. At the minimiser:

        E J - J* <= E|e|^2 / (2 (lambda + tilt)) + tilt / (lambda + tilt) (J(0) - J*).
    """
    convexity = regularization + tilt
    away: float = ((once / (2 * convexity)) ** 0.5 + excess**0.5) ** 2
    return away + tilt / convexity * problem.gap
