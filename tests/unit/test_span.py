"""Few rows, solved in their span: the same minimisers, and nobody's depends on who is beside it."""

from __future__ import annotations

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.classes import encode_classes
from parley.common.encoding.fixed_point import weights_on_grid
from parley.common.learning import erm, solvers
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Huber, Logistic, Loss, Softmax, Squared
from parley.common.learning.solvers import Risk, are_few

LOSSES: list[Loss] = [Logistic(), Huber(0.5), Huber(0.05), Squared(), Softmax(3)]
EVERY = pytest.mark.parametrize("loss", LOSSES, ids=repr)
D = 12


def ragged(seed: int, largest: int = D - 1, parties: int = 40) -> list[Shard]:
    """Parties of 0 to so many rows: any; all the same; hardly apart; tiny; all zero; all of one class."""
    rng, made = np.random.default_rng(seed), []
    for i in range(parties):
        n = i % (largest + 1)
        X, y = rng.normal(size=(n, D)), rng.integers(-1, 2, n).astype(np.float64)
        kind = rng.integers(6)
        X[1:] = X[:1] if kind == 1 else X[1:]
        X[:, 1:] *= 1e-4 if kind == 2 else 1
        X *= {3: 1e-3, 4: 0.0}.get(int(kind), 1.0)
        made.append(Shard(X, np.ones(n) if kind == 5 else y))
    return made


def labels_of(loss: Loss, shard: Shard) -> Shard:
    """The shard with labels that the loss knows."""
    return shard if loss.outputs > 1 else Shard(shard.X, np.where(shard.y >= 0, 1.0, -1.0), shard.mask)


def gradients(loss: Loss, shard: Shard, strength: float, tilt: FloatArray | float, weights: FloatArray) -> FloatArray:
    risk = Risk(loss, shard, np.full(shard.y.shape[:-1], strength), tilt)
    return np.asarray(np.linalg.norm(risk.gradient(weights).reshape(len(weights), -1), axis=-1))


def without_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erm, "are_few", lambda _loss, shard: np.zeros(shard.y.shape[:-1], dtype=np.bool_))


