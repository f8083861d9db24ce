"""What a solver surely leaves: the bound is public, holds on every shard, and refuses nobody for the data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.arrays import FloatArray
from parley.common.data.shard import SUMMED_ROWS, Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning import erm
from parley.common.learning.erm import MOST_STEPS, TOLERANCE, gradient_left, minimise
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from parley.common.learning.solvers import Risk
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.protocol.facts import FederationFacts

N, D, SHARDS = 20, 4, 2000
LOSSES: list[Huber | Logistic] = [Logistic(), *(Huber(h) for h in (0.5, 0.05, 1e-3, 1e-5, 1e-8))]
STRENGTHS = [1e-6, 1e-4, 1e-2, 1.0, 1e3, 1e5]


def shards(seed: int, k: int = SHARDS, n: int = N) -> Shard:
    """A stack of shards: any rows; one row many times; all but parallel rows; tiny rows; and all of one class."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(k, n, D)), np.where(rng.random((k, n)) < 0.5, -1.0, 1.0)
    kind = np.arange(k) % 5
    X[kind == 1, 1:] = X[kind == 1, :1]
    X[kind == 2, :, 1:] *= 1e-3
    X[kind == 3] *= 1e-4
    y[kind == 4] = 1.0
    return Shard(X, y)


def neighbour(shard: Shard, seed: int) -> Shard:
    """One record of each shard replaced."""
    X, y = shard.X.copy(), shard.y.copy()
    X[:, 0], y[:, 0] = np.random.default_rng(seed).normal(size=X[:, 0].shape), -y[:, 0]
    return Shard(X, y)


def gradients(
    loss: Huber | Logistic, shard: Shard, strength: float, weights: FloatArray, linear: FloatArray | float = 0.0
) -> FloatArray:
    """The norms of F's gradient, (k,), in 64 bits of fraction instead of 53."""
    X, y, w = (part.astype(np.longdouble) for part in (shard.X, shard.y, weights))
    score = (X * w[:, None, :]).sum(axis=-1)
    if isinstance(loss, Huber):
        slope = -y * np.clip((1 + np.longdouble(loss.h) - y * score) / (2 * np.longdouble(loss.h)), 0, 1)
    else:
        slope = -y / (1 + np.exp(y * score))
    gradient = (slope[..., None] * X).sum(axis=1) + np.longdouble(strength) * w + linear
    return np.asarray(np.sqrt((gradient**2).sum(axis=-1)), dtype=np.float64)


def promised(loss: Loss, strength: float, n: int = N) -> float | None:
    """What is surely left; None where the run is refused."""
    try:
        return float(gradient_left(loss, np.array(n), D, np.array(strength)))
    except InvalidInputError:
        return None


@pytest.mark.slow
def test_no_shard_leaves_more_than_the_bound_says() -> None:
    stack, refused, worst, allowed = shards(1), 0, 0.0, 0
    for loss, strength in itertools.product(LOSSES, STRENGTHS):
        if (left := promised(loss, N * strength)) is None:
            refused += 1
            continue
        found = minimise(loss, stack, N * strength, tolerance=TOLERANCE, most_steps=MOST_STEPS)
        worst = max(worst, float(gradients(loss, stack, N * strength, found).max()) / left)
        allowed += 1
    print(
        f"{SHARDS} shards, {allowed} problems: gradients of at most {worst:.2f} of the bound; "
        f"{refused} problems refused, by public numbers"
    )
    assert worst <= 1
    assert allowed > 12
    assert refused > 12


