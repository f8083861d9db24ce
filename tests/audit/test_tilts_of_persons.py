"""Objective perturbation of persons: delta in the plane, computed and not sampled, where a person of 40 is exchanged.

As in `tests.audit.test_objective_perturbation`, but rows have weights, a person's 1/40 each; there are five in each of
eight directions. In many columns, where a
person's rows bend the risk in as many directions, the densities of one model on neighbours are compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.privacy.calibration import determinant_cost, slack, tilt_sigma
from parley.common.privacy.mechanisms.objective import FOR_THE_SOLVER, ObjectivePerturbation, objective
from parley.common.privacy.mechanisms.site import SiteTerms

REGULARIZATION = 2.5e-5
BUDGETS = [(1.0, 1e-5), (1.0, 0.05)]
ROWS, DIRECTIONS = 40, 8
CROWD = 100_000
Rows = tuple[FloatArray, FloatArray]
"""Rows y x (n, 2) and their weights (n,)."""


@dataclass(frozen=True, slots=True)
class InThePlane:
    """Objective perturbation in the plane: a ridge and the deviation of the tilt."""

    loss: Loss
    strength: float
    sigma: float

    @classmethod
    def calibrated(cls, loss: Loss, n: int, epsilon: float, delta: float, factor: float) -> InThePlane:
        extra, left = slack(epsilon, REGULARIZATION, n, loss.smoothness, "tight", 2)
        strength = n * (REGULARIZATION + extra)
        of_persons = determinant_cost(loss.smoothness / strength, 2)
        assert left + of_persons <= epsilon * (1 + 1e-12)
        return cls(loss, strength, factor * tilt_sigma(2, left, delta, loss.lipschitz, "tight", of_persons))

    def tilt(self, rows: Rows, models: FloatArray) -> FloatArray:
        """What leads to the models (m, 2), (m, 2)."""
        records, weights = rows
        slopes = weights * self.loss.slope(models @ records.T, np.ones(len(records)))
        return np.asarray(-(self.strength * models + slopes @ records))

    def cells(self, rows: Rows, models: FloatArray, size: float) -> FloatArray:
        """The probabilities (m,) of cells of this size about the models."""
        records, weights = rows
        scaled = self.tilt(rows, models) / self.sigma
        curvature = weights * self.loss.curvature(models @ records.T, np.ones(len(records)))
        (a, b), (_, c) = np.einsum("mn,ni,nj->ijm", curvature, records, records)
        determinant = (a + self.strength) * (c + self.strength) - b**2
        return np.asarray(np.exp(-(scaled**2).sum(axis=-1) / 2) / (2 * np.pi * self.sigma**2) * determinant * size)

    def axis(self, pair: tuple[Rows, Rows], j: int) -> FloatArray:
        """The j-th weights that no tilt of less than 8 deviations leaves."""
        line = np.zeros((100_001, 2))
        reach = (10 * self.sigma + max(float(weights.sum()) for _, weights in pair)) / self.strength
        line[:, j] = reach * np.sinh(np.linspace(-12, 12, len(line))) / np.sinh(12)
        likely = [np.abs(self.tilt(rows, line)[:, j]) <= 8 * self.sigma + 2 for rows in pair]
        inside = line[likely[0] | likely[1], j]
        return np.linspace(inside[0], inside[-1], 251)

    def delta(self, epsilon: float, pair: tuple[Rows, Rows]) -> float:
        """The larger delta of both directions."""
        axes = [self.axis(pair, j) for j in range(2)]
        models = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
        p, q = (self.cells(rows, models, math.prod(axis[1] - axis[0] for axis in axes)) for rows in pair)
        assert p.sum() == pytest.approx(1, abs=5e-3)  # the cells hold the whole law
        return float(max(np.maximum(0, one - math.exp(epsilon) * other).sum() for one, other in ((p, q), (q, p))))


def person(angles: FloatArray, signs: FloatArray | float = 1.0) -> Rows:
    """The rows of one person, on the circle: as many at each angle."""
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.asarray(rows * np.reshape(signs, (-1, 1))), np.full(len(angles), 1 / len(angles))


def among(one: Rows, crowd: int) -> Rows:
    """A person and others who pull the model down the first axis."""
    return np.vstack([one[0], [-1.0, 0.0]]), np.append(one[1], float(crowd))


STEEP = math.acos(0.35)


def pairs() -> list[tuple[int, tuple[Rows, Rows]]]:
    """Numbers of persons and neighbours: fans, stars, opposite labels, alone and where both slopes are steep."""
    fan, star = np.linspace(-0.05, 0.05, DIRECTIONS), np.linspace(0, math.pi, DIRECTIONS, endpoint=False)
    both = np.tile([1.0, -1.0], DIRECTIONS // 2)
    alone = [
        (person(fan), person(fan + math.pi)),
        (person(star), person(star + math.pi)),
        (person(fan, both), person(fan + math.pi / 2, both)),
        (person(np.array([0.0, math.pi / 2])), person(np.array([math.pi, -math.pi / 2]))),
    ]
    crowded = [(person(fan + STEEP), person(fan - STEEP)), (person(fan + STEEP, both), person(fan - STEEP))]
    return [(1, pair) for pair in alone] + [
        (CROWD + 1, (among(one, CROWD), among(other, CROWD))) for one, other in crowded
    ]


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=["logistic", "huber"])
def test_a_person_of_many_rows_is_as_private_as_promised(loss: Loss) -> None:
    """Of a crowd whose slopes end a model has no density that a grid shows."""
    cases = [(n, pair) for n, pair in pairs() if n == 1 or isinstance(loss, Logistic)]
    for epsilon, delta in BUDGETS:
        truly = [InThePlane.calibrated(loss, n, epsilon, delta, 1.0).delta(epsilon, pair) for n, pair in cases]
        print(
            f"{loss}: delta at epsilon {epsilon} is {', '.join(f'{each / delta:.2g}' for each in truly)} of {delta:g}"
        )
        assert max(truly) <= delta


def test_half_of_the_noise_that_hides_a_person_is_caught() -> None:
    n, pair = pairs()[-2]
    for epsilon, delta in BUDGETS:
        truly = InThePlane.calibrated(Logistic(), n, epsilon, delta, 0.5).delta(epsilon, pair)
        print(f"half of the noise: delta at epsilon {epsilon} is {truly:.1e} of {delta:g}")
        assert truly > delta


def loss_of_a_model(site: ObjectivePerturbation) -> float:
    """The privacy loss of a model where 40 rows bend the risk in 40 directions, beyond that a record's rows do.

    Rows lie about the model, scores in the band of the Huber loss; the neighbour has rows beyond it, on the other side.
    """
    d, tilt = ROWS + 1, site.tilt
    side = math.sqrt(1 - 0.1**2)
    rows = np.hstack([np.full((ROWS, 1), 0.1), side * np.eye(ROWS)])
    model = np.eye(1, d)[0] * 9.0  # scores of .9: within the band, where slopes are small already
    others = np.tile(-np.eye(1, d), (ROWS, 1))
    begins = np.arange(ROWS) == 0
    logs = []
    for X in (rows, others):
        shard = Shard(X, np.ones(ROWS), begins=begins)
        around = model + 1e-5 * np.concatenate([np.eye(d), -np.eye(d)])
        noise = site.tilts_of(shard, np.vstack([model, around]))[:, 0]
        slopes = (noise[1 : d + 1] - noise[d + 1 :]) / 2e-5
        logs.append(np.linalg.slogdet(slopes)[1] - tilt * float(np.linalg.norm(noise[0])))
    return float(logs[0] - logs[1])


@pytest.mark.parametrize("epsilon", [15.0, 20.0, 40.0])
def test_the_determinant_of_a_record_would_break_a_persons_pure_promise(epsilon: float) -> None:
    """At a large epsilon a ridge is small, and a person's factor (1 + c / (m Lambda))^m is far above a record's."""
    most_rows = {ROWS: True, 1: False}
    for rows, holds in most_rows.items():
        terms = SiteTerms(Huber(0.5), 1, ROWS + 1, 1e-6, epsilon, 0.0, "l2_laplace", most_rows=rows)
        truly = loss_of_a_model(objective(terms))
        print(f"{rows} rows a person: epsilon {truly:.3g} of {epsilon:g}")
        assert (truly <= (1 - FOR_THE_SOLVER) * epsilon * (1 + 1e-9)) == holds
