"""Public rows at a party: those that were approved and no others, of the shape that was approved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.arrays import FloatArray
from parley.common.errors import ForbiddenError
from parley.common.runs.specification import PublicRows
from parley.party.api.app import create_party_app
from parley.party.policy import review, rules_of
from parley.party.settings import Policy
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec

NO_ROWS: dict[str, Any] = {"algorithm": "probe", "parameters": {}}


@pytest.fixture
def cluster(cluster: Cluster) -> Cluster:
    cluster.algorithms = ("dp_gd", "probe")
    return cluster


@pytest.fixture
def rows(cluster: Cluster) -> FloatArray:
    return cluster.public_rows()


@pytest.fixture
def client(cluster: Cluster, rows: FloatArray) -> Iterator[httpx.Client]:
    """The first party, which has approved a run about the rows."""
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        propose(client, run_spec(cluster, **NO_ROWS, public=PublicRows.of(rows))).raise_for_status()
        yield client


def test_other_rows_than_approved_are_refused_at_no_charge(client: httpx.Client, rows: FloatArray) -> None:
    n, width = rows.shape
    for message, reason in (
        (rows[::-1], "round 1 must ask about the public rows that were approved"),
        (np.nextafter(rows, 1), "round 1 must ask about the public rows that were approved"),
        (rows[:, :-1], rf"the message must have shape ({n}, {width}), not ({n}, {width - 1})"),
        (rows[:-1], rf"the message must have shape ({n}, {width}), not ({n - 1}, {width})"),
        (rows.ravel(), rf"the message must have shape ({n}, {width}), not ({n * width},)"),
        (rows[0], rf"the message must have shape ({n}, {width}), not ({width},)"),
    ):
        refused = ask(client, 1, np.ascontiguousarray(message), step="votes")
        assert (refused.status_code, refused.json()["detail"]) == (422, reason)
    assert client.get("/v1/budget").json()["units"]["spent"][0] / 1e6 == 0
    assert ask(client, 1, rows, step="votes").is_success
    assert client.get("/v1/budget").json()["units"]["spent"][0] / 1e6 > 0


def test_a_message_of_another_rank_is_refused_at_no_charge(client: httpx.Client, cluster: Cluster) -> None:
    propose(client, run_spec(cluster), "descent").raise_for_status()
    d = cluster.study.n_features
    refused = ask(client, 1, np.zeros((1, d)), "descent")
    assert (refused.status_code, refused.json()["detail"]) == (422, f"the message must have shape ({d},), not (1, {d})")
    body = {"step": "gradient", "message": [[[0.0] * d]]}
    assert client.put("/v1/runs/descent/rounds/1", json=body).status_code == 422
    assert client.get("/v1/budget").json()["units"]["spent"][0] / 1e6 == 0


def test_rows_named_without_need_or_needed_without_name_are_refused(
    client: httpx.Client, cluster: Cluster, rows: FloatArray
) -> None:
    for changes, reason in (
        (NO_ROWS, "the algorithm asks about public rows, and the run names none"),
        ({"public": PublicRows.of(rows)}, "the run names public rows, and dp_gd asks about none of their shape"),
    ):
        refused = propose(client, run_spec(cluster, **changes), "other")
        assert refused.status_code == 422
        assert refused.json()["detail"].startswith(reason)


def test_an_owner_may_pin_the_rows_that_runs_may_ask_about(cluster: Cluster, rows: FloatArray) -> None:
    name, other = PublicRows.of(rows), PublicRows.of(rows + 1)
    policy = cluster.party_settings("party-1").policy.model_dump()
    spec = run_spec(cluster, **NO_ROWS, public=name)
    for allowed in ((name.digest,), (other.digest, name.digest), None):
        pinned = rules_of(Policy.model_validate(policy | {"public_rows": allowed}))
        assert review(spec, pinned, "party-1", cluster.study.digest, cluster.n_examples).total.epsilon > 0
    for forbidden in ((other.digest,), ()):
        pinned = rules_of(Policy.model_validate(policy | {"public_rows": forbidden}))
        with pytest.raises(ForbiddenError) as refused:
            review(spec, pinned, "party-1", cluster.study.digest, cluster.n_examples)
        assert refused.value.facts == {"rule": "public_rows"}
        assert refused.value.detail == "the owner does not allow these public rows"
        assert review(run_spec(cluster), pinned, "party-1", cluster.study.digest, cluster.n_examples), (
            "which asks about none"
        )
