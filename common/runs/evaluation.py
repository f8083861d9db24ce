"""An evaluation as a run: its specification, its budget, and what its noisy sums say about the model.

It uses only what is public already: a released model, noisy sums, the deviation that the run's terms imply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import numpy as np
from pydantic import Field, create_model

from parley.common.algorithms.evaluate import Evaluate
from parley.common.arrays import FloatArray
from parley.common.data.class_weights import prior_offset
from parley.common.data.columns import AnyLabel, RealLabel
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import MAX_NORM
from parley.common.errors import InvalidInputError
from parley.common.learning import evaluation as estimates
from parley.common.learning.evaluation import COVERAGE, ClassCells, NoisyCounts, NoisyErrors
from parley.common.learning.losses import build_loss
from parley.common.learning.model import Model
from parley.common.learning.statistics import STATISTICS, LabelKind, Statistic
from parley.common.privacy.account import DELTA_UNITS, MICRO
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.certificate import Certificate
from parley.common.runs.pricing import guarantees
from parley.common.runs.specification import Budget, Member, PublicRows, RunOutline, RunSpec
from parley.common.runs.weights import whole_weights
from parley.common.strict import Strict

EVALUATE = "evaluate"
"""The algorithm's name in the registry."""
_NOT_TRAINED = "0" * 64
_UNIFORM = 1 / 3
"""The variance of a label that is uniform between its bounds, -1 and +1."""
_DEVIATIONS = 3


class EvaluationTerms(Strict):
    """How sure an evaluation is."""

    rate: Annotated[float, Field(description="how often an interval holds the true value of the held-out rows")] = (
        COVERAGE
    )
    deviation: Annotated[float, Field(description="of the noise on each count or sum")]


def _field_of(statistic: Statistic) -> tuple[Any, None]:
    """Return the type and the default of a statistic's field: what its function returns, or null."""
    returned = get_type_hints(statistic.estimate, localns=vars(estimates))["return"]
    return Annotated[returned | None, Field(description=statistic.description)], None


if TYPE_CHECKING:

    class Evaluation(EvaluationTerms):
        """Its fields are the statistics, which the type checker does not know."""

        def __getattr__(self, name: str) -> Any: ...  # noqa: ANN401

else:
    Evaluation = create_model(
        "Evaluation",
        __base__=EvaluationTerms,
        __doc__="How good a model is on rows that its training did not see. What does not fit the label is null.",
        **{name: _field_of(statistic) for name, statistic in STATISTICS.items()},
    )


class RunEvaluation(Evaluation):
    """An evaluation by a run: on how many held-out rows, whose they are, and what it cost the party that paid most."""

    run: Annotated[str | None, Field(description="the run that found it; null in that run's own document")] = None
    rows: Annotated[int, Field(description="how many rows the contributors hold out, dropped ones among them")]
    contributors: tuple[str, ...]
    epsilon: Annotated[float, Field(description="what the evaluation cost by itself, against the whole transcript")]
    delta: float
    certificate: Annotated[
        Certificate | None,
        Field(
            description="of the run that found it; null in that run's own document", exclude_if=lambda it: it is None
        ),
    ] = None

    def stated(self) -> dict[str, Any]:
        """Return the JSON of a document's statement: a statistic that is newer than the document is not in it."""
        return self.model_dump(mode="json", exclude_unset=True)


def statistics_of(noisy: NoisyCounts | NoisyErrors) -> Evaluation:
    """Compute the statistics of noisy counts or sums."""
    kind: LabelKind = "number"
    if isinstance(noisy, NoisyCounts):
        kind = "classes" if noisy.edges is None else "two classes"
    values = {name: statistic.estimate(noisy) for name, statistic in STATISTICS.items() if statistic.is_for(kind)}
    return Evaluation(deviation=noisy.law.deviation, **values)


