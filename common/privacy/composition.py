"""Answers of several releases, in sequence and in parallel, as plain sequences of releases that an accountant composes.

Of parallel releases the worst counts, but which is the worst may depend on what it is composed with. So a run has
*branches*, one for each choice of a part in each answer, and costs as much as its costliest branch. Parts of one kind
are ordered, and only the worst of them is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice, product

from parley.common.errors import InvalidInputError
from parley.common.privacy.events import (
    ApproximateEvent,
    DrawEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    ParallelEvent,
    Release,
    SequentialEvent,
)

Branch = tuple[tuple[Release, ...], ...]
"""The releases of each answer of a run, for one choice of parts."""
_MOST_BRANCHES = 64


def branches(events: Sequence[Event]) -> list[Branch]:
    """Return all branches of a run's answers that may be the costliest.

    Raises InvalidInputError if there are more than can be followed: parts of many kinds in many rounds.
    """
    combinations = list(islice(product(*(_ways(event) for event in events)), _MOST_BRANCHES + 1))
    if len(combinations) > _MOST_BRANCHES:
        raise InvalidInputError(f"parallel releases of too many kinds: more than {_MOST_BRANCHES} ways to compose them")
    return combinations


def releases(event: Event) -> Iterator[Release]:
    """Yield all releases of an answer, in all of its parts."""
    match event:
        case NoEvent():
            return
        case SequentialEvent(events=parts) | ParallelEvent(events=parts):
            yield from chain.from_iterable(map(releases, parts))
        case _:
            yield event


def _ways(event: Event) -> list[tuple[Release, ...]]:
    """Return the sequences of releases that an answer may amount to."""
    match event:
        case NoEvent():
            return [()]
        case SequentialEvent(events=parts):
            return [tuple(chain.from_iterable(way)) for way in branches(parts)]
        case ParallelEvent(events=parts):
            ways = list(dict.fromkeys(chain.from_iterable(map(_ways, parts)))) or [()]
            return [way for way in ways if not any(_exceeds(other, way) for other in ways)]
        case ApproximateEvent(epsilon=epsilon, delta=delta):
            return [
                (ApproximateEvent(epsilon, delta),)
            ]  # without words, or two equal ones would each give way to the other
        case _:
            return [(event,)]


def _exceeds(one: tuple[Release, ...], other: tuple[Release, ...]) -> bool:
    """Return whether one sequence of releases costs more than another, for everything that it is composed with."""
    if len(one) < len(other) or one == other:
        return False
    return all(_covers(mine, its) for mine, its in zip(one, other, strict=False))


def _covers(one: Release, other: Release) -> bool:
    """Return whether a release reveals at least as much as another of its kind."""
    match one, other:
        case GaussianEvent(mu=most), GaussianEvent(mu=mu):
            return mu <= most
        case LaplaceEvent(epsilon=most), LaplaceEvent(epsilon=epsilon):
            return epsilon <= most
        case L2LaplaceEvent(epsilon=most, dimension=d), L2LaplaceEvent(epsilon=epsilon, dimension=dimension):
            return epsilon <= most and d == dimension
        case ApproximateEvent(epsilon=most, delta=largest), ApproximateEvent(epsilon=epsilon, delta=delta):
            return epsilon <= most and delta <= largest
        case DrawEvent(spread=widest, draws=most), DrawEvent(spread=spread, draws=draws):
            return spread <= widest and draws <= most
    return one == other
