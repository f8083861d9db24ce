"""Tries an algorithm on data in one process, repeatedly, before any party is asked.

Each repetition draws a split of the data and its noise from two separate random streams, so that no noise is ever a
function of the numbers that made the data. Repetition i of a seed sees the same data for every algorithm, so two
algorithms are compared on the same splits.

A result has warnings for its readers: of empty rows, of models that learnt nothing, and of bounds that are too wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from parley.common.algorithms import AUTO, REGISTRY, build_algorithm, fixed_parameters, settle
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.study import StudyKind
from parley.common.errors import InvalidInputError
from parley.common.learning.metrics import accuracy, r_squared, rmse
from parley.common.learning.model import Model
from parley.common.privacy.calibration import check_budget
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Algorithm, Choice, PublicRowsNeeded
from parley.common.protocol.cautions import cautions
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Reveal
from parley.common.protocol.simulation import simulate
from parley.common.runs.pricing import guarantees
from parley.learner.experiments import check_simulated
from parley.learner.experiments.baselines import Baselines, Split, auc_where_known, baselines, constant, trusts_nobody
from parley.learner.experiments.datasets import Dataset, deal, load_dataset, random_sizes, shard_sizes, sizes_by_shares
from parley.learner.forecasting.selection import Proposal, most_promising

# ── warnings ─────────────────────────────────────────────────────────────────

_MANY = 0.5
_HARDLY = 0.05
"""A model that avoids a smaller part of a constant's errors than this has hardly learnt anything."""
_MOST_NAMED = 5


def mostly_dropped(dataset: Dataset) -> str | None:
    """Return a warning if the study drops most rows of a file, with the columns that miss values; otherwise None."""
    if dataset.n_dropped <= _MANY * dataset.n_rows:
        return None
    named = ", ".join(f"{name} in {rows:,}" for name, rows in list(dataset.missing.items())[:_MOST_NAMED])
    return (
        f"{dataset.n_dropped:,} of {dataset.n_rows:,} rows ({dataset.n_dropped / dataset.n_rows:.2%}) miss a value and "
        f"are empty ones: nothing is learnt from them or measured on them; most often missing: {named}"
    )


def no_better_than_a_constant(kind: StudyKind, value: float, constant: float) -> str | None:
    """Return a warning if an accuracy or R^2 is about that of the best ``constant`` prediction; otherwise None."""
    if value - constant >= _HARDLY * (1 - constant):
        return None
    how = "no" if value <= constant else "hardly"
    constant_name = "mean" if kind == "regression" else "commonest class"
    look = ": look at the AUC, which is 0.5 of that" if kind == "binary" else ""
    return f"{how} better than predicting the {constant_name} for all, {constant:.4f}{look}"


def not_for_privacy(kind: StudyKind, pooled: float | None, constant: float) -> str | None:
    """Return a warning if a model of all data without privacy has hardly learnt anything either; otherwise None."""
    if pooled is None or no_better_than_a_constant(kind, pooled, constant) is None:
        return None
    return (
        f"all data pooled, without privacy, come to {pooled:.4f}, hardly more than a constant: the columns do not "
        "predict the label, or the study's bounds are far wider than its values, so that rows hardly differ; no "
        "epsilon changes that"
    )


def warnings(dataset: Dataset, value: float, constant: float, pooled: float | None = None) -> Iterator[str]:
    """Yield all warnings of a simulation's result."""
    yield from filter(
        None,
        (
            mostly_dropped(dataset),
            no_better_than_a_constant(dataset.kind, value, constant),
            not_for_privacy(dataset.kind, pooled, constant),
        ),
    )


# ── simulations ──────────────────────────────────────────────────────────────

BASELINES_FROM = 5
"""How many splits baselines are computed on."""
_MOST_PUBLIC = 2_000
_DATA, _NOISE, _SHARES = 1, 2, 4
"""The random streams of a repetition."""