def evaluation_spec(
    spec: RunSpec,
    budgets: Mapping[str, Budget],
    parameters: Mapping[str, Any],
    weights: PublicRows | None = None,
) -> RunSpec:
    """Draft a run that evaluates the model of another, among the same parties and on the same terms.

    ``spec`` is the other's, ``budgets`` are those of its parties, by name. The ``weights`` of a model that is not
    trained yet are replaced by rows that nobody has. If the study states a real label's deviation, errors count as no
    larger than three of these, unless ``parameters`` say otherwise: there is less noise on smaller ones. Raises
    InvalidInputError if there is nothing to evaluate on.
    """
    shape = build_loss(spec.study).outputs, spec.study.n_features
    members = (Member(name=name, n_examples=1, budget=budgets[name]) for name in spec.names)
    draft = spec.model_copy(
        update={
            "algorithm": EVALUATE,
            "parameters": {**_usual_error(spec.study), **parameters},
            "parties": tuple(members),
            "answer_every": 1,
            "public": weights or PublicRows(digest=_NOT_TRAINED, rows=shape[0], width=shape[1]),
        }
    )
    draft.questions()
    return draft


def _usual_error(study: Study) -> dict[str, Any]:
    """Return the largest error that counts, if the deviation of the study's label is known."""
    usual = study.usual_label
    if usual is None or usual.deviation * _DEVIATIONS >= Evaluate().largest_error:
        return {}
    return {"largest_error": float(f"{usual.deviation * _DEVIATIONS:.2g}")}


def weights_of(document: Mapping[str, Any]) -> FloatArray:
    """Return the weights of a model's document as rows (k, d).

    Raises InvalidInputError for a document that is no model, or for weights that no party accepts: those with the noise
    of pure epsilon in millions of columns are that long.
    """
    if document["kind"] not in {"linear", "softmax"}:
        raise InvalidInputError(f"what the run made is of the kind {document['kind']!r}, and predicts for nobody")
    weights = np.atleast_2d(whole_weights(document["weights"]))
    with np.errstate(over="ignore", invalid="ignore"):
        norm = float(np.linalg.norm(weights))
    if not norm <= MAX_NORM:
        raise InvalidInputError(f"the model's weights have norm {norm:.3g}, and parties take at most {MAX_NORM:g}")
    return weights


def divide(budget: Budget, share: float) -> tuple[Budget, Budget]:
    """Split a budget in two, the second a share of it, which together cost a ledger no more: in its whole units.

    Raises InvalidInputError if the share is less than a unit of the budget.

    >>> first, second = divide(Budget(epsilon=1.0, delta=1e-5), 0.1)
    >>> first.epsilon, second.epsilon
    (0.9, 0.1)
    """
    epsilon, delta = int(budget.epsilon * MICRO + 1e-3), int(budget.delta * DELTA_UNITS)
    parts = math.floor(epsilon * share + 1e-3), math.floor(delta * share)
    if parts[0] < 1 or (delta and parts[1] < 1) or parts[0] >= epsilon:
        raise InvalidInputError(
            f"a share of {share:g} of epsilon {budget.epsilon:g}, delta {budget.delta:g} is less than a ledger counts"
        )
    first, second = (
        Budget(epsilon=units / MICRO, delta=small / DELTA_UNITS)
        for units, small in ((epsilon - parts[0], delta - parts[1]), parts)
    )
    return first, second


def with_evaluation(run: RunOutline, budget: Budget, share: float) -> tuple[Budget, Budget]:
    """Return what of a budget a run may cost whose evaluation takes a share of it, and what the evaluation may cost.

    A run about rows for training may cost all of it: a record that is held out loses the evaluation's share alone.
    Otherwise the two divide it. Raises InvalidInputError as `divide` does.
    """
    first, second = divide(budget, share)
    return (budget if run.charged_rows == "training" else first), second


