"""What of a run's budget evaluates its own model: a tenth by default, where that tells something.

If the run is about rows for training, it has all of the budget too: a record is trained on or held out.

Whether it does is public: it follows from how many rows owners hold out, from the noise, and from the owners' rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from parley.common.errors import InvalidInputError
from parley.common.learning.evaluation import FigureEstimate, NoisyCounts
from parley.common.privacy.guarantee import EXAMPLE_NAMES
from parley.common.runs.consent import OwnerRules, ReviewedRun
from parley.common.runs.evaluation import evaluation_spec, flawless_counts, with_evaluation
from parley.common.runs.specification import RunSpec

USUAL_SHARE = 0.1
"""The share of a run's budget that is kept if nobody says otherwise."""
_NOT_EVALUATED = "the model is not evaluated"
_EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Epsilons of an evaluation to propose, the first that is of use."""
MOST_USUAL_EPSILON = _EPSILONS[-1]
"""The largest epsilon of an evaluation that is proposed."""
_USUAL_DELTA = "1e-6"
_WIDEST_ACCURACY = 0.1
_WIDEST_R_SQUARED = 0.2


@dataclass(frozen=True, slots=True)
class SelfEvaluation:
    """A run with what is left of its budget, the draft of the evaluation that follows it, and both in ``words``."""

    run: RunSpec
    evaluation: RunSpec | None = None
    words: str | None = None


def keep_for_evaluation(
    run: RunSpec, rules: Mapping[str, OwnerRules], asked: RunSpec | None = None, *, if_useful: bool
) -> SelfEvaluation:
    """Return what a run, of known sizes, keeps of its budget for an evaluation of its model.

    ``asked`` is the draft of an evaluation that a user asked for, which the run's budgets allow for. Otherwise,
    ``if_useful`` keeps the usual share of each party's budget if that is of use, and no owner refuses by its ``rules``,
    by name, as far as they were asked. A run of a study without hold-out, or which trains no model that all share, then
    keeps nothing and says nothing.

    Raises InvalidInputError if a party has no row for the evaluation that was asked for.
    """
    sizes = {member.name: member.n_examples for member in run.parties}
    if asked is not None:
        evaluation = asked.among(run.names).with_sizes(sizes)
        own, part = run.parties[0].budget.epsilon, evaluation.parties[0].budget.epsilon
        share = f"{part / (own if run.charged_rows == 'training' else own + part):.2g} of the budget"
        words = _kept(share, evaluation)
        if not is_of_use(evaluation):
            words += f"; so few say little at this epsilon: take a larger share by --evaluate, or {_later(evaluation)}"
        return SelfEvaluation(run, words=words)
    if not if_useful or run.study.hold_out is None or not run.build().makes_one_model:
        return SelfEvaluation(run)
    try:
        parts = {member.name: with_evaluation(run, member.budget, USUAL_SHARE) for member in run.parties}
        evaluation = evaluation_spec(run, {name: part for name, (_, part) in parts.items()}, {}).with_sizes(sizes)
    except InvalidInputError as error:
        return SelfEvaluation(run, words=f"{_NOT_EVALUATED}: {error.detail}")
    if (reason := _refusal(evaluation, rules)) is not None:
        return SelfEvaluation(run, words=f"{_NOT_EVALUATED}: {reason}")
    if not is_of_use(evaluation):
        few = f"{_held_out(evaluation)} are too few at epsilon {_epsilons_of(evaluation)}"
        return SelfEvaluation(run, words=f"{_NOT_EVALUATED}: {few}; {_later(evaluation)}")
    trained = run.with_budgets({name: part for name, (part, _) in parts.items()})
    return SelfEvaluation(trained, evaluation, _kept("a tenth of the budget", evaluation))


def is_of_use(evaluation: RunSpec) -> bool:
    """Return whether an evaluation, of known sizes, says enough about a model to be worth its budget.

    By a model without error: noise hides none of the classes, and the interval of its accuracy is at most .1 wide; or
    that of its R^2, of a real label, .2.
    """
    flawless = flawless_counts(evaluation)
    if isinstance(flawless, NoisyCounts):
        is_hidden = any(flawless.recall(label).estimate is None for label in range(len(flawless.classes)))
        return not is_hidden and _is_narrow(flawless.accuracy(), _WIDEST_ACCURACY)
    return _is_narrow(flawless.r_squared(), _WIDEST_R_SQUARED)


def _is_narrow(figure: FigureEstimate, widest: float) -> bool:
    """Return whether a figure has an estimate, and an interval at most so wide."""
    return figure.estimate is not None and figure.low is not None and figure.high - figure.low <= widest


def _later(evaluation: RunSpec) -> str:
    """Say at what epsilon an evaluation that is not of use would be."""
    if (epsilon := useful_epsilon(evaluation)) is None:
        more = EXAMPLE_NAMES[evaluation.study.unit]
        return f"ask for it later, with more {more}: even an epsilon of {MOST_USUAL_EPSILON:g} is too little"
    command = evaluate_command_line("RUN", epsilon, spends_none=not any(m.budget.delta for m in evaluation.parties))
    return f"ask for it later, at a larger one ({command})"


def useful_epsilon(evaluation: RunSpec) -> float | None:
    """Return the least of a few usual epsilons at which an evaluation, of known sizes, is of use; None if none is."""
    for epsilon in _EPSILONS:
        budgets = {m.name: m.budget.model_copy(update={"epsilon": epsilon}) for m in evaluation.parties}
        if is_of_use(evaluation.with_budgets(budgets)):
            return epsilon
    return None


def evaluate_command_line(run: str, epsilon: float, *, spends_none: bool = False) -> str:
    """Return the command that evaluates a run's model at an epsilon, as people type it.

    Its noise needs no delta, and states none after a run that ``spends_none``, whose owners may allow none.
    """
    delta = "0" if spends_none else _USUAL_DELTA
    return f"parley-learner evaluate {run} --epsilon {epsilon:g} --delta {delta}"


def _refusal(evaluation: RunSpec, rules: Mapping[str, OwnerRules]) -> str | None:
    """Return why an owner would refuse the evaluation, None if none would as far as their rules say."""
    review = ReviewedRun.of(evaluation)
    objections = chain.from_iterable(
        ((member.name, reason) for _, reason in review.objections(member, rules[member.name], evaluation.names))
        for member in evaluation.parties
        if member.name in rules
    )
    return next((f"{name}: {reason}" for name, reason in objections), None)


def _kept(share: str, evaluation: RunSpec) -> str:
    return f"{share} (epsilon {_epsilons_of(evaluation)}) evaluates the model on {_held_out(evaluation)}"


def _held_out(evaluation: RunSpec) -> str:
    return f"{evaluation.facts().n_total:,} held-out {EXAMPLE_NAMES[evaluation.study.unit]}"


def _epsilons_of(evaluation: RunSpec) -> str:
    """Return the epsilons of an evaluation's parties: one number, or the least and the largest."""
    epsilons = [member.budget.epsilon for member in evaluation.parties]
    least, most = f"{min(epsilons):g}", f"{max(epsilons):g}"
    return least if least == most else f"{least} to {most}"
