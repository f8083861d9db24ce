"""Rounds longer than other bodies may be: as long as the approved run needs and no longer, refused before they cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.encoding.npy import NPY, pack_array
from parley.common.runs.pricing import costs_of, lengths
from parley.party.answers import noise_pool
from parley.party.answers.noise_pool import NoisePool
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, answer_of, ask, propose, run_spec

BODY_BYTES = 1024
COLUMNS = 400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("long"), n_parties=2, n_examples=5, n_features=COLUMNS)


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    """A party of small bodies, with an approved run whose questions are longer; its proposal was longer still."""
    app = create_party_app(cluster.party_settings("party-1"))
    with TestClient(app, headers=ASKING, raise_server_exceptions=False) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        app.state.limits = app.state.limits.model_copy(update={"body_bytes": BODY_BYTES})
        yield client


def put(client: httpx.Client, content: object, run: str = "run", **headers: str) -> httpx.Response:
    """A round with this body."""
    more = {"content": content, "headers": {"Content-Type": NPY} | headers}
    return client.put(f"/v1/runs/{run}/rounds/1?step=gradient", **more)  # type: ignore[arg-type]


def test_a_round_may_be_as_long_as_its_run_needs(client: httpx.Client, cluster: Cluster) -> None:
    question = pack_array(np.zeros(cluster.study.n_features))
    assert len(question) > BODY_BYTES
    answer = answer_of(ask(client, 1, np.zeros(cluster.study.n_features)))
    assert answer.shape == (cluster.study.n_features,)
    again = put(client, iter([question[:1000], question[1000:]]))
    assert (answer_of(again) == answer).all(), "in chunks, whose length is not announced, it is the same question"


@pytest.mark.parametrize("run", ["run", "another"])
def test_a_round_may_be_no_longer(client: httpx.Client, cluster: Cluster, run: str) -> None:
    long = pack_array(np.zeros(2 * cluster.study.n_features))
    for content in (long, iter([long[:100], long[100:]])):
        response = put(client, content, run)
        assert response.status_code == 413, response.text
        assert "limits.body_bytes" in response.text
    assert put(client, iter([long[:100]]), "another").status_code == 422, "of a short one the content decides"


def test_a_body_that_is_not_as_long_as_it_says_is_refused(client: httpx.Client, cluster: Cluster) -> None:
    short = pack_array(np.zeros(cluster.study.n_features))[:-8]
    response = put(client, short, **{"Content-Length": str(len(short) + 8)})
    assert response.status_code == 422, response.text


def test_a_run_that_does_not_fit_is_refused_before_it_costs(cluster: Cluster, tmp_path: Path) -> None:
    spec = run_spec(cluster)
    settings = cluster.party_settings("party-2", limits={"round_bytes": BODY_BYTES})
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        before = client.get("/v1/budget").json()
        refusal = propose(client, spec)
        assert refusal.status_code == 403
        assert refusal.json()["rule"] == "limits.round_bytes"
        assert str(max(lengths(spec.questions()))) in refusal.text
        assert client.get("/v1/budget").json() == before


def test_costs_follow_from_the_questions(cluster: Cluster) -> None:
    spec, width = run_spec(cluster, n_rounds=10), cluster.study.n_features
    costs = costs_of(spec, BODY_BYTES)
    assert (costs.asked, costs.answered, costs.fits) == (width, width, False)
    assert costs.round_bytes == 2 * (width * 8 + 128)
    assert (costs.bytes, costs.all_bytes) == (10 * costs.round_bytes, 20 * costs.round_bytes)
    assert costs.learner_bytes == (4 * len(spec.parties) + 14) * width * 8
    assert costs.longest == len(pack_array(np.zeros(width)))
    assert costs_of(spec, costs.longest).fits


def test_the_stock_of_wide_noise_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise_pool, "_NUMBERS_IN_STOCK", 10_000)
    stock = NoisePool()
    for width in (4000, 5000, 6000, 20_000):
        stock().discrete_gaussian(8.0, (width,))
        stock.refill()
    assert [draw.shape for draw in stock._ready] == [(20_000,)]


def test_a_secure_sums_answers_are_counted_as_ciphertexts(cluster: Cluster) -> None:
    costs = costs_of(run_spec(cluster, n_rounds=10, secure_sum="paillier"), BODY_BYTES)
    blocks = -(-costs.answered // 46)
    assert costs.round_bytes == costs.asked * 8 + blocks * 768 + 2 * 128
