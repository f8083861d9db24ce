"""What the proofs need of a shard with any rows in it; what a shard needs of a study's scaling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.columns import Category, Columns, Feature, Label
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import FEATURE_BITS

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)
SHAPES = st.tuples(st.integers(0, 4), st.integers(1, 5))


@st.composite
def raw(draw: st.DrawFn) -> tuple[FloatArray, FloatArray]:
    """Rows and labels as bad as can be: any float at all, on the scales of the ball or beyond."""
    shape = draw(SHAPES)
    X = draw(arrays(np.float64, shape, elements=ANY | st.floats(-2, 2)))
    return X, draw(arrays(np.float64, shape[:1], elements=ANY | st.sampled_from([-1.0, 1.0])))


def integers(X: FloatArray) -> list[list[int]]:
    """Rows in Python's integers, in units of the grid."""
    scaled = X * 2.0**FEATURE_BITS
    assert np.array_equal(scaled, np.rint(scaled)), "off the grid"
    return [[int(v) for v in row] for row in scaled.tolist()]


def squared_norms(X: FloatArray) -> IntArray:
    """Return exact squared norms of rows of norm 1 or little more, in units of the grid: squares of at most 17 bits."""
    scaled = X * 2.0**FEATURE_BITS
    assert np.array_equal(scaled, np.rint(scaled)), "off the grid"
    assert np.abs(scaled).max() <= 2 * 2.0**FEATURE_BITS
    return np.asarray((scaled.astype(np.int64) ** 2).sum(axis=1))


def test_equal_numbers_of_a_row_that_is_projected_fall_on_the_grid_where_they_should() -> None:
    """This holds for every last bit of the row's norm."""
    for value in (0.3, 0.7, 0.9, 1.1):
        assert (Shard(np.full((1, 16), value), np.ones(1)).X == 0.25).all()


@given(raw())
def test_every_row_lies_in_the_unit_ball_and_on_the_grid(data: tuple[FloatArray, FloatArray]) -> None:
    shard = Shard(*data)
    assert all(sum(v * v for v in row) <= 4**FEATURE_BITS for row in integers(shard.X))
    assert (np.abs(shard.y) <= 1).all()
    assert shard.n_examples == len(data[0])  # what cannot be used still counts: the size is public


@given(raw())
def test_a_bad_row_is_a_row_of_zeros_and_moves_no_other(data: tuple[FloatArray, FloatArray]) -> None:
    X, y = data
    bad = ~np.isfinite(X).all(axis=-1) | ~(np.abs(y) <= 1)
    shard = Shard(X, y)
    assert not shard.X[bad].any()
    alone = [Shard(X[i : i + 1], y[i : i + 1]) for i in range(len(X))]
    assert all(np.array_equal(one.X[0], shard.X[i]) for i, one in enumerate(alone))


@given(raw())
def test_a_shard_of_a_shard_is_the_same_and_nobody_can_write_to_it(data: tuple[FloatArray, FloatArray]) -> None:
    shard = Shard(*data)
    again = Shard(shard.X, shard.y)
    assert np.array_equal(again.X, shard.X)
    assert np.array_equal(again.y, shard.y)
    for array in (shard.X, shard.y, shard.mask):
        assert not array.flags.writeable


def test_a_shard_keeps_no_hold_on_its_input() -> None:
    X, y, mask = np.full((2, 2), 0.5), np.ones(2), np.ones(2, dtype=np.bool_)
    shard = Shard(X, y, mask)
    X[:], y[:], mask[:] = np.nan, 5, False
    assert (shard.X == 0.5).all()
    assert (shard.y == 1).all()
    assert shard.mask.all()


def test_rows_on_the_sphere_keep_their_direction_and_length() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 7)) * 10.0 ** rng.uniform(0, 300, (2000, 1))
    unit = X / np.abs(X).max(axis=1, keepdims=True)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    assert np.abs(Shard(X, np.ones(2000)).X - unit).max() <= 2.0**-FEATURE_BITS


