"""The statistics of an evaluation: one entry each, and no other file names them.

The field of a model's document, the rows of the tables that the command line, the card and the page show, and what a
metric is called all follow from the entries of `STATISTICS`, in their order. This module loads nothing that computes:
the command line and the page need the names alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from parley.common.registry import Registry

if TYPE_CHECKING:
    from parley.common.learning.evaluation import (
        CalibrationBin,
        FigureEstimate,
        NoisyCounts,
        NoisyErrors,
        ThresholdPoint,
    )

_T = TypeVar("_T")
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


def _by_class(counts: NoisyCounts, figure: Callable[[int], FigureEstimate]) -> dict[str, FigureEstimate]:
    """Return a figure of each class, by name."""
    return {name: figure(index) for index, name in enumerate(counts.classes)}


def _against_others(counts: NoisyCounts, read: list[_T]) -> _T | dict[str, _T]:
    """Return what was read of two classes, or of each of more against the others, by name."""
    return read[0] if len(read) == 1 else dict(zip(counts.classes, read, strict=True))


def _accuracy(counts: NoisyCounts) -> FigureEstimate:
    """Return the share of rows whose class is predicted."""
    return counts.accuracy()


def _majority(counts: NoisyCounts) -> FigureEstimate:
    """Return the share of rows of the class that seems the most frequent."""
    return counts.majority()


def _balanced_accuracy(counts: NoisyCounts) -> FigureEstimate:
    """Return the mean of the classes' recalls."""
    return counts.balanced_accuracy()


def _precision(counts: NoisyCounts) -> dict[str, FigureEstimate]:
    """Return the share of the rows predicted as each class that are of it, by name."""
    return _by_class(counts, counts.precision)


def _recall(counts: NoisyCounts) -> dict[str, FigureEstimate]:
    """Return the share of each class's rows that are predicted as that class, by name."""
    return _by_class(counts, counts.recall)


def _specificity(counts: NoisyCounts) -> FigureEstimate:
    """Return the share of negative rows that are predicted as negative."""
    return counts.recall(0)


def _f1(counts: NoisyCounts) -> dict[str, FigureEstimate]:
    """Return the harmonic mean of each class's precision and recall, by name."""
    return _by_class(counts, counts.f1)


def _auc(counts: NoisyCounts) -> FigureEstimate | dict[str, FigureEstimate]:
    """Return the probability that a positive example scores above a negative one."""
    return _against_others(counts, counts.of_ranks(lambda ranked: ranked.area_under_curve()))


def _average_precision(counts: NoisyCounts) -> FigureEstimate | dict[str, FigureEstimate]:
    """Return the mean precision at the scores of the positive rows."""
    return _against_others(counts, counts.of_ranks(lambda ranked: ranked.average_precision()))


def _brier(counts: NoisyCounts) -> FigureEstimate | dict[str, FigureEstimate]:
    """Return the mean squared difference of probability and class."""
    return _against_others(counts, counts.brier())


def _confusion(counts: NoisyCounts) -> tuple[tuple[float, ...], ...]:
    """Return the estimated counts by true, then predicted class."""
    return counts.confusion()


def _calibration(counts: NoisyCounts) -> tuple[CalibrationBin, ...] | dict[str, tuple[CalibrationBin, ...]]:
    """Return the share of positive examples in each bin of the score, which should be the bin's probability."""
    return _against_others(counts, counts.calibration())


def _points(counts: NoisyCounts) -> tuple[ThresholdPoint, ...]:
    """Return the figures at each threshold that the model may have."""
    return counts.points()


def _rmse(errors: NoisyErrors) -> FigureEstimate:
    """Return the root mean squared error."""
    return errors.root_mean_squared_error()


def _mae(errors: NoisyErrors) -> FigureEstimate:
    """Return the mean absolute error."""
    return errors.mean_absolute_error()


