"""Warnings about parameters and budgets of a run with effects that nobody may have intended, from public facts."""

from __future__ import annotations

import numpy as np

from parley.common.data.columns import Label
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.guarantee import UNIT_NAMES, delta_caution
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts

_RARE = 0.2
"""A class is rare if it counts for less than this part of what the most counting class does."""
_MOST_NAMED = 3


def cautions(algorithm: Algorithm, facts: FederationFacts, *, has_threshold: bool = False) -> tuple[str, ...]:
    """Return all warnings about a run: about its delta, about rare classes, and the algorithm's own.

    ``has_threshold`` says that a rule is given by which the model's threshold is chosen.
    """
    of_classes = () if has_threshold or not algorithm.trains else _of_rare_classes(facts)
    return (*_of_delta(algorithm, facts), *of_classes, *algorithm.cautions(facts))


def _of_rare_classes(facts: FederationFacts) -> tuple[str, ...]:
    """Warn about classes that a score is hardly ever for, by the shares that the study states."""
    if (study := facts.study) is None or (shares := study.class_shares) is None or not isinstance(study.label, Label):
        return ()
    counts = np.array(shares) * np.array(facts.loss.class_weights or np.ones(len(shares)))
    rare = [place for place in np.argsort(counts).tolist() if counts[place] < _RARE * counts.max()]
    if not rare:
        return ()
    named = (f"{study.label.values[place]!r} ({shares[place]:.2g} of the population)" for place in rare[:_MOST_NAMED])
    more = " and others" if len(rare) > _MOST_NAMED else ""
    caution = f"the model may predict {', '.join(named)}{more} of nobody or almost nobody"
    if len(shares) > 2:  # noqa: PLR2004 -- two classes have a threshold
        return (f"{caution}: take --class-weights balanced",)
    return (f"{caution}, at a threshold of probability .5: take --threshold balanced, or --class-weights balanced",)


def _of_delta(algorithm: Algorithm, facts: FederationFacts) -> tuple[str, ...]:
    """Warn about a delta that the run spends.

    n counts all that the promise is to, at all parties: each record, person or party, may be published with the
    probability delta of its own party, so it is their sum over all that says how many. The smallest party's n would let
    a run publish a record of every few parties without a word.
    """
    visible = facts.curated() if algorithm.curator else facts
    hidden = algorithm.adjacency_of(visible.unit)
    counts = np.ones(len(visible.parties)) if hidden == "whole_party" else visible.n_examples
    n = int(counts.sum())
    mean = float((counts * visible.everyone.own_delta).sum()) / max(n, 1)
    words = delta_caution(mean, n, "parties" if hidden == "whole_party" else f"{UNIT_NAMES[hidden]}s")
    return words if words and any(_spends_delta(algorithm, visible.of(index)) for index in _distinct(visible)) else ()


def _spends_delta(algorithm: Algorithm, view: OwnFacts) -> bool:
    """Whether the rounds of a run cost a party a delta: not without noise, nor if all is pure."""
    if not algorithm.is_private(view):
        return False
    events = [algorithm.event(round, view) for round in range(1, len(algorithm.questions(view)) + 1)]
    return epsilon_after(events, 0.0) > float(view.own_epsilon) * (1 + 1e-9)


def _distinct(facts: FederationFacts) -> list[int]:
    """Return one party's index for each budget."""
    return [int(index) for index in np.unique([facts.epsilon, facts.delta], axis=1, return_index=True)[1]]
