"""What whoever reads a simulation's figures should not overlook: empty rows, models that learnt nothing, and bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parley.common.data.study import StudyKind

if TYPE_CHECKING:
    from parley.learner.experiments.datasets import Dataset

_MANY = 0.5
_HARDLY = 0.05
"""Who spares less than this part of a constant's errors has hardly learnt anything."""
_MOST_NAMED = 5


def mostly_dropped(dataset: Dataset) -> str | None:
    """A warning where the study drops most rows of a file, with the columns that they miss; None where not."""
    if dataset.n_dropped <= _MANY * dataset.n_rows:
        return None
    named = ", ".join(f"{name} in {rows:,}" for name, rows in list(dataset.missing.items())[:_MOST_NAMED])
    return (
        f"{dataset.n_dropped:,} of {dataset.n_rows:,} rows ({dataset.n_dropped / dataset.n_rows:.2%}) miss a value and "
        f"are empty ones, of which nothing is learnt and on which nothing is measured; most often missing: {named}"
    )


def no_better_than_a_constant(kind: StudyKind, value: float, constant: float) -> str | None:
    """A warning where a model's accuracy, or R^2, is about that of the best ``constant`` prediction; None where not."""
    if value - constant >= _HARDLY * (1 - constant):
        return None
    how = "no" if value <= constant else "hardly"
    what = "mean" if kind == "regression" else "commonest class"
    look = ": look at the AUC, which is 0.5 of that" if kind == "binary" else ""
    return f"{how} better than predicting the {what} for all, {constant:.4f}{look}"


def not_for_privacy(kind: StudyKind, pooled: float | None, constant: float) -> str | None:
    """A warning where a model of all data without privacy has hardly learnt anything either; None where it has."""
    if pooled is None or no_better_than_a_constant(kind, pooled, constant) is None:
        return None
    return (
        f"all data pooled, without privacy, come to {pooled:.4f}, hardly more than a constant: columns do not tell, "
        "or the study's bounds are far wider than what is in them, which leaves rows alike; no epsilon mends that"
    )


def warnings(dataset: Dataset, value: float, constant: float, pooled: float | None = None) -> Iterator[str]:
    """All that a simulation is to be warned of."""
    yield from filter(
        None,
        (
            mostly_dropped(dataset),
            no_better_than_a_constant(dataset.kind, value, constant),
            not_for_privacy(dataset.kind, pooled, constant),
        ),
    )
