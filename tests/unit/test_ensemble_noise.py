"""The noise of an ensemble, on its votes or its model: as wide as each budget needs, in shares; and what is chosen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms._parameters import rounded
from parley.common.algorithms.ensemble import Ensemble, EnsembleSoft, unit_of_noise
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import FRACTION_BITS, UNIT
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Huber, Logistic, Loss, Softmax
from parley.common.privacy.calibration import gaussian_delta, gaussian_sigma
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent, LaplaceEvent, SequentialEvent
from parley.common.privacy.guarantee import Guarantee
from parley.common.privacy.proofs import Additive
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Question, Reply
from parley.common.runs.pricing import guarantees
from tests.support.noises import HeardNoise
from tests.unit.test_ensembles import ENSEMBLES, D, classes_of, ensemble, facts, on_sphere

GRID = 2.0**-FRACTION_BITS
N = 10
ROWS = Shard(on_sphere(np.random.default_rng(1), N, D), np.ones(N)).X
EPSILONS, DELTAS = np.array([2.0, 0.5, 1.0, 4.0]), np.array([1e-5, 1e-6, 1e-7, 1e-5])
TWO_LOSSES = pytest.mark.parametrize("loss", [Logistic(), Softmax(6)], ids=repr)
OUTPUT = pytest.mark.parametrize("calibration", ["paper", "output_tight"])
PURE = pytest.mark.parametrize("pure", [False, True])


def budgets(loss: Loss, *, pure: bool, **terms: Any) -> FederationFacts:  # noqa: ANN401 -- fields
    """Four parties of different budgets; three surely contribute, and one may collude."""
    given = {"secure_sum": True, "minimum_contributors": 3, "colluders": 1} | terms
    return replace(facts(loss, 4, ROWS, **given), epsilon=EPSILONS, delta=np.zeros(4) if pure else DELTAS)


def asked_of(algorithm: Ensemble, of: FederationFacts, query: Query) -> tuple[str, FloatArray, float]:
    """The law, scale (4,) and parts of the noise that four parties together ask for."""
    rng, noise, own = np.random.default_rng(2), HeardNoise(0.0), of.everyone
    shard = Shard(on_sphere(rng, 4, 6, D), np.tile([-1.0, 1.0], (4, 3)))
    answer = algorithm.local(query, algorithm.prepare(shard, own), own, noise)
    assert answer.dtype == np.int64
    ((law, scale, _, parts),) = noise.asked
    return law, np.broadcast_to(scale, (4, 1))[:, 0], parts


# ── on the votes ─────────────────────────────────────────────────────────────


@ENSEMBLES
@TWO_LOSSES
@PURE
@pytest.mark.parametrize("secure_sum", [False, True])
def test_votes_have_the_noise_that_each_budget_needs_in_shares(
    name: str, loss: Loss, *, pure: bool, secure_sum: bool
) -> None:
    """One party turns over N votes of two classes, which are counts of one; of more it takes a vote and gives one.

    In shares they have the noise that the strictest budget of all needs.
    """
    of, algorithm = budgets(loss, pure=pure, secure_sum=secure_sum), ensemble(name)
    law, scale, parts = asked_of(algorithm, of, Query(1, "votes", ROWS))
    votes, shares = N * (1 if classes_of(loss) == 2 else 2), 2 if secure_sum else 1
    moved = algorithm.sensitivity(Query(1, "votes", ROWS), of.everyone)
    assert moved == pytest.approx(np.full(4, votes if pure else math.sqrt(votes)))
    for index, asked in enumerate((scale * GRID).tolist()):
        event = algorithm.event(1, of.of(index))
        epsilon, delta = (0.5, 1e-7) if secure_sum else (EPSILONS[index], DELTAS[index])
        if pure:
            assert (law, parts) == ("discrete_laplace", shares)
            assert asked == pytest.approx(votes / epsilon)
            assert isinstance(event, SequentialEvent)
            assert set(event.events) == {LaplaceEvent(epsilon / votes, in_shares=secure_sum)}
        else:
            assert law == "discrete_gaussian"
            mu = math.sqrt(votes) / (asked * math.sqrt(shares))
            assert gaussian_delta(epsilon, mu) == pytest.approx(delta, rel=1e-4, abs=0)
            assert isinstance(event, GaussianEvent)
            assert event.mu == pytest.approx(mu)


@TWO_LOSSES
@PURE
def test_the_noise_of_all_votes_is_foreseen(loss: Loss, *, pure: bool) -> None:
    """Four variances, which for Laplace noise are twice the square of its scale; or of shares, 1 / 2 of each."""
    algorithm, votes = ensemble("ensemble_vote"), N * (1 if classes_of(loss) == 2 else 2)
    for secure_sum, budget in ((False, zip(EPSILONS, DELTAS, strict=True)), (True, [(0.5, 1e-7)] * 2)):
        of = budgets(loss, pure=pure, secure_sum=secure_sum)
        variances = [
            2 * (votes / epsilon) ** 2 if pure else gaussian_sigma(epsilon, delta, math.sqrt(votes)) ** 2
            for epsilon, delta in budget
        ]
        deviation = math.sqrt(sum(variances))
        assert algorithm.deviation_of_votes(of) == pytest.approx(deviation)
        assert algorithm.noise_on_slope(of) == pytest.approx(deviation / 4 / math.sqrt(N)), "a mean over rows and votes"
        assert replace(algorithm, calibration="paper").noise_on_slope(of) == 0.0


@TWO_LOSSES
@PURE
@pytest.mark.parametrize("release", ["counts", "statistic"])
def test_the_proof_of_votes_is_the_law_of_their_noise(loss: Loss, release: str, *, pure: bool) -> None:
    """With a delta it is the event's. Pure noise is of each count, or one vector of all numbers of a statistic."""
    of, query = budgets(loss, pure=pure, secure_sum=False), Query(1, "votes", ROWS)
    vote, soft = ensemble("ensemble_vote"), ensemble("ensemble_soft", release=release)
    numbers = D * classes_of(loss) if loss.outputs > 1 else D
    for own, epsilon in [(of.of(index), EPSILONS[index]) for index in range(4)] + [(of.everyone, 0.5)]:
        moves = ((1.0,) * (N if loss.outputs == 1 else 2 * N),)
        assert vote.proof(query, own) == (Additive(LaplaceEvent(epsilon), moves) if pure else Additive())
        law = LaplaceEvent(epsilon) if release == "counts" else L2LaplaceEvent(epsilon, numbers)
        of_law = Additive(law, moves) if release == "counts" else Additive(law)
        assert soft.proof(query, own) == (of_law if pure else Additive())
        assert replace(soft, calibration="paper").proof(query, own) is None
        if pure:
            assert (vote.pure_law(own), soft.pure_law(own)) == (LaplaceEvent(epsilon), law)


