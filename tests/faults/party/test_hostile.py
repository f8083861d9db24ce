"""Hostile requests: refused by a problem document, never by a crash, at no cost, with nothing private in it.

Each is sent to a party over ASGI whose data holds recognisable values. A request may be refused or, where it is merely
odd, be a question of a run that the party does not know; none may be answered.
"""

from __future__ import annotations

import gzip
import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from parley.common.encoding.npy import NPY, pack_array
from parley.common.protocol.receipts import RECEIPT_HEADER as RECEIPT
from parley.common.wire.party_api import RunProposal
from parley.party.api.app import create_party_app
from tests.support.cluster import LEARNER, Cluster
from tests.support.metrics import metrics_of
from tests.support.processes import free_port, start_party, stopped_at_exit, wait_until_ready
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

SECRETS = ("0.271828", "0.314159", "0.577215")
"""Values of the data, which no response and no log may hold."""
Hostile = tuple[str, str, str, dict[str, Any]]
"""A name, a method, a path, and what httpx is told besides."""

JSON = {"Content-Type": "application/json"}
BINARY = {"Content-Type": NPY}
ROUND = "/v1/runs/run/rounds/2?step=gradient"
BODY_BYTES = 2**16
GOOD = pack_array(np.full(4, 0.5))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    cluster = Cluster(tmp_path_factory.mktemp("hostile"), n_parties=2)
    path = cluster.root / "party-1.csv"
    header, first, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, ",".join([*SECRETS, first.split(",")[-1]]), *lines]) + "\n")
    return cluster


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[httpx.Client]:
    """A party with an approved run whose first round was answered."""
    app = create_party_app(cluster.party_settings("party-1", limits={"body_bytes": BODY_BYTES}))
    with TestClient(app, headers=ASKING, raise_server_exceptions=False) as client:
        propose(client, run_spec(cluster)).raise_for_status()
        ask(client, 1, weights(cluster, 1)).raise_for_status()
        yield client


def as_round(name: str, content: bytes, **headers: str) -> Hostile:
    """A round with this body."""
    return name, "PUT", ROUND, {"content": content, "headers": BINARY | headers}


def strangers() -> Iterator[Hostile]:
    """Callers that are not the learner."""
    message = pack_array(np.zeros(4))
    for token in (
        "",
        "Bearer",
        "Bearer ",
        "Bearer x",
        f"Basic {LEARNER}",
        LEARNER,
        f"Bearer {LEARNER}x",
        "Bearer \xff",
    ):
        headers = BINARY | {"Authorization": token.encode("latin-1")}
        yield f"token {token!r}", "PUT", ROUND, {"content": message, "headers": headers}


def messages() -> Iterator[Hostile]:
    """Bodies that are no message of this run."""
    good = pack_array(np.zeros(4))
    for name, array in {
        "nan": np.array([0, np.nan, 0, 0]),
        "infinite": np.array([0, np.inf, 0, 0]),
        "minus infinite": np.full(4, -np.inf),
        "huge": np.full(4, 1e300),
        "overflowing": np.array([1.7e308] * 4),
        "beyond the norm": np.full(4, 2.0**16),
        "short": np.zeros(3),
        "long": np.zeros(5),
        "empty": np.zeros(0),
        "two axes": np.zeros((1, 4)),
        "no axis": np.zeros(()),
        "three axes": np.zeros((1, 2, 2)),
        "integers": np.zeros(4, dtype=np.int64),
        "single precision": np.zeros(4, dtype=np.float32),
        "big endian": np.zeros(4, dtype=">f8"),
        "complex": np.zeros(4, dtype=np.complex128),
        "text": np.array(["a"] * 4),
        "column order": np.asfortranarray(np.zeros((2, 2))),
    }.items():
        yield as_round(name, pack_array(array) if array.ndim else b"\x93NUMPY\x01\x00")
    header = good[:-32].decode("latin-1")
    for name, body in {
        "nothing": b"",
        "magic alone": good[:6],
        "half a header": good[:40],
        "header alone": good[:-32],
        "half a number": good[:-4],
        "a number too much": good + bytes(8),
        "version 2": good[:6] + b"\x02" + good[7:],
        "version 255": good[:6] + b"\xff\xff" + good[8:],
        "header length": good[:8] + b"\xff\xff" + good[10:],
        "objects": header.replace("<f8", "|O").encode("latin-1") + b"cos\nsystem\n(S'true'\ntR.",
        "pickle": b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x04true\x94\x85\x94R\x94.",
        "code": header.replace("(4,)", "__import__('os').abort()").encode("latin-1"),
        "negative shape": header.replace("(4,)", "(-1, -4)").encode("latin-1") + bytes(32),
        "endless shape": header.replace("(4,)", f"({9**30},)").encode("latin-1") + bytes(32),
        "true shape": header.replace("(4,)", "(True, 4)").encode("latin-1") + bytes(32),
        "zip": b"PK\x03\x04" + bytes(30),
    }.items():
        yield as_round(name, body)


