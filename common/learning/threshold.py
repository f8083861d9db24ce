"""The threshold of a model of two classes: it predicts the positive one where its score exceeds it.

A score of 0 is right if both errors cost the same. If a class is rare, a model rarely finds it likelier
than not, and at 0 it predicts the class for hardly anybody. A rule chooses another threshold, at no cost of privacy:
from public facts, or from the noisy counts of an evaluation, which has figures at several thresholds, its ``points``:

    balanced        the largest balanced accuracy
    f1              the largest F1 of the positive class
    recall=.9       the largest threshold at which the recall of the positive class is at least .9
    cost=1:20       the least cost, if a false positive costs 1 and a false negative 20
    probability=.1  where the model's probability exceeds .1; public, it needs no evaluation
    prevalence      the same, at the share of the positive class that the study states: for a calibrated model, this has
                    the largest balanced accuracy
    none            no rule: 0 again

A rule's choice is a function of what a model's document states, so anyone can repeat it. Probabilities are those of the
population as it is: what a model's class weights add to its score is no part of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field

from parley.common.data.class_weights import prior_offset
from parley.common.errors import InvalidInputError
from parley.common.strict import OneLine, Strict, one_line

if TYPE_CHECKING:
    from parley.common.data.study import Study

NO_RULE = "none"
RULES = "balanced, f1, recall=.9, cost=1:20 (false positive : false negative), probability=.1, prevalence"
"""The rules, as people write them."""
_FROM_POINTS = ("balanced", "f1", "recall", "cost")
_MOST_SHOWN = 40
OPTIMISM = (
    "The same noisy counts chose it and give its figures, which are optimistic: slightly where intervals are narrow, "
    "more where they are wide"
)
"""What is said of figures at a threshold that was chosen by them."""
_EARLIER = "the model's evaluation has figures at no threshold: an earlier Parley made it"
_WITHOUT_POINTS = (
    "the evaluation's noise hides one of the two classes, so that it has figures at no threshold: a larger epsilon or "
    "more held-out rows would leave some"
)
Point = Mapping[str, Any]
"""A threshold and the figures at it, in JSON: an item of an evaluation's ``points``."""