@pytest.mark.slow
def test_a_shard_is_never_why_a_run_is_refused_and_no_neighbour_moves_further_than_the_noise_is_for() -> None:
    """A refusal is made from the facts, and then nothing is computed; otherwise both neighbours are answered."""
    stack, other = shards(2), neighbour(shards(2), 3)
    answered, refused, furthest = 0, 0, 0.0
    losses: list[Loss] = [*LOSSES, Softmax(3)]
    for loss, strength in itertools.product(losses, STRENGTHS):
        facts = FederationFacts.uniform(np.full(SHARDS, N), epsilon=1.0, delta=1e-5, n_features=D, loss=loss)
        algorithm = build_algorithm("local_average", {"regularization": strength})
        try:
            algorithm.questions(facts)
        except InvalidInputError:
            refused += 1
            continue
        query = next(algorithm.program(facts))
        one, two = (
            algorithm.local(query, algorithm.prepare(each, facts.everyone), facts.everyone, NoNoise())
            for each in (stack, other)
        )
        moved = np.linalg.norm(to_reals(one - two), axis=-1)
        furthest = max(furthest, float((moved / algorithm.sensitivity(query, facts.everyone)).max()))
        answered += 2 * SHARDS
    print(f"{answered} shards answered, none refused; {refused} runs refused, by public numbers; {furthest:.3f} moved")
    assert 0.5 < furthest <= 1


@pytest.mark.slow
def test_gradient_steps_alone_get_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Newton's method fails altogether, the steps that the proof counts do it."""
    monkeypatch.setattr(erm, "_MAX_NEWTON", 0)
    stack, tried = shards(4, k=50), 0
    losses: list[Huber | Logistic] = [Logistic(), Huber(0.5), Huber(0.05), Huber(1e-3)]
    for loss, strength in itertools.product(losses, (1e-2, 1.0, 1e3)):
        if (left := promised(loss, N * strength)) is None:
            continue
        kappa = 1 + loss.smoothness / strength
        steps = int(2 * kappa * np.log(max(N / left, 1.0))) + 1
        found = minimise(loss, stack, N * strength, tolerance=0.0, most_steps=steps)
        worst = float(gradients(loss, stack, N * strength, found).max())
        print(f"{loss}, lambda = {strength:g}: a gradient of {worst:.1e} of {left:.1e} after {steps} steps at most")
        assert worst <= left
        tried += 1
    assert tried > 6


@pytest.mark.parametrize("n", [1, 10**3, 10**5])
def test_the_bound_costs_next_to_no_noise_at_the_default(n: int) -> None:
    for loss in (Logistic(), Huber(0.5), Softmax(10)):
        left = promised(loss, 0.01 * n, n)
        assert left is not None
        print(f"{loss}, {n} examples: a gradient of at most {left:.1e}, and as much more noise")
        assert left < 2e-3


