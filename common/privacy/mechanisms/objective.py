"""Objective perturbation with Gaussian noise: the minimiser of a randomly tilted, regularised risk.

Chaudhuri, Monteleoni & Sarwate 2011, Algorithm 2, with the Gaussian tilt of Rajkumar & Agarwal 2012, Procedures 1-3.

Their theorem is about the exact minimiser w* of the tilted risk, and a solver finds some w near it. As in Iyengar et
al. 2019 ("Towards Practical Differentially Private Convex Optimization", approximate minima perturbation), a hundredth
of the budget goes to noise on the answer: given w*, the tilt follows from the data, so w - w* is a function of w* and
the data, and |w - w*| <= |gradient left| / Lambda (`common.learning.convergence`) on any data. Released with Gaussian
noise for twice that, it composes with w*, and their sum is post-processing. The tilt's length is taken to be at most
sqrt(d) + 9 deviations, which fails once in 10^17 draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from common.arrays import FloatArray, IntArray
from common.data.shard import Shard
from common.encoding.fixed_point import FRACTION_BITS, MAX_NORM, to_integers
from common.learning.convergence import MOST_STEPS, TOLERANCE, gradient_left
from common.learning.erm import minimise
from common.learning.losses import Loss, bounded_slope
from common.privacy.calibration import Calibration, gaussian_sigma, sigma_star, slack
from common.privacy.mechanisms.additive import add_gaussian, fitting
from common.privacy.noise import Noise

_FOR_THE_SOLVER = 0.01
"""The part of epsilon and of delta that hides how well the solver did."""
_TILT_DEVIATIONS = 9.0


def tilt_sigma(d: int, epsilon_tilde: float, delta: float, loss: Loss, calibration: Calibration) -> float:
    """The deviation of the tilt: sigma* of Procedure 3, or the tight 2 L / mu(epsilon~, delta), free of d."""
    if calibration == "paper":
        return sigma_star(d, epsilon_tilde, delta, bounded_slope(loss))
    return gaussian_sigma(epsilon_tilde, delta, 2 * bounded_slope(loss))


@dataclass(frozen=True, slots=True)
class ObjectivePerturbation:
    """The mechanism for n examples of d features: its ridge on the sum scale, its tilt's and its answer's deviation."""

    loss: Loss
    strength: float
    tilt: float
    blur: float

    @classmethod
    def calibrated(  # noqa: PLR0913 -- a mechanism's whole specification
        cls,
        loss: Loss,
        shape: tuple[int, int],
        *,
        regularization: float,
        epsilon: float,
        delta: float,
        calibration: Calibration = "paper",
    ) -> ObjectivePerturbation:
        """For ``shape`` (n, d) and (1/n) sum loss + (regularization/2)|w|^2; (epsilon, delta) is that of the answer.

        Raises InvalidInputError where no solver surely comes near enough to the minimiser, or noise does not fit.
        """
        n, d = shape
        whole = 1 - _FOR_THE_SOLVER
        extra, epsilon_tilde = slack(whole * epsilon, regularization, n, loss.smoothness, calibration)
        tilt = tilt_sigma(d, epsilon_tilde, whole * delta, loss, calibration)
        strength = n * (regularization + extra)
        longest = tilt * (math.sqrt(d) + _TILT_DEVIATIONS)
        left = float(gradient_left(loss, np.asarray(n), d, np.asarray(strength), longest))
        apart = 2 * left / strength + math.sqrt(d) * 2.0**-FRACTION_BITS
        blur = gaussian_sigma(_FOR_THE_SOLVER * epsilon, _FOR_THE_SOLVER * delta, apart)
        return cls(loss, strength, tilt, float(fitting(blur)))

    def answer(self, shard: Shard, noise: Noise) -> IntArray:
        """The private minimiser of a shard (n, d), (d,), in integers of 2^-32.

        One outside the cube of the largest weights is projected onto it, which brings no two answers further apart.
        """
        tilt = noise.gaussian(self.tilt, (shard.n_features,))
        weights: FloatArray = minimise(
            self.loss, shard, np.asarray(self.strength), tilt, tolerance=TOLERANCE, most_steps=MOST_STEPS
        )
        return add_gaussian(to_integers(np.clip(weights, -MAX_NORM, MAX_NORM)), self.blur, 1.0, noise)
