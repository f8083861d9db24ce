"""What noise does to training: the excess fitness of a model trained on noisy answers, without its data.

`common.forecast.dynamics` says what each way of training makes of a direction of curvature h. The curvatures are
private, but not free: rows lie in the unit ball, so h = lambda + c q with the q adding up to 1 at most. An interval
spans the spectra of k equal directions that share a part of this trace, the rest being flat, in which the extremes lie;
an estimate takes one spectrum. The noise being nearly normal, its part of the excess is a weighted sum of chi-squares,
of which an interval takes the outer quantiles; heavier noise widens them by its fourth moments.

Two things are not linear. The hinge has no c: it is taken for its smoothed kin, Huber's with h = 1/2, and the high end
adds the zigzag of steps across its kink. A projection that binds keeps noise from doing more harm: the low end grows
with the noise only while three deviations of it fit the set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaincinv

from common.arrays import FloatArray
from common.forecast.dynamics import LinearRange, Load, Method, Problem

RATE = 0.9
"""How often an interval holds what is measured."""
_TRACES = np.array([0.0, 0.1, 0.25, 0.5, 1.0])
_DIRECTIONS = 8


@dataclass(frozen=True, slots=True)
class Interval:
    """A low end, an estimate and a high end."""

    low: float
    estimate: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class Spectra:
    """Curvatures: ``flat``, of no data; ``typical`` (2,), in ``shares`` directions each; ``steep`` (m,), in ``counts``.

    The typical spectrum is that of a study's design, rows (z, 1) / sqrt d with d - 1 columns z spread evenly over their
    bounds: the intercept has 1 / d of c, each column a third of that.
    """

    flat: float
    typical: FloatArray
    shares: FloatArray
    steep: FloatArray
    counts: FloatArray

    @property
    def all(self) -> FloatArray:
        """Flat, typical and steep curvatures, (3 + m,)."""
        return np.concatenate([[self.flat], self.typical, self.steep])


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """The excess fitness by its three causes: the start, the noise and, per 1/n, the sample.

    ``once`` and ``fresh``, (3 + m,), are the excess in one direction of each of the spectra by noise of unit variance.
    """

    start: Interval
    sample: Interval
    spectra: Spectra
    once: FloatArray
    fresh: FloatArray
    limits: LinearRange

    def estimate(self, fresh: FloatArray, once: FloatArray, sample: FloatArray) -> FloatArray:
        """The estimated excess for loads of these variances and samples, (...)."""
        by_once, by_fresh = (float(self.spectra.shares @ part[1:3]) for part in (self.once, self.fresh))
        return self.start.estimate + by_once * once + by_fresh * fresh + self.sample.estimate * sample

    def excess(self, load: Load) -> Interval:
        """The excess; the high end adds the three displacements as if they pointed the same way."""
        most, room = self.limits.most, self.limits.room
        estimate = float(self.estimate(*map(np.asarray, (load.fresh, load.once, load.sample))))
        low, _ = self._noise(min(load.fresh, room), load.once, load.heaviness)
        if load.fresh > room:
            low = min(low, self.limits.saturated)
        _, high = self._noise(load.fresh, load.once, load.heaviness)
        high = (self.start.high**0.5 + high**0.5 + (self.sample.high * load.sample) ** 0.5) ** 2
        return Interval(min(low, most), min(estimate, most), min(high, most))

    def _noise(self, fresh: float, once: float, heaviness: float) -> tuple[float, float]:
        """The least and the largest outer quantile, over the spectra, of the excess by noise of these variances."""
        if not fresh + once:
            return 0.0, 0.0
        k, rest = self.spectra.counts, self.spectra.counts.max() - self.spectra.counts
        by_fresh, whole = fresh * self.fresh, fresh * self.fresh + once * self.once
        mean = k * whole[3:] + rest * whole[0]
        variance = 2 * (k * whole[3:] ** 2 + rest * whole[0] ** 2)
        heavy = (k * by_fresh[3:] + rest * by_fresh[0]) ** 2 + 2 * (k * by_fresh[3:] ** 2 + rest * by_fresh[0] ** 2)
        shape = mean**2 / (variance + heaviness * heavy)
        tail = (1 - RATE) / 2
        low, high = (mean / shape * gammaincinv(shape, level) for level in (tail, 1 - tail))
        return float(low.min()), float(high.max())


@lru_cache(maxsize=8)
def response_of(method: Method, problem: Problem) -> Response:
    """What excess fitness the method turns its load into, for any data in the unit ball."""
    spectra = _spectra(problem, method.regularization)
    h, limits = spectra.all, method.limits(problem)
    reach, spread = method.linear(h)
    left = (1 - h * reach) ** 2
    signal = spectra.shares * (spectra.typical - spectra.flat)
    typical = float(left[1:3] @ signal / signal.sum()) * problem.gap / 2
    return Response(
        start=Interval(0.0, typical, float(left.max()) * problem.gap + limits.zigzag),
        sample=Interval(0.0, float(signal @ (1 / spectra.typical)) / 2, method.slope**2 / (2 * spectra.flat)),
        spectra=spectra,
        once=h / 2 * reach**2,
        fresh=h / 2 * spread,
        limits=limits,
    )


@lru_cache(maxsize=8)
def _spectra(problem: Problem, flat: float) -> Spectra:
    """The spectra of a problem whose least curvature is lambda."""
    rest = problem.n_features - 1
    counts = np.unique(np.geomspace(1, problem.n_features, _DIRECTIONS).round())
    return Spectra(
        flat=flat,
        typical=flat + problem.curvature / problem.n_features * np.array([1, 1 / 3]),
        shares=np.array([1.0, rest]),
        steep=(flat + problem.curvature * _TRACES / counts[:, None]).ravel(),
        counts=np.repeat(counts, len(_TRACES)),
    )