@pytest.mark.parametrize("held", ["alone", "in a stack"])
def test_a_gradient_is_summed_over_as_few_rows_as_the_bound_takes(held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone and in a stack, which is one block however many rows it has."""
    summed: list[int] = []
    whole = Shard.weighted_sum

    def counted(shard: Shard, slopes: FloatArray) -> FloatArray:
        summed.append(shard.y.shape[-1])
        return whole(shard, slopes)

    monkeypatch.setattr(Shard, "weighted_sum", counted)
    n = 2**16
    stack = shards(5, 1, n)
    shard = stack.party(0) if held == "alone" else stack
    gradient = Risk(Logistic(), shard, np.ones(shard.y.shape[:-1])).gradient(np.zeros((*shard.y.shape[:-1], D)))
    assert sum(summed) == n
    assert max(summed) <= SUMMED_ROWS
    assert np.allclose(gradient, -(stack.y @ stack.X)[0] / 2, atol=1e-8)


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5)], ids=repr)
def test_of_many_rows_little_is_left(loss: Huber | Logistic) -> None:
    n, strength = 50_000, 5.0
    stack = shards(6, 5, n)
    left = promised(loss, strength, n)
    assert left is not None
    found = minimise(loss, stack, strength, tolerance=TOLERANCE, most_steps=MOST_STEPS)
    worst = float(gradients(loss, stack, strength, found).max())
    print(f"{loss}, {n} examples: a gradient of {worst:.1e} of {left:.1e}")
    assert worst <= left < 5e-3


def test_losses_that_have_no_bound_are_refused_before_any_data() -> None:
    with pytest.raises(InvalidInputError, match="bounded slope"):
        gradient_left(Squared(), np.array(N), D, np.array(1.0))
    facts = FederationFacts.uniform(np.array([N]), epsilon=1.0, delta=1e-5, n_features=D, loss=Hinge())
    with pytest.raises(InvalidInputError, match="'hinge'"):
        build_algorithm("gop").questions(facts)


@pytest.mark.slow
def test_objective_perturbation_answers_every_shard_or_is_refused_by_public_numbers() -> None:
    refused = answered = 0
    for loss, strength in itertools.product(LOSSES, STRENGTHS):
        facts = FederationFacts.uniform(np.array([N]), epsilon=1.0, delta=1e-5, n_features=D, loss=loss).of(0)
        algorithm = build_algorithm("gop", {"regularization": strength})
        try:
            algorithm.check_noise(facts)
        except InvalidInputError:
            refused += 1
            continue
        query = next(algorithm.program(facts))
        for index in range(100):
            algorithm.local(query, shards(5, k=100).party(index), facts, SeededNoise(index))
            answered += 1
    print(f"{answered} shards answered, none refused; {refused} runs refused, by public numbers")
    assert answered > 1000


def sparse_rows(seed: int, n: int, d: int, entries: int) -> Shard:
    """Rows of so many entries, the first columns in all of them, as long as rows may be."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, d))
    for row in X:
        row[
            np.concatenate([np.arange(entries // 2), rng.choice(np.arange(entries, d), entries // 2, replace=False)])
        ] = 1.0
    return Shard(X / np.sqrt(entries), np.where(rng.random(n) < 0.5, -1.0, 1.0))


@pytest.mark.parametrize("loss", [Logistic(), Huber(0.5), Huber(0.05)], ids=repr)
@pytest.mark.parametrize("d", [pytest.param(500, marks=pytest.mark.slow), 4000])
def test_of_sparse_rows_no_more_is_left_than_their_bound_says(loss: Huber | Logistic, d: int) -> None:
    """With a dense linear term, in dense blocks and where only the columns that occur are solved for."""
    n, entries, strength = 300, 8, 3.0
    tilt = 5 * np.random.default_rng(6).normal(size=d)
    shard = sparse_rows(7, n, d, entries)
    row_tilt = float(np.sqrt(((shard.X != 0) @ tilt**2).max()))
    longest = float(np.linalg.norm(tilt))
    terms = loss, np.array(n), d, np.array(strength), longest
    left = float(gradient_left(*terms, row_entries=entries, row_tilt=row_tilt))
    wide = float(gradient_left(*terms))
    found = minimise(loss, shard, strength, tilt, TOLERANCE, MOST_STEPS)
    extended = gradients(loss, Shard.stack([shard]), strength, found[None], tilt)
    print(f"{loss}, {d} columns: a gradient of {extended.max():.1e} of {left:.1e}; {wide:.1e} of dense rows")
    assert extended.max() <= left < wide


def test_a_bound_of_sparse_rows_does_not_grow_with_their_columns() -> None:
    """But for the rounding of a longer linear term, which is small beside the rest."""
    lefts = [
        float(
            gradient_left(
                Huber(0.5), np.array(4000), d, np.array(4.0), 6.0 * d**0.5, row_entries=256, row_tilt=6.0 * 30
            )
        )
        for d in (10**5, 10**6, 2**24)
    ]
    print("left of 1e5, 1e6, 2^24 columns:", " ".join(f"{left:.2e}" for left in lefts))
    assert lefts[-1] < 1.05 * lefts[0]
    with pytest.raises(InvalidInputError, match="no solver surely"):
        gradient_left(Huber(0.5), np.array(4000), 2**24, np.array(4.0), 6.0 * 2**12)


@pytest.mark.parametrize("more", [D, D + 1, 10**6])
def test_as_many_entries_as_columns_are_dense_rows(more: int) -> None:
    sizes = np.array(N), D, np.array(2.0)
    assert gradient_left(Logistic(), *sizes, row_entries=more) == gradient_left(Logistic(), *sizes)
