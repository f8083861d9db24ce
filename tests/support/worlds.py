"""Owners with samples of one population, made up, on which a forecast can be held against training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from parley.common.algorithms import build_algorithm
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.forecast.coalitions import Members
from parley.common.forecast.forecast import Forecast, forecast
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Squared
from parley.common.learning.metrics import fitness
from parley.common.learning.model import Model
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from tests.support.studies import numbers_study

_POPULATION = 5000
_NEXT_TO_NONE = 1e-6


def facts_of(
    sizes: list[int], epsilons: list[float], loss: Loss | None = None, d: int = 8, **terms: object
) -> FederationFacts:
    """Facts of owners of these sizes and budgets, who all must answer."""
    k = len(sizes)
    terms = {"minimum_contributors": k, "delta": np.full(k, 1e-5), "public_shape": (4, d)} | terms
    terms = {"study": numbers_study(d)} | terms
    return FederationFacts(
        parties=tuple(f"owner-{i + 1}" for i in range(k)),
        n_examples=np.array(sizes),
        epsilon=np.array(epsilons),
        n_features=d,
        loss=loss or Squared(),
        **terms,  # type: ignore[arg-type]
    )


def predict(name: str, parameters: dict[str, Any], facts: FederationFacts) -> Forecast:
    """A forecast, of an algorithm that has one."""
    answer = forecast(build_algorithm(name, parameters), facts)
    assert isinstance(answer, Forecast)
    return answer


def coalitions(k: int) -> list[Members]:
    """All coalitions of k owners."""
    return [np.array(mask) for mask in product([False, True], repeat=k) if any(mask)]


@dataclass(frozen=True)
class World:
    """Owners with samples of one population, drawn by a seed, who may train together."""

    name: str
    loss: Loss
    sizes: list[int]
    epsilons: list[float]
    parameters: dict[str, Any]
    d: int = 8
    seed: int = 0
    secure_sum: bool = False

    def __str__(self) -> str:
        terms = (*map(self.parameters.get, ("calibration", "mechanism")), "secure sum" if self.secure_sum else "")
        return ", ".join(filter(None, (self.name, type(self.loss).__name__.lower(), *terms)))

    @cached_property
    def population(self) -> Shard:
        """A large sample of it."""
        return self.sample(_POPULATION, 1)

    @cached_property
    def shards(self) -> list[Shard]:
        """The owners' samples."""
        return [self.sample(n, 2 + i) for i, n in enumerate(self.sizes)]

    @cached_property
    def least(self) -> float:
        """The least mean loss on the population, without regularisation."""
        return self.least_on(self.population, 0.0)

    def least_on(self, shard: Shard, regularization: float) -> float:
        """The least fitness on a shard."""
        smooth = Huber(1e-2) if isinstance(self.loss, Hinge) else self.loss
        strength = max(regularization, _NEXT_TO_NONE)
        best = Model(minimise(smooth, shard, strength * int(shard.n_examples)))
        return fitness(self.loss, best, shard, regularization)

    def sample(self, n: int, stream: int) -> Shard:
        """Examples in a study's design: columns over their bounds, and an intercept."""
        truth = np.random.default_rng([self.seed, 0]).standard_normal(self.d)
        rng = np.random.default_rng([self.seed, stream])
        z = rng.uniform(-1, 1, (n, self.d - 1))
        X = np.concatenate([z, np.ones((n, 1))], axis=1) / math.sqrt(self.d)
        signal = 0.4 * X @ truth + 0.2 * rng.standard_normal(n)
        return Shard(X, np.clip(signal, -1, 1) if isinstance(self.loss, Squared) else np.where(signal > 0, 1.0, -1.0))

    def facts(self, members: Members) -> FederationFacts:
        """The facts of a run among a coalition."""
        everyone = facts_of(self.sizes, self.epsilons, self.loss, self.d, secure_sum=self.secure_sum)
        return everyone.coalition(members)

    def models(self, members: Members, seeds: range) -> list[Model]:
        """What runs of a coalition come to."""
        stack = Shard.stack([shard for shard, member in zip(self.shards, members, strict=True) if member])
        algorithm, facts = build_algorithm(self.name, self.parameters), self.facts(members)
        noises = (SeededNoise([self.seed, seed, 1]) for seed in seeds)  # none begins as the truth does
        return [simulate(algorithm, stack, facts, noise) for noise in noises]

    def excesses(self, members: Members, seeds: range) -> FloatArray:
        """The excess fitness that runs of a coalition come to on the population, (runs,)."""
        models = self.models(members, seeds)
        return np.array([fitness(self.loss, model, self.population, 0.0) for model in models]) - self.least

    def excesses_on_own(self, members: Members, seeds: range) -> FloatArray:
        """What bounds are of: the regularised fitness on the coalition's own examples less the least, (runs,)."""
        rows = Shard.stack([shard for shard, member in zip(self.shards, members, strict=True) if member]).pooled()
        regularization = float(self.parameters["regularization"])
        least = self.least_on(rows, regularization)
        return np.array(
            [fitness(self.loss, model, rows, regularization) - least for model in self.models(members, seeds)]
        )

    def predict(self, members: Members) -> Forecast:
        """The forecast of a run among a coalition."""
        return predict(self.name, self.parameters, self.facts(members))


WAYS: list[tuple[str, Loss]] = [
    ("wu_strongly_convex", Squared()),
    ("wu_strongly_convex", Logistic()),
    ("wu_subgradient", Hinge()),
    ("wu_subgradient", Logistic()),
    ("dp_gd", Logistic()),
    ("gop", Logistic()),
    ("gop", Huber()),
    ("psgd", Logistic()),
    ("psgd", Squared()),
    ("local_average", Logistic()),
    ("local_average", Huber()),
    ("pooled", Logistic()),
    ("pooled", Squared()),
    ("average", Logistic()),
    ("average", Huber()),
]
"""What has a forecast, and losses to try it with."""
ITERATIVE = ("wu_strongly_convex", "wu_subgradient", "dp_gd", "psgd")
CALIBRATED = ("wu_strongly_convex", "wu_subgradient", "gop")
SHARED = ("dp_gd", "psgd", "local_average", "average")


def random_world(way: int, seed: int) -> World:
    """A setting of WAYS[way] that nothing was fitted on."""
    rng = np.random.default_rng([99, way, seed])
    name, loss = WAYS[way]
    k = int(rng.integers(1, 6))
    parameters: dict[str, Any] = {"regularization": float(10 ** rng.uniform(-2, -0.5))}
    if name in ITERATIVE:
        parameters["n_rounds"] = int(rng.integers(3, 80))
    if name.startswith("wu"):
        parameters["l1_clip"] = 3.0
    if name in CALIBRATED:
        parameters["calibration"] = str(rng.choice(["paper", "tight"]))
    if name == "average":
        mechanism, law = (str(rng.choice(of)) for of in (["output", "objective"], ["gaussian", "l2_laplace"]))
        parameters |= {"mechanism": mechanism, "law": law}
    return World(
        name, loss, rng.integers(50, 2000, k).tolist(), (10 ** rng.uniform(-1, 1, k)).tolist(), parameters,
        d=int(rng.choice([2, 5, 12, 30])), seed=seed, secure_sum=name in SHARED and bool(rng.integers(2)),
    )  # fmt: skip
