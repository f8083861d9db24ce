"""What noise does to gradient descent: the excess fitness of a model trained on noisy gradients, without its data.

Near the minimiser the fitness is a paraboloid, each direction of which has a curvature h, and descent is linear: with
steps a_k the error of the last iterate is prod_k (1 - a_k h) of the first one's, plus every round's noise shrunk by the
steps after it. So the expected excess f - f* is, per direction,

    h/2 (prod_k (1 - a_k h))^2 e^2  +  h/2 s^2 sum_j a_j^2 prod_{k>j} (1 - a_k h)^2,

e the first error, s^2 the variance of the noise on the mean gradient; the same with sums for an average of iterates.

The curvatures are private, but not free: rows lie in the unit ball, so h = lambda + c q with the q adding up to 1 at
most. An interval spans the spectra of k equal directions that share a part of this trace, the rest being flat, in which
the extremes lie; an estimate takes one spectrum. The noise being nearly normal, its part of the excess is a weighted
sum of chi-squares, of which an interval takes the outer quantiles.

Two things are not linear. The hinge has no c: it is taken for its smoothed kin, Huber's with h = 1/2, and the high end
adds the zigzag of steps across its kink, the mean step times G^2 / 2. A projection that binds keeps noise from doing
more harm: the low end grows with the noise only while three deviations of it fit the set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from common.arrays import FloatArray
from common.calibration import Calibration
from common.losses import Huber, Loss

RATE = 0.9
"""How often an interval holds what is measured."""
_TRACES = np.array([0.0, 0.1, 0.25, 0.5, 1.0])
_DIRECTIONS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """A method as the analysis sees it: w <- P(w - step_k (mean gradient + lambda w + noise)).

    ``steps`` (T,); ``average`` (T,), the weights of the iterates in the model, or None for the last alone; ``diameter``
    of the set that P projects onto; ``calibration`` says if there is a paper's bound to print beside the mended one.
    """

    steps: FloatArray
    regularization: float
    average: FloatArray | None = None
    diameter: float = np.inf
    calibration: Calibration = "tight"

    @property
    def weights(self) -> FloatArray:
        """What part each iterate has in the model, (T,)."""
        return np.eye(1, len(self.steps), len(self.steps) - 1)[0] if self.average is None else self.average


@dataclass(frozen=True, slots=True)
class Interval:
    """A low end, an estimate and a high end; they scale and add like the triangle inequality of norms."""

    low: float
    estimate: float
    high: float


@dataclass(frozen=True, slots=True)
class Response:
    """The excess fitness by its three causes: the start, the noise (per variance s^2) and the sample (per 1/n).

    ``gap`` bounds the excess of a model of zeros, ``most`` that of any model the method can return. Noise of a variance
    beyond ``room`` makes the projection bind; then at least ``saturated`` is left of its excess.
    """

    start: Interval
    noise: Interval
    sample: Interval
    gap: float
    most: float
    room: float
    saturated: float

    def estimate(self, variance: FloatArray, n: FloatArray) -> FloatArray:
        """The estimated excess for noise of this variance on a sum, over n examples, (...)."""
        return self.start.estimate + self.noise.estimate * variance / n**2 + self.sample.estimate / n

    def excess(self, variance: float, n: float) -> Interval:
        """The excess; the high end adds the three displacements as if they pointed the same way."""
        s2 = variance / n**2
        high = (self.start.high**0.5 + (self.noise.high * s2) ** 0.5 + (self.sample.high / n) ** 0.5) ** 2
        low = self.noise.low * s2 if s2 <= self.room else min(self.noise.low * self.room, self.saturated)
        estimate = float(self.estimate(np.asarray(variance), np.asarray(n)))
        return Interval(min(low, self.most), min(estimate, self.most), min(high, self.most))


def respond(descent: Descent, n_features: int, loss: Loss, clip_norm: float) -> Response:
    """What excess fitness the method turns its noise into, for any data in the unit ball of these dimensions."""
    flat, radius = descent.regularization, descent.diameter / 2
    counts, steep = _spectra(n_features, loss, flat)
    shares = np.array([1.0, n_features - 1])
    typical = flat + _curvature(loss) * np.array([1 / 2, 1 / 6 / max(n_features - 1, 1)])
    bias, noise = _propagate(descent.steps, descent.weights, np.concatenate([[flat], typical, steep]))
    low, high = _quantiles(counts, noise[3:], n_features - counts, noise[0])
    signal = shares * (typical - flat)
    gap, smooth = _gap(loss), math.isfinite(loss.smoothness)
    zigzag = 0.0 if smooth else float(descent.weights @ descent.steps) * clip_norm**2 / 2
    most = (min(loss.lipschitz, 1 + radius) + flat * radius) * descent.diameter
    _, spread = _propagate(descent.steps, Descent(descent.steps, flat).weights, np.array([flat]))
    return Response(
        start=Interval(0.0, float(bias[1:3] @ signal / signal.sum()) * gap / 2, float(bias.max()) * gap + zigzag),
        noise=Interval(low, float(shares @ noise[1:3]), high),
        sample=Interval(0.0, float(signal @ (1 / typical)) / 2, clip_norm**2 / (2 * flat)),
        gap=gap,
        most=max(most, gap),
        room=(radius / 3) ** 2 * flat / (2 * n_features * float(spread[0])),
        saturated=flat / 2 * (radius / 3) ** 2 * float((descent.weights**2).sum()),
    )


def bound(descent: Descent, loss: Loss, clip_norm: float, energy: float) -> float:
    """A proven bound on E f - f* where E|noise|^2 = ``energy`` on the mean gradient; infinite where none is proven.

    Smooth fitness, steps up to 1 / M: E f_{k+1} - f* <= (1 - a_k lambda)(E f_k - f*) + a_k^2 M E|noise|^2 / 2.
    Otherwise, steps that fall, onto a set of diameter D, and weights that rise: the telescoped sum of Shamir & Zhang.
    """
    steps, flat = descent.steps, descent.regularization
    smoothness = loss.smoothness + flat
    if descent.average is None:
        if not bool(np.all(steps * smoothness <= 1 + 1e-12)):
            return np.inf
        after = np.append(np.cumprod((1 - steps * flat)[:0:-1])[::-1], 1.0)
        return float((1 - steps[0] * flat) * after[0] * _gap(loss) + smoothness * energy / 2 * (steps**2 @ after))
    slope = min(loss.lipschitz, clip_norm) + flat * descent.diameter / 2
    length = slope**2 + energy
    telescoped = descent.diameter**2 / (2 * steps[-1]) + length * steps.sum() / 2
    return float(descent.average.max() * telescoped + slope * length**0.5 * (descent.average @ steps))


def _gap(loss: Loss) -> float:
    """The largest mean loss at weights of zero, which bounds f(0) - f*."""
    return float(loss.value(np.zeros(1), np.ones(1))[0])


def _curvature(loss: Loss) -> float:
    """c; that of the Huber loss with h = 1/2 for the hinge."""
    return loss.smoothness if np.isfinite(loss.smoothness) else Huber().smoothness


def _spectra(n_features: int, loss: Loss, flat: float) -> tuple[FloatArray, FloatArray]:
    """Spectra (m,): how many directions share a part of the trace, and the curvature of each."""
    counts = np.unique(np.geomspace(1, n_features, _DIRECTIONS).round())
    steep = flat + _curvature(loss) * _TRACES / counts[:, None]
    return np.repeat(counts, len(_TRACES)), steep.ravel()


def _propagate(steps: FloatArray, weights: FloatArray, h: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What is left of the start's excess, and the expected excess by noise of unit variance, at curvatures h, (m,)."""
    left, noise = np.zeros_like(h), np.zeros_like(h)
    for step, weight in zip(steps[::-1].tolist(), weights[::-1].tolist(), strict=True):
        left += weight
        noise += (step * left) ** 2
        left *= 1 - step * h
    return left**2, h / 2 * noise


def _quantiles(k: FloatArray, steep: FloatArray, rest: FloatArray, flat: float) -> tuple[float, float]:
    """The least and the largest outer quantile, over the spectra (m,), of k steep and some flat chi-squares' sum."""
    mean = k * steep + rest * flat
    shape = mean**2 / (2 * (k * steep**2 + rest * flat**2))
    tail = (1 - RATE) / 2
    low, high = (mean / shape * gammaincinv(shape, level) for level in (tail, 1 - tail))
    return float(low.min()), float(high.max())
