"""Chooses an algorithm for a run that leaves it open: the one with the best forecast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from parley.common.algorithms import MOST_ROUNDS, REGISTRY
from parley.common.errors import InvalidInputError
from parley.common.forecast.coalitions import expected_excess
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Question
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import StudyFacts

_NAMED = 3

Proposal = tuple[Algorithm, FederationFacts, Sequence[Question]]
"""An algorithm whose parameters are all chosen, the facts of its parties, and the questions of its rounds."""


def settled(
    spec: RunSpec, facts: Mapping[str, StudyFacts] | None, most_rounds: int = MOST_ROUNDS, *, any_algorithm: bool
) -> tuple[RunSpec, dict[str, str]]:
    """Return the specification with all parameters chosen, and each choice's reason by parameter or ``algorithm``.

    It has at most ``most_rounds`` rounds, and no more than any party allows. If ``any_algorithm`` may be taken, it is
    one that all parties allow by their facts. Raises InvalidInputError if none of these has a forecast.
    """
    most_rounds = min([most_rounds, *(party.max_rounds for party in (facts or {}).values())])
    if any_algorithm:
        spec, reasons = _best(spec, _allowed(facts), most_rounds)
    else:
        reasons = {}
    complete, choices = spec.settled(most_rounds)
    return complete, reasons | {name: choice.why for name, choice in choices.items()}


def _allowed(facts: Mapping[str, StudyFacts] | None) -> Iterable[str]:
    """Return the algorithms that all parties allow; all algorithms if no party was asked."""
    if facts is None:
        return REGISTRY
    return [name for name in REGISTRY if all(name in party.algorithms for party in facts.values())]


def _best(spec: RunSpec, names: Iterable[str], most_rounds: int) -> tuple[RunSpec, dict[str, str]]:
    """Return the specification with the algorithm that is expected to come closest to the best model."""

    def proposed(name: str) -> Proposal:
        candidate, _ = spec.model_copy(update={"algorithm": name, "parameters": {}}).settled(most_rounds)
        return candidate.build(), candidate.facts(), candidate.questions()

    name, reason = most_promising(names, proposed)
    return spec.model_copy(update={"algorithm": name, "parameters": {}}), {"algorithm": reason}


def most_promising(names: Iterable[str], proposed: Callable[[str], Proposal]) -> tuple[str, str]:
    """Return the algorithm of these names that is expected to come closest to the best model, and the reason in words.

    ``proposed`` settles an algorithm by name, or raises InvalidInputError if it cannot be run. Raises InvalidInputError
    if none of them has a forecast.
    """
    expected = {name: _expected(proposed, name) for name in names}
    ranked = sorted((excess, name) for name, excess in expected.items() if math.isfinite(excess))
    if not ranked:
        raise InvalidInputError(
            f"there is no forecast of what the parties allow ({', '.join(expected) or 'nothing in common'}): "
            "name an algorithm and its parameters"
        )
    others = ", ".join(f"{name} {excess:.3g}" for excess, name in ranked[1 : 1 + _NAMED])
    excess, name = ranked[0]
    return name, f"an excess fitness of {excess:.3g} is expected of it{f', of others more: {others}' if others else ''}"


def _expected(proposed: Callable[[str], Proposal], name: str) -> float:
    """Return the expected excess of an algorithm; infinite if it cannot be run or has no forecast."""
    try:
        algorithm, facts, questions = proposed(name)
        for index in range(len(facts.parties)):
            algorithm.event(1, facts.of(index))
    except InvalidInputError:
        return math.inf
    reveals_answers = facts.secure_sum and any(question.reveal != "sum" for question in questions)
    if reveals_answers or (algorithm.curator and len(facts.parties) > 1) or not algorithm.trains:
        return math.inf
    return expected_excess(algorithm, facts)
