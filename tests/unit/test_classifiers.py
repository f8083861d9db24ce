"""What owners train to vote: every kind votes again as it did, for what it has seen, and tells nothing by an error."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.ensemble import Ensemble
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.learning.classifiers import LocalClassifier, Voter
from parley.common.learning.losses import Logistic, Softmax
from parley.common.protocol.facts import FederationFacts
from parley.common.strict import faults
from parley.party.settings import Policy

if TYPE_CHECKING:
    from parley.common.arrays import FloatArray, IntArray

_ADAPTER: TypeAdapter[LocalClassifier] = TypeAdapter(LocalClassifier)
D = 4
KINDS: dict[str, LocalClassifier] = {
    kind: _ADAPTER.validate_python({"kind": kind} | ({"n_trees": 5} if kind == "forest" else {}))
    for kind in ("logistic", "svm", "tree", "forest", "knn", "bayes")
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
ROWS = np.random.default_rng(1).uniform(-0.5, 0.5, (40, D))


def examples(seed: int, n: int, *classes: int) -> tuple[FloatArray, IntArray]:
    """Rows (n, d) and classes (n,), of these, each at least once."""
    rng = np.random.default_rng(seed)
    return rng.uniform(-0.5, 0.5, (n, D)), np.resize(np.array(classes), n)


def voter(kind: LocalClassifier, X: FloatArray, classes: IntArray, seed: int) -> Voter:
    """A voter by rows of weight 1."""
    return Voter(kind, X, classes, np.ones(len(X)), seed)


def ensemble() -> Ensemble:
    built = build_algorithm("ensemble_vote")
    assert isinstance(built, Ensemble)
    return built


def facts(k: int, loss: Logistic | Softmax, **terms: Any) -> FederationFacts:  # noqa: ANN401 -- fields
    return FederationFacts.uniform(
        np.full(k, 9), epsilon=1.0, delta=1e-5, n_features=D, loss=loss, public=ROWS, public_shape=ROWS.shape, **terms
    )


@EVERY_KIND
def test_with_the_same_seed_it_votes_again_as_it_did(kind: str) -> None:
    X, classes = examples(2, 30, 0, 1, 2)
    one, again = (voter(KINDS[kind], X, classes, 7).votes(ROWS) for _ in range(2))
    assert np.array_equal(one, again)
    assert one.dtype == np.int64
    assert len(set(one.tolist())) > 1, "it learnt something"


def test_another_seed_grows_another_forest() -> None:
    X, classes = examples(3, 30, 0, 1, 2)
    one, other = (voter(KINDS["forest"], X, classes, seed).votes(ROWS) for seed in (7, 8))
    assert not np.array_equal(one, other)


@EVERY_KIND
def test_of_one_class_it_votes_for_that_and_never_for_one_that_it_has_not_seen(kind: str) -> None:
    assert set(voter(KINDS[kind], *examples(4, 9, 3), 7).votes(ROWS).tolist()) == {3}
    assert set(voter(KINDS[kind], *examples(4, 1, 2), 7).votes(ROWS).tolist()) == {2}
    assert set(voter(KINDS[kind], *examples(4, 12, 1, 4), 7).votes(ROWS).tolist()) <= {1, 4}


def test_of_fewer_examples_than_neighbours_all_are_asked() -> None:
    X, classes = examples(5, 3, 0, 1, 1)
    five = _ADAPTER.validate_python({"kind": "knn", "n_neighbours": 5})
    assert set(voter(five, X, classes, 7).votes(ROWS).tolist()) == {1}, "two of three"


def test_of_few_examples_few_neighbours_are_asked() -> None:
    """Five of six rows would vote alike wherever they lie."""
    X, classes = examples(5, 6, 0, 1, 2)
    near = classes[((ROWS[:, None] - X) ** 2).sum(axis=-1).argmin(axis=1)]
    assert np.array_equal(voter(KINDS["knn"], X, classes, 7).votes(ROWS), near)
    asked = [KINDS["knn"].build(n, 7).n_neighbors for n in (1, 8, 9, 24, 25, 1000)]
    assert asked == [1, 1, 3, 3, 5, 5]


@EVERY_KIND
def test_examples_that_are_all_alike_vote_for_the_class_of_most(kind: str) -> None:
    X, classes = examples(6, 5, 0, 1, 1)
    for alike in (np.zeros_like(X), np.full_like(X, 0.25)):
        assert set(voter(KINDS[kind], alike, classes, 7).votes(ROWS).tolist()) == {1}


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
def test_a_party_by_itself_votes_as_it_does_in_a_stack_of_mixed_kinds(loss: Logistic | Softmax) -> None:
    kinds = (*KINDS.values(), None) * 2
    k, n_classes, algorithm = len(kinds), max(2, loss.outputs), ensemble()
    rng = np.random.default_rng(7)
    shard = Shard(rng.uniform(-0.5, 0.5, (k, 9, D)), encode_classes(rng.integers(n_classes, size=(k, 9)), n_classes))
    of = facts(k, loss, classifiers=kinds, run="the digest")
    stacked = algorithm.prepare(shard, of.everyone).votes(ROWS)
    assert stacked.shape == (k, len(ROWS))
    for place in range(k):
        alone = algorithm.prepare(shard.party(place), of.of(place)).votes(ROWS)
        assert np.array_equal(alone, stacked[place])
    assert not (stacked[: k // 2] == stacked[k // 2 :]).all(axis=1).any(), "other rows, other votes"


@EVERY_KIND
def test_a_stack_of_one_kind_alone_is_trained(kind: str) -> None:
    X, classes = examples(8, 9, 0, 1)
    shard = Shard(X[None], encode_classes(classes, 2)[None])
    of = facts(1, Logistic(), classifiers=(KINDS[kind],))
    stacked = ensemble().prepare(shard, of.everyone).votes(ROWS)
    assert np.array_equal(stacked[0], ensemble().prepare(shard.party(0), of.of(0)).votes(ROWS))


def test_the_seed_is_of_the_run_and_the_party() -> None:
    of = facts(3, Logistic(), run="the digest")
    assert len(set(of.everyone.seeds)) == 3
    assert of.everyone.seeds == tuple(of.of(place).seeds[0] for place in range(3))
    assert not set(of.everyone.seeds) & set(replace(of, run="another").everyone.seeds)


@pytest.mark.parametrize("kind", [*KINDS, None])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
def test_a_party_of_no_rows_votes_for_the_first_class_and_harms_nobody(
    kind: str | None, loss: Logistic | Softmax
) -> None:
    X, classes = examples(9, 9, 0, 1)
    mask = np.array([[True] * 9, [False] * 9])
    both = Shard(np.stack([X, X]), np.stack([encode_classes(classes, max(2, loss.outputs))] * 2), mask)
    of = facts(2, loss, classifiers=(None, KINDS[kind] if kind else None))
    votes = ensemble().prepare(both, of.everyone).votes(ROWS)
    assert set(votes[1].tolist()) == {0}
    assert np.array_equal(votes[0], ensemble().prepare(both.party(0), of.of(0)).votes(ROWS))
    empty = Shard(np.zeros((0, D)), np.zeros(0))
    assert set(ensemble().prepare(empty, of.of(1)).votes(ROWS).tolist()) == {0}


@pytest.mark.parametrize("kind", [*KINDS, None])
@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
def test_rows_that_a_study_dropped_are_of_no_class(kind: str | None, loss: Logistic | Softmax) -> None:
    """They are zeros, and have the label of the last class: as a class of their own, most votes would be for it."""
    k = max(2, loss.outputs)
    X, classes = examples(11, 30, *range(k - 1))
    y, dropped = encode_classes(classes, k), np.arange(30) % 3 > 0
    X[dropped], y[dropped] = 0.0, 1.0
    of = facts(2, loss, classifiers=(KINDS[kind] if kind else None,) * 2).of(0)
    votes = ensemble().prepare(Shard(X, y), of).votes(ROWS)
    assert k - 1 not in votes
    if kind:
        assert np.array_equal(votes, ensemble().prepare(Shard(X[~dropped], y[~dropped]), of).votes(ROWS))


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=repr)
def test_a_linear_voter_votes_for_no_class_that_it_has_not_seen(loss: Logistic | Softmax) -> None:
    for seen in ((0,), (1,), (max(2, loss.outputs) - 1,), (0, 1)):
        X, classes = examples(10, 9, *seen)
        shard = Shard(X, encode_classes(classes, max(2, loss.outputs)))
        votes = ensemble().prepare(shard, facts(2, loss).of(0)).votes(ROWS)
        assert set(votes.tolist()) <= set(seen)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"kind": "perceptron"}, "kind"),
        ({}, "kind"),
        ({"kind": "tree", "max_depth": 0}, "tree.max_depth: Input should be greater than or equal to 1"),
        ({"kind": "tree", "max_depth": 1.5}, "tree.max_depth"),
        ({"kind": "tree", "n_neighbours": 3}, "tree.n_neighbours: Extra inputs are not permitted"),
        ({"kind": "forest", "n_trees": 0}, "forest.n_trees"),
        ({"kind": "forest", "min_samples_leaf": 0}, "forest.min_samples_leaf"),
        ({"kind": "knn", "n_neighbours": -1}, "knn.n_neighbours: Input should be greater than or equal to 1"),
        ({"kind": "svm", "cost": float("nan")}, "svm.cost: Input should be"),
        ({"kind": "svm", "cost": float("inf")}, "svm.cost: Input should be"),
        ({"kind": "logistic", "regularization": 0.0}, "logistic.regularization"),
        ({"kind": "bayes", "smoothing": "0.1"}, "bayes.smoothing: Input should be a valid number"),
    ],
)
def test_a_fault_is_named_by_its_field(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError) as refused:
        _ADAPTER.validate_python(given)
    assert why in faults(refused.value)


def test_an_owner_names_its_kind_in_its_policy() -> None:
    text = """
    [policy]
    epsilon = 1
    delta = 1e-5
    max_epsilon_per_run = 1
    max_delta_per_run = 1e-5
    algorithms = ["ensemble_vote"]
    [policy.classifier]
    kind = "tree"
    max_depth = 5
    """
    policy = Policy.model_validate(tomllib.loads(text)["policy"])
    assert policy.classifier == _ADAPTER.validate_python({"kind": "tree", "max_depth": 5})
    with pytest.raises(ValidationError) as refused:
        Policy.model_validate(tomllib.loads(text.replace("5\n", "0\n"))["policy"])
    assert "classifier.tree.max_depth" in faults(refused.value)
