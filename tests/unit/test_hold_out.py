"""Which rows are held out: known to all by their number, the same at every holder, and each used once."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.common.data import study as studies
from parley.common.data.columns import Feature, Label
from parley.common.data.loading import load_columns
from parley.common.data.study import Study, count_held_out, is_held_out, move_held_out_last
from parley.common.errors import InvalidInputError
from parley.common.runs.specification import Budget, Member, PublicRows, RunSpec
from parley.party.data.owner_data import Holding, load_apart, load_holding
from parley.party.policy import review, rules_of
from tests.support.cluster import Cluster

NEAREST = 2.0**-20
SHARES = st.one_of(
    st.floats(NEAREST, 1 - NEAREST), st.sampled_from([NEAREST, 0.1, 0.2, 0.25, 1 / 3, 0.5, 0.9, 1 - NEAREST])
)


def study(share: float | None) -> Study:
    features = (Feature(name="x", lower=0, upper=1000),)
    return Study(
        name="s", features=features, label=Label(name="y", values=("no", "yes")), hold_out=share, missing="drop"
    )


@given(n=st.integers(0, 5000), share=SHARES)
def test_so_many_are_held_out_as_all_know_and_evenly(n: int, share: float) -> None:
    held = is_held_out(n, share)
    assert held.shape == (n,)
    assert held.sum() == count_held_out(n, share) == math.floor(n * share) <= max(n - 1, 0)
    for part in (n // 3, n // 2):
        assert np.array_equal(held[:part], is_held_out(part, share)), "a row's part does not depend on later rows"


def test_no_row_is_skipped_where_rounding_is_coarsest() -> None:
    """Neighbouring products of the largest shard differ by at most one whole number."""
    for share in (1 - NEAREST, np.nextafter(1 - NEAREST, 0), 0.1, 0.7):
        last = np.arange(2**30 - 10_000, 2**30 + 1)
        assert set(np.diff(count_held_out(last, share)).tolist()) <= {0, 1}


@given(n=st.integers(1, 60), share=SHARES, block=st.integers(1, 9))
def test_the_held_out_come_last_in_order_however_long_the_blocks(n: int, share: float, block: int) -> None:
    X, y = np.arange(2.0 * n).reshape(n, 2), np.arange(float(n))
    held = is_held_out(n, share)
    due = np.concatenate([np.flatnonzero(~held), np.flatnonzero(held)])
    rows, labels = X.copy(), y.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studies, "_BLOCK", block)
        move_held_out_last(share, rows, labels)
    assert np.array_equal(labels, y[due])
    assert np.array_equal(rows, X[due])


@pytest.mark.parametrize("share", [0, 0.0, -0.1, 1, 1.0, 1.5, math.nan, math.inf, NEAREST / 2, "0.1", True])
def test_a_study_refuses_a_share_that_is_none(share: object) -> None:
    with pytest.raises(ValidationError, match="hold_out"):
        Study.model_validate(study(None).model_dump() | {"hold_out": share})


def test_the_share_is_part_of_what_is_agreed_on() -> None:
    digests = {study(share).digest for share in (None, 0.1, 0.2)}
    assert len(digests) == 3


def test_a_dropped_row_keeps_its_place() -> None:
    columns = {"x": np.array([1.0, 2.0, 3.0, np.nan, 5.0, 6.0, 7.0, 8.0]), "y": np.array(["no", "yes"] * 4)}
    shard, whole = (load_columns(study(share), columns).shard for share in (0.25, None))
    order = [0, 1, 2, 4, 5, 6, 3, 7]
    assert np.array_equal(shard.X, whole.X[order])
    assert np.array_equal(shard.y, whole.y[order])
    assert not shard.X[6].any()


def test_each_row_is_trained_on_or_evaluated_on() -> None:
    columns = {"x": np.arange(10.0), "y": np.array(["no", "yes"] * 5)}
    loaded, whole = (load_columns(study(share), columns) for share in (0.3, None))
    parts = Holding(study(0.3), loaded).parts
    held = is_held_out(10, 0.3)
    assert np.array_equal(parts["training"].X, whole.shard.X[~held])
    assert np.array_equal(parts["held_out"].y, whole.shard.y[held])
    assert np.shares_memory(parts["held_out"].X, loaded.shard.X)
    assert Holding(study(0.3), loaded).n_examples == 10
    unset = Holding(study(None), whole)
    assert unset.parts == {"training": whole.shard}


@pytest.mark.slow
def test_a_party_loads_the_same_parts_here_and_apart(tmp_path: Path) -> None:
    made = Cluster(tmp_path, n_parties=1, makes_ledgers=False)
    agreed = made.study.model_copy(update={"hold_out": 0.25})
    made.study_path.write_text(agreed.model_dump_json())
    settings = made.party_settings("party-1")
    holding = load_holding(settings)
    apart = load_apart(settings.held[0].data, agreed)
    for name, part in Holding(agreed, apart).parts.items():
        assert np.array_equal(part.X, holding.parts[name].X)
    assert [len(holding.parts[name].y) for name in ("training", "held_out")] == [30, 10]


def spec(share: float | None, sizes: dict[str, int], algorithm: str = "dp_gd") -> RunSpec:
    budget = Budget(epsilon=1.0, delta=1e-5)
    weights = PublicRows.of(np.zeros((1, 2))) if algorithm == "evaluate" else None
    return RunSpec(
        study=study(share),
        algorithm=algorithm,
        parameters={},
        parties=tuple(Member(name=name, n_examples=n, budget=budget) for name, n in sizes.items()),
        minimum_contributors=len(sizes),
        public=weights,
    )


def test_a_run_counts_the_rows_that_it_is_about() -> None:
    sizes = {"a": 10, "b": 5}
    assert spec(None, sizes).facts().n_examples.tolist() == [10, 5]
    assert spec(0.2, sizes).facts().n_examples.tolist() == [8, 4]
    assert spec(0.2, sizes, "evaluate").facts().n_examples.tolist() == [2, 1]


def test_too_few_rows_to_hold_any_out_are_refused_by_name_once_sizes_are_known() -> None:
    draft = spec(0.2, {"a": 1, "b": 1}, "evaluate")
    with pytest.raises(InvalidInputError, match=r"hold_out = 0.2 leaves none of the 4 rows of b to evaluate on"):
        draft.with_sizes({"a": 5, "b": 4})
    settled = draft.with_sizes({"a": 5, "b": 5})
    assert settled.facts().n_total == 2


def test_an_owner_of_so_few_rows_that_none_is_held_out_trains_on_all() -> None:
    assert spec(0.2, {"a": 1, "b": 1}).with_sizes({"a": 5, "b": 4}).facts().n_examples.tolist() == [4, 4]


def test_a_party_refuses_too_few_rows_by_itself(tmp_path: Path) -> None:
    policy = Cluster(tmp_path, n_parties=2, algorithms=("evaluate",)).party_settings("party-1").policy
    proposed = spec(0.2, {"party-1": 10, "party-2": 4}, "evaluate")
    with pytest.raises(InvalidInputError, match="none of the 4 rows of party-2"):
        review(proposed, rules_of(policy), "party-1", proposed.study.digest, 10)
    fitting = spec(0.2, {"party-1": 10, "party-2": 5}, "evaluate")
    assert review(fitting, rules_of(policy), "party-1", fitting.study.digest, 10).total.epsilon > 0


def test_what_is_about_held_out_rows_needs_some() -> None:
    with pytest.raises(InvalidInputError, match="evaluate is about held-out rows, and the study's hold_out is not set"):
        spec(None, {"a": 10}, "evaluate").questions()