@EVERY
@pytest.mark.parametrize("tilted", [0.0, 1.0])
@pytest.mark.parametrize("strength", [1e-3, 0.1, 100.0])
def test_the_span_has_the_minimisers_that_newtons_method_finds(
    loss: Loss, strength: float, tilted: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = labels_of(loss, Shard.stack(ragged(1, 9)))
    shape = (len(shard.y), D) if loss.outputs == 1 else (len(shard.y), loss.outputs, D)
    tilt = tilted * np.random.default_rng(2).normal(size=shape)
    assert are_few(loss, shard).all()
    with monkeypatch.context() as without:
        without.setattr(erm, "_by_newton", lambda _risk, start, _tolerance: start)
        found = minimise(loss, shard, strength, tilt)
    without_span(monkeypatch)
    former = minimise(loss, shard, strength, tilt)
    left, by_newton = (gradients(loss, shard, strength, tilt, each) for each in (found, former))
    solved = by_newton <= 1e-9  # Huber's kinks leave a few problems to the gradient steps
    print(f"{loss}, Lambda = {strength:g}: gradients of at most {left.max():.1e}")
    assert left.max() <= 1e-9, "the span alone is enough"
    assert solved.sum() > 30
    assert np.abs(found - former)[solved].max() <= 2e-9 / strength, "both within tolerance / Lambda of the minimiser"


@pytest.mark.parametrize(("loss", "most"), [(Softmax(6), 4), (Softmax(3), 4), (Logistic(), 6)], ids=repr)
def test_few_systems_are_solved_where_labels_can_be_told_apart(
    loss: Loss, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of K scores each system serves two steps; from zeros Newton's method takes twice as many."""
    rng, taken = np.random.default_rng(4), 0
    X = rng.normal(size=(50, 6, 50)) / 10
    classes = rng.integers(max(loss.outputs, 2), size=(50, 6))
    step = solvers._Problems.step

    def counted(self: solvers._Problems, now: solvers._Point) -> tuple[FloatArray, FloatArray]:
        nonlocal taken
        taken += 1
        return step(self, now)

    monkeypatch.setattr(solvers._Problems, "step", counted)
    shard = Shard(X, encode_classes(classes, max(loss.outputs, 2)))
    minimise(loss, shard, 6e-4)
    print(f"{loss}: {taken} systems")
    assert taken <= most


@EVERY
@pytest.mark.slow
def test_a_party_alone_has_the_weights_that_it_has_in_a_stack(loss: Loss) -> None:
    """On the grid: those with few rows, and those beside them that have more rows than columns."""
    strength = 1e-2
    for seed, largest in ((3, D - 1), (4, 3 * D)):
        parties = [labels_of(loss, shard) for shard in ragged(seed, largest, 80)]
        stacked = minimise(loss, Shard.stack(parties), strength)
        alone = np.stack([minimise(loss, shard, strength) for shard in parties])
        few = np.array([bool(are_few(loss, shard)) for shard in parties])
        print(f"{loss}: {np.abs(stacked - alone).max():.1e} apart, {few.sum()} of {len(few)} in their span")
        assert np.array_equal(weights_on_grid(stacked[few]), weights_on_grid(alone[few]))
        assert stacked[few].tobytes() == alone[few].tobytes()


@EVERY
def test_blocks_and_neighbours_change_no_bit(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    shard, other = (labels_of(loss, Shard.stack(ragged(seed, 20))) for seed in (5, 6))
    whole = minimise(loss, shard, 1e-2)
    X, y, mask = (np.concatenate([getattr(part, name) for part in (other, shard)]) for name in ("X", "y", "mask"))
    mixed = Shard(X, y, mask)
    assert minimise(loss, mixed, 1e-2)[len(other.y) :].tobytes() == whole.tobytes()
    monkeypatch.setattr(erm, "_BLOCK", 3 * D * 20)
    assert minimise(loss, shard, 1e-2).tobytes() == whole.tobytes()


@EVERY
@pytest.mark.slow
def test_a_problem_that_rounding_leaves_unsolved_harms_no_neighbour(loss: Loss) -> None:
    """With hardly any regularization, equal rows make a matrix that has no inverse in floating point."""
    shard = labels_of(loss, Shard.stack(ragged(7)))
    strength = np.where(np.arange(len(shard.y)) % 7 == 3, 1e-300, 1e-2)
    found = minimise(loss, shard, strength)
    assert np.isfinite(found).all()
    sound = strength == 1e-2
    assert found[sound].tobytes() == minimise(loss, shard, 1e-2)[sound].tobytes()


@EVERY
def test_masked_rows_weigh_nothing_wherever_they_are(loss: Loss) -> None:
    rng = np.random.default_rng(8)
    labels = labels_of(loss, Shard(rng.normal(size=(5, D)), rng.integers(-1, 2, 5).astype(np.float64)))
    at = np.array([1, 2, 4, 7, 8])
    X, y, mask = rng.normal(size=(9, D)), np.ones(9), np.isin(np.arange(9), at)
    X[at], y[at] = labels.X, labels.y
    assert np.allclose(minimise(loss, Shard(X, y, mask), 0.01), minimise(loss, labels, 0.01), atol=1e-11)


def test_who_has_no_examples_or_one_class_has_weights_too() -> None:
    empty = Shard(np.zeros((3, 0, D)), np.zeros((3, 0)))
    for loss in LOSSES:
        assert not minimise(loss, empty, 1e-4).any()
    same = Shard(np.full((4, D), 0.1), np.full(4, -1.0))
    assert (same.X @ minimise(Logistic(), same, 1e-4) < -3).all()
    assert ((same.X @ minimise(Softmax(3), same, 1e-4).T).argmax(axis=-1) == 0).all()


def test_few_is_said_of_each_party_by_its_own_rows() -> None:
    stack = Shard.stack(ragged(9, 3 * D, 80))
    assert np.array_equal(are_few(Logistic(), stack), stack.n_examples < D)
    assert not are_few(Softmax(3), Shard(np.zeros((90, 100)), np.ones(90))), "conjugate gradients are faster"
    assert are_few(Softmax(3), Shard(np.zeros((6, 50)), np.ones(6)))
