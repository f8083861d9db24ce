"""The learner's commands without a service: what they ask for, print, write, and say is next, to the letter."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import typer
from cryptography import x509
from typer.testing import CliRunner, Result

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.encoding.key_words import words_of
from parley.common.errors import ConflictError, InvalidInputError, NotFoundError, ParleyError, UnavailableError
from parley.common.secure_sum.envelope import public_hex
from parley.common.service.commands import Printer
from parley.common.service.problems import document_of
from parley.common.service.tokens import hash_token
from parley.common.storage.keys import identity_key
from parley.learner.api import routes
from parley.learner.cli import begin, main, queueing
from parley.learner.cli.client import LearnerClient
from parley.learner.cli.main import learner_app
from parley.learner.cli.options import LearnerOptions, SubmitOptions
from parley.learner.client import connection
from parley.learner.runs.states import RunEvent

TOKEN = "a-users-secret-token"


class Server(list[tuple[str, str, Any]]):
    """A learner that answers each request by its method and path, and notes it with its body."""

    def __init__(self, **answers: object) -> None:
        super().__init__()
        self.answers: dict[str, Any] = {
            place.replace("__", " /v1/").replace("_", "/"): it for place, it in answers.items()
        }
        self.headers: list[httpx.Headers] = []
        self._client: LearnerClient | None = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        content = request.content
        is_json = request.headers.get("Content-Type") == "application/json"
        self.append((request.method, path, json.loads(content) if content and is_json else content))
        self.headers.append(request.headers)
        answer = self.answers[f"{request.method} {path}"]
        if isinstance(answer, ParleyError):
            return httpx.Response(answer.status, json=document_of(answer))
        if isinstance(answer, list) and answer and isinstance(answer[0], RunEvent):
            text = "".join(f"event: {it.kind}\ndata: {it.data}\nid: {it.number}\n\n" for it in answer)
            return httpx.Response(200, text=text)
        return httpx.Response(200, content=answer) if isinstance(answer, bytes) else httpx.Response(200, json=answer)

    def client(self) -> LearnerClient:
        """The client of this learner."""
        self._client = self._client or LearnerClient("http://learner", TOKEN, httpx.MockTransport(self))
        return self._client


def events(*news: Mapping[str, Any]) -> list[RunEvent]:
    """Events of a run, each a round if it has one."""
    kinds = ("round" if "of" in each else "dropped" if "party" in each else "state" for each in news)
    return [RunEvent(i, kind, json.dumps(each)) for i, (kind, each) in enumerate(zip(kinds, news, strict=True), 1)]


def run(monkeypatch: pytest.MonkeyPatch, server: Server, *words: str, code: int = 0) -> Result:
    """A command that asks this learner."""
    monkeypatch.setattr(LearnerOptions, "open", lambda _: nullcontext(server.client()))
    done = CliRunner().invoke(learner_app, words)
    assert done.exit_code == code, done.output
    return done


# ── the client ───────────────────────────────────────────────────────────────


def test_lists_are_read_page_by_page(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server()
    server.answers = {
        "GET /v1/runs?limit=1000": {"runs": [1, 2], "next": "b", "damaged": ["r9"]},
        "GET /v1/runs?limit=1000&after=b": {"runs": [3], "next": None},
        "GET /v1/runs?limit=2": {"runs": [1, 2], "next": "b"},
        "GET /v1/runs?limit=500&after=b": {"runs": [3], "next": "c"},
        "GET /v1/runs?limit=1000&after=c": {"runs": [4], "next": "d"},
    }
    client = server.client()
    assert list(client.pages(routes.LIST_RUNS, "runs")) == [1, 2, 3]
    assert capsys.readouterr().err == ("r9 is damaged in the learner's database: ask for it alone to see what helps\n")
    assert list(client.pages(routes.LIST_RUNS, "runs", 2)) == [1, 2]
    assert list(client.pages(routes.LIST_RUNS, "runs", 1500)) == [1, 2, 3]
    assert [path for _, path, _ in server[2:]] == [
        "/v1/runs?limit=2", "/v1/runs?limit=1000", "/v1/runs?limit=500&after=b",
    ]  # fmt: skip
    assert list(client.pages(routes.LIST_RUNS, "runs", 0)) == []


def test_a_run_is_named_by_its_beginning_unless_another_begins_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    none = {name: NotFoundError(f"there is no run '{name}'") for name in ("5f1c", "ab12", "cd34", "5f")}
    view = {"id": "5f1c99", "state": "running"}
    server = Server(POST__runs_5f1c99_resume=view)
    server.answers |= {f"POST /v1/runs/{name}/resume": error for name, error in none.items()}
    listed = {"runs": [{"id": name} for name in ("5f1c99", "ab1234", "ab1256")], "next": None}
    server.answers["GET /v1/runs?limit=1000"] = listed
    assert run(monkeypatch, server, "resume", "5f1c").stdout == "5f1c99 was running, and asks again\n"
    refused = run(monkeypatch, server, "resume", "ab12", code=3)
    assert refused.stderr == "parley-learner: 2 runs begin with ab12: say more of the identifier\n"
    for name in ("cd34", "5f"):
        refused = run(monkeypatch, server, "resume", name, code=3)
        told = f"there is no run '{name}'; parley-learner list shows those there are"
        assert refused.stderr == f"parley-learner: {told}\n"
    server.answers |= {
        "GET /v1/runs/5f1c/events": none["5f1c"],
        "GET /v1/runs/5f1c99/events": events({"state": "completed"}),
    }
    assert "completed" in run(monkeypatch, server, "watch", "5f1c").stdout
    server.answers |= {"GET /v1/runs/5f1c/model": none["5f1c"], "GET /v1/runs/5f1c99/model": b'{"a": 1}'}
    with (tmp_path / "file").open("w+b") as file:
        assert server.client().download("/v1/runs/5f1c/model", file) == {"a": 1}


def test_a_file_is_downloaded_as_it_was_sent(tmp_path: Path) -> None:
    content = b'{"weights": [1.0,\n2.0]}'
    server = Server(GET__model=content, GET__none=NotFoundError("there is no such run"), GET__page=b"<html>")
    path = tmp_path / "file"
    with path.open("w+b") as file:
        assert server.client().download("/v1/model", file) == {"weights": [1.0, 2.0]}
    assert path.read_bytes() == content
    with path.open("w+b") as file, pytest.raises(NotFoundError, match="there is no such run"):
        server.client().download("/v1/none", file)
    with path.open("w+b") as file, pytest.raises(ParleyError, match="what answers at http://learner is no learner"):
        server.client().download("/v1/page", file)

    def away(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    client = LearnerClient("http://learner", TOKEN, httpx.MockTransport(away))
    with path.open("w+b") as file, pytest.raises(UnavailableError, match="no learner answers at http://learner"):
        client.download("/v1/model", file)


def test_a_request_has_a_body_and_headers() -> None:
    server = Server(POST__runs={"id": "r1"})
    assert server.client().ask("POST", "/v1/runs", {"a": 1}, {"X-Key": "k"}) == {"id": "r1"}
    assert server == [("POST", "/v1/runs", {"a": 1})]
    assert server.headers[0]["X-Key"] == "k"


def test_public_rows_are_uploaded_and_what_is_next_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_bytes(b"a,b\n1,2\n")
    uploaded = {"digest": "ab12", "rows": 1, "width": 2}
    server = Server()
    server.answers = {
        "PUT /v1/public?study=loans": uploaded,
        "PUT /v1/public?study=loans&start=true&labelled=true": uploaded | {"rows": 2000},
    }
    done = run(monkeypatch, server, "public", str(rows), "--study", "loans")
    assert done.stdout == "ab12\n"
    assert done.stderr.splitlines() == [
        "1 row of 2 numbers",
        "next: parley-learner submit loans --public ab12 --epsilon EPSILON --delta DELTA",
    ]
    done = run(monkeypatch, server, "public", str(rows), "--study", "loans", "--start", "--labelled")
    assert done.stderr.startswith("2,000 rows of 2 numbers\n")
    assert [content for *_, content in server] == [b"a,b\n1,2\n"] * 2


# ── runs ─────────────────────────────────────────────────────────────────────

ROUND = {"round": 3, "of": 9, "epsilon": {"a": 0.5, "b": 0.98765}}
DROPPED = {"party": "c", "round": 3, "reason": "it is late"}
SHOWN = ROUND | {"contributors": ["a"], "ms": 1.0, "stragglers": []}
ORDER = ("evaluate", "r0", "--epsilon", "0.5", "--delta", "1e-6")


def test_an_evaluation_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(POST__runs_r0_evaluation={"id": "r1"})
    done = run(monkeypatch, server, *ORDER, "-p", "largest_error=0.5", "--purpose", "to see", "--idempotency-key", "k")
    assert (done.stdout, done.stderr) == ("r1\n", "next: parley-learner watch r1\n")
    body = {"epsilon": 0.5, "delta": 1e-6, "budgets": {}, "parameters": {"largest_error": 0.5}, "threshold": None}
    body["purpose"] = "to see"
    assert server == [("POST", "/v1/runs/r0/evaluation", body)]
    assert server.headers[0]["Idempotency-Key"] == "k"
    done = run(monkeypatch, server, *ORDER, "--format", "json")
    assert (done.stdout, done.stderr) == ('{"id": "r1"}\n', "")
    assert "Idempotency-Key" not in server.headers[1]


def test_a_run_is_watched_with_the_evaluation_that_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(POST__runs_r0_evaluation={"id": "r1"})
    server.answers["GET /v1/runs/r1/events"] = events(SHOWN, {"state": "completed", "evaluated_by": "r2"})
    server.answers["GET /v1/runs/r2/events"] = events({"state": "completed", "evaluation": None})
    done = run(monkeypatch, server, *ORDER, "--watch")
    assert done.stdout == "completed after 3 rounds\ncompleted after 0 rounds\n"
    assert done.stderr == "next: parley-learner model r1\n"
    done = run(monkeypatch, server, *ORDER, "--watch", "--format", "json")
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"id": "r1"},
        {"run": "r1", "number": 1, "kind": "round", **SHOWN},
        {"run": "r1", "number": 2, "kind": "state", "state": "completed", "evaluated_by": "r2"},
        {"run": "r2", "number": 1, "kind": "state", "state": "completed", "evaluation": None},
    ]
    server.answers["GET /v1/runs/r1/events"] = events({"state": "completed", "evaluation": None})
    assert run(monkeypatch, server, "watch", "r1").stderr == "", "an evaluation has no model"
    server.answers["GET /v1/runs/r1/events"] = events({"state": "failed", "evaluated_by": "r2"})
    done = run(monkeypatch, server, "watch", "r1", code=1)
    assert (done.stdout, done.stderr) == ("failed after 0 rounds\n", "")


def test_who_stops_to_watch_is_told_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> Iterator[RunEvent]:
        raise KeyboardInterrupt

    monkeypatch.setattr(LearnerClient, "watch", stopped)
    with pytest.raises(KeyboardInterrupt):
        queueing.watch_run(Server().client(), "r1", Printer("text"))
    assert capsys.readouterr().err == "the run goes on: parley-learner watch r1, or cancel r1\n"


class Many:
    """A client that watches several runs, one of them evaluated."""

    opened: list[dict[str, Any]]
    streams: dict[str, list[RunEvent]]

    def __init__(self, url: str, **terms: object) -> None:
        self.opened.append({"url": url} | terms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def watch(self, run: str) -> AsyncIterator[RunEvent]:
        for event in self.streams[run]:
            yield event


def test_several_runs_are_watched_line_by_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Many.opened = []
    Many.streams = {
        "r1": events(
            {"state": "paused", "reason": "a is away"}, ROUND, DROPPED, {"state": "completed", "evaluated_by": "r3"}
        ),
        "r2": events({"state": "completed"}),
        "r3": events({"state": "completed", "problem": None}),
    }
    monkeypatch.setattr(connection, "AsyncConnection", Many)
    options = LearnerOptions("http://l", Path("token"), Path("ca"))
    queueing.watch_runs(options, ["r1", "r2"], Printer("text"))
    assert Many.opened == [{"url": "http://l", "token_file": Path("token"), "ca": Path("ca")}]
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "r1 completed",
        "r1 dropped c in round 3: it is late",
        "r1 paused: a is away",
        "r1 round 3 of 9, epsilon spent at most 0.988",
        "r2 completed",
        "r3 completed",
    ]
    queueing.watch_runs(options, ["r2"], Printer("json"))
    assert json.loads(capsys.readouterr().out) == {"run": "r2", "number": 1, "kind": "state", "state": "completed"}
    ends: tuple[dict[str, list[RunEvent]], ...] = (
        {"r1": events({"state": "completed", "evaluated_by": "r3"}), "r3": events({"state": "cancelled"})},
        {"r1": events({"state": "failed", "problem": {"detail": "too few"}, "reason": "x"})},
        {"r1": []},
    )
    for streams in ends:
        Many.streams = streams
        with pytest.raises(typer.Exit) as ended:
            queueing.watch_runs(options, ["r1"], Printer("text"))
        assert ended.value.exit_code == 1
    assert "r1 failed: too few\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("state", "done", "told"),
    [("cancelled", 1, "r1 is cancelled after 1 of 1 round"), ("failed", 0, "r1 is failed after 0 of 1 round")],
)
def test_a_cancelled_run_says_how_far_it_came(
    state: str, done: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(POST__runs_r1_cancel={"id": "r1", "state": state, "rounds": {"done": done, "of": 1}})
    assert run(monkeypatch, server, "cancel", "r1").stdout == f"{told}\n"


def test_a_model_is_described_in_lines() -> None:
    document: dict[str, Any] = {
        "column_names": ["a", "b"],
        "study": {"features": [{"columns": 1009}]},
        "rounds": 1,
        "kind": "softmax",
        "classes": ["x", "y", "z"],
        "algorithm": "dp_gd",
        "guarantees": [],
        "evaluation": None,
    }
    assert list(main._model_lines(document)) == [(True, "dp_gd, 1 round, softmax, 2 columns, 3 classes")]
    promise: dict[str, Any] = {
        "epsilon": None, "delta": 0.0, "view": "model", "trust": 0, "adjacency": "replace_one", "calibration": "tight",
        "assumptions": [],
    }  # fmt: skip
    figure = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    evaluation = {"epsilon": 1, "delta": 1e-5, "rows": 9, "contributors": ["a"], "rate": 0.95, "rmse": figure}
    sparse = document | {"column_names": [], "classes": None, "rounds": 2000}
    assert list(main._model_lines(sparse | {"guarantees": [promise], "evaluation": evaluation})) == [
        (True, "dp_gd, 2,000 rounds, softmax, 1,009 sparse columns"),
        (False, "no privacy against anyone who sees the model"),
        (False, "on 9 rows held out by 1 parties, at epsilon 1, delta 1e-05:"),
        (False, "  RMSE 0.5, between 0.25 and 0.75 at 95%"),
    ]


def test_a_threshold_is_set_and_the_figures_there_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = {"estimate": 0.5, "low": 0.25, "high": 0.75}
    names = ("accuracy", "balanced_accuracy", "precision", "recall", "specificity", "f1")
    point = {"score": -2.0, "confusion": [[1, 2], [3, 4]], **dict.fromkeys(names, figure)}
    evaluation = {"epsilon": 1, "delta": 1e-5, "rows": 9, "contributors": ["a"], "rate": 0.95, "points": [point]}
    threshold = {"rule": "f1", "score": -2.0, "estimated": True}
    document = {"study": {"label": {"values": ["no", "yes"]}}, "evaluation": evaluation, "threshold": threshold}
    server = Server()
    server.answers = {"PUT /v1/runs/r1/threshold": threshold, "GET /v1/runs/r1/model": document}
    done = run(monkeypatch, server, "threshold", "r1", "f1")
    assert server[0] == ("PUT", "/v1/runs/r1/threshold", {"rule": "f1"})
    assert done.stdout.startswith("'yes' is predicted where the score exceeds -2 (a probability of 0.119)")
    assert "  recall of yes 0.5, between 0.25 and 0.75 at 95%" in done.stdout.splitlines()
    assert done.stderr == "next: parley-learner model r1\n"
    assert json.loads(run(monkeypatch, server, "threshold", "r1", "f1", "--format", "json").stdout) == threshold
    server.answers["PUT /v1/runs/r1/threshold"] = None
    assert run(monkeypatch, server, "threshold", "r1", "none").stdout == "the threshold is 0, as without a rule\n"
    assert server[-1] == ("PUT", "/v1/runs/r1/threshold", {"rule": "none"})


def test_a_request_says_every_term_as_the_api_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(POST__runs={"id": "r1"})
    server.answers["POST /v1/forecasts"] = ConflictError("not now")
    words = (
        "--algorithm psgd -p n_rounds=5 --epsilon 2 --delta 1e-5 --party a --party b --budget b=0.5,1e-6 "
        "--minimum-contributors 2 --colluders 0 --secure-sum paillier --answer-every 3 --adjacency whole_party "
        "--public ab --class-weights no=0.1,yes=1 --seconds 9 --cohort 2,5 --evaluate 0.25 --threshold f1 --purpose why"
    )
    run(monkeypatch, server, "submit", "loans", *words.split())
    (_, path, body) = server[-1]
    assert path == "/v1/runs"
    assert body.pop("cohort")
    assert body == {
        "study": "loans", "algorithm": "psgd", "parameters": {"n_rounds": 5}, "epsilon": 2.0, "delta": 1e-5,
        "parties": ["a", "b"], "budgets": {"b": {"epsilon": 0.5, "delta": 1e-6}}, "minimum_contributors": 2,
        "colluders": 0, "secure_sum": "paillier", "answer_every": 3, "adjacency": "whole_party", "public": "ab",
        "overlap": 1,
        "class_weights": {"no": 0.1, "yes": 1.0}, "seconds": 9.0, "evaluate": 0.25, "threshold": "f1",
        "purpose": "why",
    }  # fmt: skip
    assert SubmitOptions() == SubmitOptions("", None, False)  # noqa: FBT003 -- what is not said
    study = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("0", "1")))
    (tmp_path / "study.json").write_text(study.model_dump_json())
    run(monkeypatch, server, "submit", str(tmp_path / "study.json"), "--epsilon", "2", "--delta", "1e-5")
    body = server[-1][2]
    assert body.pop("study") == study.model_dump(mode="json")
    assert body == {
        "algorithm": "dp_gd", "parameters": {}, "epsilon": 2.0, "delta": 1e-5, "parties": None, "budgets": {},
        "minimum_contributors": None, "colluders": None, "secure_sum": "none", "answer_every": 1, "overlap": 1,
        "adjacency": "replace_one", "public": None, "class_weights": None, "seconds": 60.0, "cohort": None,
        "evaluate": "auto", "threshold": None, "purpose": "",
    }  # fmt: skip


def test_a_token_that_others_can_read_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o644)
    client = LearnerOptions("http://learner:8100", file).open()
    assert capsys.readouterr().err == (f"parley-learner: warning: others can read your token: chmod 600 {file}\n")
    assert client.url == "http://learner:8100"
    assert client._http.headers["Authorization"] == f"Bearer {TOKEN}"
    file.chmod(0o600)
    LearnerOptions("http://learner", file).open()
    assert capsys.readouterr().err == ""
    absent = LearnerOptions("https://learner", file, tmp_path / "none.pem")
    with pytest.raises(InvalidInputError, match=r"none\.pem"):
        absent.open()


# ── owners ───────────────────────────────────────────────────────────────────

LOANS = {"name": "loans", "unit": "replace_one"}


@pytest.mark.parametrize(
    ("words", "asked", "command"),
    [
        (
            ("--study", "loans", "--hours", "1.5"),
            {"role": "party", "studies": ["loans"], "hours": 1.5},
            "parley-party join 'my owner.invitation.json' --data TABLE",
        ),
        (
            ("--key-holder",),
            {"role": "key_holder", "studies": [], "hours": 72.0},
            "parley-party keyholder join 'my owner.invitation.json'",
        ),
    ],
)
@pytest.mark.parametrize("is_member", [False, True])
def test_an_invitation_is_written_and_said_what_to_do_with(  # noqa: PLR0913 -- parameters of the test
    words: tuple[str, ...],
    asked: dict[str, Any],
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_member: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    members = [
        {"name": "other", "state": "member"},
        {"name": "my owner", "state": "member" if is_member else "invited", "studies": asked["studies"]},
    ]
    made = {"text": "a secret of letters: ä", "words": ["perfect", "armor"]}
    server = Server(GET__roster=members, POST__invitations=made, GET__studies=[LOANS])
    done = run(monkeypatch, server, "invite", "my owner", *words)
    file = Path("my owner.invitation.json")
    assert file.read_text(encoding="utf-8") == made["text"]
    assert file.stat().st_mode & 0o777 == 0o600
    lines = [
        f"{file} is for my owner alone: it holds a secret, and counts once, for {asked['hours']:g} hours",
        *([] if is_member else ["  read these words out by telephone: perfect armor"]),
        f"  they run: {command.removesuffix(' --data TABLE') if is_member else command}",
    ]
    renewed = (
        "  my owner is a member: in its own folder, it gets new tokens and, under TLS, a certificate; its key stays"
    )
    assert done.stdout.splitlines() == [*lines, *([renewed] if is_member else [])]
    following = "next: parley-learner roster confirm my owner WORDS   (the six that they read to you)\n"
    assert done.stderr == ("" if is_member else following)
    assert server[1] == ("POST", "/v1/invitations", {"name": "my owner"} | asked)
    again = run(monkeypatch, server, "invite", "my owner", *words)
    assert again.stdout.startswith("my owner-2.invitation.json is for my owner alone"), "an invitation is not replaced"
    done = run(monkeypatch, server, "invite", "my owner", *words, "--out", str(file), code=3)
    assert done.stderr == f"parley-learner: {file} is there already: move it, or say --out\n"
    done = run(monkeypatch, server, "invite", "my owner", *words, "--out", "none/a", code=3)
    assert done.stderr == "parley-learner: none/a cannot be written: No such file or directory\n"
    done = run(monkeypatch, server, "invite", "my owner", *words, "--out", "b.json", "--format", "json")
    assert json.loads(done.stdout) == {
        "file": "b.json", "name": "my owner", "role": asked["role"], "words": "perfect armor", "hours": asked["hours"],
        "renews": is_member,
    }  # fmt: skip


def test_an_owner_is_invited_to_the_only_study_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    server = Server(GET__studies=[LOANS], GET__roster=[], POST__invitations={"text": "a", "words": ["b"]})
    run(monkeypatch, server, "invite", "north")
    assert [asked["studies"] for method, _, asked in server if method == "POST"] == [["loans"]]
    server.answers["GET /v1/roster"] = [{"name": "north", "state": "invited", "invited_to": ["claims", "loans"]}]
    again = run(monkeypatch, server, "invite", "north")
    said = (
        "an earlier invitation, to claims, counts no more: to invite to all, parley-learner invite north --study claims"
    )
    assert f"{said} --study loans\n" in again.stdout
    server.answers["GET /v1/studies"] = [LOANS, {"name": "claims"}]
    refused = run(monkeypatch, server, "invite", "north", code=3)
    assert "there are loans, claims" in refused.stderr


def test_an_invitation_says_which_key_holders_it_does_not_name_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    states = {"notary": "invited", "clerk": "unconfirmed", "court": "member", "chamber": "settings"}
    roster = [{"name": name, "role": "key_holder", "state": state} for name, state in states.items()]
    server = Server(GET__roster=roster, POST__invitations={"text": "a", "words": ["b"]}, GET__studies=[LOANS])
    told = run(monkeypatch, server, "invite", "north", "--study", "loans").stderr.splitlines()
    so = (
        "yet, so the invitation does not name it: the party insists on no secure sums with it unless you invite north "
        "again once it has joined and is confirmed"
    )
    assert told[:-1] == [f"the key holder notary has not joined {so}", f"the key holder clerk is not confirmed {so}"]
    assert "yet" not in run(monkeypatch, server, "invite", "judge", "--key-holder").stderr


def test_a_member_is_confirmed_by_words_or_plainly_without(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(POST__roster_north_confirmation=b"")
    assert run(monkeypatch, server, "roster", "confirm", "north", "a", "b").stdout == "north takes part\n"
    done = run(monkeypatch, server, "roster", "confirm", "north", "--unchecked")
    assert done.stdout == "north takes part; nobody has compared the words of its key\n"
    assert [body for _, _, body in server] == [{"words": "a b"}, {"unchecked": True}]
    for words in ([], ["a", "--unchecked"]):
        assert "say the six words" in run(monkeypatch, server, "roster", "confirm", "north", *words, code=2).stderr


# ── a learner of one's own ───────────────────────────────────────────────────


def begun(folder: Path, *words: str, code: int = 0) -> Result:
    """What `init` prints."""
    done = CliRunner().invoke(learner_app, ["init", *words, "--out", str(folder)])
    assert done.exit_code == code, done.output
    return done


def test_a_learner_in_the_clear_is_made_as_its_settings_say(tmp_path: Path) -> None:
    root = tmp_path / "a folder"
    done = begun(root, "http://127.0.0.1:8100/", "--plain-http", "--name", "my learner")
    token = (root / "secrets" / "operator.token").read_text()
    words = " ".join(words_of(public_hex(identity_key(root / "state" / "identity.key"))))
    assert (
        (root / "learner.toml").read_text()
        == f"""\
