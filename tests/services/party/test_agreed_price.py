"""A run is answered at the price that was agreed, or not at all: a later version may price an answer otherwise."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from parley.common.privacy.account import Cost, Price
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights


@pytest.mark.parametrize("unit", range(4))
def test_a_cost_exceeds_another_that_is_less_in_one_unit(unit: int) -> None:
    cost, most = [4, 1, 9, 3], [5, 5, 9, 5]
    assert not Cost(*cost).exceeds(Cost(*most))
    most[unit] = cost[unit] - 1
    assert Cost(*cost).exceeds(Cost(*most))


def test_a_run_whose_answers_cost_more_of_any_unit_than_was_agreed_is_not_answered(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an evaluation of an earlier version, whose Gaussian noise had the same epsilon and less mu^2."""
    settings = cluster.party_settings("party-1")
    with monkeypatch.context() as earlier, TestClient(create_party_app(settings), headers=ASKING) as client:
        earlier.setattr("parley.party.policy.price", lambda *_: Price.at_once(Cost(10**6, 10**13, 1)))
        propose(client, run_spec(cluster)).raise_for_status()
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        refused = ask(client, 1, weights(cluster, 1))
        assert (refused.status_code, refused.json()["rule"]) == (403, "price")
        assert client.delete("/v1/runs/run").status_code == 204
        units = client.get("/v1/budget").json()["units"]
        assert (units["spent"], units["reserved"]) == ([0] * 6, [0] * 6)