class Threshold(Strict):
    """The score above which a model of two classes predicts the positive one, and the rule that chose it."""

    rule: Annotated[OneLine, Field(max_length=100, description=f"one of {RULES}")]
    score: Annotated[float, Field(allow_inf_nan=False, description="predict the positive class above it")]
    estimated: Annotated[bool, Field(description="whether the rule chooses by the noisy counts of the evaluation")]
    unmet: Annotated[
        OneLine | None,
        Field(description="why the rule has chosen none, so that 0 applies", exclude_if=lambda words: words is None),
    ] = None


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """A rule, by its name and its numbers.

    >>> str(ThresholdRule.read("recall=.9")), str(ThresholdRule.read(" cost=1:20"))
    ('recall=0.9', 'cost=1:20')
    """

    name: str
    numbers: tuple[float, ...] = ()

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a rule; raises InvalidInputError that says what is wrong with it."""
        name, equals, value = (part.strip() for part in text.partition("="))
        wrong = f"threshold {one_line(text[:_MOST_SHOWN])!r}"
        match name:
            case "balanced" | "f1" | "prevalence":
                if equals:
                    raise InvalidInputError(f"{wrong}: {name} takes no number")
                return cls(name)
            case "recall":
                (recall,) = _numbers(value, 1) or (0.0,)
                if not 0 < recall <= 1:
                    raise InvalidInputError(f"{wrong}: a recall is above 0 and at most 1, as in recall=.9")
                return cls(name, (recall,))
            case "probability":
                (probability,) = _numbers(value, 1) or (0.0,)
                if not 0 < probability < 1:
                    raise InvalidInputError(f"{wrong}: a probability is between 0 and 1, as in probability=.1")
                return cls(name, (probability,))
            case "cost":
                costs = _numbers(value, 2) or (0.0, 0.0)
                if not min(costs) > 0:
                    raise InvalidInputError(
                        f"{wrong}: say what a false positive and a false negative cost, two numbers above 0, as in "
                        "cost=1:20"
                    )
                return cls(name, costs)
            case _:
                raise InvalidInputError(f"{wrong} is no rule; there are {RULES}")

    def __str__(self) -> str:
        """Return the rule as `read` reads it."""
        numbers = ":".join(repr(number).removesuffix(".0") for number in self.numbers)
        return self.name + ("=" if self.numbers else "") + numbers

    @property
    def estimated(self) -> bool:
        """Whether it chooses by an evaluation; other rules are public."""
        return self.name in _FROM_POINTS

    def check(self, study: Study) -> None:
        """Raise InvalidInputError if no model of a study can have a threshold by this rule."""
        if study.n_classes == 0:
            raise InvalidInputError(f"a threshold is for two classes, and {study.label.name!r} is a number")
        if study.n_classes > 2 or study.loss.kind == "softmax":  # noqa: PLR2004
            raise InvalidInputError(
                f"a threshold is for one score of two classes; a model of {study.label.name!r} has a score for each of "
                f"{study.n_classes}"
            )
        if self.estimated:
            return
        if study.loss.kind != "logistic":
            raise InvalidInputError(
                f"a model with the loss {study.loss.kind!r} has no probabilities: take a rule that chooses by an "
                "evaluation, such as balanced"
            )
        if self.name == "prevalence" and study.class_shares is None:
            raise InvalidInputError(
                f"the study does not state the classes' shares (`shares` of {study.label.name!r}): say "
                "probability=SHARE, or take a rule that chooses by an evaluation, such as balanced"
            )

    def choose(
        self, study: Study, evaluation: Mapping[str, Any] | None, class_weights: Mapping[str, float] | None
    ) -> float:
        """Return the score that the rule chooses, from an evaluation in JSON if it chooses by one.

        Raises InvalidInputError if the rule does not fit the study, or the evaluation does not say enough.
        """
        self.check(study)
        if not self.estimated:
            (probability,) = self.numbers or (study.class_shares or ())[1:]
            return math.log(probability / (1 - probability)) + _offset(class_weights, study.label.values)  # type: ignore[union-attr]  # it has classes
        if evaluation is None:
            raise InvalidInputError("the model has no evaluation yet to choose by")
        if not (points := _points(evaluation)):
            raise InvalidInputError(_WITHOUT_POINTS if "points" in evaluation else _EARLIER)
        return self._best(points)

    def _best(self, points: Sequence[Point]) -> float:
        """Return the score of the best point, of equals that nearest to 0; raises InvalidInputError without one."""
        if self.name == "cost":
            return float(min(points, key=lambda point: (self._cost(point), abs(point["score"])))["score"])
        figure = {"balanced": "balanced_accuracy"}.get(self.name, self.name)
        estimates = [(point[figure]["estimate"], point["score"]) for point in points if point[figure]]
        candidates = [(estimate, score) for estimate, score in estimates if estimate is not None]
        words = figure.replace("_", " ")
        if not candidates:
            raise InvalidInputError(
                f"the evaluation's noise leaves no estimate of {words} at any threshold: a larger epsilon would"
            )
        if self.name != "recall":
            return float(max(candidates, key=lambda one: (one[0], -abs(one[1])))[1])
        (least,) = self.numbers
        if not (enough := [score for estimate, score in candidates if estimate >= least]):
            most = max(estimate for estimate, _ in candidates)
            raise InvalidInputError(
                f"the largest recall that was estimated is {math.floor(most * 1000) / 1000:g}, not {least:g}"
            )
        return float(max(enough))

    def _cost(self, point: Point) -> float:
        """Return what the errors at a point cost."""
        (_, false_positive), (false_negative, _) = point["confusion"]
        by_positive, by_negative = (number / max(self.numbers) for number in self.numbers)  # their ratio alone counts
        return float(false_positive * by_positive + false_negative * by_negative)


def _numbers(text: str, count: int) -> tuple[float, ...] | None:
    """Return so many finite numbers, separated by colons, or None for any other text."""
    try:
        numbers = tuple(map(float, text.split(":")))
    except ValueError:
        return None
    return numbers if len(numbers) == count and all(map(math.isfinite, numbers)) else None


def _points(evaluation: Mapping[str, Any]) -> Sequence[Point]:
    """Return the thresholds at which an evaluation has figures; none of one that an earlier version made."""
    return evaluation.get("points") or ()


def chosen_threshold(
    rule: str,
    study: Study,
    evaluation: Mapping[str, Any] | None,
    class_weights: Mapping[str, float] | None = None,
) -> Threshold:
    """Return the threshold of a model by a rule, 0 if the rule does not lead to one.

    ``evaluation`` and ``class_weights`` are those of the model's document, in JSON. Raises InvalidInputError for a text
    that is no rule.
    """
    read = ThresholdRule.read(rule)
    try:
        score = read.choose(study, evaluation, class_weights)
    except InvalidInputError as error:
        return Threshold(rule=str(read), score=0.0, estimated=read.estimated, unmet=error.detail)
    return Threshold(rule=str(read), score=score, estimated=read.estimated)


def at_threshold(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return a document's evaluation in JSON, with the figures at its threshold in the place of those at 0.

    Of the negative class only the recall is known there. Between two of the evaluation's points, the figures are those
    of the nearer one. Those at 0 are not a point's but those that were counted: their intervals assume nothing.
    """
    if (evaluation := document.get("evaluation")) is None:
        return None
    score = (document.get("threshold") or {"score": 0.0})["score"]
    point = None if score == 0 else _nearest(evaluation, score)
    if point is None or point["score"] == 0:
        return dict(evaluation)
    negative, positive = document["study"]["label"]["values"]
    figures = {name: point[name] for name in ("accuracy", "balanced_accuracy", "specificity", "confusion")}
    figures["recall"] = {negative: point["specificity"], positive: point["recall"]}
    figures |= {name: {positive: point[name]} for name in ("precision", "f1")}
    return {**evaluation, **figures}


