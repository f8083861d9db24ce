"""What the policy of an owner who joins allows to begin with, and what is to be known of it."""

from __future__ import annotations

from parley.common.algorithms import REGISTRY
from parley.common.data.study import Study
from parley.common.privacy.guarantee import delta_caution
from parley.party.settings import Policy

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


def policy_cautions(policy: Policy, n_examples: int) -> tuple[str, ...]:
    """Of a policy that allows a delta above 1/n: of the owner's own records, or of all that it holds as one."""
    n, of = (n_examples, "records") if policy.adjacency == "replace_one" else (1, "party")
    most = max(policy.delta, policy.max_delta_per_run)
    return tuple(f"policy: {words}" for words in delta_caution(most, n, of))
