"""Objective perturbation with Gaussian noise: the minimiser of a randomly tilted, regularised risk.

Chaudhuri, Monteleoni & Sarwate 2011, Algorithm 2, with the Gaussian tilt of Rajkumar & Agarwal 2012, Procedures 1-3.
"""

from __future__ import annotations

import numpy as np

from common.arrays import FloatArray
from common.data.shard import Shard
from common.learning.erm import minimise
from common.learning.losses import Loss, bounded_slope
from common.privacy.calibration import Calibration, gaussian_sigma, sigma_star, slack
from common.privacy.noise import Noise

EXACT_MINIMISER = "the model is the exact minimiser (solved to a gradient norm of 1e-9)"


def tilt_sigma(d: int, epsilon_tilde: float, delta: float, loss: Loss, calibration: Calibration) -> float:
    """The deviation of the tilt: sigma* of Procedure 3, or the tight 2 L / mu(epsilon~, delta), free of d."""
    if calibration == "paper":
        return sigma_star(d, epsilon_tilde, delta, bounded_slope(loss))
    return gaussian_sigma(epsilon_tilde, delta, 2 * bounded_slope(loss))


def objective_perturbation(  # noqa: PLR0913, PLR0917 -- a mechanism's whole specification
    loss: Loss,
    shard: Shard,
    regularization: float,
    epsilon: float,
    delta: float,
    noise: Noise,
    calibration: Calibration = "paper",
) -> FloatArray:
    """The private minimiser (d,) of (1/n) sum loss + (regularization/2)|w|^2, for one shard (n, d)."""
    n = int(shard.n_examples)
    extra, epsilon_tilde = slack(epsilon, regularization, n, loss.smoothness, calibration)
    sigma = tilt_sigma(shard.n_features, epsilon_tilde, delta, loss, calibration)
    tilt = noise.gaussian(sigma, (shard.n_features,))
    return minimise(loss, shard, np.asarray(n * (regularization + extra)), tilt)