def evaluation_of(spec: RunSpec, model: Model, contributors: Sequence[str]) -> RunEvaluation | None:
    """Return the evaluation from the sums of a run that evaluates; None for any other run."""
    algorithm, facts = spec.build(), spec.facts()
    if not isinstance(algorithm, Evaluate):
        return None
    answered = tuple(spec.index(name) for name in contributors)
    evaluation = statistics_of(noisy_of(algorithm, facts, spec.study.label, model, answered))
    promise = guarantees(algorithm, facts)[0]
    return RunEvaluation(
        rows=facts.examples(answered),
        contributors=tuple(contributors),
        epsilon=promise.epsilon,
        delta=promise.delta,
        **dict(evaluation),
    )


def noisy_of(
    algorithm: Evaluate, facts: FederationFacts, label: AnyLabel, model: Model, answered: tuple[int, ...]
) -> NoisyCounts | NoisyErrors:
    """Return the noisy counts or sums that a run's statistics are."""
    law = algorithm.noise_law(len(algorithm.questions(facts)), facts, answered)
    if isinstance(label, RealLabel):
        return NoisyErrors(model.weights, law, algorithm.largest_error, (label.upper - label.lower) / 2)
    offset = float(prior_offset(facts.loss.class_weights, 1)) if facts.loss.outputs == 1 else 0.0
    edges, classes = model.made_of.get("edges"), tuple(label.values)
    return NoisyCounts(model.weights, law, classes, edges, offset=offset)


def flawless_evaluation(spec: RunSpec) -> RunEvaluation | None:
    """Return the evaluation of a model without any error: as much as the run's terms can reveal about any model.

    Intervals are as wide as the noise of ``spec`` makes them on the rows that its parties hold out, with labels as the
    study says they are; where it does not, as many of each class, or evenly between their bounds. None for a run that
    evaluates nothing.
    """
    return evaluation_of(spec, _flawless(spec), spec.names) if isinstance(spec.build(), Evaluate) else None


def flawless_counts(spec: RunSpec) -> NoisyCounts | NoisyErrors:
    """Return the counts or sums that `flawless_evaluation` is of, for a run that evaluates."""
    algorithm, facts = spec.build(), spec.facts()
    assert isinstance(algorithm, Evaluate)  # noqa: S101 -- as said above
    everybody = tuple(range(len(spec.parties)))
    return noisy_of(algorithm, facts, spec.study.label, _flawless(spec), everybody)


def _flawless(spec: RunSpec) -> Model:
    """Return the sums of a model without any error."""
    algorithm, facts = spec.build(), spec.facts()
    assert isinstance(algorithm, Evaluate)  # noqa: S101 -- of evaluations alone
    n = facts.examples(tuple(range(len(spec.parties))))
    if isinstance(spec.study.label, RealLabel):
        usual = spec.study.usual_label
        mean, variance = (0.0, _UNIFORM) if usual is None else (usual.mean, usual.deviation**2)
        sums = n / 2 * np.array([1.0, mean, mean**2 + variance, 0.0, 0.0])
        return Model(sums, "statistics")
    k = len(spec.study.label.values)
    rows = n * np.array(spec.study.class_shares or [1 / k] * k)
    if not algorithm.has_scores(facts):
        kind = ClassCells(k)
        by_class = np.zeros((k, 2, (kind.width - k * k) // (2 * k)))
        by_class[:, 0, 0], by_class[:, 1, -1] = (n - rows) * kind.weight, rows * kind.weight
        return Model(np.concatenate([np.diag(rows).ravel(), by_class.ravel()]), "statistics")
    edges = np.linspace(-1, 1, algorithm.n_edges(facts))
    edges[np.abs(edges).argmin()] = 0.0
    by_label = np.zeros((2, len(edges) + 1))
    by_label[0, : np.searchsorted(edges, 0.0) + 1] = 1.0
    by_label[1] = 1.0 - by_label[0]
    sums = rows[:, None] * by_label / by_label.sum(axis=1, keepdims=True)
    return Model(sums.ravel(), "statistics", {"edges": edges})