def short_by(part: float) -> FloatArray:
    return np.asarray(Shard(ROWS * part, np.ones(N)).X)


@TWO_LOSSES
@PURE
@pytest.mark.parametrize("secure_sum", [False, True])
@pytest.mark.parametrize(
    ("rows", "reach"),
    [
        (ROWS, math.sqrt(N) * float(np.linalg.norm(ROWS, 2))),  # in all directions: by the largest singular value
        (ROWS * np.eye(N)[0][:, None], float(np.linalg.norm(ROWS[0]))),  # of one alone: by their lengths
        (short_by(0.25), math.sqrt(N) * float(np.linalg.norm(short_by(0.25), 2))),
        (np.zeros((N, D)), 2.0**-8),
    ],
)
def test_a_statistic_has_the_noise_that_each_budget_needs_in_shares(
    loss: Loss, rows: FloatArray, reach: float, *, pure: bool, secure_sum: bool
) -> None:
    """In units of as many bits as N has; one party moves each row's vote by sqrt 2, or of two classes by 1."""
    of = replace(budgets(loss, pure=pure, secure_sum=secure_sum), public=rows)
    algorithm = ensemble("ensemble_soft", release="statistic")
    law, scale, parts = asked_of(algorithm, of, Query(1, "votes", rows))
    moved = reach * (1.0 if classes_of(loss) == 2 else math.sqrt(2)) / 2.0**4
    assert algorithm.sensitivity(Query(1, "votes", rows), of.everyone) == pytest.approx(np.full(4, moved), rel=1e-6)
    for index, asked in enumerate(scale.tolist()):
        epsilon, delta = (0.5, 1e-7) if secure_sum else (EPSILONS[index], DELTAS[index])
        if pure:
            assert (law, parts) == ("l2_laplace", 2 if secure_sum else 1)
            assert asked == pytest.approx(epsilon / moved, rel=1e-6)
        else:
            assert (law, parts) == ("discrete_gaussian", 1)
            whole = gaussian_sigma(epsilon, delta, moved)
            assert asked * GRID == pytest.approx(whole / math.sqrt(2 if secure_sum else 1), rel=1e-6)