@pytest.mark.parametrize("d", [1, 2, 3, 50])
def test_a_row_beyond_the_ball_by_its_last_bit_is_projected(d: int) -> None:
    """By one step of the grid, by one of the norm's last bits, or by as little as a squared norm can exceed 1."""
    rng = np.random.default_rng(d)
    rows = rng.normal(size=(20_000, d))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    on_grid = np.rint(rows * 2.0**FEATURE_BITS) * 2.0**-FEATURE_BITS  # half of these lie outside, by next to nothing
    first = np.eye(d)[0]
    beyond = [first, first * (1 + 2.0**-52), first * (1 + 2.0**-FEATURE_BITS), -first * (1 + 2.0**-52)]
    X = np.concatenate([on_grid, rows * (1 + 2.0**-52), beyond])
    outside = int((squared_norms(on_grid) > 4**FEATURE_BITS).sum())
    assert outside > 5000 or d == 1
    shard = Shard(X, np.ones(len(X)))
    assert (squared_norms(shard.X) <= 4**FEATURE_BITS).all()
    assert (np.abs(shard.X[-len(beyond) :, 0]) == 1).all(), "the sphere itself is reached"
    print(f"d = {d}: {outside} rows beyond the ball by next to nothing, none afterwards")


def test_a_norm_that_came_out_too_small_is_noticed_in_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a library rounds: rows divided by too little are taken back inside, by a check that is exact."""
    rng, norm = np.random.default_rng(2), np.linalg.norm
    X = rng.normal(size=(20_000, 3))
    honest = Shard(X, np.ones(len(X)))
    monkeypatch.setattr(np.linalg, "norm", lambda *args, **terms: norm(*args, **terms) * (1 - 2.0**-20))
    shard = Shard(X, np.ones(len(X)))
    monkeypatch.undo()
    assert not np.array_equal(shard.X, honest.X)
    assert all(sum(v * v for v in row) <= 4**FEATURE_BITS for row in integers(shard.X))


@given(st.lists(raw(), min_size=1, max_size=4))
@pytest.mark.long
def test_a_stack_gives_back_its_parts(parts: list[tuple[FloatArray, FloatArray]]) -> None:
    assume(len({X.shape[1] for X, _ in parts}) == 1)
    shards = [Shard(*part) for part in parts]
    stack = Shard.stack(shards)
    assert stack.n_examples.tolist() == [len(X) for X, _ in parts]
    for i, shard in enumerate(shards):
        assert np.array_equal(stack.party(i).X, shard.X)
        assert np.array_equal(stack.party(i).y, shard.y)
    assert np.array_equal(stack.pooled().X, np.concatenate([shard.X for shard in shards]))
    assert not stack.X[~stack.mask].any()


def test_numbers_of_any_kind_become_reals_and_marks_of_any_kind_whether_a_row_counts() -> None:
    shard = Shard([[1, 0], [0, 1]], [1, -1], np.array([1, 0]))  # type: ignore[arg-type]
    assert shard.X.dtype == shard.y.dtype == np.float64
    assert shard.mask.dtype == np.bool_
    assert shard.n_examples == 1
    assert shard.norm == Shard.adopt(shard.X.copy(), shard.y.copy(), "euclidean", None).norm == "euclidean"
    assert (
        Shard(shard.X, shard.y).mask.dtype
        == Shard.adopt(shard.X.copy(), shard.y.copy(), "euclidean", None).mask.dtype
        == np.bool_
    )


def test_arrays_that_do_not_fit_each_other_are_refused() -> None:
    X = np.zeros((3, 2))
    for args in ((X, np.ones(2)), (np.zeros(3), np.ones(())), (X, np.ones(3), np.ones(2, dtype=np.bool_))):
        with pytest.raises(ValueError, match=r"X must be \(\.\.\., n, d\)"):
            Shard(*args)


# ── a study's scaling ────────────────────────────────────────────────────────

VALUES = ("a", "b", "c")
BOUND = st.floats(-1e300, 1e300) | st.floats(-10, 10)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Study, Columns]:
    """A study of numbers and categories, and a table whose numbers need not keep to their bounds."""
    bounds = draw(
        st.lists(st.tuples(BOUND, BOUND).filter(lambda b: abs(b[0] - b[1]) >= 1e-290), min_size=1, max_size=5)
    )
    numbers = [Feature(name=f"x{i}", lower=min(b), upper=max(b)) for i, b in enumerate(bounds)]
    others = draw(st.lists(st.booleans(), max_size=2))
    categories = [Category(name=f"c{i}", values=VALUES, other=other) for i, other in enumerate(others)]
    features: list[Feature | Category] = draw(st.permutations([*numbers, *categories]))
    study = Study(
        name="s", features=tuple(features), label=Label(name="y", values=("0", "1")), intercept=draw(st.booleans())
    )
    n = draw(st.integers(1, 3))
    columns = {feature.name: np.array(draw(st.lists(cells(feature), min_size=n, max_size=n))) for feature in features}
    return study, {**columns, "y": np.zeros(n)}


def cells(feature: Feature | Category) -> st.SearchStrategy[str] | st.SearchStrategy[float]:
    """What may stand in a column."""
    if isinstance(feature, Category):
        return st.sampled_from(VALUES)
    return st.floats(feature.lower, feature.upper) | st.floats(allow_nan=False)


def designed(study: Study, columns: Columns) -> FloatArray:
    """The design as the study's words have it, cell by cell."""
    rows = []
    for i in range(len(columns["y"])):
        row: list[float] = []
        for column in study.named:
            cell = columns[column.name].tolist()[i]
            if isinstance(column, Category):
                row += [float(cell == value) for value in column.column_values]
            else:
                clipped = min(max(cell, column.lower), column.upper)
                row.append(2 * ((clipped - column.lower) / (column.upper - column.lower)) - 1)
        rows.append(row + [1.0] * study.intercept)
    return np.asarray(np.array(rows) / np.maximum(np.linalg.norm(rows, axis=-1, keepdims=True), 1e-300))


