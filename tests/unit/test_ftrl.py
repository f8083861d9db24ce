"""A leader whose costs are a party's rows, asked by rounds."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from parley.common.algorithms import settle
from parley.common.algorithms.ftrl import PrivateLeader, actions_among
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import Norm
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.online import Leader
from parley.common.privacy.events import NoEvent
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.simulation import Simulation
from parley.common.runs.pricing import guarantees, price, transcript
from parley.learner.experiments.simulation import SimulationSettings, run_simulation
from tests.support.cluster import made_up
from tests.support.noises import StackedNoise

SIZES = np.array([12, 7])
D = 4


def facts_of(sizes: np.ndarray = SIZES, norm: Norm = "max", n_features: int = D) -> FederationFacts:
    return FederationFacts.uniform(
        sizes, epsilon=3.0, delta=1e-5, n_features=n_features, loss=Logistic(), norm=norm, minimum_contributors=1
    )


def shards(norm: Norm = "max") -> list[Shard]:
    rng = np.random.default_rng(4)
    return [Shard(rng.uniform(-1.5, 1.5, (n, D)), np.ones(n), norm=norm) for n in SIZES.tolist()]


def act(round: int) -> Query:
    return Query(round, "act", np.zeros(0), "each")


@pytest.mark.parametrize("norm", ["max", "euclidean"])
def test_it_acts_as_a_leader_that_observes_the_rows(norm: Norm) -> None:
    shard, facts, algorithm = shards(norm)[0], facts_of(norm=norm).of(0), PrivateLeader(n_rounds=12)
    leader = Leader(D, 12, 1.0, 3.0, 1e-5, noise=SeededNoise(5))
    prepared, noise = algorithm.prepare(shard, facts), SeededNoise(5)
    for round, row in enumerate(shard.X, start=1):
        assert algorithm.local(act(round), prepared, facts, noise) >> 10 == [leader.act()]
        leader.observe(row)
    assert algorithm.event(1, facts) == leader.terms.event
    assert all(algorithm.event(round, facts) == NoEvent() for round in range(2, 13))
    assert transcript(algorithm, facts).epsilon == pytest.approx(leader.guarantee.epsilon)


def test_a_round_sees_the_rows_before_it_alone() -> None:
    shard, facts, algorithm = shards()[0], facts_of().of(0), PrivateLeader(n_rounds=12)
    X = shard.X.copy()
    X[5:] = -X[5:]
    other = Shard(X, shard.y, norm="max")
    one, changed = (algorithm.prepare(each, facts) for each in (shard, other))
    same = (one == changed).all(axis=-1)
    assert same.tolist() == [True] * 6 + [False] * 6


def test_a_party_whose_rows_end_goes_on_by_all_of_them() -> None:
    stacked, facts, algorithm = Shard.stack(shards()), facts_of(), PrivateLeader(n_rounds=12)
    prepared = algorithm.prepare(stacked, facts.everyone)
    assert prepared.shape == (2, 12, D)
    alone = algorithm.prepare(shards()[1], facts.of(1))
    assert (prepared[1] == alone).all()
    assert (alone[7:] == alone[7]).all()
    assert (alone[7] == (shards()[1].X.sum(axis=0) * 2**16)).all()


def test_what_comes_out_are_the_actions_of_each_party() -> None:
    facts, algorithm = facts_of(), PrivateLeader(n_rounds=5)
    noises = [SeededNoise([1, place]) for place in range(2)]
    simulation = Simulation.of(algorithm, Shard.stack(shards()), facts, StackedNoise(noises))
    model = asyncio.run(drive(algorithm.program(facts), simulation, "run", MemoryLog()))
    assert model.kind == "statistics"
    for place, shard in enumerate(shards()):
        leader = Leader(D, 5, 1.0, 3.0, 1e-5, noise=SeededNoise([1, place]))
        for round, row in enumerate(shard.X[:5]):
            assert model.weights[place, round] == leader.act()
            leader.observe(row)


def test_who_does_not_answer_has_no_action_and_who_answers_nonsense_a_sane_one() -> None:
    algorithm, facts = PrivateLeader(n_rounds=2), facts_of()
    program = algorithm.program(facts)
    next(program)
    program.send(Reply(np.array([[1e9]]), (1,)))
    with pytest.raises(StopIteration) as stop:
        program.send(Reply(np.array([[-5.0], [2 * 2.0**-22]]), (0, 1)))
    assert stop.value.value.weights.tolist() == [[-1, 0], [D - 1, 2]]


def test_the_first_round_pays_for_all() -> None:
    algorithm, own = PrivateLeader(n_rounds=7), facts_of().of(1)
    due = price(algorithm, own)
    assert len(set(due.epsilon)) == len(set(due.delta)) == len(set(due.gdp)) == 1
    (promise,) = guarantees(algorithm, facts_of())
    assert due.total.epsilon == pytest.approx(promise.epsilon * 1e6, abs=1)
    assert promise.epsilon <= 3.0
    assert any("before its action is seen" in words for words in promise.assumptions)


def test_rounds_are_chosen_by_the_smallest_party_and_the_time() -> None:
    for most, rounds, word in ((100, 7, "smallest party"), (3, 3, "time")):
        algorithm, choices = settle("ftrl", {}, facts_of(), most)
        assert algorithm == PrivateLeader(n_rounds=rounds)
        assert word in choices["n_rounds"].why
    assert settle("ftrl", {"n_rounds": 12}, facts_of())[1] == {}


def test_a_stream_that_ends_early_and_a_single_action_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="n_rounds is 13, and no party has more than 12 rows"):
        PrivateLeader(n_rounds=13).check_noise(facts_of().of(1))
    with pytest.raises(InvalidInputError, match="2 columns at least"):
        PrivateLeader(n_rounds=5).questions(facts_of(n_features=1))


@pytest.mark.parametrize("norm", ["max", "euclidean"])
def test_the_intercept_is_no_action(norm: Norm) -> None:
    """Its column is the same in each row, and would be drawn."""
    study = made_up(D).model_copy(update={"norm": norm, "row_norm": "largest"})
    sized = facts_of(norm=norm, n_features=D + 1)
    facts, algorithm = replace(sized, study=study).of(0), PrivateLeader(n_rounds=12)
    shard = shards(norm)[0]
    wider = Shard(np.column_stack([shard.X / 2, np.full(12, 0.5)]), shard.y, norm=norm)
    leader, noise = Leader(D, 12, 1.0, 3.0, 1e-5, noise=SeededNoise(5)), SeededNoise(5)
    assert algorithm.event(1, facts) == leader.terms.event
    prepared = algorithm.prepare(wider, facts)
    assert prepared.shape == (12, D)
    for round, row in enumerate(wider.X, start=1):
        assert algorithm.local(act(round), prepared, facts, noise) >> 10 == [leader.act()]
        leader.observe(row[:D])
    with pytest.raises(InvalidInputError, match="2 columns at least"):
        algorithm.questions(replace(facts_of(n_features=2), study=made_up(1)))
    without = made_up(1).model_copy(update={"intercept": False})
    assert actions_among(replace(facts_of(n_features=1), study=without)) == 1
    assert algorithm.cautions(facts) == algorithm.cautions(sized) == ()


def test_rows_that_are_divided_by_their_own_norm_are_cautioned_of() -> None:
    (words,) = PrivateLeader().cautions(replace(facts_of(n_features=D + 1), study=made_up(D)))
    assert "not in one unit" in words


def test_there_is_no_model_to_measure() -> None:
    with pytest.raises(InvalidInputError, match="ftrl trains no model, so there is none to measure"):
        run_simulation(SimulationSettings(algorithm="ftrl"))
