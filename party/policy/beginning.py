"""What the policy of an owner who joins allows to begin with: what can be run on its study."""

from __future__ import annotations

from common.algorithms import REGISTRY
from common.data.study import Study

_USUAL = ("dp_gd", "release", "average", "evaluate", "describe")
_BY_LARGEST = ("simplex", "evaluate", "describe")
"""Where rows are bounded in the largest coordinate."""
_EACH = frozenset({"release", "simplex"})
"""Those of them that show the learner each answer."""


def first_algorithms(study: Study) -> tuple[str, ...]:
    """The algorithms to allow of a study: those that take its rows, by their norm, and sparse ones if they are."""
    names = _USUAL if study.norm == "euclidean" else _BY_LARGEST
    return tuple(name for name in names if REGISTRY[name].takes(study.norm, sparse=study.sparse is not None))


def refused_for_sums(study: Study) -> tuple[str, ...]:
    """Those of them that are refused where a secure sum is required."""
    return tuple(name for name in first_algorithms(study) if name in _EACH)


def trained_by_sums(study: Study) -> tuple[str, ...]:
    """Those of them that make a model, and by a secure sum."""
    return tuple(name for name in first_algorithms(study) if REGISTRY[name].trains and name not in _EACH)
