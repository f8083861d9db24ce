"""How often an evaluation's intervals hold the truth, and how wide they are, on real rows that training did not see.

    python -m scripts.benchmarks.evaluation_intervals [--draws 200] [--epsilon 1] [NAME ...]

Of each data set (`scripts.benchmarks.forecast_data`), a model is trained without privacy on nine tenths of at most
40,000 rows, and the noise of its evaluation on the other tenth is drawn again and again: one owner, or as many under a
secure sum. ``rare`` is Adult's tenth with 50 rows of its positive class alone among 2,000; ``made_up`` has as many,
with scores at the quantiles of normal laws, 2.26 deviations larger for the positive class (an AUC of .945). A row is a
figure: the truth on the same rows, how many intervals hold it, the median width, and how often noise left no estimate.

*Half the noise*: the last line of a set has intervals of a noise law that says half of the noise that was drawn. They
must miss more often than one in twenty, so that this benchmark would see it.

How many bins there are, and what is known of curves beforehand, was set by looking at ``made_up``, ``simulated``,
``rare`` and ``card_frauds``: what they show is no proof for other rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import expit, ndtri
from scipy.stats import rankdata

from parley.common.algorithms.evaluate import Evaluate
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import decode_classes
from parley.common.learning.erm import minimise
from parley.common.learning.evaluation import FigureEstimate
from parley.common.learning.losses import Logistic, Loss
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.common.runs.evaluation import noisy_of, statistics_of
from scripts.benchmarks.forecast_data import data_sets, study_of

LAMBDA, HELD_OUT, ROWS = 1e-4, 0.1, 20_000
RARE, OF_RARE, APART = 50, 2_000, 2.26
UNPRINTED = {"confusion", "calibration", "points", "deviation", "rate", "majority"}


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Rows that were held out, and a model to evaluate on them."""

    name: str
    loss: Loss
    rows: Shard
    weights: FloatArray


def held_out(names: list[str]) -> Iterator[HeldOut]:
    """Yield the data sets of these names, or all, each with a model."""
    if not names or "made_up" in names:
        yield made_up()
    for data in data_sets():
        if names and data.name not in names and not (data.name == "adult" and "rare" in names):
            continue
        X, y = data.population.X[:ROWS], data.population.y[:ROWS]
        cut = int(len(y) * HELD_OUT)
        weights = minimise(data.loss, Shard(X[cut:], y[cut:]), LAMBDA * (len(y) - cut))
        if not names or data.name in names:
            yield HeldOut(data.name, data.loss, Shard(X[:cut], y[:cut]), weights)
        if data.name == "adult" and (not names or "rare" in names):
            all_rows, labels = data.population.X, data.population.y
            unseen = slice(ROWS, None)
            negative = np.flatnonzero(labels[unseen] < 0)[: OF_RARE - RARE] + ROWS
            positive = np.flatnonzero(labels[unseen] > 0)[:RARE] + ROWS
            rows = np.concatenate([negative, positive])
            yield HeldOut("rare", data.loss, Shard(all_rows[rows], labels[rows]), weights)


def made_up() -> HeldOut:
    """Return rows of normal scores, 50 of 2,000 positive, with a model that has the right probabilities."""
    y = np.where(np.arange(OF_RARE) < RARE, 1.0, -1.0)
    x = np.concatenate([ndtri((np.arange(n) + 0.5) / n) for n in (RARE, OF_RARE - RARE)]) + APART * (y > 0)
    scores = APART * x - APART**2 / 2 + np.log(RARE / (OF_RARE - RARE))
    largest = float(np.abs(scores).max()) + 1.0
    rows = Shard(np.column_stack([scores / largest, 0 * x]), y)
    return HeldOut("made_up", Logistic(), rows, np.array([largest, 0.0]))


