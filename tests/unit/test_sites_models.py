"""Sites' models before a second level: how they are asked for, stacked, selected, viewed through and weighed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parley.common.algorithms.feature import (
    ask_models,
    best,
    collected,
    in_span,
    independent,
    levels_of,
    placed,
    selected,
    spanned,
    weigh,
)
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Huber, Logistic
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Question, Reply

K, D = 3, 4
RNG = np.random.default_rng(1)


def facts(*, secure_sum: bool) -> FederationFacts:
    return FederationFacts.uniform(
        np.full(K, 9), epsilon=1.0, delta=1e-5, n_features=D, loss=Logistic(), secure_sum=secure_sum
    )


def test_each_model_is_asked_for_or_the_sum_of_stacks_in_which_each_has_a_row() -> None:
    assert ask_models("release", (0,), facts(secure_sum=False)) == Question("release", (0,), D, "each")
    assert ask_models("level-1", (K, D), facts(secure_sum=True)) == Question("level-1", (K, D), K * D, "sum")


def test_a_sum_of_stacks_has_every_model_in_its_row() -> None:
    models, of = RNG.integers(1, 9, (K, D)), facts(secure_sum=True)
    alone = [placed(model, of.of(index)) for index, model in enumerate(models)]
    assert [each.shape for each in alone] == [(K * D,)] * K
    assert [np.flatnonzero(each.reshape(K, D).any(axis=1)).tolist() for each in alone] == [[0], [1], [2]]
    together = placed(models, of.everyone)
    assert (together == alone).all()
    summed = np.asarray(together.sum(axis=0), dtype=np.float64)
    assert (collected(Reply(summed, (0, 1, 2)), of) == models).all()
    bare = facts(secure_sum=False)
    assert placed(models, bare.everyone) is models
    assert (collected(Reply(models[1:].astype(np.float64), (0, 2)), bare)[[0, 2]] == models[1:]).all()


def test_a_selection_is_of_all_of_independent_ones_or_of_the_best() -> None:
    models = np.array([[1.0, 0, 0, 0], [-2, 0, 0, 0], [0, 1, 0, 0]])
    rows = Shard(np.eye(2, D), np.array([1.0, -1.0]))
    assert selected(models, "all", rows, 1) is models
    assert selected(models, "all", None, 1) is models
    assert selected(models, "best", None, 1) is models, "nobody says by which rows"
    assert selected(models, "independent", rows, 1).any(axis=1).tolist() == [False, True, True]
    for most, chosen in ((1, [True, False, False]), (2, [True, True, False]), (3, [True] * 3)):
        found = selected(models, "best", rows, most)
        assert found.any(axis=1).tolist() == chosen, "of those that are as good, the first"
        assert (found[chosen] == models[chosen]).all()


@pytest.mark.parametrize("size", [1e-10, 1e-5, 1.0, 1e8])
def test_which_models_are_independent_does_not_depend_on_how_long_they_are(size: float) -> None:
    models = RNG.normal(size=(3, D)) * size
    more = np.vstack([models, models[:1] + models[1:2] * (1 + 1e-12), np.zeros((1, D))])
    assert np.linalg.matrix_rank(independent(more) / size) == 3
    assert independent(more).any(axis=1).sum() == 3
    assert not independent(np.zeros((2, D))).any()


def test_the_best_are_counted_by_signs_alone_and_a_score_of_zero_is_the_second_classs() -> None:
    rows = Shard(np.array([[0.5, 0, 0, 0], [0.25, 0, 0, 0], [0, 0, 0, 0.5]]), np.array([-1.0, -1.0, 1.0]))
    tiny = 1e-3
    right_twice, right_thrice, absent = [tiny, 0, 0, tiny], [0, 0, 0, tiny], [0.0] * 4
    models = np.array([absent, right_twice, right_thrice])
    assert np.flatnonzero(best(models, rows, 1).any(axis=1)).tolist() == [2]
    assert best(models, rows, 3).any(axis=1).tolist() == [False, True, True]
    negative = Shard(rows.X, np.full(3, -1.0))
    assert np.flatnonzero(best(models[:2], negative, 1).any(axis=1)).tolist() == [1], "who has no model is no best"


def test_of_many_that_are_as_good_the_first_are_taken() -> None:
    good = np.random.default_rng(2).random(200) < 0.4
    models = np.where(good, 1.0, -1.0)[:, None] * np.eye(1, D)
    for most in range(1, int(good.sum())):
        kept = best(models, Shard(np.eye(1, D), np.ones(1)), most)
        assert np.flatnonzero(kept.any(axis=1)).tolist() == np.flatnonzero(good)[:most].tolist()


def test_views_keep_labels_and_which_rows_are_padding() -> None:
    mask = np.array([True, False, True])
    shard = Shard(RNG.normal(size=(3, D)), np.array([1.0, -1.0, -1.0]), mask)
    views = in_span(np.eye(2, D), shard)
    assert views.mask.tolist() == mask.tolist()
    assert (views.y == shard.y).all()


@pytest.mark.parametrize("n", [3, 40, 3000])
def test_what_is_not_seen_is_zero_in_the_view_and_not_what_was_in_memory(
    monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    norm = np.linalg.norm

    def and_leave_dirt(views: FloatArray, **how: Any) -> Any:  # noqa: ANN401 -- as `norm`
        found, left = norm(views, **how), [np.full(views.shape, 0.25) for _ in range(7)]
        del left  # and so its memory is what is given out next
        return found

    rows = Shard(np.zeros((n, D)), np.ones(n))
    monkeypatch.setattr(np.linalg, "norm", and_leave_dirt)
    assert not in_span(np.eye(2, D), rows).X.any()


def test_models_are_over_the_norm_of_all_however_small_it_is() -> None:
    for size in (1e-100, 0.1, 1e9):
        assert np.linalg.norm(spanned(RNG.normal(size=(K, D)) * size)) == pytest.approx(np.sqrt(D))
    assert spanned(np.zeros((0, D))).shape == (0, D)


def test_public_rows_weigh_by_the_minimiser_of_their_views() -> None:
    basis, rows = RNG.normal(size=(2, D)), Shard(RNG.normal(size=(50, D)), np.tile([1.0, -1.0], 25))
    found = weigh(Huber(), basis, rows, 0.2)
    assert found == pytest.approx(minimise(Huber(), in_span(basis, rows), 0.2 * 50))
    assert found.shape == (2,)


def test_without_nodes_the_last_of_two_is_above_the_first() -> None:
    assert levels_of((), ("a", "b")) == {"a": 0, "b": 1}