def _nearest(evaluation: Mapping[str, Any], score: float) -> Point | None:
    """Return the point of an evaluation nearest to a score, by their probabilities; None of one without points."""
    return min(
        _points(evaluation), key=lambda point: abs(_probability(point["score"]) - _probability(score)), default=None
    )


def _probability(score: float) -> float:
    """Return the logistic function of a score."""
    return (1 + math.tanh(score / 2)) / 2


def _offset(class_weights: Mapping[str, float] | None, classes: Sequence[str]) -> float:
    """Return the score that is a probability of 1/2 if two ``classes`` had these weights in training."""
    weights = [class_weights.get(name, 1.0) for name in classes] if class_weights else ()
    return float(prior_offset(weights, 1))


def threshold_in_words(document: Mapping[str, Any]) -> list[str]:
    """Return sentences about a document's threshold, and about the figures at it; none of a document without one."""
    if (threshold := document.get("threshold")) is None:
        return []
    score, classes = threshold["score"], document["study"]["label"]["values"]
    positive, offset = classes[1], _offset(document.get("class_weights"), classes)
    kind = (document["study"].get("loss") or {}).get("kind", "logistic")

    def above(score: float) -> str:
        return f"{score:.4g}" + (
            f" (a probability of {_probability(score - offset):.3g})" if kind == "logistic" else ""
        )

    if unmet := threshold.get("unmet"):
        return [
            f"The rule {threshold['rule']} has chosen no threshold: {unmet}",
            f"{positive!r} is predicted where the score exceeds {above(0.0)}",
        ]
    sentences = [f"{positive!r} is predicted where the score exceeds {above(score)}, by the rule {threshold['rule']}"]
    if (evaluation := document.get("evaluation")) is None:
        return sentences
    if threshold["estimated"]:
        sentences.append(OPTIMISM)
    elif (point := _nearest(evaluation, score)) is None:
        sentences.append("The figures are those at a score of 0, the only one at which this evaluation has some")
    elif score not in {0, point["score"]}:
        sentences.append(f"The figures are those at {above(point['score'])}, the nearest that was evaluated")
    return sentences