def bodies() -> Iterator[Hostile]:
    """Bodies of the wrong size, type or encoding."""
    good = pack_array(np.zeros(4))
    yield as_round("oversized", bytes(BODY_BYTES + 1))
    yield "chunked and oversized", "PUT", ROUND, {"content": iter([bytes(1024)] * 100), "headers": BINARY}
    yield "length that lies", "PUT", ROUND, {"content": iter([good]), "headers": BINARY | {"Content-Length": "9" * 30}}
    yield "length that is none", "PUT", ROUND, {"content": iter([good]), "headers": BINARY | {"Content-Length": "-1"}}
    for encoding in ("gzip", "deflate", "br", "zstd", "identity, gzip", "x"):
        body = gzip.compress(good) if encoding == "gzip" else good
        yield as_round(f"encoding {encoding}", body, **{"Content-Encoding": encoding})
    yield as_round("bomb", gzip.compress(bytes(10**7)), **{"Content-Encoding": "gzip"})
    for media in (
        "",
        "text/plain",
        "application/octet-stream",
        "application/x-npyx",
        "multipart/form-data; boundary=x",
    ):
        yield as_round(f"type {media!r}", good, **{"Content-Type": media})


def questions() -> Iterator[Hostile]:
    """Rounds, steps and runs that are not there."""
    good = {"content": pack_array(np.zeros(4)), "headers": BINARY}
    for round in ("0", "-1", "11", "1e1", "2.0", "٢", "²", "9" * 400, "nan", "%00", "2%20", "0x2", "2;drop", "NaN"):
        yield f"round {round[:9]}", "PUT", f"/v1/runs/run/rounds/{round}?step=gradient", good
    yield "round answered otherwise", "PUT", "/v1/runs/run/rounds/1?step=gradient", good
    for query in ("", "step=", "step=minimise", "step=Gradient", "step=gradient&reveal=each", "step=gradient%00"):
        yield f"query {query}", "PUT", f"/v1/runs/run/rounds/2?{query}", good
    for run in ("other", "RUN", "..", "%2e%2e", "run%00", "run'--", "a" * 5000, "%ff", "r%75n%2frun"):
        yield f"run {run[:9]}", "PUT", f"/v1/runs/{run}/rounds/2?step=gradient", good
        yield f"end {run[:9]}", "DELETE", f"/v1/runs/{run}", {}
    for method, path in (
        ("POST", ROUND),
        ("PATCH", "/v1/runs"),
        ("TRACE", "/v1/party"),
        ("GET", "/v1/runs"),
        ("PUT", "/"),
    ):
        yield f"{method} {path}", method, path, good


