"""What Xie's figures measure: error rates on test rows of one site's models, and of many sites' joined.

A run deals the rows, 70 % to learn from, and draws all noise; run i has the same order of rows and the same
seeds under every setting, so that settings are compared run by run. All noise is of density exp(-beta |b|), pure
epsilon, as the thesis's. Of its feature method (Algorithm 5) the second level is measured twice:

- *F_Full* as printed: x' = M_f x, as long as it comes out, though the proof of the aggregator's noise needs |x'| <= 1.
  So this promises the aggregator's rows nothing, and exists here alone, for judging the thesis.
- *F_Full, unit views*: views of length 1, as `parley.common.algorithms.feature` makes them. That is private.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from parley.common.algorithms.feature import in_span, spanned
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard, assembled
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.erm import TOLERANCE, minimise
from parley.common.learning.losses import Huber, Logistic, Loss
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation, objective
from parley.common.privacy.mechanisms.output import exact, generalized, output
from parley.common.privacy.mechanisms.site import SiteCalibration, SiteRelease, SiteTerms
from parley.common.privacy.noise import SeededNoise
from scripts.figures.xie_data import rows_of

Errors = Mapping[str, list[float]]
"""The error rates of the runs, by line."""
TRAINING = 0.7
MECHANISMS: Mapping[str, Callable[[SiteTerms], SiteRelease]] = {
    "none": exact, "output": output, "objective": objective, "generalized": generalized,
}  # fmt: skip
GLOBAL, AVERAGE, LOCAL = "global", "average", "local"
F_LOC, F_FULL, UNIT_VIEWS = "F_Loc", "F_Full", "F_Full, unit views"


@dataclass(frozen=True, slots=True)
class Setting:
    """Who learns how: so many sites of so many rows, an aggregator, and the epsilon of all, None for no noise.

    ``own_rows`` and ``own_epsilon`` are the last site's; 0 for those of all. Unless ``dealt_again``, all runs have run
    0's rows.
    """

    data: str = "mnist"
    loss: str = "huber"
    half_width: float = 0.5
    regularization: float = 0.01
    sites: int = 10
    rows: int = 789
    aggregator: int = 789
    epsilon: float | None = 0.1
    own_rows: int = 0
    own_epsilon: float = 0.0
    dealt_again: bool = True
    seed: int = 1

    @property
    def sizes(self) -> list[int]:
        """The numbers of rows of the sites."""
        return [self.rows] * (self.sites - 1) + [self.own_rows or self.rows]

    @property
    def epsilons(self) -> list[float | None]:
        """The budgets of the sites."""
        return [self.epsilon] * (self.sites - 1) + [self.own_epsilon or self.epsilon]

    @property
    def loss_function(self) -> Loss:
        """The loss that is minimised."""
        return Logistic() if self.loss == "logistic" else Huber(self.half_width)


@dataclass(frozen=True, slots=True, eq=False)
class Dealt:
    """A run's rows: the sites', the aggregator's, and those to test on."""

    setting: Setting
    parts: Sequence[Shard]
    aggregator: Shard
    test: Shard
    number: int

    @classmethod
    def of(cls, setting: Setting, rows: Shard, number: int) -> Dealt:
        """Deal rows; raises ValueError where there are not so many."""
        order = np.random.default_rng([setting.seed, number if setting.dealt_again else 0]).permutation(len(rows.y))
        ends = np.cumsum([setting.aggregator, *setting.sizes])
        if ends[-1] >= len(order):
            raise ValueError(f"there are {len(order)} rows, not more than {ends[-1]}")
        aggregator, *parts = (rows.take(part) for part in np.split(order[: ends[-1]], ends[:-1]))
        test = rows.take(order[max(math.ceil(TRAINING * len(order)), ends[-1]) :])
        return cls(setting, parts, aggregator, test, number)

    @property
    def models(self) -> FloatArray:
        """Return the sites' released models (N, d)."""
        epsilons = self.setting.epsilons
        sites = [self._site(part, epsilon) for part, epsilon in zip(self.parts, epsilons, strict=True)]
        models: FloatArray = np.empty((len(sites), self.test.n_features))
        for number, has_noise in enumerate((True, False)):
            places = [i for i, epsilon in enumerate(epsilons) if (epsilon is not None) is has_noise]
            if places:
                models[places] = answered([sites[i] for i in places], [self.parts[i] for i in places],
                                          SeededNoise([self.setting.seed, self.number, 1 + number]))  # fmt: skip
        return models

    @property
    def pooled(self) -> FloatArray:
        """Return the one model (d,) of all rows, those of the aggregator too."""
        rows = Shard.stack([*self.parts, self.aggregator]).pooled()
        site = self._site(rows, self.setting.epsilon)
        return np.asarray(answered([site], [rows], SeededNoise([self.setting.seed, self.number, 3]))[0])

    def weighed(self, models: FloatArray) -> dict[str, FloatArray]:
        """Return the models (d,) of the feature method, by how the aggregator weighs."""
        X, y, mask = (getattr(self.aggregator, name) for name in ("X", "y", "mask"))
        printed = assembled(Shard, X=X @ models.T, y=y.copy(), mask=mask.copy(), norm="euclidean", weighing=None)
        basis, epsilon = spanned(models), self.setting.epsilon
        return {
            F_LOC: self._second_level(printed, None) @ models,
            F_FULL: self._as_printed(printed) @ models,
            UNIT_VIEWS: self._second_level(in_span(basis, self.aggregator), epsilon) @ basis,
        }

    def error(self, weights: FloatArray) -> float:
        """Return the error rate of models (..., d) on the test rows, on average."""
        return float(np.mean(self.test.y != np.where(self.test.X @ weights.T > 0, 1.0, -1.0).T))

    def _second_level(self, views: Shard, epsilon: float | None) -> FloatArray:
        site = self._site(views, epsilon)
        return np.asarray(answered([site], [views], SeededNoise([self.setting.seed, self.number, 4]))[0])

    def _as_printed(self, views: Shard) -> FloatArray:
        """Return Algorithm 2's weights (N,) for views of any length, without the blur that Parley adds.

        The blur hides what a solver may leave of rows in the unit ball; weights of long views are so short that it
        would decide them.
        """
        site = self._site(views, self.setting.epsilon)
        if not isinstance(site, ObjectivePerturbation):
            return self._second_level(views, None)
        slant = SeededNoise([self.setting.seed, self.number, 4]).l2_laplace(site.tilt, (views.n_features,))
        return minimise(self.setting.loss_function, views, site.strength, slant, tolerance=TOLERANCE)

    def _site(self, rows: Shard, epsilon: float | None) -> SiteRelease:
        terms = terms_of(self.setting, rows)
        return exact(terms) if epsilon is None else objective(replace(terms, epsilon=epsilon))