def _r_squared(errors: NoisyErrors) -> FigureEstimate:
    """Return the share by which the mean squared error is less than that of the labels' mean."""
    return errors.r_squared()


_ORDER = (
    "its interval assumes that the log odds of the class follow the score smoothly, as "
    "`parley.common.learning.ranking` says"
)

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
    balanced_accuracy=Statistic(
        _balanced_accuracy,
        "classes",
        "balanced accuracy",
        "percent",
        "higher",
        description="the mean of the classes' recalls",
    ),
    recall=Statistic(
        _recall,
        "classes",
        "recall of {}",
        "percent",
        "higher",
        description="by class: the share of its rows that are predicted as such",
    ),
    precision=Statistic(
        _precision,
        "classes",
        "precision of {}",
        "percent",
        "higher",
        description="by class: the share of the rows predicted as such that are of it",
    ),
    f1=Statistic(
        _f1, "classes", "F1 of {}", better="higher", description="by class: the harmonic mean of precision and recall"
    ),
    specificity=Statistic(
        _specificity,
        "two classes",
        description="the share of negative rows predicted as such: the first class's recall",
    ),
    auc=Statistic(
        _auc,
        "classes",
        "AUC",
        better="higher",
        description="that an example of the class scores above another, for more than two classes by class; " + _ORDER,
    ),
    average_precision=Statistic(
        _average_precision,
        "classes",
        "average precision",
        better="higher",
        description="the mean precision at the scores of the class's rows, for more than two classes by class; "
        + _ORDER,
    ),
    brier=Statistic(
        _brier,
        "classes",
        "Brier score",
        better="lower",
        description="mean squared difference of probability and class, for more than two classes by class",
    ),
    confusion=Statistic(_confusion, "classes", description="estimated counts by true, then predicted class"),
    calibration=Statistic(
        _calibration, "classes", description="by probability of the class, for more than two classes by class"
    ),
    points=Statistic(_points, "two classes", description="the thresholds that the model may have, and figures there"),
    rmse=Statistic(_rmse, "number", "RMSE", better="lower", description="in the label's units"),
    mae=Statistic(_mae, "number", "MAE", better="lower", description="mean absolute error, in the label's units"),
    r_squared=Statistic(_r_squared, "number", "R²", better="higher"),
)


def _is_figure(value: object) -> bool:
    """Whether a part of an evaluation is a figure, in JSON or not: those of classes are mappings to figures."""
    return not isinstance(value, float | int | None)


def figures(evaluation: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the title and the value of each figure that an evaluation has, those of single classes last."""
    of_classes = []
    for name, statistic in STATISTICS.items():
        value = evaluation.get(name)
        if statistic.title is None or value is None:
            continue
        if not isinstance(value, Mapping) or not all(map(_is_figure, value.values())):
            yield statistic.title, value
            continue
        title = statistic.title if "{}" in statistic.title else f"{statistic.title} of {{}}"
        of_classes += [(title.format(class_name), figure) for class_name, figure in value.items()]
    yield from of_classes


WEIGHED: Mapping[str, str] = {
    examples: f"{examples} count by {whose}, in the column {{}}: a count is a sum of weights, at most 1 of each {one}"
    for examples, whose, one in (
        ("rows", "their weights", "row"),
        ("persons", "the weights of their rows", "person"),
    )
}
"""By what is counted, how it counts where a study names a column of weights, which stands for ``{}``."""


def weighed_in_words(study: Mapping[str, Any]) -> str | None:
    """Return how rows, or persons, of a study's document count by weights; None if each counts once."""
    weights = study.get("row_weights")
    return weights and WEIGHED["persons" if study.get("person") else "rows"].format(weights["column"])


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
    first = ", ".join(map(repr, names[:3])) + (" and others" if len(names) > 3 else "")  # noqa: PLR2004
    return (
        f"the model predicts {first} of nobody or almost nobody: choose another threshold (balanced), or train with "
        "class weights (balanced)"
    )