def json_rounds() -> Iterator[Hostile]:
    """Rounds in JSON that are not one."""
    for name, body in {
        "nan": '{"step": "gradient", "message": [NaN, 0, 0, 0]}',
        "infinity": '{"step": "gradient", "message": [Infinity, 0, 0, 0]}',
        "overflow": '{"step": "gradient", "message": [1e999, 0, 0, 0]}',
        "huge integer": '{"step": "gradient", "message": [' + "9" * 5000 + ", 0, 0, 0]}",
        "large integer": '{"step": "gradient", "message": [' + "9" * 400 + ", 0, 0, 0]}",
        "text": '{"step": "gradient", "message": ["0", "0", "0", "x"]}',
        "null": '{"step": "gradient", "message": [null, 0, 0, 0]}',
        "ragged": '{"step": "gradient", "message": [[0, 0], [0]]}',
        "deep": '{"step": "gradient", "message": ' + "[" * 5000 + "]" * 5000 + "}",
        "deeper than the stack": "[" * 30000,
        "extra": '{"step": "gradient", "message": [0, 0, 0, 0], "noise": 0}',
        "no step": '{"message": [0, 0, 0, 0]}',
        "no message": '{"step": "gradient"}',
        "reveal": '{"step": "gradient", "reveal": "all", "message": [0, 0, 0, 0]}',
        "a list": "[]",
        "not JSON": "{'step'}",
        "not UTF-8": '"\xff"',
        "a byte order mark": "\ufeff{}",
        "nothing": "",
    }.items():
        content = body.encode("latin-1") if name == "not UTF-8" else body.encode()
        yield f"JSON {name}", "PUT", ROUND, {"content": content, "headers": JSON}


def proposals(cluster: Cluster) -> Iterator[Hostile]:
    """Runs that the owner does not allow, or that are none."""
    spec = run_spec(cluster).model_dump(mode="json")
    parties = spec["parties"]
    member = {"name": parties["names"][0], "n_examples": parties["n_examples"][0], "budget": parties["budgets"][0]}
    study = spec["study"]
    changes: dict[str, dict[str, Any]] = {
        "epsilon 0": {"parties": columns(member | {"budget": {"epsilon": 0, "delta": 1e-5}})},
        "epsilon negative": {"parties": columns(member | {"budget": {"epsilon": -1, "delta": 1e-5}})},
        "epsilon nan": {"parties": columns(member | {"budget": {"epsilon": float("nan"), "delta": 1e-5}})},
        "epsilon infinite": {"parties": columns(member | {"budget": {"epsilon": float("inf"), "delta": 1e-5}})},
        "epsilon text": {"parties": columns(member | {"budget": {"epsilon": "many", "delta": 1e-5}})},
        "epsilon tiny": {"parties": columns(member | {"budget": {"epsilon": 1e-300, "delta": 1e-5}})},
        "epsilon too small for the grid": {"parties": columns(member | {"budget": {"epsilon": 1e-9, "delta": 1e-5}})},
        "epsilon huge": {"parties": columns(member | {"budget": {"epsilon": 1e300, "delta": 1e-5}})},
        "epsilon above the owner's": {"parties": columns(member | {"budget": {"epsilon": 101, "delta": 1e-5}})},
        "delta 0": {"parties": columns(member | {"budget": {"epsilon": 1, "delta": 0}})},
        "delta 1": {"parties": columns(member | {"budget": {"epsilon": 1, "delta": 1}})},
        "delta negative": {"parties": columns(member | {"budget": {"epsilon": 1, "delta": -0.1}})},
        "delta nan": {"parties": columns(member | {"budget": {"epsilon": 1, "delta": float("nan")}})},
        "delta above the owner's": {"parties": columns(member | {"budget": {"epsilon": 1, "delta": 0.2}})},
        "unknown algorithm": {"algorithm": "gradient_ascent"},
        "algorithm of another type": {"algorithm": ["dp_gd"]},
        "algorithm without noise": {"algorithm": "local", "parameters": {}},
        "algorithm of a curator": {"algorithm": "gop", "parameters": {}},
        "unknown parameter": {"parameters": {"noise": 0}},
        "no rounds": {"parameters": {"n_rounds": 0}},
        "rounds negative": {"parameters": {"n_rounds": -5}},
        "rounds beyond the owner's": {"parameters": {"n_rounds": 10_001}},
        "rounds huge": {"parameters": {"n_rounds": 10**30}},
        "regularization nan": {"parameters": {"regularization": float("nan")}},
        "regularization 0": {"parameters": {"regularization": 0}},
        "roster without the party": {"parties": columns(member | {"name": "party-9"})},
        "roster empty": {"parties": columns()},
        "roster with the party twice": {"parties": columns(member, member)},
        "roster unknown": {"parties": "0" * 64},
        "roster no digest": {"parties": "0" * 63},
        "roster of rows": {"parties": [member]},
        "roster with a column short": {"parties": parties | {"n_examples": []}},
        "roster with a column long": {"parties": parties | {"budget_of": [0] * 9}},
        "roster with a budget missing": {"parties": parties | {"budget_of": [1] * len(parties["names"])}},
        "roster with a place negative": {"parties": parties | {"budget_of": [-1] * len(parties["names"])}},
        "roster with budgets of nobody": {"parties": parties | {"budgets": [member["budget"]] * 2}},
        "party name odd": {"parties": columns(member, member | {"name": "../x"})},
        "size misstated": {"parties": columns(member | {"n_examples": 10**6})},
        "size 0": {"parties": columns(member | {"n_examples": 0})},
        "size huge": {"parties": columns(member | {"n_examples": 10**40})},
        "size of another huge": {"parties": columns(member, member | {"name": "other", "n_examples": 2**63})},
        "contributors 0": {"minimum_contributors": 0},
        "contributors too many": {"minimum_contributors": 99},
        "contributors huge": {"minimum_contributors": 10**30},
        "colluders all": {"colluders": 2},
        "colluders negative": {"colluders": -1},
        "another study": {"study": study | {"name": "another"}},
        "another bound": {"study": study | {"features": [study["features"][0] | {"upper": 2}, *study["features"][1:]]}},
        "bounds nan": {"study": study | {"features": [study["features"][0] | {"upper": float("nan")}]}},
        "row norm 0": {"study": study | {"row_norm": 0}},
        "clip norm 2": {"parameters": {"clip_norm": 2}},
        "a step that diverges": {"algorithm": "dp_gd", "parameters": {"step": 9.0, "momentum": 0.0}},
        "unknown field": {"noise": 0},
        "unknown secure sum": {"secure_sum": "trust-me"},
    }
    for name, change in changes.items():
        body = json.dumps({"run": "hostile", "spec": spec | {"minimum_contributors": 1} | change})
        yield f"run {name}", "POST", "/v1/runs", {"content": body, "headers": JSON}
    yield from malformed_proposals(RunProposal(run="hostile", spec=run_spec(cluster)).model_dump_json())