@given(tables())
def test_a_design_knows_the_bounds_alone_and_stays_in_the_ball(case: tuple[Study, Columns]) -> None:
    study, columns = case
    X = shard_of(study, columns, clip=True).X
    assert X.shape[1] == study.n_features == len(study.column_names)
    design = designed(study, columns)
    assert np.linalg.norm(design, axis=-1).max() <= 1 + 1e-12
    assert np.abs(X - design).max() <= 2.0**-FEATURE_BITS + 2.0**-30  # the shard moves no row but onto the grid


def test_the_ball_is_used_to_its_edge() -> None:
    features = (Feature(name="x", lower=-3, upper=7), Category(name="c", values=VALUES))
    study = Study(name="s", features=features, label=Label(name="y", values=("0", "1")))
    X = shard_of(study, {"x": np.array([-3.0, 7.0]), "c": np.array(["a", "b"]), "y": np.zeros(2)}).X
    assert np.linalg.norm(X, axis=-1) == pytest.approx(1, abs=3 * 2.0**-FEATURE_BITS)


# ── blocks, and shards made in place ─────────────────────────────────────────


@given(raw())
def test_a_shard_made_in_place_is_the_same(data: tuple[FloatArray, FloatArray]) -> None:
    X, y = data
    shard = Shard(X, y)
    adopted = Shard.adopt(X.copy(), y.copy(), "euclidean", None)
    for name in ("X", "y", "mask"):
        assert np.array_equal(getattr(shard, name), getattr(adopted, name))
        assert not getattr(adopted, name).flags.writeable
    assert np.array_equal(Shard.adopt(np.asfortranarray(X), y.copy(), "euclidean", None).X, shard.X)


def test_what_is_adopted_is_not_copied() -> None:
    X, y = np.full((3, 2), 0.5), np.ones(3)
    assert Shard.adopt(X, y, "euclidean", None).X is X


def test_blocks_are_the_rows_in_order_and_share_their_memory() -> None:
    rng = np.random.default_rng(1)
    shard = Shard(rng.normal(size=(300_000, 3)), rng.choice([-1.0, 1.0], 300_000))
    norms = shard.norms_l1
    blocks = list(shard.blocks())
    assert len(blocks) > 1
    for name in ("X", "y", "mask", "norms_l1"):
        assert np.array_equal(np.concatenate([getattr(block, name) for block in blocks]), getattr(shard, name))
    assert all(np.shares_memory(block.X, shard.X) and not block.X.flags.writeable for block in blocks)
    assert norms.tolist() == (np.abs(shard.X) * 2.0**FEATURE_BITS).sum(axis=-1).tolist()
    assert shard.norms_l1 is norms, "added up once"
    stack = Shard(rng.normal(size=(4, 50, 3)), np.ones((4, 50)))
    assert [block.X.shape for block in stack.blocks()] == [(4, 50, 3)]
    assert stack.norms_l1.shape == (4, 50)
