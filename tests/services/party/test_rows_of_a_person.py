"""How many rows a person has is told nowhere: two parties that differ in it alone are equal but for noise."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families as families_of
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from parley.common.arrays import FloatArray
from parley.common.data.columns import Columns
from parley.common.data.study import Person
from parley.common.encoding.npy import NPY
from parley.common.errors import UnavailableError
from parley.common.privacy.account import Cost
from parley.common.privacy.guarantee import hides
from parley.common.protocol.receipts import RECEIPT_HEADER, read_receipt
from parley.common.runs.specification import Budget, Member, PublicRows, RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party, open_store
from parley.party.api.app import create_party_app
from parley.party.data.owner_data import load_holding
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster, asgi_cluster, made_up
from tests.support.rounds import ASKING, ask, propose

PATIENTS = 40
CHANGING = {"date", RECEIPT_HEADER.lower(), "x-request-id", "server-timing", "etag", "last-modified"}
"""Headers that differ from one answer to the next of one party too; their lengths count."""
_OF_TIME = re.compile(r"_(created|seconds.*)$")
_IDENTIFIERS = ("key", "public_key", "receipt", "ledger", "nonce")


def table(n_rows: int) -> Columns:
    """Forty patients in one order: the eighth has this many rows, the others one to three."""
    rng = np.random.default_rng(5)
    sizes = np.where(np.arange(PATIENTS) == 7, n_rows, rng.integers(1, 4, PATIENTS))
    of_rows = np.repeat(np.arange(PATIENTS), sizes)
    return {
        "patient_nbr": np.char.add("p", of_rows.astype(str)),
        **{f"x{column}": rng.uniform(-1, 1, len(of_rows)).round(3) for column in range(3)},
        "y": np.where(rng.random(len(of_rows)) < 0.5, "no", "yes"),
    }


def cluster_of(root: Path, n_rows: int) -> Cluster:
    """Two parties of these patients."""
    root.mkdir()
    study = made_up(3).model_copy(update={"person": Person(column="patient_nbr", most_rows=50), "hold_out": 0.25})
    return Cluster(
        root,
        given=(study, [table(n_rows), table(2)]),
        algorithms=("dp_gd", "evaluate", "describe"),
        n_examples=PATIENTS,
    )


def run(cluster: Cluster, algorithm: str = "dp_gd", **terms: Any) -> RunSpec:  # noqa: ANN401
    """A run among both parties, of whose forty patients each; its open parameters are chosen."""
    members = tuple(
        Member(name=name, n_examples=PATIENTS, budget=Budget(epsilon=1, delta=1e-5)) for name in cluster.names
    )
    fields: dict[str, Any] = {"study": cluster.study, "algorithm": algorithm, "parties": members}
    return RunSpec.model_validate(fields | {"minimum_contributors": 2} | terms).settled()[0]


@dataclass(frozen=True)
class Seen:
    """All that is seen of a party: its answers, their headers, its log and metrics, and how large its ledger is."""

    answers: list[tuple[Any, ...]]
    lines: list[dict[str, Any]]
    metrics: dict[str, list[Any]]
    receipts: list[tuple[int, int]]
    ledger: list[tuple[int, int]]
    records: list[dict[str, Any]]


def answer_of(answer: httpx.Response) -> tuple[Any, ...]:
    """Status, headers and body of an answer; of noisy numbers the length alone, as of what changes."""
    headers = {name: len(value) if name in CHANGING else value for name, value in answer.headers.items()}
    if answer.headers.get("content-type") == NPY:
        return answer.status_code, headers, len(answer.content)
    return answer.status_code, headers, plain(answer.text)


def plain(text: str) -> Any:  # noqa: ANN401 -- JSON, or text
    """A body without the party's key and what it signs."""
    try:
        content = json.loads(text)
    except ValueError:
        return text
    if isinstance(content, dict):
        content = {name: len(value) if name in _IDENTIFIERS else value for name, value in content.items()}
    return content