def columns(*members: dict[str, Any]) -> dict[str, Any]:
    """Members as they are written down, each with a budget of its own."""
    columns = {f"{name}s": [member[name] for member in members] for name in ("name", "budget")}
    return columns | {"n_examples": [member["n_examples"] for member in members], "budget_of": [*range(len(members))]}


def malformed_proposals(good: str) -> Iterator[Hostile]:
    """Proposals that are no proposal."""
    for name, body in {
        "nothing": "",
        "null": "null",
        "a list": "[]",
        "half": good[: len(good) // 2],
        "deep": '{"run": ' + '{"a": ' * 1000 + "1" + "}" * 1001,
        "deep parameters": good.replace('"n_rounds":10', '"n_rounds":' + "[" * 500 + "]" * 500),
        "overflow in parameters": good.replace('"n_rounds":10', '"n_rounds":1e999'),
        "another run": good.replace('"hostile"', '"run"').replace('"n_rounds":10', '"n_rounds":9'),
        "run of another type": good.replace('"hostile"', "3"),
        "run odd": good.replace('"hostile"', '"../../etc"'),
        "run endless": good.replace('"hostile"', f'"{"a" * 200}"'),
    }.items():
        yield f"proposal {name}", "POST", "/v1/runs", {"content": body.encode(), "headers": JSON}
    for media in ("text/plain", "application/x-npy", ""):
        yield f"proposal as {media}", "POST", "/v1/runs", {"content": good.encode(), "headers": {"Content-Type": media}}
    for receipt in ("x", "e30=", "W10=", "bnVsbA==", "a" * 4000, "a" * 9000):
        headers = JSON | {RECEIPT: receipt}
        yield f"receipt {receipt[:8]}", "POST", "/v1/runs", {"content": good.encode(), "headers": headers}


def test_hostile_requests(
    client: httpx.Client, cluster: Cluster, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    hostile = [*strangers(), *messages(), *bodies(), *questions(), *json_rounds(), *proposals(cluster)]
    before = client.get("/v1/budget").json()
    answered, crashed, leaks = [], [], []
    for name, method, path, more in hostile:
        response = client.request(method, path, **more)
        if response.is_success:
            answered.append(name)
        elif response.status_code >= 500 and "receipt" not in name:
            crashed.append((name, response.text))
        else:
            assert response.headers["content-type"] == "application/problem+json", name
        if any(secret in response.text + str(response.headers) for secret in SECRETS):
            leaks.append(name)
    charges = client.get("/v1/budget").json() != before
    written = "".join([metrics_of(client), caplog.text, *capfd.readouterr()])
    figures = f"{len(crashed)} answered 5xx, {int(charges)} charges, {len(leaks)} private bytes"
    print(f"{len(hostile)} hostile requests: {figures}")
    assert answered == []
    assert crashed == []
    assert not charges
    assert leaks == []
    assert "refused" in written
    assert not any(secret in written for secret in SECRETS)
    assert propose(client, run_spec(cluster)).is_success, "the party lives on"


RAW = (
    b"PUT /v1/runs/run/rounds/2 HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
    b"PUT /v1/runs/run/rounds/2 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"PUT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
    b"GET /v1/party HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2**20 + b"\r\n\r\n",
    b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/party HTTP/9.9\r\n\r\n",
    b"GET /v1/party\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    bytes(1000),
)


def test_what_is_not_http_gets_no_answer_either(cluster: Cluster) -> None:
    settings = cluster.party_settings("party-2", port=free_port())
    with stopped_at_exit(start_party(settings)):
        wait_until_ready(f"http://127.0.0.1:{settings.port}")
        for raw in RAW:
            assert status_of(settings.port, raw) in (None, 400, 401, 404, 413, 431), raw[:60]
        wait_until_ready(f"http://127.0.0.1:{settings.port}")


def status_of(port: int, raw: bytes) -> int | None:
    """The status that a service answers raw bytes with; None where it closes the connection or waits for more."""
    with socket.create_connection(("127.0.0.1", port), timeout=2) as connection, suppress(OSError):
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        reply = connection.recv(4096)
        return int(reply.split()[1]) if reply.startswith(b"HTTP/1.1 ") else None
    return None


@settings(max_examples=150)
@given(content=st.binary(max_size=300) | st.binary(max_size=100).map(lambda tail: GOOD[: len(GOOD) - len(tail)] + tail))
def test_any_bytes_are_refused(client: httpx.Client, content: bytes) -> None:
    """Bytes at random, and a good body with a random end, in a round that was answered otherwise."""
    response = client.put("/v1/runs/run/rounds/1?step=gradient", content=content, headers=BINARY)
    assert response.status_code in (409, 422), response.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=10), children, max_size=4),
    max_leaves=10,
)


@settings(max_examples=150)
@given(value=json_values, key=st.sampled_from(["study", "algorithm", "parameters", "parties", "minimum_contributors"]))
def test_any_json_is_refused(client: httpx.Client, cluster: Cluster, value: object, key: str) -> None:
    """A proposal in which something else stands for a part of the specification."""
    spec = run_spec(cluster).model_dump(mode="json")
    if (
        value == spec[key]
        or (key == "parameters" and value == {})
        or (key == "minimum_contributors" and value in (1, 2))
    ):
        return
    response = client.post("/v1/runs", content=json.dumps({"run": "any", "spec": spec | {key: value}}), headers=JSON)
    assert response.status_code in (403, 422), response.text
