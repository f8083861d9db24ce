"""What the learner's routes rest on: roles, metrics, files of its page, uploads, and views of what the store holds."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry, generate_latest

from parley.common.client.peer import Line
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Person, Study
from parley.common.errors import (
    DamagedError,
    ForbiddenError,
    InvalidDataError,
    UnauthorizedError,
    UnsupportedMediaError,
)
from parley.common.learning.statistics import STATISTICS, WEIGHED
from parley.common.protocol.receipts import Head, read_receipt, write_receipt
from parley.common.secure_sum.envelope import Signed
from parley.common.service.http.connections import CERTIFIED
from parley.common.service.http.pages import page_headers
from parley.common.service.prometheus import Metrics
from parley.common.service.tokens import InvitedCaller, NamedCaller, PeerCaller
from parley.learner.api import app as learner_app
from parley.learner.api import roles, uploads
from parley.learner.api.page import _HEADERS, PageFile, add_page, statistics_script
from parley.learner.api.run_metrics import RunCounters, RunGauge
from parley.learner.api.schemas import OpenedRound, RunView, StudySummary
from parley.learner.api.service import LearnerService
from parley.learner.api.table_task import TABLE_BOUNDS, TableTask
from parley.learner.execution.fair_use import FairUse
from parley.learner.runs.run import Pause, Run, RunTerms
from parley.learner.runs.states import RunEvent
from parley.learner.storage.public_rows import PublicRowStore
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.session_store import Opening
from tests.support.cluster import Cluster
from tests.support.ledgers import KEY

STUDY = Study(
    name="s",
    title="A study",
    purpose="to see",
    features=(Feature(name="x", lower=0, upper=1), Feature(name="z", lower=0, upper=1)),
    label=Label(name="y", values=("a", "b")),
)


def request_by(caller: object, **scope: object) -> Request:
    """A request of a caller."""
    request = Request({"type": "http", "method": "GET", "headers": [], **scope})
    request.state.caller = caller
    return request


def test_each_route_takes_callers_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "caller_of", lambda request: request.state.caller)
    callers: dict[str, PeerCaller | InvitedCaller | NamedCaller] = {
        "peer": PeerCaller("ann"),
        "invited": InvitedCaller("bob"),
        "user": NamedCaller("eve"),
    }
    takes = {"peer": roles.peer_name, "invited": roles.invited_name, "user": roles.user_name}
    for kind, name in takes.items():
        for other, caller in callers.items():
            if kind == other:
                assert name(request_by(caller)) == caller.name
            else:
                with pytest.raises(ForbiddenError) as refused:
                    name(request_by(caller))
                assert refused.value.facts == {"rule": "role"}


def test_a_certificate_has_to_be_for_the_name() -> None:
    scopes: list[dict[str, Any]] = [{}, {"state": {}}, {"state": {CERTIFIED: lambda: {"bob"}}}]
    for scope in scopes:
        with pytest.raises(ForbiddenError, match="a certificate for ann has to be shown") as refused:
            roles.check_certified(Request({"type": "http", **scope}), "ann")
        assert refused.value.facts == {"rule": "certificate"}
    roles.check_certified(Request({"type": "http", "state": {CERTIFIED: lambda: {"ann"}}}), "ann")


def test_a_user_of_no_known_role_may_look() -> None:
    users: list[Any] = [SimpleNamespace(name="olga", role="operator"), SimpleNamespace(name="sam", role="submitter")]
    known = roles.Roles.of(users, cast("Any", None))
    assert [known.role(NamedCaller(user)) for user in ("olga", "sam", "new")] == ["operator", "submitter", "viewer"]


def test_a_route_without_a_least_role_is_an_error() -> None:
    app = FastAPI()
    app.add_api_route("/page", lambda: None)
    roles.check_every_route(app)
    app.add_api_route("/v1/secrets", lambda: None, methods=["GET"])
    with pytest.raises(LookupError, match=r"no least role for \[\('GET', '/v1/secrets'\)\]"):
        roles.check_every_route(app)


def test_rounds_and_losses_are_counted_and_told_to_watchers() -> None:
    told: list[tuple[str, object]] = []
    registry = CollectorRegistry()
    notifier = SimpleNamespace(notify=lambda run, events: told.append((run, events)))
    counters = RunCounters(cast("Any", SimpleNamespace(registry=registry)), cast("Any", notifier))
    registry.register(RunGauge(cast("Any", SimpleNamespace(count=lambda: {"queued": 3}))))
    states = [
        RunEvent(number, "state", f'{{"state": "{state}"}}') for number, state in enumerate(("running", "failed"))
    ]
    events = [states[0], *(RunEvent(number, kind, "{}") for number, kind in enumerate(("dropped", "round", "round")))]
    counters.announce("a", events)
    counters.announce("b", ())
    counters.announce("a", states[1:])
    assert told == [("a", events), ("b", ()), ("a", ())], "an end is read from the store"
    lines = [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]
    assert lines == [
        "# HELP parley_runs_ended_total Runs that ended, by state.",
        "# TYPE parley_runs_ended_total counter",
        *[
            f'parley_runs_ended_total{{state="{state}"}} {count}'
            for state, count in (("completed", 0.0), ("failed", 1.0), ("cancelled", 0.0))
        ],
        "# HELP parley_rounds_total Rounds that were logged, of all runs.",
        "# TYPE parley_rounds_total counter",
        "parley_rounds_total 2.0",
        "# HELP parley_dropped_parties_total Times that a party was silent and will not be asked again by its run.",
        "# TYPE parley_dropped_parties_total counter",
        "parley_dropped_parties_total 1.0",
        "# HELP parley_runs Runs by state.",
        "# TYPE parley_runs gauge",
        'parley_runs{state="queued"} 3.0',
        *[
            f'parley_runs{{state="{state}"}} 0.0'
            for state in ("recruiting", "running", "paused", "completed", "failed", "cancelled")
        ],
    ]


async def test_a_file_of_the_page_is_sent_unless_the_browser_has_it() -> None:
    app = FastAPI()
    add_page(app, None)
    assert app.openapi()["paths"] == {}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://learner") as client:
        sent = await client.get("/page/statistics.js")
        assert (sent.status_code, sent.content) == (200, statistics_script())
        again = await client.get("/page/statistics.js", headers={"If-None-Match": sent.headers["etag"]})
        other = await client.get("/page/statistics.js", headers={"If-None-Match": '"0"'})
    assert (again.status_code, again.content, other.content) == (304, b"", sent.content)
    assert sent.headers["content-type"] == "text/javascript; charset=utf-8"
    expected = _HEADERS | {"Cache-Control": "no-cache", "ETag": sent.headers["etag"]}
    for answer in (sent, again):
        assert {name: answer.headers.get(name) for name in expected} == expected
    assert page_headers("x").keys() == _HEADERS.keys()


def test_a_file_is_tagged_by_its_content() -> None:
    file = PageFile.of(b"", ".css")
    assert file == PageFile(b"", "text/css", 'W/"e3b0c44298fc1c149afbf4c8996fb924"')


def test_the_page_lists_the_statistics_that_have_a_title() -> None:
    script, weighed = statistics_script().decode().splitlines(keepends=True)
    assert weighed == f"export const WEIGHED = {json.dumps(dict(WEIGHED))};\n"
    assert script.startswith("export const STATISTICS = [{")
    assert script.endswith("}];\n")
    name, first = next((name, each) for name, each in STATISTICS.items() if each.title)
    shown = f'"name": "{name}", "title": "{first.title}", "shown": "{first.shown}", "better": '
    assert f"= [{{{shown}" in script
    assert "\\u" not in script
    assert script.count('"name"') == sum(bool(each.title) for each in STATISTICS.values())


def run(**changes: object) -> Run:
    """A run as the store has it."""
    terms = RunTerms(
        study="s",
        algorithm="dp_gd",
        parameters={"n_rounds": 4},
        parties=("ann", "bob"),
        epsilon={"ann": 1.0, "bob": 2.0},
        minimum_contributors=2,
        colluders=1,
        answer_every=3,
        secure_sum="paillier",
        adjacency="replace_one",
        public=None,
        spec_digest="0" * 64,
        n_rounds=4,
        seconds=60.0,
        any_algorithm=False,
        chosen={"step": "why"},
        absent={"bob": "away"},
        cautions=("a caution",),
    )
    fields: dict[str, Any] = {
        "id": "a",
        "user": "alice",
        "purpose": "to see",
        "created": "2026-01-01",
        "state": "running",
        "stage": "running",
        "spec_text": "",
        "terms": terms,
        "rounds": 2,
        "problem": None,
        "key_holders": ("kim",),
        "evaluates": "b",
        "evaluations": ("c",),
    }
    return Run(**fields | changes)


def test_a_run_is_viewed_with_its_terms_and_progress() -> None:
    view: dict[str, Any] = {
        "id": "a",
        "user": "alice",
        "purpose": "to see",
        "created": "2026-01-01",
        "state": "running",
        "study": "s",
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": 4},
        "parties": ["ann", "bob"],
        "epsilon": {"ann": 1.0, "bob": 2.0},
        "minimum_contributors": 2,
        "colluders": 1,
        "answer_every": 3,
        "secure_sum": "paillier",
        "class_weights": None,
        "key_holders": ["kim"],
        "adjacency": "replace_one",
        "overlap": 1,
        "public": None,
        "evaluates": "b",
        "evaluations": ["c"],
        "threshold": None,
        "evaluation": None,
        "spec_digest": "0" * 64,
        "seconds": 60.0,
        "chosen": {"step": "why"},
        "cohort": None,
        "absent": {"bob": "away"},
        "cautions": ["a caution"],
        "rounds": {"done": 2, "of": 4},
        "problem": None,
        "pause": None,
    }
    assert RunView.of(run()).model_dump(mode="json") == view
    pause = Pause("ann is away", ("ann",), "2026-01-02")
    paused = {"reason": "ann is away", "who": ["ann"], "since": "2026-01-02"}
    stored = RunView.of(run(state="paused", pause=pause)).model_dump(mode="json")
    assert stored == view | {"state": "paused", "pause": paused | {"written": True}}
    unwritten = RunView.of(run(), pause).model_dump(mode="json")
    assert unwritten == view | {"state": "paused", "pause": paused | {"written": False}}
    problem = {"type": "x", "title": "X", "status": 500, "detail": "why", "party": "ann"}
    failed = RunView.of(run(state="failed", problem=problem)).model_dump(mode="json")
    assert failed["problem"] == problem


def test_a_run_is_viewed_as_it_stands_or_named_as_damaged() -> None:
    pause = Pause("the disk is full", (), "2026-01-02")
    learner = cast("Any", SimpleNamespace(engine=SimpleNamespace(unwritten={"a": pause})))
    assert LearnerService.view_of(learner, run()) == RunView.of(run(), pause)
    assert LearnerService.view_of(learner, run(id="b")) == RunView.of(run(id="b"))
    with pytest.raises(DamagedError, match=r"^the row of run 'a' in the table 'runs' of the learner's database"):
        LearnerService.view_of(learner, run(problem={"type": 7}))


def test_a_study_is_told_in_short() -> None:
    assert StudySummary.of(STUDY).model_dump() == {
        "name": "s",
        "title": "A study",
        "purpose": "to see",
        "digest": STUDY.digest,
        "kind": STUDY.kind,
        "label": "y",
        "n_classes": 2,
        "loss": STUDY.loss.kind,
        "features": 2,
        "n_features": STUDY.n_features,
        "unit": "record",
        "person": None,
        "norm": STUDY.norm,
        "sparse": False,
        "divisor": None,
    }
    of_persons = StudySummary.of(STUDY.model_copy(update={"person": Person(column="patient")}))
    assert (of_persons.unit, of_persons.person) == ("person", "patient")
    divisors = [
        StudySummary.of(STUDY.model_copy(update={"row_norm": norm})).divisor for norm in ("own", "largest", 7.0)
    ]
    assert divisors == [None, STUDY.largest_norm, 7.0]


def test_an_opened_round_is_told_with_what_key_holders_signed() -> None:
    holder = SimpleNamespace(name="kim", key="0c" * 32)
    opening = Opening(7, (1,), {"kim": Signed(b"a statement", b"\x01\xff")})
    view = OpenedRound.of(opening, ("ann", "bob"), cast("Any", SimpleNamespace(key_holders=[holder])))
    assert view.model_dump() == {
        "round": 7,
        "contributors": ("bob",),
        "receipts": (
            {
                "key_holder": "kim",
                "public_key": "0c" * 32,
                "tag": "parley-secure-sum-1/opened",
                "statement": "a statement",
                "signature": "01ff",
            },
        ),
    }


async def test_news_ends_once_a_token_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [100.0], list[str | None]()

    async def identify(headers: Mapping[str, str]) -> None:
        asked.append(headers.get("authorization"))
        if len(asked) == 2:
            raise UnauthorizedError("it has expired")

    async def news() -> AsyncIterator[float]:
        for seconds in (0.0, 5.0, 0.5, 4.9, 0.2, 9.0):
            now[0] += seconds
            yield now[0]

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tokens = SimpleNamespace(state=SimpleNamespace(tokens=SimpleNamespace(identify_request=identify)))
    request = Request({"type": "http", "headers": [(b"authorization", b"Bearer t")], "app": tokens})
    told = [item async for item in learner_app._while_token_counts(news(), request)]
    assert (told, asked) == ([100.0, 105.0, 105.5, 110.4], ["Bearer t", "Bearer t"])


def upload(*pieces: bytes, media: str | None = "application/octet-stream") -> Request:
    """A request whose body comes in pieces."""
    remaining = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
    remaining.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        return remaining.pop(0)

    headers = [] if media is None else [(b"content-type", media.encode())]
    return Request({"type": "http", "method": "PUT", "headers": headers}, cast("Any", receive))


@pytest.mark.parametrize("media", ["application/octet-stream", " Application/Octet-Stream ; charset=x"])
async def test_an_upload_is_read_from_a_file_of_its_kind(monkeypatch: pytest.MonkeyPatch, media: str) -> None:
    tasks: list[TableTask] = []
    contents: list[bytes] = []

    def read(task: TableTask) -> np.ndarray[Any, Any]:
        tasks.append(task)
        contents.append(task.path.read_bytes())
        return np.zeros((1, 2))

    monkeypatch.setattr(uploads, "_read", read)
    reader = uploads.Uploads()
    for pieces, suffix in (((b"x,", b"z\n"), ".csv"), ((b"PAR", b"1..."), ".parquet"), ((b"PAR",), ".csv")):
        table = await reader.read(upload(*pieces, media=media), STUDY, "labelled")
        assert table.shape == (1, 2)
        task = tasks[-1]
        assert (task.study, task.kind, task.most) == (STUDY, "labelled", (2**24 - 2**12) // 8)
        assert (task.path.name, contents[-1]) == (f"rows{suffix}", b"".join(pieces))
        assert not task.path.parent.exists()


@pytest.mark.parametrize("media", [None, "text/csv", "text/csv;application/octet-stream"])
async def test_an_upload_of_another_media_type_is_refused(media: str | None) -> None:
    with pytest.raises(UnsupportedMediaError, match="the body must be application/octet-stream"):
        await uploads.Uploads().read(upload(b"x", media=media), STUDY, "rows")


def test_an_upload_is_called_the_body_in_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given: list[tuple[object, ...]] = []

    def receive(module: str, *, input_bytes: bytes, bounds: object) -> tuple[np.ndarray[Any, Any]]:
        given.append((module, input_bytes, bounds))
        if len(given) == 1:
            return (np.zeros(1),)
        raise InvalidDataError(f"data file {tmp_path} has no row, and data file {tmp_path}x has none")

    monkeypatch.setattr(uploads, "receive_arrays", receive)
    task = TableTask(path=tmp_path, study=STUDY, kind="rows", most=7)
    assert uploads._read(task).tolist() == [0.0]
    with pytest.raises(InvalidDataError, match=r"^the body has no row, and the bodyx has none$"):
        uploads._read(task)
    assert given[0] == ("parley.learner.api.tables", task.model_dump_json().encode(), TABLE_BOUNDS)


def test_a_learner_starts_from_what_it_has_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, n_parties=2, makes_ledgers=False)
    settings = cluster.learner_settings()
    kept = read_receipt(write_receipt(KEY, signer="party-1", ledger="0" * 64, head=Head(3, "0" * 64)).text)
    with closing(RunStore(settings.state / "learner.sqlite")) as store:
        store.keep([kept])
    rows = PublicRowStore(settings.state / "public").add(np.zeros((1, 2)))
    with monkeypatch.context() as patched:
        patched.setattr("parley.learner.api.service.FairUse.by", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            LearnerService.build(settings, Line, Metrics())
    learner = LearnerService.build(settings, Line, Metrics())  # the first has closed its store
    with closing(learner.store):
        assert list(learner.roster) == ["party-1", "party-2"]
        assert [party.receipts.newest for party in learner.roster.values()] == [kept, None]
        assert (learner.witnesses.newest("party-1"), learner.witnesses.newest("party-2")) == (kept, None)
        assert learner.rows.find(rows.digest) == rows
        assert list(learner.studies) == ["made-up"]
        assert (learner.settings, learner.fair.streams) == (settings, FairUse.by(settings.shares).streams)
        assert learner.members.parties is learner.roster
        assert learner.members.receipts() == {"party-1": kept}
        assert learner.members.key.private_bytes_raw() == learner.sums.key.private_bytes_raw()
        assert (learner.members.board, learner.members.sums) == (learner.board, learner.sums)