def seen_of(cluster: Cluster) -> Seen:
    """All that is seen of the first party through its start, runs that train, evaluate and describe, and refusals."""
    settings: PartySettings = cluster.party_settings("party-1")
    spec = run(cluster, parameters={"n_rounds": 3})
    weights: FloatArray = np.full(spec.study.n_features, 1 / 64)
    evaluation = run(cluster, "evaluate", public=PublicRows.of(weights[np.newaxis]))
    with capture_logs() as lines, TestClient(app := create_party_app(settings), headers=ASKING) as client:
        responses = [client.get("/v1/party"), client.get("/readyz"), propose(client, spec), propose(client, spec)]
        responses += [ask(client, round, weights * round) for round in (1, 2, 3, 3)]
        responses += [propose(client, evaluation, "evaluation"), propose(client, run(cluster, "describe"), "counts")]
        for name, about in (("evaluation", evaluation), ("counts", run(cluster, "describe"))):
            for round, question in enumerate(about.questions(), 1):
                message = np.zeros(question.message)
                if question.public:
                    message[0] = weights
                responses.append(ask(client, round, message, name, question.step, question.reveal))
        responses += [client.get("/v1/budget"), ask(client, 4, weights), ask(client, 1, weights, "unknown")]
        responses += [
            propose(client, spec.model_copy(update={"parties": tuple(resized)}), "misstated")
            for resized in ([m.model_copy(update={"n_examples": n}) for m in spec.parties] for n in (PATIENTS + 1, 78))
        ]
        without = spec.model_copy(update={"study": spec.study.model_copy(update={"person": None})})
        responses.append(propose(client, without, "without"))
        metrics = generate_latest(app.state.metrics.registry).decode()
    families = {
        family.name: [(sample.name, sample.labels, sample.value) for sample in family.samples if is_steady(sample.name)]
        for family in families_of(metrics)
        if family.name.startswith("parley")
    }
    with open_store(settings) as store:
        records = [json.loads(record) for _, record in store.records()]
    receipts = [read_receipt(r.headers[RECEIPT_HEADER]) for r in responses if RECEIPT_HEADER in r.headers]
    files = sorted((cluster.root / "party-1").glob("ledger*"))
    return Seen(
        [answer_of(response) for response in responses],
        [without_places(line, cluster.root) for line in lines],
        families,
        [(receipt.head.count, len(receipt.sealed)) for receipt in receipts],
        [(len(path.name), path.stat().st_size) for path in files],
        [shape_of(record) for record in records],
    )


def is_steady(name: str) -> bool:
    """Whether a metric is no time."""
    return _OF_TIME.search(name) is None