# ── on the model ─────────────────────────────────────────────────────────────


@ENSEMBLES
@TWO_LOSSES
@OUTPUT
@PURE
@pytest.mark.parametrize("regularization", [1e-7, 10.0])
def test_a_model_has_the_noise_that_the_strictest_budget_needs_in_shares(
    name: str, loss: Loss, calibration: str, *, pure: bool, regularization: float
) -> None:
    """In units that a program multiplies it by: the sum of three parties' less one colluder's hides what one moves."""
    of, algorithm = budgets(loss, pure=pure), ensemble(name, calibration=calibration, regularization=regularization)
    law, scale, parts = asked_of(algorithm, of, Query(2, "noise", np.zeros(0)))
    unit, moved = unit_that_is_added(algorithm, of), algorithm.model_moves(of)
    assert np.ptp(scale) == 0
    alone = HeardNoise(0.0)
    algorithm.local(
        Query(2, "noise", np.zeros(0)), algorithm.prepare(Shard(ROWS, np.ones(N)), of.of(1)), of.of(1), alone
    )
    assert (alone.asked[0][0], float(alone.asked[0][1][0]), alone.asked[0][2:]) == (
        law,
        scale[0],
        ((of.n_weights,), parts),
    )
    deviation = float(algorithm.deviation_on_model(of))
    if pure or calibration == "paper":
        assert (law, parts) == ("l2_laplace", 2)
        assert scale[0] / unit * moved == pytest.approx(0.5)
        assert deviation == pytest.approx(math.sqrt(of.n_weights + 1) / (scale[0] / unit))
    else:
        assert law == "discrete_gaussian"
        assert deviation == pytest.approx(scale[0] * GRID * unit * math.sqrt(2))
        assert gaussian_delta(0.5, moved / deviation) == pytest.approx(1e-7, rel=1e-4, abs=0)
    assert unit == unit_of_noise(deviation, 32)
    assert (unit > 1) == (regularization < 1)
    algorithm.check_noise(of.everyone)
    if regularization < 1 and calibration == "paper":
        with pytest.raises(InvalidInputError, match="epsilon is too small"):
            algorithm.check_noise(replace(of, epsilon=EPSILONS * 1e-9).everyone)


@pytest.mark.parametrize(("calibration", "of_logistic"), [("paper", 2.0), ("output_tight", 1.0)])
def test_a_vote_that_flips_moves_a_minimiser_by_its_slopes_over_lambda(calibration: str, of_logistic: float) -> None:
    """2 L by the paper; of softmax with any classes, sqrt 2; of the logistic loss l'(t) + l'(-t) is -1."""
    vote = ensemble("ensemble_vote", calibration=calibration, regularization=1e3)
    flips: dict[Loss, float] = {
        Logistic(): of_logistic,
        Huber(): 2.0,
        Softmax(2): math.sqrt(2),
        Softmax(6): math.sqrt(2),
    }
    for loss, flip in flips.items():
        assert vote.model_moves(facts(loss, 3, ROWS)) == pytest.approx(flip / 1e3)


