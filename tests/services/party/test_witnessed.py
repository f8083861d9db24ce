"""A party as a witness: what learners hand on of others is kept, shown and printed, as far as it can be checked."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from parley.common.protocol.receipts import LONGEST_RECEIPT, MOST_RECEIPTS, RECEIPT_HEADER, Head, write_receipt
from parley.common.service.tokens import hash_token
from parley.party.api.app import create_party_app
from parley.party.cli.main import party_app
from tests.support.cluster import LEARNER
from tests.support.rounds import ASKING
from tests.support.secure_cluster import SecureCluster, signing_key


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=2)


def receipt(signer: str, count: int, key: str = "") -> str:
    """A receipt of somebody's, by the key that others have pinned unless it is somebody else's."""
    head = Head(count, f"{count:064x}")
    return write_receipt(signing_key(key or signer), signer=signer, ledger="0" * 64, head=head).text


def hand(client: httpx.Client, *texts: str) -> httpx.Response:
    return client.put("/v1/receipts", json={"receipts": texts})


def held(client: httpx.Client) -> list[str]:
    receipts: list[str] = client.get("/v1/receipts").raise_for_status().json()["receipts"]
    return receipts


def test_the_newest_receipts_of_pinned_services_are_kept(cluster: SecureCluster) -> None:
    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        assert held(client) == []
        others = receipt("party-3", 9), receipt("party-2", 9, key="party-3")
        response = hand(client, receipt("party-2", 5), receipt("key-holder-1", 2), receipt("party-2", 4), *others)
        assert (response.status_code, RECEIPT_HEADER in response.headers) == (204, True)
        hand(client, receipt("party-2", 3))
        assert hand(client, receipt("party-2", 6), "junk").json()["type"].endswith(":invalid-receipt")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        assert held(client) == [receipt("key-holder-1", 2), receipt("party-2", 5)]


def test_what_is_handed_on_is_bounded(cluster: SecureCluster) -> None:
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        for texts in (["x"] * (MOST_RECEIPTS + 1), ["x" * (LONGEST_RECEIPT + 1)]):
            assert hand(client, *texts).status_code == 422
        assert hand(client, *[receipt("party-3", 9)] * MOST_RECEIPTS).status_code == 204
        assert client.put("/v1/receipts", json={"receipts": []}, headers={"Authorization": "no"}).status_code == 401
        assert held(client) == []


def test_what_is_held_is_printed(cluster: SecureCluster) -> None:
    config = cluster.root / "party.toml"
    pins = "\n".join(
        f"[[secure_sum.{kind}]]\nname = {json.dumps(pin['name'])}\npublic_key = {json.dumps(pin['public_key'])}"
        for kind, names in (("parties", ("party-2",)), ("key_holders", cluster.key_holders))
        for pin in cluster.pins(names)
    )
    config.write_text(
        f'name = "party-1"\nstate = "{cluster.root}/party-1"\nstudy = "{cluster.study_path}"\n'
        f'[data]\nsource = "{cluster.root}/party-1.csv"\n[policy]\nepsilon = 1.0\ndelta = 0.1\n'
        "max_epsilon_per_run = 1.0\nmax_delta_per_run = 0.1\n"
        f'[[learners]]\nname = "learner"\ntoken_hash = "{hash_token(LEARNER)}"\n{pins}\n'
    )
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        hand(client, receipt("party-2", 5), receipt("key-holder-1", 2))

    def run(*words: str) -> str:
        result = CliRunner().invoke(party_app, ["witnessed", *words, "--config", str(config)])
        assert result.exit_code == 0, result.output
        return result.stdout

    assert run("party-2").split() == [receipt("party-2", 5)]
    assert len(run().split()) == 2
    (row,) = json.loads(run("key-holder-1", "--format", "json"))
    assert (row["signer"], row["entries"]) == ("key-holder-1", 2)