def without_places(line: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """A line of a log without the test's folder, times and the request's random name."""
    kept = {name: value for name, value in line.items() if name not in {"seconds", "ms", "request", "timestamp"}}
    return {name: str(value).replace(str(root), "") for name, value in kept.items()}


def shape_of(record: dict[str, Any]) -> dict[str, Any]:
    """A record of the ledger with the length of what is random or of the data: keys, digests, salts."""
    long = re.compile(r"[0-9a-f]{64}")
    text = json.dumps({name: value for name, value in record.items() if name != "at"})
    shape: dict[str, Any] = json.loads(long.sub("(digest)", text).replace("/left/", "/").replace("/many/", "/"))
    return shape


def test_a_party_is_the_same_but_for_noise_if_a_patient_has_one_row_or_forty(tmp_path: Path) -> None:
    parties = [cluster_of(tmp_path / name, n_rows) for name, n_rows in (("left", 1), ("many", 40))]
    shards = [load_holding(cluster.party_settings("party-1")).shard for cluster in parties]
    assert [shard.n_examples for shard in shards] == [PATIENTS, PATIENTS]
    assert shards[1].n_rows - shards[0].n_rows == 39
    one, forty = map(seen_of, parties)
    statuses = [status for status, *_ in one.answers]
    assert {status: statuses.count(status) for status in statuses} == {200: 14, 422: 1, 404: 1, 403: 3}
    assert {"charged", "refused", "approved"} <= {line["event"] for line in one.lines}
    assert {"parley_budget_part", "parley_requests"} <= one.metrics.keys(), [*one.metrics]
    assert sum(record["kind"] == "answered" for record in one.records) == 6
    for ours, theirs in zip(one.answers, forty.answers, strict=True):
        assert ours == theirs
    assert one.lines == forty.lines
    assert one.metrics == forty.metrics
    assert one.receipts == forty.receipts
    assert one.records == forty.records
    assert one.ledger == forty.ledger


def test_a_study_that_drops_or_changes_its_person_is_another_study(tmp_path: Path) -> None:
    """The owner agreed on a file: by its digest, as with any other change, and by the column that it pins."""
    cluster = cluster_of(tmp_path / "one", 2)
    spec = run(cluster, parameters={"n_rounds": 3})
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        assert propose(client, spec).is_success
        before = client.get("/v1/budget").json()
        for person in (None, Person(column="encounter_id"), Person(column="patient_nbr", most_rows=51)):
            other = spec.model_copy(update={"study": spec.study.model_copy(update={"person": person})})
            refused = propose(client, other, "other")
            assert (refused.status_code, refused.json()["rule"]) == (403, "study")
            assert refused.json()["detail"] == "the study is not one that the owner agreed to with this learner"
        assert client.get("/v1/budget").json() == before


@pytest.mark.parametrize("pinned", [None, "encounter_id"])
def test_a_study_whose_person_the_owner_does_not_pin_is_refused_for_nothing(tmp_path: Path, pinned: str | None) -> None:
    cluster = cluster_of(tmp_path / "one", 2)
    settings = cluster.party_settings("party-1")
    assert settings.data is not None
    settings = settings.model_copy(update={"data": settings.data.model_copy(update={"person": pinned})})
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        facts = client.get("/v1/party").json()["studies"][0]
        assert (facts.get("person"), facts["n_examples"]) == (pinned, PATIENTS)
        refused = propose(client, run(cluster, parameters={"n_rounds": 3}))
        assert (refused.status_code, refused.json()["rule"]) == (403, "person")
        assert "patient_nbr" in refused.json()["detail"]
        budget = client.get("/v1/budget").json()
        assert (budget["epsilon_spent"], budget["epsilon_reserved"]) == (0, 0)


def test_what_a_run_of_persons_is_charged_says_that_it_hides_persons(tmp_path: Path) -> None:
    cluster = cluster_of(tmp_path / "one", 2)
    cluster.policy = {"adjacency": "person"}
    settings = cluster.party_settings("party-1")
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        approved = propose(client, run(cluster, parameters={"n_rounds": 3}))
        assert approved.raise_for_status().json()["adjacency"] == "person"
        ask(client, 1, np.zeros(cluster.study.n_features)).raise_for_status()
    with open_store(settings) as store:
        (answer,) = store.answers()
        assert answer.adjacency == store.books.hides() == "person"
        assert hides(store.books.hides(), settings.policy.adjacency)


def test_a_learner_is_told_no_count_of_rows_if_data_have_to_be_loaded_again(tmp_path: Path) -> None:
    """If the identifiers of one patient get lost, what loading says counts its rows: that is for the owner's log."""
    cluster = cluster_of(tmp_path / "one", 40)
    table = cluster.root / "party-1.csv"
    settings = cluster.party_settings("party-1", shards={"idle_minutes": 1e-6})
    with capture_logs() as lines, Party(settings) as party:
        party.approve("learner", RunProposal(run="run", spec=run(cluster, "describe")))
        whole = table.read_text(encoding="utf-8")
        table.write_text(whole.replace('"p7",', '"",'), encoding="utf-8")
        time.sleep(0.001)
        party.tend()
        with pytest.raises(UnavailableError) as told:
            party.make_ready("learner", "run")
        assert told.value.detail == (
            "the data of made-up cannot be used as they are now; the log of their owner's party says why"
        )
        table.write_text(whole, encoding="utf-8")
        party.make_ready("learner", "run")
        assert party.store.account().spent == Cost(0, 0)
    assert any("identifier missing in 40 rows" in str(line.get("reason")) for line in lines)


async def test_an_owner_may_say_with_how_many_owners_a_person_is(tmp_path: Path) -> None:
    """The learner states an overlap, and would have less noise for less than is true."""
    cluster = cluster_of(tmp_path / "one", 2)
    cluster.policy = {"overlap": 3}
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        assert client.get("/v1/party").json()["studies"][0]["overlap"] == 3
        refused = propose(client, run(cluster, parameters={"n_rounds": 3}))
        assert (refused.status_code, refused.json()["rule"]) == (403, "overlap")
        assert refused.json()["detail"] == (
            "the same person may be with 2 of the run's owners, as this one says, and the run counts on 1 at most"
        )
        assert client.get("/v1/budget").json()["epsilon_reserved"] == 0
        assert propose(client, run(cluster, parameters={"n_rounds": 3}, overlap=2), "two").is_success
    async with asgi_cluster(cluster) as client:
        request = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "parameters": {"n_rounds": 3}}
        foreseen = (await client.post("/v1/runs", json=request)).json()
        assert foreseen["type"] == "urn:parley:problem:foreseen-refusal"
        assert any("--overlap 2" in words for words in foreseen["helps"]), foreseen
        assert (await client.post("/v1/runs", json=request | {"overlap": 2})).status_code == 202
