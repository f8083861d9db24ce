"""What noise does to training: the excess fitness of a model trained on noisy answers, without its data.

*The reference.* Excess fitness is over the least mean loss on the population that any weights have, *without*
regularisation: so methods that are regularised differently can be compared, and regularisation counts as the harm it
does.

`parley.common.forecast.plausible_worlds` says what data may be like, and `parley.common.forecast.dynamics` what a way
of training makes of a direction of curvature h: with its reach r and spread q at h + lambda the excess in a world is

    start + psi(disturbance),    start = sum of energy (1 - h r)^2,
    disturbance = sum of (h/2) (q v_fresh + r^2 (v_once + h s / n)) chi^2,

over the world's directions, h s being the variance of one example's slope and each chi^2 that of one direction.

psi(x) = A (sqrt(1 + 2 x / A) - 1) is x while that is small: far away the losses of classes grow no faster than their
scores, by the slope L. A is such that psi has the growth of E loss(z) - loss(0), z normal.

*The interval* has the outer quantiles over worlds and chi-squares together; a weighted sum of these is taken for the
gamma of its mean and variance, which the fourth moments of heavier noise widen. *The estimate* has the medians over the
worlds of the start, and of what each of the three disturbances makes of a unit. So it is a function of one linear form,
whose least `parley.common.forecast.coalitions` can find. Where it would leave the interval, the interval is widened.

The hinge has no curvature: the Huber loss with h = 1/2 replaces it, and the high end adds the zigzag of steps across
the hinge's kink. A projection that binds keeps noise from doing more harm: the low end grows with the noise only while
three deviations of it fit the set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaincinv, ndtri

from parley.common.arrays import FloatArray
from parley.common.forecast.dynamics import LinearRange, Load, Method, Problem
from parley.common.forecast.plausible_worlds import Worlds, worlds_of
from parley.common.learning.losses import Loss

RATE = 0.9
"""How often an interval holds what is measured."""
_LEVELS = np.linspace(0.05, 0.95, 10)
_LEAST_SHAPE = 1e-3


@dataclass(frozen=True, slots=True)
class Interval:
    """A low end, an estimate and a high end."""

    low: float
    estimate: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """The excess that a method makes of its load in each of W worlds.

    ``start`` (W,) is the excess without any load. ``fresh``, ``once``, ``sample`` (m,) are the excess in one direction,
    of each of the worlds' curvatures, by noise of unit variance, and by a sample of one example; ``scale`` (W,) is
    psi's A; ``learnt`` (m,) is the part that is learnt of what there is. ``middle`` has medians over worlds: of start,
    of A, and of what units of the three come to.
    """

    worlds: Worlds
    start: FloatArray
    fresh: FloatArray
    once: FloatArray
    sample: FloatArray
    scale: FloatArray
    middle: tuple[float, float, float, float, float]
    limits: LinearRange
    learnt: FloatArray

    def disturbance(self, fresh: FloatArray, once: FloatArray, sample: FloatArray) -> FloatArray:
        """Return the linear form that an estimate rises with, for loads of these variances and samples, (...)."""
        _, _, of_fresh, of_once, of_sample = self.middle
        return of_fresh * fresh + of_once * once + of_sample * sample

    def estimate(self, fresh: FloatArray, once: FloatArray, sample: FloatArray) -> FloatArray:
        """Return the estimated excess for loads of these variances and samples, (...)."""
        start, scale, *_ = self.middle
        disturbed = _saturated(self.disturbance(fresh, once, sample), scale)
        return np.asarray(np.minimum(start + disturbed, self.limits.most))

    def excess(self, load: Load) -> Interval:
        """Return the excess that a load causes."""
        estimate = float(self.estimate(*map(np.asarray, (load.fresh, load.once, load.sample))))
        low, high = self._ends(self._disturbed(load, load.fresh))
        if load.fresh > self.limits.room:
            fitting, _ = self._ends(self._disturbed(load, self.limits.room))
            low = min(low, fitting, self.limits.saturated)
        return self._interval(low, estimate, high)

    def disturbed(self, load: Load) -> FloatArray:
        """Return the disturbance by a load in each world at each of the chi-squares' levels, (W, levels)."""
        return self._disturbed(load, load.fresh)

    def outcomes(self, load: Load) -> FloatArray:
        """Return the excess in each world at each of the levels, (W, levels)."""
        return np.minimum(self.start[:, None] + _saturated(self.disturbed(load), self.scale[:, None]), self.limits.most)

    def by_samples(self, n_examples: FloatArray) -> list[Interval]:
        """Return the excess for samples of so many examples, (K,), without noise."""
        unit, zero = self._disturbed(Load(sample=1.0), 0.0), np.zeros(len(n_examples))
        estimates = self.estimate(zero, zero, 1 / n_examples).tolist()
        ends = [self._ends(unit / n) for n in n_examples.tolist()]
        return [self._interval(low, estimate, high) for (low, high), estimate in zip(ends, estimates, strict=True)]

    def _interval(self, low: float, estimate: float, high: float) -> Interval:
        """Return the interval of these quantiles, which has the estimate in it."""
        high = min(high + self.limits.zigzag, self.limits.most)
        return Interval(min(low, estimate), estimate, max(high, estimate))

    def _ends(self, disturbed: FloatArray) -> tuple[float, float]:
        """Return the outer quantiles over the worlds and levels of disturbances, (W, levels)."""
        outcomes = np.sort((self.start[:, None] + _saturated(disturbed, self.scale[:, None])).ravel())
        tail = round((1 - RATE) / 2 * len(outcomes))
        return float(outcomes[tail]), float(outcomes[-1 - tail])

    def _disturbed(self, load: Load, fresh: float) -> FloatArray:
        """Return the disturbance in each world at each of the chi-squares' levels, (W, levels)."""
        counts, variance = self.worlds.counts, self.worlds.variance[:, None]
        by_fresh = fresh * self.fresh
        disturbances = by_fresh + load.once * self.once + load.sample * variance * self.sample
        mean, square = (counts * disturbances).sum(axis=1), (counts * disturbances**2).sum(axis=1)
        heavy = (counts @ by_fresh) ** 2 + 2 * (counts @ by_fresh**2)
        spread = 2 * square + load.heaviness * heavy
        shape = np.maximum(np.divide(mean**2, spread, out=np.ones_like(mean), where=spread > 0), _LEAST_SHAPE)
        return np.asarray((self.worlds.rough * mean / shape)[:, None] * gammaincinv(shape[:, None], _LEVELS))


