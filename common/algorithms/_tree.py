"""A tree of parties: who releases to whom, level by level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from parley.common.algorithms._parameters import check_take_part
from parley.common.errors import InvalidInputError
from parley.common.strict import Identifier, Strict


class Node(Strict):
    """A party that weighs the releases of others, its children."""

    party: Identifier
    children: Annotated[tuple[Identifier, ...], Field(min_length=1)]


Nodes = Annotated[
    tuple[Node, ...],
    Field(description="the parties above others, each with its children; none: the last party is above all others"),
]


def levels_of(nodes: Sequence[Node], parties: Sequence[str]) -> Mapping[str, int]:
    """Each party's level by name: 0 of a leaf, else one more than the highest of its children's.

    Without nodes the last party is above all others. Raises InvalidInputError that names who is unknown, twice in the
    tree or a child of two, in a circle, or left out; and where there is not one root.
    """
    children = children_of(nodes, parties)
    below = [child for each in children.values() for child in each]
    if twice := _repeated(below):
        raise InvalidInputError(f"{', '.join(twice)}: a node stands in a tree once, under one other")
    if alone := sorted(set(parties) - {*children, *below}):
        raise InvalidInputError(f"{', '.join(alone)}: alone, neither above nor below any other")
    levels: dict[str, int] = {party: 0 for party in parties if party not in children}
    while waiting := [party for party in children if party not in levels]:
        ready = [party for party in waiting if all(child in levels for child in children[party])]
        if not ready:
            raise InvalidInputError(f"{', '.join(sorted(waiting))}: in a circle, or above one")
        levels |= {party: 1 + max(levels[child] for child in children[party]) for party in ready}
    if len(roots := sorted(set(parties) - set(below))) != 1:
        raise InvalidInputError(f"a tree has one root, and {', '.join(roots)} are below nobody")
    return levels


def children_of(nodes: Sequence[Node], parties: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The children of those that have some.

    Raises InvalidInputError for one that is unknown, and for a party that is said to have some twice.
    """
    if not nodes:
        if len(parties) < 2:  # noqa: PLR2004
            raise InvalidInputError(f"{parties[0]}: alone, neither above nor below any other")
        return {parties[-1]: tuple(parties[:-1])}
    check_take_part("the tree", [name for node in nodes for name in (node.party, *node.children)], parties)
    if twice := _repeated(node.party for node in nodes):
        raise InvalidInputError(f"{', '.join(twice)}: a node stands in a tree once")
    return {node.party: node.children for node in nodes}


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, times in Counter(names).items() if times > 1)
