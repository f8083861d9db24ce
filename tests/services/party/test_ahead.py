"""Noise is drawn before it is needed, and used once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.privacy.noise import Noise
from parley.common.protocol.receipts import Answer
from parley.party.answers import noise_pool as ahead
from parley.party.answers.noise_pool import NoisePool
from parley.party.answers.party import Party
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights


def draw(noise: Noise) -> list[list[float]]:
    """One draw of each kind that is kept in stock."""
    return [
        noise.discrete_gaussian(1e6, (5,)).tolist(),
        noise.discrete_gaussian(np.array([1e6]), (5,)).tolist(),
        noise.discrete_laplace(1e6, (5,)).tolist(),
        noise.l2_laplace(np.array([2.0]), (5,)).tolist(),
        noise.l2_laplace(np.array([2.0]), (5,), 4).tolist(),
    ]


def test_nothing_is_used_twice() -> None:
    stock = NoisePool()
    drawn = []
    for _ in range(3 * ahead._DRAWS_AT_ONCE):
        drawn += draw(stock())
        stock.refill()
    drawn += draw(stock()) + draw(stock())  # the second has to draw by itself
    assert len({tuple(values) for values in drawn}) == len(drawn)


def test_what_is_in_stock_needs_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    stock = NoisePool()
    draw(stock())
    stock.refill()
    monkeypatch.setattr("os.urandom", lambda _: pytest.fail("bits are drawn"))
    draw(stock())


def test_one_time_noise_is_kept_as_ever() -> None:
    stock = NoisePool()
    first = stock()
    eta = first.once("eta", lambda: first.discrete_gaussian(1e6, (3,)))
    stock.refill()
    again = stock(first.one_time)
    assert again.once("eta", lambda: again.discrete_gaussian(1e6, (3,))).tolist() == eta.tolist()


def test_the_stock_is_bounded() -> None:
    stock = NoisePool()
    for scale in range(1, 200):
        stock().discrete_laplace(float(scale), (2,))
        stock.refill()
    assert len(stock._ready) <= 64


@pytest.mark.parametrize("algorithm", ["dp_gd", "psgd"])
def test_a_round_draws_no_noise_but_the_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    made: list[object] = []
    within: list[int] = []
    make, answer = ahead.Draw.make, Party.answer

    def counted_make(self: ahead.Draw, count: int) -> Any:  # noqa: ANN401 -- a list of arrays
        made.append(self)
        return make(self, count)

    def watched_answer(self: Party, learner: str, run: str, query: Any) -> Answer:  # noqa: ANN401 -- a query
        before = len(made)
        released = answer(self, learner, run, query)
        within.append(len(made) - before)
        return released

    monkeypatch.setattr(ahead.Draw, "make", counted_make)
    monkeypatch.setattr(Party, "answer", watched_answer)
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        propose(client, run_spec(cluster, algorithm=algorithm, parameters={"n_rounds": 4})).raise_for_status()
        for round in range(1, 5):
            ask(client, round, weights(cluster, round)).raise_for_status()
    assert within[0] > 0
    assert within[1:] == [0, 0, 0]


@pytest.mark.parametrize(("size", "supply"), [(0, 32), (1, 32), (64, 32), (100, 20), (5_000, 1)])
def test_small_draws_are_made_for_many_rounds_at_once(size: int, supply: int) -> None:
    stock = NoisePool()
    stock().discrete_gaussian(1e6, (size,))
    stock.refill()
    ((draw, ready),) = stock._ready.items()
    assert draw.supply == len(ready) == supply
    assert all(noise.shape == (size,) for noise in ready)
