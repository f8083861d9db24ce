"""A party on two neighbouring shards, with the noise fixed: all that anyone can see is alike but the noised answer.

Two ledgers are made from one, so that even their random beginnings agree. What is compared: status, headers and body of
every response, what is logged, the metrics, and what the ledger says. The answer differs, of course, by a record, and
with it what is computed from its released bytes: its digest in the ledger, and link and signature in receipts.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.encoding.npy import NPY, pack_array
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.receipts import RECEIPT_HEADER as RECEIPT
from parley.common.protocol.receipts import read_receipt
from parley.party.answers.party import open_store
from parley.party.api.app import create_party_app
from parley.party.ledger.records import LedgerRecord, Pinned
from tests.support.cluster import Cluster
from tests.support.metrics import metrics_of
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

Edit = Callable[[str], str]


CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+Z)?")
"""The time of a log's line: the only thing in it that two runs do not share."""


TIMED = re.compile("_seconds|^process_")
"""Metrics of times, and of the process: its owner's monitor alone sees them, as its machine does."""


class Quiet(NoNoise):
    """No noise, so that both neighbours have the same."""

    def __init__(self, kept: object = None) -> None:
        super().__init__()


@dataclass(frozen=True)
class Seen:
    """All that can be seen of a party's life, apart from the answers in ``answers``."""

    responses: tuple[tuple[int, tuple[tuple[str, str], ...], bytes], ...]
    answers: tuple[bytes, ...]
    counted: tuple[str, ...]
    written: str
    ledger: tuple[object, ...]


def visible(response: httpx.Response) -> tuple[tuple[str, str], ...]:
    """A response's headers; of the receipt what is not computed from the answer, and its length."""
    headers = dict(response.headers)
    if receipt := headers.get(RECEIPT.lower()):
        fields = read_receipt(receipt)
        headers[RECEIPT.lower()] = f"{fields.signer} {fields.head.count} {fields.to} {fields.totals} {len(receipt)}"
    return tuple(headers.items())


def conversation(client: httpx.Client, cluster: Cluster) -> Iterator[tuple[httpx.Response, bool]]:
    """A learner's requests, good and bad; True marks responses whose body is an answer."""
    yield client.get("/v1/party"), False
    for algorithm in ("dp_gd", "psgd", "local_average"):
        spec = run_spec(
            cluster, algorithm=algorithm, parameters={} if algorithm == "local_average" else {"n_rounds": 3}
        )
        yield propose(client, spec, algorithm), False
        yield propose(client, spec, algorithm), False
    for run in ("dp_gd", "psgd"):
        for round in (1, 2, 2, 3):
            yield ask(client, round, weights(cluster, round), run), True
        yield ask(client, 2, weights(cluster, 9), run), False
    yield ask(client, 1, weights(cluster, 0)[:0], "local_average", "minimise"), True
    json_round = {"step": "gradient", "message": weights(cluster, 3).tolist()}
    yield client.put("/v1/runs/dp_gd/rounds/3", json=json_round, headers={"Accept": NPY}), True
    for path in ("rounds/9", "rounds/0", "rounds/x"):
        yield client.put(f"/v1/runs/dp_gd/{path}", content=b"x", headers={"Content-Type": NPY}), False
    yield client.put("/v1/runs/dp_gd/rounds/1", content=pack_array(weights(cluster, 1))), False
    yield propose(client, run_spec(cluster, epsilon=99.0, n_rounds=5), "too-dear"), False
    yield ask(client, 1, weights(cluster, 1), "none"), False
    yield client.delete("/v1/runs/dp_gd"), False
    yield ask(client, 4, weights(cluster, 4)), False
    for path in ("/v1/budget", "/metrics", "/readyz", "/openapi.json"):
        yield client.get(path), False


def watch(cluster: Cluster, beginning: Path, edit: Edit, capfd: pytest.CaptureFixture[str]) -> Seen:
    """Run a party on the data as edited, from the same beginning, and note what can be seen."""
    data, state = cluster.root / "party-1.csv", cluster.root / "party-1"
    original = data.read_text()
    data.write_text(edit(original))
    shutil.rmtree(state, ignore_errors=True)
    shutil.copytree(beginning, state)
    capfd.readouterr()
    responses, answers = [], []
    try:
        with TestClient(create_party_app(cluster.party_settings("party-1"), Quiet), headers=ASKING) as client:
            client.headers["X-Request-Id"] = "the-same"
            for response, is_answer in conversation(client, cluster):
                body = response.content if not (is_answer and response.is_success) else b"%d" % len(response.content)
                responses.append((response.status_code, visible(response), body))
                answers += [response.content] if is_answer else []
            counted = tuple(line for line in metrics_of(client).splitlines() if not TIMED.search(line))
    finally:
        data.write_text(original)
    with open_store(cluster.party_settings("party-1")) as store:
        entries = [unsalted(entry.record) for entry in store.entries()]
    return Seen(tuple(responses), tuple(answers), counted, CLOCK.sub("", "".join(capfd.readouterr())), tuple(entries))


def unsalted(record: LedgerRecord) -> LedgerRecord:
    """A record without what is made of the rows and a random salt that never leaves the ledger: it is its owner's."""
    return replace(record, rows="", contents=()) if isinstance(record, Pinned) else record


def replace_record(row: str) -> Edit:
    """A neighbour: the first record is another."""

    def edit(text: str) -> str:
        header, _, *lines = text.splitlines()
        return "\n".join([header, row, *lines]) + "\n"

    return edit


NEIGHBOURS = {
    "another label": "0.1,0.2,0.3,no",
    "the corner": "1.0,1.0,1.0,yes",
    "the other corner": "-1.0,-1.0,-1.0,yes",
    "the centre": "0,0,0,no",
    "tiny": "1e-300,-1e-300,5e-324,yes",
    "many digits": "0.12345678901234567890123,0.5,0.5,no",
}


@pytest.fixture
def beginning(tmp_path: Path) -> Path:
    """The state of a ledger that has just begun."""
    made = Cluster(tmp_path / "made", n_parties=2)
    return made.root / "party-1"


def test_neighbours_look_alike(
    tmp_path: Path, beginning: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.7e9)
    cluster = Cluster(tmp_path / "cluster", n_parties=2)
    reference = watch(cluster, beginning, lambda text: text, capfd)
    again = watch(cluster, beginning, lambda text: text, capfd)
    assert again == reference, "with the noise fixed, a party is deterministic"
    others = [watch(cluster, beginning, replace_record(row), capfd) for row in NEIGHBOURS.values()]
    for name, other in zip(NEIGHBOURS, others, strict=True):
        for mine, theirs in zip(reference.responses, other.responses, strict=True):
            assert mine == theirs, name
        assert other.written == reference.written, name
        assert other.ledger == reference.ledger, name
        assert other.answers != reference.answers, "the neighbour does differ"
    print(
        f"{len(others)} neighbours, {len(reference.responses)} responses each, logs, metrics, ledger: "
        "byte-identical outside the noised answer"
    )