Progress = Callable[[int, int], None]
"""Called with the number of repetitions done and their total."""


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """What to simulate: ``data``, ``tables``, ``csv`` as `load_dataset` takes them, on K parties.

    ``reveal`` is what the learner sees of a sum: ``sum`` (secure sum: each party adds its share of the noise) or
    ``each`` answer (each party adds all of it); ``colluders`` are parties whose shares do not count. ``skew`` is
    that of `parley.learner.experiments.datasets.shard_sizes`; ``shares`` (K,) replace it, or ``random`` shares, uniform
    on the simplex and new in each repetition. ``public_rows`` of the training examples (if None, a fifth but at most
    2,000) are set aside for algorithms that ask about public rows, with their labels if the algorithm needs them. With
    ``folds`` repetition i tests on the i-th of so many parts of the examples; their order is drawn again after each
    part was tested on.
    """

    data: str = "wdbc"
    study: Path | None = None
    algorithm: str = "dp_gd"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    parties: int = 5
    skew: float = 0.0
    reveal: Reveal = "sum"
    epsilon: float = 1.0
    delta: float = 1e-5
    repeat: int = 20
    seed: int = 0
    public_rows: int | None = None
    shares: tuple[float, ...] | Literal["random"] | None = None
    folds: int | None = None
    tables: tuple[str, ...] = ()
    csv: str | None = None
    colluders: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        self._check_split()
        if self.repeat < 1 or self.seed < 0:
            raise InvalidInputError(f"repeat must be positive and seed not negative, not {self.repeat}, {self.seed}")
        if self.reveal not in {"sum", "each"}:
            raise InvalidInputError(f"reveal must be 'sum' or 'each', not {self.reveal!r}")
        if self.public_rows is not None and self.public_rows < 1:
            raise InvalidInputError(f"public_rows must be positive, not {self.public_rows}")

    def _check_split(self) -> None:
        """Raise InvalidInputError unless shares are K positive numbers without a skew, and folds are at least two."""
        if self.folds is not None and self.folds < 2:  # noqa: PLR2004 -- one to test on, one to train on
            raise InvalidInputError(f"folds must be at least 2, not {self.folds}")
        if self.shares is None:
            return
        if self.skew:
            raise InvalidInputError("shares replace a skew: give one of the two")
        if self.shares != "random" and not (
            len(self.shares) == self.parties and all(0 < share < math.inf for share in self.shares)
        ):
            raise InvalidInputError(f"shares must be {self.parties} positive numbers, not {self.shares}")

    def sizes(self, n_examples: int, repetition: int) -> tuple[int, ...]:
        """Return how many of n training examples each party has in a repetition, (K,).

        Raises InvalidInputError if a party would have none.
        """
        if self.shares == "random":
            return random_sizes(n_examples, self.parties, np.random.default_rng([self.seed, repetition, _SHARES]))
        if self.shares is not None:
            return sizes_by_shares(n_examples, self.shares)
        return shard_sizes(n_examples, self.parties, self.skew)


