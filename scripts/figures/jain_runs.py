"""What Jain & Thakurta's figures measure: accuracies of private linear models, and their excess risk.

Run i has the same rows and the same seeds under every setting. One process measures all methods of a run, so that what
several share is computed once: minimisers without noise do not depend on epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.common.algorithms.release import MECHANISMS, Mechanism
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss
from parley.common.learning.metrics import accuracy, fitness
from parley.common.learning.model import Model
from parley.common.privacy.mechanisms.site import Law, SiteCalibration, SiteRelease, SiteTerms
from parley.common.privacy.noise import Scale, SeededNoise, Shape
from scripts.figures.jain_data import some, split
from scripts.figures.risk_bounds import release_bound

LOSSES: Mapping[str, Loss] = {"huber": Huber(), "hinge": Hinge(), "logistic": Logistic()}
DELTA = 1e-3
ENTRIES = {"cod-rna": 9, "url": 256}
"""The most entries of a row that are not zero, as a study of the set would say."""
_DRAWS = 200


@dataclass(frozen=True, slots=True)
class Method:
    """A way to make a model private: the mechanism, and the law of its noise."""

    mechanism: Mechanism
    law: Law = "gaussian"
    calibration: SiteCalibration = "tight"

    def site(self, setting: Setting, shard: Shard, epsilon: float) -> SiteRelease:
        """Its mechanism for these rows; raises InvalidInputError where none can be set."""
        n, d = shard.shape
        terms = SiteTerms(
            LOSSES[setting.loss], n, d, setting.regularization, epsilon, DELTA, self.law, self.calibration,
            row_entries=ENTRIES[setting.data],
        )  # fmt: skip
        return MECHANISMS[self.mechanism](terms)


NONE = "non-private"
METHODS: Mapping[str, Method] = {
    NONE: Method("none"),
    "objective, L2-Laplace": Method("objective", "l2_laplace", "paper"),
    "output, L2-Laplace": Method("output", "l2_laplace", "jain_thakurta"),
    "output, Gaussian (paper)": Method("output", "gaussian", "jain_thakurta"),
    "output, Gaussian (tight)": Method("output"),
    "objective, Gaussian (paper)": Method("objective", "gaussian", "jain_thakurta"),
    "objective, Gaussian (tight)": Method("objective"),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Rows of at least so many columns, a loss, and lambda of the mean loss.

    ``rows`` are those that are trained on, all where it is 0.
    """

    data: str = "cod-rna"
    loss: str = "huber"
    regularization: float = 0.001
    columns: int = 0
    rows: int = 0


def accuracies(setting: dict[str, Any], epsilons: Sequence[float], run: int) -> dict[str, list[float | None]]:
    """The accuracy on test rows of each method that takes the loss, at each epsilon; None where it cannot be set."""
    terms = Setting(**setting)
    train, test = split(terms.data, run, columns=terms.columns)
    if terms.rows:
        train = some(train, np.arange(terms.rows))
    solved: dict[str, Any] = {}
    accuracies: dict[str, list[float | None]] = {}
    for name, method in METHODS.items():
        if method.mechanism == "objective" and terms.loss == "hinge":
            continue
        noise = SeededNoise([11, run])
        accuracies[name] = []
        for epsilon in epsilons:
            try:
                site = method.site(terms, train, epsilon)
            except InvalidInputError:
                accuracies[name].append(None)
            else:
                accuracies[name].append(accuracy(Model(_weights(site, train, noise, solved)), test))
    return accuracies


def _weights(site: SiteRelease, shard: Shard, noise: SeededNoise, solved: dict[str, Any]) -> FloatArray:
    """The model that a site releases; what comes before the noise is computed once for each kind of mechanism."""
    kind = type(site).__name__
    if kind not in solved:
        solved[kind] = type(site).prepare([site], shard)
    answer: IntArray = type(site).answer([site], solved[kind], noise)
    return to_reals(answer)


class Mirrored(SeededNoise):
    """The noise of a seed, or its mirror image: of both together nothing is left but what noise does by its square."""

    def __init__(self, seed: Sequence[int], sign: int) -> None:
        super().__init__(seed)
        self._sign = sign

    def gaussian(self, sigma: Scale, shape: Shape) -> FloatArray:
        """Return what `Noise.gaussian` draws, or its negative."""
        return self._sign * super().gaussian(sigma, shape)

    def l2_laplace(self, beta: Scale, shape: Shape, parts: float = 1) -> FloatArray:
        """Return what `Noise.l2_laplace` draws, or its negative."""
        return self._sign * super().l2_laplace(beta, shape, parts)

    def discrete_gaussian(self, sigma: Scale, shape: Shape) -> IntArray:
        """Return what `Noise.discrete_gaussian` draws, or its negative."""
        return self._sign * super().discrete_gaussian(sigma, shape)


def excess(setting: dict[str, Any], epsilon: float, runs: int) -> dict[str, dict[str, Any]]:
    """The excess risk of each method over the minimiser, on training rows, in each run; and its bound.

    Of a noise and its mirror image the mean, which estimates the same with less variance.
    """
    terms = Setting(**setting)
    train, _ = split(terms.data, 0, columns=terms.columns)
    loss, solved = LOSSES[terms.loss], dict[str, Any]()
    sites = {name: method.site(terms, train, epsilon) for name, method in METHODS.items()}
    best = _weights(sites.pop(NONE), train, SeededNoise(0), solved)
    least = fitness(loss, Model(best), train, 0.0)

    def of(site: SiteRelease, run: int, sign: int) -> float:
        return fitness(loss, Model(_weights(site, train, Mirrored([12, run], sign), solved)), train, 0.0) - least

    return {
        name: {
            "excess": [(of(site, run, 1) + of(site, run, -1)) / 2 for run in range(runs)],
            "bound": release_bound(site, float(np.linalg.norm(best))).excess,
        }
        for name, site in sites.items()
    }


def orthant(columns: int, deviation: float, run: int) -> dict[str, float]:
    """How far noise moves the score of a row of equal numbers, with and without a projection onto the orthant.

    The model is 0, as are the scores; the row has norm 1 in so many columns. The root of mean squares.
    """
    rng = np.random.default_rng([13, run])
    moved: dict[str, list[float]] = {"free": [], "in the orthant": []}
    for _ in range(_DRAWS):
        noise = deviation * rng.standard_normal(columns)
        for name, weights in (("free", noise), ("in the orthant", np.maximum(noise, 0.0))):
            moved[name].append(float(weights.sum()) / math.sqrt(columns))
    return {name: math.sqrt(float(np.square(values).mean())) for name, values in moved.items()}
