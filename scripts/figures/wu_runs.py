"""What Wu et al.'s figures measure: the relative fitness psi of runs on loans and on card frauds."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.wu import WuSubgradient
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.forecast.coalitions import CoalitionRun
from parley.common.forecast.forecast import Forecast, forecast
from parley.common.forecast.forecasters import forecaster_of
from parley.common.learning.losses import build_loss
from parley.common.learning.metrics import fitness, relative_fitness
from parley.common.learning.model import Model
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import Simulation, simulate
from parley.learner.experiments.datasets import deal
from scripts.figures.risk_bounds import optimum
from scripts.utility.examples import AbsentError
from scripts.utility.finance import CREDIT_CARD, LENDING_CLUB, LENDING_CLUB_CODED, published, reduced

DELTA = 1e-5
NEARLY_EXACT = 1000.0
"""The epsilon at which psi is its floor: what the horizon and the steps cost."""
_AS_PUBLISHED = 1e-9
"""The least lambda that an algorithm takes, for the paper's g_1 = 0."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A study, the folder of ``$PARLEY_DATA`` with its data, the algorithm that learns from it, and its parameters.

    ``components`` is to how many principal components of rows set aside the study is reduced, if it is.
    """

    name: str
    study: Study
    folder: str
    algorithm: str
    parameters: Mapping[str, Any] = field(hash=False)
    components: int | None = None

    @property
    def n_features(self) -> int:
        """The columns that are trained on, an intercept among them."""
        return self.study.n_features if self.components is None else self.components + 1

    @property
    def regularization(self) -> float:
        """The regularisation lambda."""
        return float(self.parameters["regularization"])


LOANS = Setting(
    "loans", LENDING_CLUB, "lending-club", "wu_strongly_convex",
    {"n_rounds": 100, "regularization": 0.1, "l1_clip": 2.0},
)  # fmt: skip
LOANS_SUBGRADIENT = replace(LOANS, name="loans-algorithm2", algorithm="wu_subgradient")
LOANS_PUBLISHED = replace(
    LOANS,
    name="loans-published",
    study=LENDING_CLUB_CODED,
    parameters={**LOANS.parameters, "regularization": _AS_PUBLISHED},
    components=10,
)
FRAUDS = Setting(
    "frauds", CREDIT_CARD, "creditcard-subset", "wu_subgradient",
    {"n_rounds": 100, "regularization": 0.1, "l1_clip": 4.0},
)  # fmt: skip
SETTINGS = {setting.name: setting for setting in (LOANS, LOANS_SUBGRADIENT, LOANS_PUBLISHED, FRAUDS)}


@cache
def examples(setting: Setting) -> Shard:
    """A setting's examples in an order drawn once; raises AbsentError."""
    if setting.components is None:
        shard = published(setting.study)
    else:
        reduced_set = reduced(setting.study, n_components=setting.components)
        shard = reduced_set and reduced_set[1]
    if shard is None:
        raise AbsentError("PARLEY_DATA is not set")
    order = np.random.default_rng(7).permutation(len(shard.y))
    return Shard(shard.X[order], shard.y[order])