@lru_cache(maxsize=8)
def response_of(method: Method, problem: Problem) -> Response:
    """Return how the excess fitness depends on the method's load, in every plausible world."""
    worlds, scale = worlds_of(problem), scale_of(problem)
    h = worlds.curvature
    pull = h * method.gradient_share(problem)
    reach, spread = method.linear(pull + method.regularization)
    once = h / 2 * reach**2
    fresh, sample = h / 2 * spread, once * pull**2 / h
    start = worlds.energy @ (1 - pull * reach) ** 2
    start = start + method.excess_at_rest(problem, worlds.least_loss) * _gone(start, worlds.energy.sum(axis=1)) ** 2
    by_fresh, by_once, by_sample = worlds.rough * (worlds.counts @ np.stack([fresh, once, sample], axis=1)).T
    middle = np.median([start, scale, by_fresh, by_once, worlds.variance * by_sample], axis=1).tolist()
    return Response(worlds, start, fresh, once, sample, scale, tuple(middle), method.limits(problem), pull * reach)


def excess_of_constant(problem: Problem) -> Interval | None:
    """Return the excess of the best model that looks at no feature; None where nothing is known of the label."""
    if problem.constant is None:
        return None
    tail = (1 - RATE) / 2
    return Interval(*np.quantile(problem.constant.loss - worlds_of(problem).least_loss, [tail, 0.5, 1 - tail]).tolist())


def _gone(start: FloatArray, energy: FloatArray) -> FloatArray:
    """Return the part (W,) of its way that a method has gone when ``start`` is left of the excess."""
    return np.asarray(1 - np.sqrt(np.minimum(1.0, start / energy)))


@lru_cache(maxsize=8)
def scale_of(problem: Problem) -> FloatArray:
    """Return psi's A in every plausible world, (W,)."""
    return saturation(problem.loss) / worlds_of(problem).bend


def saturation(loss: Loss) -> float:
    """Return psi's A where the curvature is that at zero; infinite for a loss that grows like a parabola.

    The mean of a loss of one slope L grows as L s / sqrt(2 pi) in the deviation s of the scores, from c s^2 / 2. Of K
    scores it is the mean of the largest of K normals, nearly the normal quantile of (K - 3/8) / (K + 1/4) (Blom 1958),
    from (1 - 1/K) s^2 / 2 at K = 1 / c equal probabilities.
    """
    if loss.outputs == 1:
        slope, bent = loss.lipschitz, Problem(1, loss).curvature
        return slope**2 / (2 * math.pi * bent)
    k = loss.outputs
    return float(ndtri((k - 0.375) / (k + 0.25))) ** 2 / (1 - 1 / k)


def _saturated(x: FloatArray, scale: FloatArray | float) -> FloatArray:
    """Return psi: x where small to ``scale``, sqrt(2 x scale) beyond; written so that large scales lose no digits."""
    return np.asarray(2 * x / (1 + np.sqrt(1 + 2 * x / scale)))
