"""Gradient descent by noisy sums: what noise must hide for any clip norm, and what the learner makes of the sums."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from parley.common.algorithms.dp_gd import DpGd
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.losses import Logistic, Squared, loss_at_zero
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.events import GaussianEvent
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query, Reply

D = 2
FACTS = FederationFacts.uniform(np.array([10]), epsilon=1.0, delta=1e-5, n_features=D, loss=Logistic())


@pytest.mark.parametrize("clip_norm", [0.125, 0.25, 1.0])
def test_noise_hides_twice_the_norm_that_gradients_are_clipped_to(clip_norm: float) -> None:
    algorithm, own = DpGd(n_rounds=4, clip_norm=clip_norm), FACTS.of(0)
    query = Query(1, "gradient", np.zeros(D))
    shard = Shard(np.tile([1.0, 0.0], (10, 1)), np.ones(10))  # each gradient is (-1/2, 0)
    assert to_reals(algorithm.local(query, shard, own, NoNoise())) == pytest.approx([-10 * min(clip_norm, 0.5), 0])
    assert algorithm.sensitivity(query, own) == 2 * clip_norm
    event = algorithm.event(1, own)
    assert isinstance(event, GaussianEvent)
    assert event.mu == pytest.approx(2 * clip_norm / float(algorithm.sigma(own)))
    assert event.mu * math.sqrt(4) == pytest.approx(gaussian_mu(1.0, 1e-5))


def asked(algorithm: DpGd, facts: FederationFacts, *sums: FloatArray) -> list[FloatArray]:
    """The weights that each round asks about, where the rounds before were answered so."""
    program = algorithm.program(facts)
    weights = [next(program).message]
    return weights + [program.send(Reply(total, (0,))).message for total in sums]


def test_the_model_is_the_mean_of_the_last_iterates() -> None:
    algorithm = DpGd(n_rounds=3, step=1.0, averaging=0.5, regularization=0.01)
    program, reply = algorithm.program(FACTS), Reply(np.array([-1.0, 0.0]), (0,))
    queries = [next(program), program.send(reply), program.send(reply)]
    with pytest.raises(StopIteration) as stop:
        program.send(reply)
    assert [(query.round, query.step) for query in queries] == [(1, "gradient"), (2, "gradient"), (3, "gradient")]
    first, second, third = 0.1, 0.1 * 1.99, 0.1 * (1 + 1.99 * 0.99)
    assert [query.message[0] for query in queries] == pytest.approx([0, first, second])
    assert stop.value.value.weights == pytest.approx([(second + third) / 2, 0])


def test_weights_stay_in_the_ball_that_holds_the_minimiser() -> None:
    algorithm = DpGd(n_rounds=9, step=1.0, regularization=0.5)
    radius = math.sqrt(2 * math.log(2) / 0.5)
    start, inside, outside = asked(algorithm, FACTS, np.array([-5.0, 0.0]), np.array([-300.0, -400.0]))
    assert start.tolist() == [0, 0]
    assert inside.tolist() == [0.5, 0]
    assert outside == pytest.approx(radius * np.array([30.25, 40]) / math.hypot(30.25, 40))


def test_it_starts_in_that_ball() -> None:
    study = Mock(usual_label=Mock(intercept=-7.0))
    facts = replace(FACTS, loss=Squared(), study=study)
    radius = math.sqrt(2 * loss_at_zero(Squared()) / 0.5)
    assert radius < 7
    assert asked(DpGd(regularization=0.5), facts)[0].tolist() == [0, -radius]


@pytest.mark.parametrize(
    ("weight", "move", "gradient", "carried"),
    [
        (5.0, 0.2, 0.1, 0.0),
        (-5.0, -0.2, -0.1, 0.0),
        (5.0, 0.2, 3.0, 0.0),
        (5.0, -0.2, 0.1, -0.1),  # on its way back
        (5.0, 0.2, -0.1, 0.1),  # the gradient would have it go on
        (5.0, 0.2, 0.0, 0.1),
        (-5.0, 0.2, 0.1, 0.1),
        (4.0, 0.2, 0.1, 0.1),  # where the loss is not flat yet
        (3.0, 0.2, 0.1, 0.1),
    ],
)
def test_an_intercepts_momentum_ends_where_it_has_gone_too_far(
    weight: float, move: float, gradient: float, carried: float
) -> None:
    """The other weights' never does."""
    given: list[Any] = [np.array([each, each]) for each in (move, gradient, weight)]
    assert DpGd(momentum=0.5)._carried(*given).tolist() == pytest.approx([move / 2, carried])
    rows = [np.stack([each, each]) for each in given]  # of classes, each by itself
    assert DpGd(momentum=0.5)._carried(*rows) == pytest.approx(np.tile([move / 2, carried], (2, 1)))
