"""The statistics of an evaluation: one entry each, and no other file names them.

The field of a model's document, the rows of the tables that the command line, the card and the page show, and what a
metric is called all follow from the entries of `STATISTICS`, in their order. This module loads nothing that computes:
the command line and the page need the names alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from parley.common.registry import Registry

if TYPE_CHECKING:
    from parley.common.learning.evaluation import CalibrationBin, FigureEstimate, NoisyCounts, NoisyErrors

LabelKind = Literal["classes", "two classes", "number"]


@dataclass(frozen=True, slots=True)
class Statistic:
    """A statistic: ``estimate`` computes it, from `NoisyCounts` of a label of classes or `NoisyErrors` of a number.

    What ``estimate`` says that it returns is the type of the document's field: a `FigureEstimate`, or one for each
    class, which ``title`` names by ``{}``. Without a title the statistic stands in the document alone. ``better`` says
    which values are those of a better model; without it the statistic says nothing about the model by itself, and runs
    are not compared by it. ``description`` explains the field in the document's schema, where its name does not.
    """

    estimate: Callable[[Any], object]
    label: LabelKind
    title: str | None = None
    shown: Literal["percent", "number"] = "number"
    better: Literal["higher", "lower"] | None = None
    description: str | None = None

    def is_for(self, label: LabelKind) -> bool:
        """Return whether it applies to such labels: a statistic for classes also applies to two classes."""
        return self.label == label or (self.label == "classes" and label == "two classes")


def _accuracy(counts: NoisyCounts) -> FigureEstimate:
    """Return the share of rows whose class is predicted."""
    return counts.share(counts.predicted == counts.label, counts.everything)


def _majority(counts: NoisyCounts) -> FigureEstimate:
    """Return the share of rows of the class that seems the most frequent."""
    return counts.share(counts.label == counts.frequent, counts.everything)


def _recall(counts: NoisyCounts) -> dict[str, FigureEstimate]:
    """Return the share of each class's rows that are predicted as that class, by name."""
    return {
        name: counts.share((counts.predicted == index) & (counts.label == index), counts.label == index)
        for index, name in enumerate(counts.classes)
    }


def _auc(counts: NoisyCounts) -> FigureEstimate:
    """Return the probability that a positive example scores above a negative one."""
    return counts.area_under_curve()


def _confusion(counts: NoisyCounts) -> tuple[tuple[float, ...], ...]:
    """Return the estimated counts by true, then predicted class."""
    return counts.confusion()


def _calibration(counts: NoisyCounts) -> tuple[CalibrationBin, ...]:
    """Return the share of positive examples in each bin of the score, which should be the bin's probability."""
    return counts.calibration()


def _rmse(errors: NoisyErrors) -> FigureEstimate:
    """Return the root mean squared error."""
    return errors.root_mean_squared_error()


def _r_squared(errors: NoisyErrors) -> FigureEstimate:
    """Return the share by which the mean squared error is less than that of the labels' mean."""
    return errors.r_squared()


STATISTICS: Registry[Statistic] = Registry(
    "statistic",
    accuracy=Statistic(_accuracy, "classes", "accuracy", "percent", "higher"),
    majority=Statistic(
        _majority,
        "classes",
        "commonest class alone",
        "percent",
        description="the accuracy of predicting what seems the most frequent class for all",
    ),
    recall=Statistic(
        _recall,
        "classes",
        "recall of {}",
        "percent",
        "higher",
        description="by class: the share predicted as such",
    ),
    auc=Statistic(
        _auc,
        "two classes",
        "AUC",
        better="higher",
        description="that a positive example scores above a negative one; ends allow for any order in a bin",
    ),
    confusion=Statistic(_confusion, "classes", description="estimated counts by true, then predicted class"),
    calibration=Statistic(_calibration, "two classes"),
    rmse=Statistic(_rmse, "number", "RMSE", better="lower", description="in the label's units"),
    r_squared=Statistic(_r_squared, "number", "R²", better="higher"),
)


def figures(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the title and the value of each figure that an evaluation has, those of single classes last."""
    of_classes = []
    for name, statistic in STATISTICS.items():
        value = evaluation.get(name)
        if statistic.title is None or value is None:
            continue
        if "{}" in statistic.title:
            of_classes += [(statistic.title.format(class_name), figure) for class_name, figure in value.items()]
        else:
            yield statistic.title, value
    yield from of_classes


_HARDLY, _PERHAPS = 0.02, 0.1
"""Recalls of a class that is hardly predicted: the low end of its interval, and its estimate, are at most these."""


def unsaid_classes(evaluation: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the classes that a model predicts of nobody or almost nobody, by the recalls of an evaluation in JSON.

    Noise does not tell these recalls from next to nothing, and their estimates are that.
    """
    recalls: Mapping[str, Any] = (evaluation or {}).get("recall") or {}
    return tuple(
        name
        for name, figure in recalls.items()
        if figure["estimate"] is not None and figure["estimate"] <= _PERHAPS and (figure["low"] or 0.0) <= _HARDLY
    )


def unsaid_caution(evaluation: Mapping[str, Any] | None) -> str | None:
    """Return a warning about `unsaid_classes`, which says what to do; None if there are none."""
    if not (names := unsaid_classes(evaluation)):
        return None
    told = ", ".join(map(repr, names[:3])) + (" and others" if len(names) > 3 else "")  # noqa: PLR2004
    return (
        f"the model predicts {told} of nobody or almost nobody: choose another threshold (balanced), or train with "
        "class weights (balanced)"
    )