@dataclass(frozen=True, slots=True)
class Owners:
    """Who trains: the sizes of their shards, dealt from the first examples on, and their epsilons."""

    sizes: tuple[int, ...]
    epsilons: tuple[float, ...]

    @classmethod
    def equal(cls, n_total: int, epsilon: float, owners: int = 3) -> Owners:
        """Owners of one size and budget, with n examples in all."""
        return cls((n_total // owners,) * owners, (epsilon,) * owners)

    @property
    def exact(self) -> Owners:
        """Return the same owners with budgets so large that there is hardly any noise."""
        return replace(self, epsilons=(NEARLY_EXACT,) * len(self.sizes))

    def facts(self, setting: Setting) -> FederationFacts:
        """Return the facts that all owners agree on."""
        k = len(self.sizes)
        return FederationFacts(
            parties=tuple(f"owner-{i + 1}" for i in range(k)),
            n_examples=np.array(self.sizes),
            epsilon=np.array(self.epsilons),
            delta=np.full(k, DELTA),
            n_features=setting.n_features,
            loss=build_loss(setting.study),
            minimum_contributors=k,
        )


def psi_of_models(setting: str, sizes: Sequence[int], epsilons: Sequence[float], repeat: int) -> list[float]:
    """Psi of the model on the owners' examples, (repeat,)."""
    run = _Run.of(SETTINGS[setting], Owners(tuple(sizes), tuple(epsilons)))
    return [run.psi(simulate(run.algorithm, run.stack, run.facts, noise)) for noise in _noises(repeat)]


def psi_of_averages(
    setting: str, sizes: Sequence[int], epsilons: Sequence[float], repeat: int
) -> list[tuple[float, float]]:
    """Psi of two averages of the same iterates of Algorithm 2, (repeat, 2): of each round's old one, and its new one.

    The new ones make the model; the old ones are those that owners are asked about.
    """
    run = _Run.of(SETTINGS[setting], Owners(tuple(sizes), tuple(epsilons)))
    every = []
    for noise in _noises(repeat):
        watched = Watched(Simulation.of(run.algorithm, run.stack, run.facts, noise), [])
        model = asyncio.run(drive(run.algorithm.program(run.facts), watched, "figure", MemoryLog()))
        every.append((run.psi(Model(_averages(np.array(watched.asked))[-1])), run.psi(model)))
    return every


def gaps_of_printed_steps(
    sizes: Sequence[int], epsilons: Sequence[float], n_rounds: int, rho: float, repeat: int
) -> list[float]:
    """The fitness above the least, (repeat,), of loans by Algorithm 1 with the paper's own steps rho / (T^2 k)."""
    parameters = {**LOANS.parameters, "n_rounds": n_rounds, "rho": rho}
    run = _Run.of(replace(LOANS, parameters=parameters), Owners(tuple(sizes), tuple(epsilons)))
    least = fitness(run.facts.loss, run.best, run.own, run.setting.regularization)
    return [least * run.psi(simulate(run.algorithm, run.stack, run.facts, noise)) for noise in _noises(repeat)]


def psi_of_rounds(setting: str, sizes: Sequence[int], epsilons: Sequence[float], repeat: int) -> list[list[float]]:
    """Psi of every round's iterate, (repeat, rounds); of the averages so far where the algorithm returns one.

    It is that of what owners are asked about, so an average is of old iterates (`psi_of_averages`).
    """
    run = _Run.of(SETTINGS[setting], Owners(tuple(sizes), tuple(epsilons)))
    every = []
    for noise in _noises(repeat):
        watched = Watched(Simulation.of(run.algorithm, run.stack, run.facts, noise), [])
        asyncio.run(drive(run.algorithm.program(run.facts), watched, "figure", MemoryLog()))
        iterates = np.array(watched.asked)
        models = _averages(iterates) if isinstance(run.algorithm, WuSubgradient) else iterates
        every.append([run.psi(Model(weights)) for weights in models])
    return every


def _noises(repeat: int) -> Iterator[SeededNoise]:
    return (SeededNoise([3, i]) for i in range(repeat))


def has_room(setting: Setting, owners: Owners) -> bool:
    """Whether three deviations of the noise in the weights fit the set that the algorithm projects onto."""
    algorithm, facts = build_algorithm(setting.algorithm, setting.parameters), owners.facts(setting)
    forecaster = forecaster_of(algorithm)
    if isinstance(forecaster, str):
        return True
    run = CoalitionRun.of(forecaster, facts)
    return run.load(len(owners.sizes), 1).fresh <= run.response.limits.room


def predicted(setting: Setting, owners: Owners) -> Forecast:
    """Return the forecast, which sees no example."""
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
        """Return the answer of the inner federation."""
        self.asked.append(query.message)
        return await self.inner.answer(run, query)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """The owners' examples (n, d), also dealt to them, what all agree on, and the best model."""

    setting: Setting
    algorithm: Algorithm
    own: Shard
    stack: Shard
    facts: FederationFacts
    best: Model

    @classmethod
    def of(cls, setting: Setting, owners: Owners) -> _Run:
        """Make it for owners whose examples are the first ones."""
        shard, n = examples(setting), sum(owners.sizes)
        if n > len(shard.y):
            raise ValueError(f"{setting.name} has too few examples here")
        owned, loss = Shard(shard.X[:n], shard.y[:n]), build_loss(setting.study)
        best = optimum(loss, owned, setting.regularization).model
        algorithm = build_algorithm(setting.algorithm, setting.parameters)
        return cls(setting, algorithm, owned, deal(owned, owners.sizes), owners.facts(setting), best)

    def psi(self, model: Model) -> float:
        """Return a model's relative fitness psi."""
        return relative_fitness(self.facts.loss, model, self.best, self.own, self.setting.regularization)


def _averages(iterates: FloatArray) -> FloatArray:
    """Shamir & Zhang's polynomial-decay averages of iterates (T, d), so far."""
    eta = 1 / math.sqrt(len(iterates))
    averages = iterates.copy()
    for k in range(1, len(iterates)):
        part = (1 + eta) / (k + 1 + eta)
        averages[k] = (1 - part) * averages[k - 1] + part * iterates[k]
    return averages
