"""A run under secure sum, and one whose owner is away for a while, as they look on the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from tests.support.browser import Visitor, served
from tests.support.keyholder_process import start_keyholder
from tests.support.processes import free_port, start_party, stopped_at_exit, wait_until_ready
from tests.support.secure_cluster import SecureCluster

AWAY = "party-2"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> SecureCluster:
    """Two owners and a key holder."""
    return SecureCluster(tmp_path_factory.mktemp("cluster"), n_parties=2, learner={"deadline_seconds": 2.0})


@pytest.fixture(scope="module")
def urls(cluster: SecureCluster) -> dict[str, str]:
    """Where everybody is to be."""
    return {name: f"http://127.0.0.1:{free_port()}" for name in (*cluster.names, *cluster.key_holders)}


@pytest.fixture(scope="module")
def site(cluster: SecureCluster, urls: dict[str, str]) -> Iterator[object]:
    """All but one owner, and the learner, served."""
    ports = {name: httpx.URL(url).port for name, url in urls.items()}
    holder = start_keyholder(cluster.keyholder_settings("key-holder-1", port=ports["key-holder-1"]))
    party = start_party(cluster.party_settings("party-1", port=ports["party-1"]))
    with stopped_at_exit(holder, party):
        for name in ("key-holder-1", "party-1"):
            wait_until_ready(urls[name])
        with served(cluster.learner_settings(urls)) as site:
            yield site


@pytest.mark.slow
def test_a_run_waits_for_an_owner_and_another_is_summed_securely(
    visitor: Visitor, cluster: SecureCluster, urls: dict[str, str]
) -> None:
    with visitor.site.client() as client, ExitStack() as later:
        ask = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": 3}}
        run = client.post("/v1/runs", json=ask).raise_for_status().json()["id"]
        visitor.sign_in(f"#run/{run}")
        visitor.until_it_says("paused", "#state")
        visitor.until_it_says(f"Waits for {AWAY}", "#pause")
        assert "Paused since" in visitor.text("#pause")
        visitor.photograph("paused")
        visitor.find("#resume").click()
        visitor.until_it_says("The run is asked to go on", "#notice")
        port = httpx.URL(urls[AWAY]).port
        later.enter_context(stopped_at_exit(start_party(cluster.party_settings(AWAY, port=port))))
        wait_until_ready(urls[AWAY])
        visitor.until_it_says("completed", "#state", 60)
        assert not visitor.text("#pause")
        assert not visitor.find("#resume").is_displayed()

        visitor.go("new/made-up")
        visitor.until_it_says("excess loss", "#expected")
        visitor.find("#secure").click()
        visitor.find("#submit").click()
        visitor.until_it_says("completed", "#state", 60)
        visitor.until(lambda: visitor.find("#promises summary")).click()
        visitor.until_it_says("under a secure sum the promise is computational", "#promises")
        assert "the learner and all key holders do not collude: if they do, epsilon" in visitor.text("#promises")
        assert "the learner sees sums alone" in visitor.text("#terms")
        visitor.photograph("secure")
    assert visitor.log() == []