@dataclass(frozen=True, slots=True)
class Metric:
    """The value of one measure of the models, in each repetition."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the repetitions."""
        return math.fsum(self.values) / len(self.values)

    @property
    def sd(self) -> float:
        """The standard deviation of one repetition's value; 0 for a single one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the metric as JSON values."""
        return {"mean": self.mean, "sd": self.sd, "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result: how good the models are on held-out data, and what the run would promise each party.

    ``settings`` name the algorithm that was run; if it was chosen, ``choices`` has ``algorithm``. ``metrics`` has
    ``accuracy`` for classes, and for two classes the ``auc`` of repetitions that test on both; for a real label it has
    ``rmse``, in the label's units, and ``r_squared``. ``constant`` is the mean accuracy, or R^2, of always predicting
    the commonest class, or the mean. ``n_rows`` and ``n_dropped`` are those of the data set; ``n_train`` and ``n_test``
    count examples, which are persons if the ``unit`` is that: each then counts once in all figures. ``choices`` are the
    parameters that were chosen; ``baselines`` are figures to compare with, if they were asked for.
    """

    settings: SimulationSettings
    kind: StudyKind
    metrics: Mapping[str, Metric]
    n_train: int
    n_test: int
    guarantees: tuple[Guarantee, ...]
    choices: Mapping[str, Choice] = field(default_factory=dict)
    baselines: Baselines | None = None
    constant: float = math.nan
    n_rows: int = 0
    n_dropped: int = 0
    warnings: tuple[str, ...] = ()
    unit: Literal["replace_one", "person"] = "replace_one"

    @property
    def accuracy(self) -> Metric:
        """The accuracies; raises KeyError for a real label."""
        return self.metrics["accuracy"]

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values: the settings, each metric by its name, and the guarantees."""
        settings = asdict(self.settings) | {"study": self.settings.study and str(self.settings.study)}
        return settings | {
            "kind": self.kind,
            "n_train": self.n_train,
            "n_test": self.n_test,
            "n_rows": self.n_rows,
            "n_dropped": self.n_dropped,
            **({} if self.unit == "replace_one" else {"unit": self.unit}),
            "constant": self.constant,
            "warnings": list(self.warnings),
            **{name: metric.to_json() for name, metric in self.metrics.items()},
            "chosen": {name: asdict(choice) for name, choice in self.choices.items()},
            "baselines": self.baselines and self.baselines.to_json(),
            "guarantees": [guarantee.to_json() for guarantee in self.guarantees],
        }


def run_simulation(
    settings: SimulationSettings,
    progress: Progress = lambda _done, _total: None,
    *,
    with_baselines: bool = False,
) -> SimulationResult:
    """Train and test ``repeat`` times; then, if asked, the baselines on the first few splits.

    Before anything is trained, raises InvalidInputError that names what is wrong with the settings, such as an
    algorithm that does not take the data's loss. Raises InvalidDataError for data that do not fit the study.
    """
    _check_algorithm(settings)  # before data are read
    dataset = load_dataset(settings.data, settings.study, settings.tables, settings.csv)
    settings, chosen = _with_algorithm(settings, dataset)
    measured, splits, constants = [], [], []
    for repetition in range(settings.repeat):
        train, test, facts = deal_repetition(settings, dataset, repetition)
        splits += [(train, test, facts)] if with_baselines and repetition < BASELINES_FROM else []
        algorithm, choices = settle(settings.algorithm, settings.parameters, facts)
        noise = SeededNoise([settings.seed, repetition, _NOISE])
        measured.append(measure(dataset, simulate(algorithm, train, facts, noise), test))
        constants.append(constant(train, test, dataset.kind))
        progress(repetition + 1, settings.repeat)
    metrics = _by_name(measured)
    predicted = math.fsum(constants) / len(constants)
    beside = _beside(splits, dataset.kind, algorithm, settings, metrics) if splits else None
    value, pooled = metrics[score_of(dataset.kind)].mean, beside.figures["pooled"] if beside else None
    return SimulationResult(
        settings,
        dataset.kind,
        metrics,
        facts.n_total,
        int(test.n_examples),
        promised(algorithm, facts),
        chosen | choices,
        beside,
        predicted,
        dataset.n_rows,
        dataset.n_dropped,
        (*dataset.notes, *cautions(algorithm, facts), *warnings(dataset, value, predicted, pooled)),
        facts.unit,
    )


def score_of(kind: StudyKind) -> Literal["accuracy", "r_squared"]:
    """Return the metric by which models of a kind are compared."""
    return "r_squared" if kind == "regression" else "accuracy"


def _by_name(measured: Sequence[Mapping[str, float]]) -> dict[str, Metric]:
    """Return the metrics by name, each over the repetitions that have it."""
    names = dict.fromkeys(name for metrics in measured for name in metrics)
    return {name: Metric(tuple(metrics[name] for metrics in measured if name in metrics)) for name in names}


def _beside(
    splits: Sequence[Split],
    kind: StudyKind,
    algorithm: Algorithm,
    settings: SimulationSettings,
    metrics: Mapping[str, Metric],
) -> Baselines:
    """Return the baselines on the first splits, compared with the run itself."""
    return baselines(splits, kind, algorithm.adjacency_of(splits[0][2].unit)).beside_run(
        settings.algorithm,
        {name: metric.mean for name, metric in metrics.items()},
        contends=trusts_nobody(algorithm, splits[0][2]),
        is_open=not fixed_parameters(settings.parameters),
    )


def _check_algorithm(settings: SimulationSettings) -> None:
    """Raise InvalidInputError for an algorithm that cannot be simulated, or parameters that it does not have."""
    check_simulated(settings.algorithm)
    if settings.algorithm == AUTO:
        if settings.parameters:
            raise InvalidInputError("parameters are those of an algorithm: name one, or leave them open too")
    elif not build_algorithm(settings.algorithm, fixed_parameters(settings.parameters)).trains:  # an extension's
        raise InvalidInputError(f"{settings.algorithm} trains no model, so there is none to measure")


def _with_algorithm(settings: SimulationSettings, dataset: Dataset) -> tuple[SimulationSettings, dict[str, Choice]]:
    """Return the settings with an open algorithm chosen from public facts, as for a run, and this choice by name."""
    if settings.algorithm != AUTO:
        return settings, {}
    _, _, facts = deal_repetition(settings, dataset, 0)

    def proposed(name: str) -> Proposal:
        algorithm, _ = settle(name, {}, facts)
        return algorithm, facts, algorithm.questions(facts)

    name, reason = most_promising(REGISTRY, proposed)
    return replace(settings, algorithm=name), {"algorithm": Choice(name, reason)}


def measure(dataset: Dataset, model: Model, test: Shard) -> dict[str, float]:
    """Return accuracy and, for two classes, AUC on test examples (m, d); or RMSE in the label's units, and R^2.

    There is no AUC if all examples are of one class.
    """
    if dataset.kind != "regression":
        ranks = auc_where_known(model, test)
        return {"accuracy": accuracy(model, test)} | ({} if ranks is None else {"auc": ranks})
    return {"rmse": dataset.unit * rmse(model, test), "r_squared": r_squared(model, test)}


def deal_repetition(
    settings: SimulationSettings, dataset: Dataset, repetition: int
) -> tuple[Shard, Shard, FederationFacts]:
    """Return one repetition's training stack (K, n, d), its test examples (m, d), and the facts of its parties."""
    train, test = _drawn(settings, dataset, repetition)
    terms: dict[str, Any] = {}
    public_kind = _public_rows_of(settings)
    if public_kind != "none":
        public, train = _set_aside(settings, train, labelled=public_kind == "labelled")
        terms = {"public": public, "public_shape": public.shape}
    sizes = settings.sizes(int(train.n_examples), repetition)
    facts = FederationFacts.uniform(
        np.array(sizes),
        epsilon=settings.epsilon,
        delta=settings.delta,
        n_features=train.n_features,
        loss=dataset.loss,
        secure_sum=settings.reveal == "sum",
        colluders=settings.colluders,
        norm=train.norm,
        study=dataset.study,
        **terms,
    )
    return deal(train, sizes), test, facts


def _public_rows_of(settings: SimulationSettings) -> PublicRowsNeeded:
    """Return which public rows the algorithm asks about; none while it is open, as in a run without public rows."""
    if settings.algorithm == AUTO:
        return "none"
    return build_algorithm(settings.algorithm, fixed_parameters(settings.parameters)).public_rows


def _drawn(settings: SimulationSettings, dataset: Dataset, repetition: int) -> tuple[Shard, Shard]:
    """Draw a repetition's training and test examples; raises InvalidInputError for folds of data that have none."""
    if settings.folds is None:
        return dataset.draw(np.random.default_rng([settings.seed, repetition, _DATA]))
    if dataset.fold is None:
        raise InvalidInputError(f"data {settings.data!r} are drawn again each time, so they have no folds")
    order, index = divmod(repetition, settings.folds)
    return dataset.fold(np.random.default_rng([settings.seed, order, _DATA]), index, settings.folds)


def _set_aside(settings: SimulationSettings, train: Shard, *, labelled: bool) -> tuple[FloatArray, Shard]:
    """Return the first examples' rows as public rows (N, d), or with labels (N, d + 1), and the remaining examples.

    The examples are in random order.
    """
    total = int(train.n_examples)
    n = min(_MOST_PUBLIC, total // 5) if settings.public_rows is None else settings.public_rows
    if n >= total:
        raise InvalidInputError(f"public_rows = {n} leaves the parties none of the {total} training examples")
    first = train.examples(0, n)
    return np.column_stack([first.X, first.y]) if labelled else first.X, train.take_examples(np.arange(n, total))


def promised(algorithm: Algorithm, facts: FederationFacts) -> tuple[Guarantee, ...]:
    """Return a run's guarantees; for a baseline with a curator, those of the curator."""
    return guarantees(algorithm, facts.curated() if algorithm.curator else facts)