def truths(held: HeldOut) -> dict[str, float]:
    """Return the figures of the rows themselves, by name."""
    scores, y = held.rows.scores(np.atleast_2d(held.weights)), held.rows.y
    if held.loss.outputs == 1 and set(np.unique(y)) != {-1.0, 1.0}:
        error = np.clip(scores[:, 0], -1, 1) - y
        squared = float((error**2).mean())
        return {"rmse": squared**0.5, "mae": float(np.abs(error).mean()), "r_squared": 1 - squared / float(y.var())}
    if held.loss.outputs == 1:
        return _of_two(scores[:, 0], y > 0)
    classes, predicted = decode_classes(y, held.loss.outputs), scores.argmax(axis=1)
    recalls = [float((predicted[classes == c] == c).mean()) for c in range(held.loss.outputs)]
    return {"accuracy": float((predicted == classes).mean()), "balanced_accuracy": float(np.mean(recalls))}


def _of_two(scores: FloatArray, positive: Any) -> dict[str, float]:  # noqa: ANN401 -- a mask (n,)
    yes, p = scores > 0, expit(scores)
    ranks, n = rankdata(scores), positive.sum()
    order = np.argsort(-scores, kind="stable")
    precision = np.cumsum(positive[order]) / np.arange(1, len(order) + 1)
    hits = int((yes & positive).sum())
    recall, specificity = hits / n, float((~yes)[~positive].mean())
    return {
        "accuracy": float((yes == positive).mean()),
        "balanced_accuracy": (recall + specificity) / 2,
        "recall": recall,
        "precision": hits / max(int(yes.sum()), 1),
        "f1": 2 * hits / (int(yes.sum()) + n),
        "specificity": specificity,
        "auc": float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (len(ranks) - n))),
        "average_precision": float(precision[positive[order]].mean()),
        "brier": float(((p - positive) ** 2).mean()),
    }


def evaluations(held: HeldOut, epsilon: float, draws: int, stated: float = 1.0) -> Iterator[Mapping[str, Any]]:
    """Yield evaluations of the same rows with other noise, read by a law of ``stated`` times the noise's scale."""
    algorithm, weights = Evaluate(), np.atleast_2d(held.weights)
    study = study_of(held.loss, held.rows.X.shape[1], {})
    facts = FederationFacts.uniform(
        np.array([len(held.rows.y)]), epsilon=epsilon, delta=1e-5, n_features=weights.shape[1], loss=held.loss,
        public_shape=weights.shape, public=weights, study=study.model_copy(update={"hold_out": HELD_OUT}),
    )  # fmt: skip
    for draw in range(draws):
        model = simulate(algorithm, Shard.stack([held.rows]), facts, SeededNoise(draw))
        noisy = noisy_of(algorithm, facts, study.label, model, (0,))
        yield dict(statistics_of(replace(noisy, law=noisy.law.times(stated))))


def main() -> None:
    """Print a table of each set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--epsilon", type=float, default=1.0)
    order = parser.parse_args()
    console = Console(width=110)
    for held in held_out(order.names):
        found = list(evaluations(held, order.epsilon, order.draws))
        halved = list(evaluations(held, order.epsilon, order.draws, stated=0.5))
        title = f"{held.name}: {len(held.rows.y):,} rows, epsilon = {order.epsilon:g}, {order.draws} draws of the noise"
        table = Table("figure", "truth", "held", "width", "no estimate", "held, half the noise", title=title)
        for name, truth in truths(held).items():
            figures, others = ([_figure(each[name]) for each in those] for those in (found, halved))
            known = [figure for figure in figures if figure.estimate is not None]
            widths = [figure.high - (figure.low or 0.0) for figure in known] or [float("nan")]
            table.add_row(
                name, f"{truth:.4f}", f"{_held(figures, truth):.3f}", f"{np.median(widths):.4f}",
                str(len(figures) - len(known)), f"{_held(others, truth):.3f}",
            )  # fmt: skip
        console.print(table)


def _figure(value: FigureEstimate | Mapping[str, FigureEstimate]) -> FigureEstimate:
    """Return a figure, or that of the last class: the positive one of two."""
    return value if isinstance(value, FigureEstimate) else list(value.values())[-1]


def _held(figures: list[FigureEstimate], truth: float) -> float:
    """Return the share of the intervals that hold the truth."""
    return float(np.mean([(f.low is None or f.low <= truth + 1e-9) and truth <= f.high + 1e-9 for f in figures]))


if __name__ == "__main__":
    main()