# The learner: where it listens, who may use it. Owners join by invitations: parley-learner invite.
name = "my learner"
host = "127.0.0.1"
port = 8100
state = "{root}/state"
studies = "{root}/studies"

joining = {{ url = "http://127.0.0.1:8100" }}

[[users]]
name = "operator"
role = "operator"
token_hash = "{hash_token(token.strip())}"
"""
    )
    assert (
        done.stdout
        == f"""\
a learner in {root}; owners will ask for the words of its key:
  {words}
put studies into {root}/studies, one JSON file each, start it, and invite owners:
  export PARLEY_URL=http://127.0.0.1:8100 PARLEY_TOKEN_FILE='{root}/secrets/operator.token'
  parley-learner invite NAME --study STUDY
"""
    )
    assert done.stderr == f"next: parley-learner serve --config '{root}/learner.toml'\n"
    assert token.endswith("\n")
    assert (root / "studies").is_dir()
    assert sorted(path.name for path in (root / "secrets").iterdir()) == ["operator.token"]
    refused = begun(root, "http://127.0.0.1:8100", "--plain-http", code=3)
    assert refused.stderr == f"parley-learner: {root} has a learner already\n"
    done = begun(tmp_path / "b", "http://127.0.0.1", "--plain-http", "--format", "json")
    document = json.loads(done.stdout)
    assert document.keys() == {"folder", "words", "start", "environment"}
    assert document["environment"] == {
        "PARLEY_URL": "http://127.0.0.1",
        "PARLEY_TOKEN_FILE": str(tmp_path / "b/secrets/operator.token"),
    }


def test_a_learner_under_tls_has_an_authority_and_a_certificate(tmp_path: Path) -> None:
    done = begun(tmp_path, "https://learner.example.org:8100")
    joining = (
        f'joining = {{ url = "https://learner.example.org:8100", authority = "{tmp_path}/secrets/authority.pem", '
        f'authority_key = "{tmp_path}/secrets/authority.key" }}'
    )
    settings = (tmp_path / "learner.toml").read_text().splitlines()
    assert settings[1:4] == ['name = "learner"', 'host = "0.0.0.0"', "port = 8100"]
    assert settings[6:14] == [
        "",
        joining,
        "",
        "[tls]  # users show tokens; members show certificates too",
        f'certificate = "{tmp_path}/state/tls.pem"',
        f'key = "{tmp_path}/secrets/tls.key"',
        f'client_ca = "{tmp_path}/secrets/authority.pem"',
        'clients = "optional"',
    ]
    certificate = x509.load_pem_x509_certificate((tmp_path / "state" / "tls.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert sorted(str(name.value) for name in names) == ["127.0.0.1", "learner.example.org", "localhost"]
    authority = x509.load_pem_x509_certificate((tmp_path / "secrets" / "authority.pem").read_bytes())
    assert authority.subject == certificate.issuer
    assert re.search(r"learner \d{4}-\d\d-\d\d", authority.subject.rfc4514_string())
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "secrets").iterdir()}
    assert modes == {"authority.pem": 0o644, "authority.key": 0o600, "tls.key": 0o600, "operator.token": 0o600}
    assert f" PARLEY_CA={tmp_path}/secrets/authority.pem\n" in done.stdout


@pytest.mark.parametrize(
    ("url", "terms", "address"),
    [
        ("https://a.example", {}, ("0.0.0.0", 443)),  # noqa: S104 -- what is tested
        ("http://a.example", {"plain_http": True}, ("0.0.0.0", 80)),  # noqa: S104 -- as above
        ("https://localhost:1", {}, ("127.0.0.1", 1)),
        ("https://127.0.0.2:65535", {}, ("127.0.0.2", 65535)),
        ("https://localhost", {"compose": True}, ("0.0.0.0", 443)),  # noqa: S104 -- as above
        ("https://[::1]:5", {}, ("::1", 5)),
        ("https://[2001:db8::1]", {}, ("::", 443)),
        ("https://a.example/", {"listen": "[::2]"}, ("::2", 443)),
        ("https://a.example", {"listen": "10.0.0.1", "compose": True}, ("10.0.0.1", 443)),
    ],
)
def test_a_learner_listens_where_it_is_reached(url: str, terms: dict[str, Any], address: tuple[str, int]) -> None:
    terms = {"listen": None, "plain_http": False, "compose": False} | terms
    assert begin._address(httpx.URL(url), terms.pop("listen"), **terms) == address


@pytest.mark.parametrize(
    ("url", "terms", "message"),
    [
        ("ftp://a.example", {}, "ftp://a.example is not https://host:port"),
        ("https:", {}, "https: is not https://host:port"),
        ("https://a.example/b", {}, "https://a.example/b is not https://host:port"),
        ("https://a.example:0", {}, "https://a.example:0: a port is a number from 1 to 65535"),
        ("https://a.example:65536", {}, "https://a.example:65536: a port is a number from 1 to 65535"),
        (
            "https://[fe80::1%25eth0]",
            {},
            "https://[fe80::1%25eth0]: a zone (%...) has a meaning on one machine only: give an address without it",
        ),
        ("http://a.example", {}, "https:// means TLS, and http:// needs the option --plain-http"),
        ("https://a.example", {"plain_http": True}, "https:// means TLS, and http:// needs the option --plain-http"),
        (
            "https://a.example",
            {"listen": "127.0.0.1", "compose": True},
            "--listen 127.0.0.1: nobody reaches this address within a container; leave the option out",
        ),
    ],
)
def test_an_address_that_cannot_be_is_refused_in_full(url: str, terms: dict[str, Any], message: str) -> None:
    terms = {"listen": None, "plain_http": False, "compose": False} | terms
    with pytest.raises(InvalidInputError) as refused:
        begin._address(httpx.URL(url), terms.pop("listen"), **terms)
    assert refused.value.detail == message


def test_a_text_that_is_no_url_is_refused() -> None:
    with pytest.raises(InvalidInputError) as refused:
        begin._url("https://a b:x")
    assert refused.value.detail == "https://a b:x is not https://host:port"


def test_a_learner_says_whether_it_is_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun(tmp_path / "l", "http://127.0.0.1:8100", "--plain-http", "--name", "mine")
    words, asked = ["health", "--config", str(tmp_path / "l" / "learner.toml")], list[str]()
    monkeypatch.setattr("parley.common.service.health.ask_ready", lambda settings: asked.append(settings.name))
    done = CliRunner().invoke(learner_app, words)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "ready\n", "")
    told = CliRunner().invoke(learner_app, [*words, "--format", "json"])
    assert json.loads(told.stdout) == {"ready": True}
    assert asked == ["mine", "mine"]

    def refuse(_: object) -> None:
        raise UnavailableError("it does not answer")

    monkeypatch.setattr("parley.common.service.health.ask_ready", refuse)
    done = CliRunner().invoke(learner_app, words)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "it does not answer" in done.stderr
