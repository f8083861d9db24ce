"""What one learner can see at a party is the same, byte for byte, whether or not another asks there too."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.privacy.noise import NoNoise
from parley.common.protocol.receipts import RECEIPT_HEADER, Head, ReceiptKeeper, write_receipt
from parley.common.service.tokens import hash_token, new_token
from parley.party.api.app import create_party_app
from parley.party.ledger import ledger as module
from tests.support.clock import Clock
from tests.support.cluster import LEARNER
from tests.support.rounds import ask, propose, run_spec, weights
from tests.support.secure_cluster import SecureCluster, signing_key

OTHER = new_token()
_OF_CHANCE = {RECEIPT_HEADER.lower(), "request-id", "x-request-id"}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "_now", made)
    monkeypatch.setattr("secrets.token_hex", lambda n: "ab" * n)  # the same first link for both ledgers
    return made


def handed_on(count: int) -> str:
    head = Head(count, f"{count:064x}")
    return write_receipt(signing_key("party-2"), signer="party-2", ledger="0" * 64, head=head).text


class Learner:
    """A learner that shows its newest receipt with each request, and notes all that it can see."""

    def __init__(self, client: httpx.Client, token: str) -> None:
        self.client, self.keeper, self.seen = client, ReceiptKeeper("party-1"), list[object]()
        client.headers.update({"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"})

    def note(self, response: httpx.Response) -> None:
        text, shown = response.headers[RECEIPT_HEADER], self.keeper.newest
        receipt = self.keeper.take(text, shown)
        self.client.headers[RECEIPT_HEADER] = text
        headers = {name: value for name, value in response.headers.items() if name not in _OF_CHANCE}
        claim = asdict(receipt) | {"text": len(text), "sealed": len(receipt.sealed)}
        self.seen.append((response.status_code, headers, response.content, claim))


def course(root: Path, clock: Clock, *, is_busy: bool) -> list[object]:
    """All that a learner sees in two runs, while another is busy at the party or does not exist."""
    cluster = SecureCluster(root, n_parties=2)
    tokens = {"learner": LEARNER} | ({"other": OTHER} if is_busy else {})
    learners = [{"name": name, "token_hash": hash_token(token)} for name, token in tokens.items()]
    app = create_party_app(cluster.party_settings("party-1", learners=learners), lambda _kept: NoNoise())
    clock.now = 1000
    with TestClient(app) as one:
        two = TestClient(app)
        learner, other = Learner(one, LEARNER), Learner(two, OTHER)

        def disturb(run: str, count: int) -> None:
            if is_busy:
                other.note(propose(two, run_spec(cluster, epsilon=0.1), f"other-{run}"))
                other.note(ask(two, 1, weights(cluster, 2), f"other-{run}"))
                other.note(two.put("/v1/receipts", json={"receipts": [handed_on(count)]}))

        for number, run in enumerate(("one", "two"), 1):
            disturb(run, 10 + number)
            learner.note(one.get("/v1/party"))
            learner.note(one.put("/v1/receipts", json={"receipts": [handed_on(number)]}))
            learner.note(propose(one, run_spec(cluster, epsilon=0.1), run))
            disturb(f"{run}-again", 20 + number)
            learner.note(ask(one, 1, weights(cluster, 1), run))
            for path in ("/v1/budget", "/v1/receipts", "/v1/party/pins"):
                learner.note(one.get(path))
        learner.note(one.delete("/v1/runs/one"))
        assert one.get("/v1/receipts").json()["receipts"] == [handed_on(2)]
    assert (len(other.seen) == 12) == is_busy
    return learner.seen


def test_a_learner_sees_the_same_whether_or_not_another_asks(tmp_path: Path, clock: Clock) -> None:
    """All but what is sealed, and so encrypted: the claims of receipts, with the links of the learner's own chain."""
    alone = course(tmp_path / "alone", clock, is_busy=False)
    busy = course(tmp_path / "busy", clock, is_busy=True)
    assert len(alone) == 15
    assert alone == busy
