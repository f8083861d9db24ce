"""What Wu et al.'s figures measure: the relative fitness psi of runs on loans and on card frauds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from common.algorithms import build_algorithm
from common.arrays import FloatArray
from common.data.shard import Shard
from common.data.study import Study
from common.forecast.coalitions import CoalitionRun
from common.forecast.forecast import Forecast, forecast
from common.forecast.forecasters import forecaster_of
from common.learning.erm import minimise
from common.learning.losses import Hinge, Huber, build_loss
from common.learning.metrics import relative_fitness
from common.learning.model import Model
from common.privacy.noise import SeededNoise
from common.protocol.driver import MemoryLog, drive
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query, Reply
from common.protocol.simulation import Simulation, simulate
from learner.experiments.datasets import deal
from learner.experiments.finance import CREDIT_CARD, LENDING_CLUB, published
from scripts.figures.wu_plots import Series

DELTA = 1e-5
NEARLY_EXACT = 1000.0
_KINK = 1e-2
"""The half-width of the Huber loss whose minimiser stands in for the hinge's: psi is off by less than .005."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A study's data, the algorithm that learns from it, and its parameters."""

    study: Study
    algorithm: str
    parameters: Mapping[str, Any] = field(hash=False)

    @property
    def regularization(self) -> float:
        """Lambda."""
        return float(self.parameters["regularization"])


LOANS = Setting(LENDING_CLUB, "wu_strongly_convex", {"n_rounds": 100, "regularization": 0.1, "l1_clip": 2.0})
FRAUDS = Setting(CREDIT_CARD, "wu_subgradient", {"n_rounds": 100, "regularization": 0.1, "l1_clip": 4.0})


@cache
def examples(study: Study) -> Shard | None:
    """A study's examples in an order drawn once, or None where the data is not here."""
    shard = published(study)
    if shard is None:
        return None
    order = np.random.default_rng(7).permutation(len(shard.y))
    return Shard(shard.X[order], shard.y[order])


@dataclass(frozen=True, slots=True)
class Owners:
    """Who trains: the sizes of their shards, dealt from the first examples on, and their epsilons."""

    sizes: tuple[int, ...]
    epsilons: tuple[float, ...]

    @classmethod
    def alike(cls, n_total: int, epsilon: float, owners: int = 3) -> Owners:
        """Owners of one size and budget, with n examples in all."""
        return cls((n_total // owners,) * owners, (epsilon,) * owners)

    def facts(self, setting: Setting) -> FederationFacts:
        """What all agree on."""
        k = len(self.sizes)
        return FederationFacts(
            parties=tuple(f"owner-{i + 1}" for i in range(k)),
            n_examples=np.array(self.sizes),
            epsilon=np.array(self.epsilons),
            delta=np.full(k, DELTA),
            n_features=setting.study.n_features,
            loss=build_loss(setting.study),
            minimum_contributors=k,
        )


def runs(setting: Setting, owners: Owners, repeat: int) -> FloatArray:
    """Psi of the model on the owners' examples, (repeat,)."""
    own, best = _own(setting, owners)
    stack, facts = deal(own, owners.sizes), owners.facts(setting)
    algorithm = build_algorithm(setting.algorithm, setting.parameters)
    return np.array([_psi(setting, simulate(algorithm, stack, facts, SeededNoise([3, i])), best, own)
                     for i in range(repeat)])  # fmt: skip


def line(setting: Setting, name: str, points: Mapping[float, Owners], repeat: int) -> Series:
    """Psi at points of a line."""
    owners = tuple(points.values())
    x, psi = np.array(list(points), dtype=np.float64), np.array([runs(setting, one, repeat) for one in owners])
    floor = np.array([_floor(setting, one.sizes) for one in owners])
    return Series(name, x, psi, np.array([has_room(setting, one) for one in owners]), floor)


def has_room(setting: Setting, owners: Owners) -> bool:
    """Whether three deviations of the noise in the weights fit the set that the algorithm projects onto."""
    algorithm, facts = build_algorithm(setting.algorithm, setting.parameters), owners.facts(setting)
    forecaster = forecaster_of(algorithm)
    if isinstance(forecaster, str):
        return True
    run = CoalitionRun.of(forecaster, facts)
    return run.load(len(owners.sizes), 1).fresh <= run.response.limits.room


def path(setting: Setting, name: str, owners: Owners, repeat: int) -> Series:
    """Psi of every round's iterate; of the averages so far where the algorithm returns one."""
    own, best = _own(setting, owners)
    stack, facts = deal(own, owners.sizes), owners.facts(setting)
    algorithm = build_algorithm(setting.algorithm, setting.parameters)
    every = []
    for i in range(repeat):
        watched = Watched(Simulation.of(algorithm, stack, facts, SeededNoise([3, i])), [])
        asyncio.run(drive(algorithm.program(facts), watched, "figure", MemoryLog()))
        iterates = np.array(watched.asked)
        shown = _averages(iterates) if setting is FRAUDS else iterates
        every.append([_psi(setting, Model(weights), best, own) for weights in shown])
    rounds = np.arange(1.0, len(every[0]) + 1)
    return Series(name, rounds, np.array(every).T, np.ones(len(rounds), dtype=np.bool_), np.zeros(len(rounds)))


def predicted(setting: Setting, owners: Owners) -> Forecast:
    """The forecast, which sees no example."""
    answer = forecast(build_algorithm(setting.algorithm, setting.parameters), owners.facts(setting))
    if not isinstance(answer, Forecast):
        raise TypeError(answer.reason)
    return answer


@dataclass(frozen=True, slots=True)
class Watched:
    """A federation that remembers the weights it was asked about."""

    inner: Simulation
    asked: list[FloatArray]

    async def answer(self, run: str, query: Query) -> Reply:
        """What the inner federation answers."""
        self.asked.append(query.message)
        return await self.inner.answer(run, query)


@cache
def _floor(setting: Setting, sizes: tuple[int, ...]) -> float:
    """Psi at a budget that is hardly one: what the horizon and the steps cost."""
    return float(runs(setting, Owners(sizes, (NEARLY_EXACT,) * len(sizes)), 3).mean())


def _own(setting: Setting, owners: Owners) -> tuple[Shard, Model]:
    """The owners' examples and the best model on them."""
    shard = examples(setting.study)
    if shard is None or sum(owners.sizes) > len(shard.y):
        raise ValueError(f"{setting.study.name} has too few examples here")
    own = Shard(shard.X[: sum(owners.sizes)], shard.y[: sum(owners.sizes)])
    loss = build_loss(setting.study)
    smooth = Huber(_KINK) if isinstance(loss, Hinge) else loss
    return own, Model(minimise(smooth, own, setting.regularization * len(own.y)))


def _psi(setting: Setting, model: Model, best: Model, own: Shard) -> float:
    return relative_fitness(build_loss(setting.study), model, best, own, setting.regularization)


def _averages(iterates: FloatArray) -> FloatArray:
    """Shamir & Zhang's polynomial-decay averages of iterates (T, d), so far."""
    eta = 1 / math.sqrt(len(iterates))
    averages = iterates.copy()
    for k in range(1, len(iterates)):
        part = (1 + eta) / (k + 1 + eta)
        averages[k] = (1 - part) * averages[k - 1] + part * iterates[k]
    return averages