def terms_of(setting: Setting, rows: Shard, calibration: SiteCalibration = "paper") -> SiteTerms:
    """Return what the mechanism of a site of these rows may depend on."""
    epsilon = 1.0 if setting.epsilon is None else setting.epsilon
    n, d = rows.X.shape
    return SiteTerms(setting.loss_function, n, d, setting.regularization, epsilon, 0.0, "l2_laplace", calibration)


def answered(sites: Sequence[SiteRelease], parts: Sequence[Shard], noise: SeededNoise) -> FloatArray:
    """Return the models (N, d) of sites that have the same mechanism, as a stack."""
    kind = type(sites[0])
    stacked = Shard.stack(parts) if len(parts) > 1 else parts[0]
    return np.atleast_2d(to_reals(kind.answer(sites, kind.prepare(sites, stacked), noise)))


def joined(repeat: int, first: int = 0, *, lines: Sequence[str] = (), **setting: Any) -> Errors:  # noqa: ANN401
    """The errors of sites' models on average, and of what is made of them; of the ``lines``, or of all but *global*."""
    return joined_of(Setting(**setting), rows_of(setting["data"]), range(first, first + repeat), lines)


def joined_of(setting: Setting, rows: Shard, numbers: range, lines: Sequence[str] = ()) -> Errors:
    """Return what `joined` does, of rows."""
    errors: dict[str, list[float]] = {}
    for number in numbers:
        dealt = Dealt.of(setting, rows, number)
        models = dealt.models
        every = {LOCAL: models, AVERAGE: models.mean(axis=0), **dealt.weighed(models)}
        if GLOBAL in lines:
            every[GLOBAL] = dealt.pooled
        for line, weights in every.items():
            if not lines or line in lines:
                errors.setdefault(line, []).append(dealt.error(weights))
    return errors


def alone(repeat: int, *, mechanisms: Mapping[str, Sequence[str]], **setting: Any) -> Errors:  # noqa: ANN401
    """The errors of one site's models: by line, of a mechanism and a calibration, or of none."""
    return alone_of(Setting(**{"sites": 1, **setting}), rows_of(setting["data"]), range(repeat), mechanisms)


def alone_of(setting: Setting, rows: Shard, numbers: range, mechanisms: Mapping[str, Sequence[Any]]) -> Errors:
    """Return what `alone` does, of rows."""
    errors: dict[str, list[float]] = {line: [] for line in mechanisms}
    for number in numbers:
        dealt = Dealt.of(replace(setting, aggregator=0), rows, number)
        (own,) = dealt.parts
        for line, named in mechanisms.items():
            mechanism, calibration = cast("tuple[str, SiteCalibration]", named or ("none", "paper"))
            site = MECHANISMS[mechanism](terms_of(setting, own, calibration))
            errors[line].append(dealt.error(answered([site], [own], SeededNoise([setting.seed, number, 1]))[0]))
    return errors
