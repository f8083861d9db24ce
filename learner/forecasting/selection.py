"""Chooses what a run leaves open: of what the parties' accounts pay for, the most accurate.

An algorithm that is left open is the one with the best forecast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from parley.common.algorithms import MOST_ROUNDS, REGISTRY
from parley.common.client.affordable import Candidate, Follower, charged, chosen_among
from parley.common.client.party import PartyClient
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


def candidates(
    spec: RunSpec, facts: Mapping[str, StudyFacts] | None, most_rounds: int = MOST_ROUNDS, *, any_algorithm: bool
) -> Iterator[Candidate]:
    """Yield the specification with all parameters chosen in each way that there is, the most accurate first.

    It has at most ``most_rounds`` rounds, and no more than any party allows. If ``any_algorithm`` may be taken, all are
    tried that the parties allow by their facts. Raises InvalidInputError, before the first, if none of these has a
    forecast, or the run cannot be.
    """
    most_rounds = min([most_rounds, *(party.max_rounds for party in (facts or {}).values())])
    drafts = _ranked(spec, _allowed(facts), most_rounds) if any_algorithm else [(spec, {})]
    for draft, reasons in drafts:
        for complete, choices in draft.candidates(most_rounds):
            yield Candidate.of(complete, choices, reasons)


async def settled_among(  # noqa: PLR0913, PLR0917 -- a run, and what is known of its parties
    run: RunSpec,
    evaluation: RunSpec | None,
    facts: Mapping[str, StudyFacts],
    payers: Sequence[PartyClient],
    most_rounds: int,
    seconds: float,
    *,
    any_algorithm: bool,
) -> Candidate:
    """Return the first of a run's `candidates` that the accounts of its ``payers`` pay for, with its evaluation.

    ``run`` is of known sizes, and ``evaluation`` the draft of what follows it. The payers have so many ``seconds`` to
    answer; one that does not counts as if all fitted.
    """
    return await chosen_among(
        candidates(run, facts, most_rounds, any_algorithm=any_algorithm),
        partial(charged, facts=facts),
        payers,
        seconds,
        follower=None if evaluation is None else partial(follower_of, evaluation, run, facts),
    )


def follower_of(draft: RunSpec, run: RunSpec, facts: Mapping[str, StudyFacts] | None) -> Follower:
    """Return the evaluation that follows a run of known sizes, among its parties, from the evaluation's draft."""
    sizes = {member.name: member.n_examples for member in run.parties}
    spec = draft.among(sizes).with_sizes(sizes).settled()[0]
    return Follower(spec, charged(spec, facts))


def _allowed(facts: Mapping[str, StudyFacts] | None) -> Iterable[str]:
    """Return the algorithms that all parties allow; all algorithms if no party was asked."""
    if facts is None:
        return REGISTRY
    return [name for name in REGISTRY if all(name in party.algorithms for party in facts.values())]


def _ranked(spec: RunSpec, names: Iterable[str], most_rounds: int) -> Iterator[tuple[RunSpec, dict[str, str]]]:
    """Yield the specification with each algorithm, that first which is expected to come closest to the best model."""

    def proposed(name: str) -> Proposal:
        candidate, _ = spec.model_copy(update={"algorithm": name, "parameters": {}}).settled(most_rounds)
        return candidate.build(), candidate.facts(), candidate.questions()

    for name, reason in ranked(names, proposed):
        yield spec.model_copy(update={"algorithm": name, "parameters": {}}), {"algorithm": reason}


def most_promising(names: Iterable[str], proposed: Callable[[str], Proposal]) -> tuple[str, str]:
    """Return the first of `ranked`."""
    return next(ranked(names, proposed))


def ranked(names: Iterable[str], proposed: Callable[[str], Proposal]) -> Iterator[tuple[str, str]]:
    """Yield each algorithm of these names that has a forecast, and the reason in words: the most promising first.

    That is the one that is expected to come closest to the best model. ``proposed`` settles an algorithm by name, or
    raises InvalidInputError if it cannot be run. Raises InvalidInputError if none of them has a forecast.
    """
    expected = {name: _expected(proposed, name) for name in names}
    ordered = sorted((excess, name) for name, excess in expected.items() if math.isfinite(excess))
    if not ordered:
        raise InvalidInputError(
            f"there is no forecast of what the parties allow ({', '.join(expected) or 'nothing in common'}): "
            "name an algorithm and its parameters"
        )
    for place, (excess, name) in enumerate(ordered, start=1):
        others = ", ".join(f"{other} {more:.3g}" for more, other in ordered[place : place + _NAMED])
        more = f", of others more: {others}" if others else ""
        yield name, f"an excess fitness of {excess:.3g} is expected of it{more}"


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