@ENSEMBLES
@OUTPUT
def test_exact_votes_are_hidden_by_nothing_and_noise_alone_tells_nothing(name: str, calibration: str) -> None:
    own, algorithm = budgets(Logistic(), pure=False).everyone, ensemble(name, calibration=calibration)
    assert algorithm.sensitivity(Query(1, "votes", ROWS), own) == math.inf
    assert algorithm.sensitivity(Query(2, "noise", np.zeros(0)), own) == 0.0
    shard, noise = Shard(np.tile(ROWS, (4, 1, 1)), np.tile([-1.0, 1.0], (4, N // 2))), HeardNoise()
    votes = algorithm.local(Query(1, "votes", ROWS), algorithm.prepare(shard, own), own, noise)
    assert noise.asked == []
    assert set((votes // UNIT).ravel().tolist()) <= {0, 1}


def unit_that_is_added(algorithm: Ensemble, of: FederationFacts) -> float:
    """By how much a model's weights are larger for noise of 1."""
    models = []
    for noise in (0.0, 1.0):
        program = algorithm.program(replace(of, public=ROWS, public_shape=ROWS.shape))
        first = next(program)
        assert (first.round, first.step) == (1, "votes")
        assert (first.message == ROWS).all()
        votes = np.full(algorithm.lanes(of), 1.0)
        asked = program.send(Reply(votes, (0, 1, 2, 3)))
        assert (asked.round, asked.step, asked.message.shape) == (2, "noise", (0,))
        with pytest.raises(StopIteration) as stop:
            program.send(Reply(np.full(of.n_weights, noise), (0, 1, 2, 3)))
        models.append(stop.value.value.weights)
    added = models[1] - models[0]
    assert added == pytest.approx(np.full(of.shape, added.flat[0]))
    return 2.0 ** round(math.log2(added.flat[0]))


def test_noise_is_told_in_a_power_of_two_that_leaves_it_ten_bits_and_no_more_than_32_of_them() -> None:
    for deviation in np.geomspace(1e-9, 1e15, 200).tolist():
        unit = unit_of_noise(deviation, 32)
        assert math.frexp(unit)[0] == 0.5
        assert 1 <= unit <= 2.0**32
        assert deviation / unit < 2.0**10 or unit == 2.0**32
        assert unit == 1 or deviation / unit >= 2.0**9
    assert (unit_of_noise(2.0**10, 32), unit_of_noise(2.0**10 - 1, 32), unit_of_noise(1e300, 5)) == (2.0, 1.0, 32.0)


@ENSEMBLES
@OUTPUT
@PURE
def test_what_is_claimed_of_a_model_is_the_strictest_budget(name: str, calibration: str, *, pure: bool) -> None:
    of = budgets(Logistic(), pure=pure).of(0)
    algorithm = ensemble(name, calibration=calibration, hide_auxiliary_row=True)
    kind: Any = "paper" if calibration == "paper" else "tight"
    delta = 0.0 if pure or calibration == "paper" else 1e-7
    for claim, unit in zip(algorithm.claims(of), ("whole_party", "auxiliary_row"), strict=True):
        bare = replace(claim, assumptions=())
        assert bare == Guarantee(0.5, delta, "model", kind, unit)  # type: ignore[arg-type]
        assert "floating point" in claim.assumptions[-1]
    assert ensemble(name).claims(of) == ()


@ENSEMBLES
@PURE
def test_noise_on_votes_hides_no_auxiliary_row_and_a_run_that_asks_for_it_is_refused(name: str, *, pure: bool) -> None:
    of, hiding = budgets(Logistic(), pure=pure), ensemble(name, hide_auxiliary_row=True)
    for ask in (hiding.questions, lambda of: chosen(name, of, hide_auxiliary_row=True)):
        with pytest.raises(InvalidInputError, match="hides no auxiliary row: take calibration = 'output_tight' or"):
            ask(of)
    assert chosen(name, of, hide_auxiliary_row=True, calibration="output_tight")


@pytest.mark.parametrize(
    ("name", "parameters", "secure", "assumed"),
    [
        ("ensemble_vote", {}, False, ""),
        ("ensemble_vote", {}, True, "Laplace noise in shares"),
        ("ensemble_soft", {}, True, "Laplace noise in shares"),
        ("ensemble_soft", {"release": "statistic"}, False, "floating point"),
        ("ensemble_soft", {"release": "statistic"}, True, "floating point"),
        ("parameter_average", {}, False, "floating point"),
        ("parameter_average", {"calibration": "paper"}, True, "floating point"),
    ],
)
def test_a_promise_says_which_noise_is_not_drawn_exactly(
    name: str, parameters: dict[str, Any], assumed: str, *, secure: bool
) -> None:
    """Of pure epsilon; of a delta all noise on votes and averages is, but the published average's."""
    algorithm, of = build_algorithm(name, parameters), facts(Logistic(), 4, ROWS, delta=0.0, secure_sum=secure)
    words = [each for each in algorithm.assumptions(of.of(0)) if "floating point" in each]
    assert bool(words) == bool(assumed)
    assert assumed in "".join(words)
    assert set(words) <= set(guarantees(algorithm, of)[0].assumptions)
    with_delta = algorithm.assumptions(replace(of, delta=np.full(4, 1e-5)).of(0))
    assert any("floating point" in each for each in with_delta) == ("calibration" in parameters)


@TWO_LOSSES
@PURE
def test_noise_on_a_statistic_counts_twenty_times(loss: Loss, *, pure: bool) -> None:
    """It is as large in each direction; it is on a mean over parties and rows, shifted by as many bits as N has."""
    algorithm, of = ensemble("ensemble_soft", release="statistic"), budgets(loss, pure=pure)
    assert isinstance(algorithm, EnsembleSoft)
    width = algorithm.width(algorithm.tally_sensitivity(np.zeros((N, 0)), of), of.everyone)
    expected = 20 * of.deviation_of_sum(width) * 2.0**4 / 4 / N
    assert algorithm.noise_on_slope(of) == pytest.approx(expected)
    assert replace(algorithm, calibration="paper").noise_on_slope(of) == 0.0


# ── what is asked, and chosen ────────────────────────────────────────────────


@ENSEMBLES
@TWO_LOSSES
def test_votes_are_asked_of_public_rows_and_noise_where_they_have_none(name: str, loss: Loss) -> None:
    of = budgets(loss, pure=False)
    votes = Question("votes", (N, D), N * (1 if classes_of(loss) == 2 else 6), public=True)
    assert ensemble(name).questions(of) == (votes,)
    assert ensemble(name).public_rows == "rows"
    for calibration in ("paper", "output_tight"):
        asked = ensemble(name, calibration=calibration).questions(of)
        assert asked == (votes, Question("noise", (0,), of.n_weights))
    two = facts(loss, 2, ROWS)
    assert ensemble(name).questions(two) == (votes,)


def chosen(name: str, of: FederationFacts, **given: Any) -> dict[str, Any]:  # noqa: ANN401 -- parameters
    """What is chosen for a run, by name."""
    return {key: choice.value for key, choice in type(ensemble(name)).choose(of, given, 10).items()}


@pytest.mark.parametrize(("rows", "parties", "epsilon", "few"), [
    (5_000, 500, 10.0, 150), (5_000, 50, 0.5, 30), (20, 500, 10.0, 20), (5_000, 90_000, 1.0, 2_000),
])  # fmt: skip
def test_rows_are_few_where_noise_grows_with_them(rows: int, parties: int, epsilon: float, few: int) -> None:
    """Three in a hundred of M epsilon, at least 30, under pure epsilon; otherwise all, up to two thousand."""
    public = np.zeros((rows, D))
    pure = facts(Logistic(), parties, public, epsilon=epsilon, delta=0.0)
    pure = replace(pure, epsilon=np.concatenate([pure.epsilon[1:] * 3, pure.epsilon[:1]]))
    some = replace(pure, delta=np.full(parties, 1e-5))
    assert chosen("ensemble_vote", pure)["auxiliary_rows"] == few
    for of, calibration in ((some, "tight"), (some, "paper"), (pure, "paper")):
        assert chosen("ensemble_vote", of, calibration=calibration)["auxiliary_rows"] == min(rows, 2_000)
    why = [type(ensemble("ensemble_vote")).choose(of, {}, 10)["auxiliary_rows"].why for of in (pure, some)]
    assert why[0].startswith("each row more makes the noise")
    assert why[1].startswith("more rows bring more votes")


@ENSEMBLES
@pytest.mark.parametrize("loss", [Logistic(), Huber(), Softmax(6)], ids=repr)
@PURE
def test_lambda_is_what_noise_on_scores_asks_for(name: str, loss: Loss, *, pure: bool) -> None:
    """A fiftieth of the noise on the mean slope; half of that on the model at lambda = 1, for it falls as lambda grows.

    It is of the rows that are asked about: those given, or those that are chosen with it. Never less than 1e-4.
    """
    few = facts(loss, 4, np.zeros((40, D)), delta=0.0 if pure else 1e-5)
    for given in ({"auxiliary_rows": 7}, {}):
        rows = given.get("auxiliary_rows", 30 if pure else 40)
        noise = ensemble(name, auxiliary_rows=rows).noise_on_slope(few) / 50
        assert chosen(name, few, **given)["regularization"] == rounded(noise) > 1e-4
        for calibration in ("paper", "output_tight"):
            rows = given.get("auxiliary_rows", 40)
            one = ensemble(name, calibration="paper", auxiliary_rows=rows, regularization=1.0)
            found = chosen(name, few, calibration=calibration, **given)
            assert found["regularization"] == max(1e-4, rounded(float(one.deviation_on_model(few)) / 2))
    assert set(chosen(name, few, regularization=0.3, auxiliary_rows=7)) == set()
    assert set(chosen(name, few)) == {"auxiliary_rows", "regularization"}
    with pytest.raises(InvalidInputError, match="at least two parties"):
        chosen(name, facts(loss, 1, ROWS))


def test_lambda_is_never_less_than_a_ten_thousandth() -> None:
    of = facts(Logistic(), 1_000, ROWS, epsilon=1e4, secure_sum=True)
    assert chosen("ensemble_vote", of)["regularization"] == 1e-4
    (_, choice) = type(ensemble("ensemble_vote")).choose(of, {}, 10).values()
    assert choice.why.startswith("less would let the noise move scores")


@TWO_LOSSES
@PURE
def test_lambda_of_an_average_is_no_more_than_helps(loss: Loss, *, pure: bool) -> None:
    """A ball, and its noise, shrink with the root of lambda, and a strongly regularised minimiser with lambda."""
    few, many = (facts(loss, m, ROWS, epsilon=5.0, delta=0.0 if pure else 1e-5, secure_sum=True) for m in (4, 100_000))
    found = {}
    for of, calibration in ((few, "tight"), (many, "tight"), (few, "paper")):
        algorithm = type(build_algorithm("parameter_average"))
        (found[of, calibration],) = algorithm.choose(of, {"calibration": calibration}, 10).values()  # type: ignore[dict-item]
        assert algorithm.choose(of, {"regularization": 0.3}, 10) == {}
    assert found[few, "tight"].value == 0.01
    assert found[few, "tight"].why.startswith("more would take more from what is learnt")
    assert float(found[many, "tight"].value) < 0.01 < float(found[few, "paper"].value)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_counts_of_votes_are_a_row_for_each_row_and_a_column_for_each_class(k: int) -> None:
    """Of two classes those for the second are told, and the rest of who contributed voted for the first."""
    loss: Loss = Softmax(k)
    told = np.arange(5.0) if k == 2 else np.arange(5.0 * k)
    found = ensemble("ensemble_vote").counts(Reply(told, tuple(range(7))), facts(loss, 7, ROWS))
    assert found.tolist() == (np.column_stack([7 - told, told]) if k == 2 else told.reshape(5, k)).tolist()


def test_a_tally_is_whole_votes_in_integers() -> None:
    votes = np.array([[0, 2, 1], [1, 1, 0]])
    of = facts(Softmax(3), 2, ROWS)
    tally = ensemble("ensemble_vote").tally(votes, ROWS[:3], of)
    assert tally.dtype == np.int64
    assert (tally // UNIT).tolist() == [[1, 0, 0, 0, 0, 1, 0, 1, 0], [0, 1, 0, 0, 1, 0, 1, 0, 0]]
    two = ensemble("ensemble_vote").tally(votes[1:], ROWS[:3], facts(Logistic(), 2, ROWS))
    assert two.tolist() == [[UNIT, UNIT, 0]]
