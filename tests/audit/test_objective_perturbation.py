"""Objective perturbation's delta, computed and not sampled: the law of the private minimiser on neighbouring shards.

The tilt b(w) = -(strength w + sum of gradients at w) that leads to the model w is a smooth one-to-one map. On a line it
falls with w, so the model lies in a cell between two w's with a probability that the normal distribution tells exactly.
In a plane the model has the density N(b(w); 0, sigma^2) det(-b'(w)). On cells fine enough,

    delta(epsilon) = sum of max(0, P(cell) - e^epsilon P'(cell))

for every pair of neighbours, which the calibration must keep below its delta.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import ndtr

from parley.common.arrays import FloatArray
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.privacy.calibration import Calibration, slack, tilt_sigma

REGULARIZATION = 2.5e-5
BUDGETS = [(0.1, 0.05), (1.0, 1e-5), (1.0, 0.05), (4.0, 1e-3)]
EVERY = pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=["logistic", "huber"])


@dataclass(frozen=True, slots=True)
class Mechanism:
    """Objective perturbation of n signed records y x: the strength of its ridge and the deviation of its tilt."""

    loss: Loss
    strength: float
    sigma: float

    @classmethod
    def calibrated(  # noqa: PLR0913, PLR0917 -- a mechanism and its budget
        cls, loss: Loss, n: int, d: int, epsilon: float, delta: float, calibration: Calibration
    ) -> Mechanism:
        extra, epsilon_tilde = slack(epsilon, REGULARIZATION, n, loss.smoothness, calibration)
        return cls(loss, n * (REGULARIZATION + extra), tilt_sigma(d, epsilon_tilde, delta, loss.lipschitz, calibration))

    def axis(self, neighbours: tuple[FloatArray, FloatArray], j: int) -> FloatArray:
        """The j-th weights that no tilt of less than 8 deviations leaves, on either of two neighbours."""
        line = np.zeros((100_001, neighbours[0].shape[1]))
        reach = (10 * self.sigma + len(neighbours[0])) / self.strength
        line[:, j] = reach * np.sinh(np.linspace(-12, 12, len(line))) / np.sinh(12)  # fine where the law may be narrow
        likely = [np.abs(self.tilt(records, line)[:, j]) <= 8 * self.sigma + 2 for records in neighbours]
        inside = line[likely[0] | likely[1], j]
        return np.linspace(inside[0], inside[-1], 20_001 if line.shape[1] == 1 else 401)

    def tilt(self, records: FloatArray, models: FloatArray) -> FloatArray:
        """What leads to the models (m, d) on the records (n, d), (m, d)."""
        records, times = np.unique(records, axis=0, return_counts=True)
        slopes = times * self.loss.slope(models @ records.T, np.ones(len(records)))
        return np.asarray(-(self.strength * models + slopes @ records))

    def on_a_line(self, records: FloatArray, axis: FloatArray) -> FloatArray:
        """The probabilities of cells of models."""
        tilt = self.tilt(records, axis[:, None])[:, 0]
        return np.diff(ndtr(-tilt / self.sigma))

    def in_a_plane(self, records: FloatArray, *axes: FloatArray) -> FloatArray:
        """The probabilities of cells of models, by their density."""
        cell = math.prod(axis[1] - axis[0] for axis in axes)
        models = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        scaled = self.tilt(records, models) / self.sigma
        records, times = np.unique(records, axis=0, return_counts=True)
        curvature = times * self.loss.curvature(models @ records.T, np.ones(len(records)))
        (a, b), (_, c) = np.einsum("mn,ni,nj->ijm", curvature, records, records)
        determinant = (a + self.strength) * (c + self.strength) - b**2
        normal = np.exp(-(scaled**2).sum(axis=-1) / 2) / (2 * np.pi * self.sigma**2)
        return np.asarray(normal * determinant * cell)

    def delta(self, epsilon: float, neighbours: tuple[FloatArray, FloatArray]) -> float:
        """The larger delta of both directions."""
        axes = [self.axis(neighbours, j) for j in range(neighbours[0].shape[1])]
        p, q = ((self.on_a_line if len(axes) == 1 else self.in_a_plane)(records, *axes) for records in neighbours)
        assert p.sum() == pytest.approx(1, abs=1e-4)  # the cells hold the whole law
        return float(max(np.maximum(0, one - math.exp(epsilon) * other).sum() for one, other in ((p, q), (q, p))))


def on_a_line() -> list[tuple[FloatArray, FloatArray]]:
    """One record turned round or taken away, among others that pull one way, the other, or both."""
    crowds = [[], [1.0] * 4, [-1.0] * 4, [1.0, -1.0] * 3]
    swaps = [(1.0, -1.0), (1.0, 0.0), (1.0, 0.5)]
    return [
        (np.array([[a], *([v] for v in crowd)]), np.array([[b], *([v] for v in crowd)]))
        for crowd, (a, b) in itertools.product(crowds, swaps)
    ]


def in_a_plane() -> list[tuple[FloatArray, FloatArray]]:
    """One record turned round, or by an angle among others; and where it moves the gradient most.

    There a crowd pulls the model down the first axis, where the record's slope and its replacement's are both steep.
    """
    others, crowd = np.array([[0.0, 1.0], [0.6, -0.8]]), np.tile([-1.0, 0.0], (100_000, 1))
    one, turned, steep = (
        np.array([1.0, 0.0]),
        np.array([0.5, math.sqrt(0.75)]),
        np.array([0.35, math.sqrt(1 - 0.35**2)]),
    )
    return [
        (one[None], -one[None]),
        (np.vstack([one, others]), np.vstack([turned, others])),
        (np.vstack([steep, crowd]), np.vstack([steep * [1, -1], crowd])),
    ]


def worst(  # noqa: PLR0913, PLR0917 -- neighbours, a mechanism and its budget
    pairs: list[tuple[FloatArray, FloatArray]],
    loss: Loss,
    epsilon: float,
    delta: float,
    calibration: Calibration,
    factor: float = 1.0,
) -> float:
    """The largest delta over pairs of neighbours, with ``factor`` times the noise of the calibration."""
    deltas = []
    for pair in pairs:
        mechanism = Mechanism.calibrated(loss, len(pair[0]), pair[0].shape[1], epsilon, delta, calibration)
        deltas.append(replace(mechanism, sigma=factor * mechanism.sigma).delta(epsilon, pair))
    return max(deltas)


@EVERY
@pytest.mark.parametrize("calibration", ["paper", "tight"])
def test_on_a_line_the_minimiser_is_as_private_as_promised(loss: Loss, calibration: Calibration) -> None:
    for epsilon, delta in BUDGETS:
        truly = worst(on_a_line(), loss, epsilon, delta, calibration)
        print(f"{loss}, {calibration}: on a line, delta at epsilon {epsilon} is {truly:.1e} of {delta:g}")
        assert truly <= delta


@pytest.mark.parametrize("calibration", ["paper", "tight"])
def test_in_a_plane_the_minimiser_is_as_private_as_promised(calibration: Calibration) -> None:
    for epsilon, delta in ((1.0, 1e-5), (1.0, 0.05)):
        truly = worst(in_a_plane(), Logistic(), epsilon, delta, calibration)
        print(f"{calibration}: in a plane, delta at epsilon {epsilon} is {truly:.1e} of {delta:g}")
        assert truly <= delta


def test_half_of_the_tight_noise_is_caught() -> None:
    for epsilon, delta in ((1.0, 1e-5), (1.0, 0.05)):
        truly = worst(in_a_plane()[-1:], Logistic(), epsilon, delta, "tight", factor=0.5)
        print(f"half of the tight noise: delta at epsilon {epsilon} is {truly:.1e} of {delta:g}")
        assert truly > delta
