"""The client of the learner's API: what it sends, what it makes of refusals, and how it watches over a bad line."""

from __future__ import annotations

import asyncio
import copy
import inspect
import io
import json
import random
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import httpx
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from parley.common import errors
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    ParleyError,
    SecureSumError,
    UnauthorizedError,
    UnavailableError,
)
from parley.common.learning.description import Description
from parley.common.runs.specification import PublicRows
from parley.common.service.http.proxy import ProxyAccess, spell_hosts, spell_hosts_async
from parley.common.service.problems import document_of
from parley.common.service.settings import Limits
from parley.learner.api.requests import RunRequest
from parley.learner.api.schemas import RunPage, RunView, UserView
from parley.learner.client import AsyncLearner, Learner, calls, connection
from parley.learner.client.calls import Calls, RunOptions, columns_of, records_of
from parley.learner.client.connection import (
    Call,
    Watching,
    api_call,
    body_bytes,
    checked_url,
    cut_off,
    json_call,
    options_of,
    proxy_for,
    refusal_of,
)
from parley.learner.client.learner import completed_run
from parley.learner.client.progress import RunBar, metrics_in_words, terminal
from parley.learner.client.token import has_token, others_read, read_token
from parley.learner.forecasting.views import ForecastView
from parley.learner.runs.states import RunEvent

URL, TOKEN = "http://learner", "a-users-secret-token"
Answer = Callable[[httpx.Request], httpx.Response]


def learner(answer: Answer, patience: float = 60.0) -> Learner:
    return Learner(URL, TOKEN, httpx.MockTransport(answer), patience=patience)


def refused(error: ParleyError) -> Learner:
    """A learner that answers everything with an error."""
    return learner(lambda _: httpx.Response(error.status, json=document_of(error)))


def spelt(number: int, kind: str, **news: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(news)}\nid: {number}\n\n"


class Streams:
    """A learner whose answers to watchers are these, in turn; it notes after which event each was asked for."""

    def __init__(self, *answers: str | int | Exception) -> None:
        self.answers, self.after = list(answers), list[int]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.after.append(int(request.headers["Last-Event-ID"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, int):
            return httpx.Response(answer, text="a proxy's page")
        return httpx.Response(200, text=answer)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST", 1e-4)
    monkeypatch.setattr(connection, "_LONGEST", 1e-3)
    for name in ("PARLEY_TOKEN", "PARLEY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


class TestToken:
    def test_is_given_in_a_file_or_in_the_environment(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "token").write_text(f" {TOKEN}\n")
        assert read_token(file=tmp_path / "token") == TOKEN
        monkeypatch.setenv("PARLEY_TOKEN_FILE", str(tmp_path / "token"))
        assert read_token() == TOKEN
        monkeypatch.setenv("PARLEY_TOKEN", "another")
        assert read_token() == "another"
        assert read_token("given") == "given"

    @pytest.mark.parametrize("text", ["", " \n", "two words", "a\nb", "schlüssel", "\x00"])
    def test_that_cannot_be_one_is_refused_and_not_repeated(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(text)
        for given in ({"token": text}, {"file": tmp_path / "token"}):
            with pytest.raises(InvalidInputError) as caught:
                read_token(**given)
            assert not text.strip() or text not in caught.value.detail

    def test_is_needed(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="PARLEY_TOKEN_FILE"):
            read_token()
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_token(file=tmp_path / "none")

    def test_the_words_of_a_refusal_name_its_source(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match=rf"^the token file {tmp_path / 'none'} cannot be read$"):
            read_token(file=tmp_path / "none")
        (tmp_path / "empty").write_text("\n")
        with pytest.raises(InvalidInputError, match=rf"^the token file {tmp_path / 'empty'} is empty$"):
            read_token(file=tmp_path / "empty")
        with pytest.raises(InvalidInputError, match=r"^the token holds more than one word"):
            read_token("two words")
        (tmp_path / "token").write_bytes(b"\xff")
        with pytest.raises(InvalidInputError, match="cannot be read"):
            read_token(file=tmp_path / "token")

    def test_an_empty_name_of_a_file_names_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PARLEY_TOKEN_FILE", "")
        assert not has_token()
        with pytest.raises(InvalidInputError, match="a token is needed"):
            read_token()

    @pytest.mark.parametrize("name", ["PARLEY_TOKEN", "PARLEY_TOKEN_FILE"])
    def test_may_be_in_the_environment(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        assert not has_token()
        monkeypatch.setenv(name, "x")
        assert has_token()

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o610, 0o601, 0o620, 0o602])
    def test_that_others_may_read_is_told(self, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (file := tmp_path / "token").write_text(TOKEN)
        assert others_read(None) is None
        file.chmod(0o700)
        assert others_read(file) is None
        file.chmod(mode)
        assert others_read(file) == file
        monkeypatch.setenv("PARLEY_TOKEN_FILE", str(file))
        assert others_read(None) == file
        monkeypatch.setenv("PARLEY_TOKEN", "x")
        assert others_read(None) is None

    def test_is_in_no_words_of_a_client(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(0)
        with refused(NotFoundError("there is no such run")) as client, pytest.raises(NotFoundError) as caught:
            client.run("a")
        told = f"{client!r} {vars(client)!r} {client._http.headers!r} {caught.value!r} {caplog.text}"
        assert TOKEN not in told
        assert repr(client) == "Learner('http://learner')"


RUN = "/v1/runs/a"
RUN_VIEW: dict[str, Any] = {
    "id": "a",
    "user": "alice",
    "purpose": "",
    "created": "2026-01-01T00:00:00.000+00:00",
    "state": "completed",
    "study": "s",
    "algorithm": "dp_gd",
    "parameters": {},
    "parties": ["ann"],
    "epsilon": {"ann": 1.0},
    "minimum_contributors": 1,
    "colluders": 0,
    "answer_every": 1,
    "secure_sum": "none",
    "key_holders": [],
    "adjacency": "replace_one",
    "overlap": 1,
    "public": None,
    "evaluates": None,
    "evaluations": [],
    "spec_digest": "0",
    "seconds": 60.0,
    "chosen": {},
    "cohort": None,
    "absent": {},
    "class_weights": None,
    "rounds": {"done": 2, "of": 2},
    "problem": None,
    "pause": None,
}
TERMS = {"study": "s", "epsilon": 1.0, "delta": 0.5}
STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("a", "b")))
ASKED: list[tuple[str, tuple[object, ...], dict[str, Any], tuple[object, ...]]] = [
    ("user", (), {}, ("GET", "/v1/user")),
    ("parties", (), {}, ("GET", "/v1/parties")),
    ("parties", (0.2,), {}, ("GET", "/v1/parties?within=0.2")),
    ("studies", (), {}, ("GET", "/v1/studies")),
    ("study", ("s",), {}, ("GET", "/v1/studies/s")),
    ("forecast", ("s",), {"epsilon": 1.0, "delta": 0.5}, ("POST", "/v1/forecasts", TERMS)),
    (
        "forecast",
        ("s",),
        {"epsilon": 1.0, "delta": 0.5, "owners": MappingProxyType({"ann": 7}), "colluders": 1},
        ("POST", "/v1/forecasts", TERMS | {"owners": {"ann": 7}, "colluders": 1}),
    ),
    ("submit", ("s",), {"epsilon": 1.0, "delta": 0.5}, ("POST", "/v1/runs", TERMS)),
    (
        "submit",
        (STUDY,),
        {"epsilon": 1.0, "delta": 0.5, "idempotency_key": "k", "purpose": "to see"},
        (
            "POST",
            "/v1/runs",
            TERMS | {"study": STUDY.model_dump(mode="json"), "purpose": "to see"},
            {"Idempotency-Key": "k"},
        ),
    ),
    ("page", (), {}, ("GET", "/v1/runs?limit=100")),
    ("page", (), {"limit": 7, "after": "a"}, ("GET", "/v1/runs?limit=7&after=a")),
    ("run", ("a",), {}, ("GET", RUN)),
    ("cancel", ("a",), {}, ("POST", f"{RUN}/cancel")),
    ("resume", ("a",), {}, ("POST", f"{RUN}/resume")),
    ("opened", ("a",), {}, ("GET", f"{RUN}/receipts")),
    ("model", ("a",), {}, ("GET", f"{RUN}/model")),
    ("card", ("a",), {}, ("GET", f"{RUN}/card?to=markdown")),
    ("export", ("a", "onnx"), {}, ("GET", f"{RUN}/export?to=onnx")),
    ("description", ("a",), {}, ("GET", f"{RUN}/description")),
    (
        "evaluate",
        ("a",),
        {"epsilon": 1.0, "delta": 0.5},
        (
            "POST",
            f"{RUN}/evaluation",
            {"epsilon": 1.0, "delta": 0.5, "budgets": {}, "parameters": {}, "purpose": ""},
        ),
    ),
    (
        "evaluate",
        ("a",),
        {
            "epsilon": 1.0,
            "delta": 0.5,
            "budgets": {"ann": MappingProxyType({"epsilon": 2.0})},
            "parameters": MappingProxyType({"share": 0.5}),
            "threshold": "f1",
            "purpose": "to see",
            "idempotency_key": "k",
        },
        (
            "POST",
            f"{RUN}/evaluation",
            {
                "epsilon": 1.0,
                "delta": 0.5,
                "budgets": {"ann": {"epsilon": 2.0}},
                "parameters": {"share": 0.5},
                "purpose": "to see",
                "threshold": "f1",
            },
            {"Idempotency-Key": "k"},
        ),
    ),
    ("threshold", ("a", "recall=.9"), {}, ("PUT", f"{RUN}/threshold", {"rule": "recall=.9"})),
    ("threshold", ("a", None), {}, ("PUT", f"{RUN}/threshold", {"rule": "none"})),
]


READ_BY: dict[str, object] = {
    "user": UserView.model_validate_json,
    "parties": calls._PARTIES.validate_json,
    "studies": calls._STUDIES.validate_json,
    "study": Study.model_validate_json,
    "forecast": ForecastView.model_validate_json,
    "submit": RunView.model_validate_json,
    "page": RunPage.model_validate_json,
    "run": RunView.model_validate_json,
    "cancel": RunView.model_validate_json,
    "resume": RunView.model_validate_json,
    "opened": calls._OPENED.validate_json,
    "model": calls._read_model,
    "card": bytes.decode,
    "export": bytes,
    "description": Description.model_validate_json,
    "evaluate": RunView.model_validate_json,
    "threshold": calls._THRESHOLD.validate_json,
}


class TestRequests:
    def test_rows_to_predict_for_are_sent_as_records(self) -> None:
        (call,) = calls.prediction_calls("a", {"x": [1.0]})
        assert (call.method, call.path, call.body) == ("POST", f"{RUN}/predictions", None)
        assert (call.headers, call.content) == ({"Content-Type": "application/json"}, b'{"records": [{"x": 1.0}]}')
        assert call.read == calls._PREDICTIONS.validate_json

    @pytest.mark.parametrize(("name", "given", "named", "asked"), ASKED)
    def test_each_method_asks_by_its_route(
        self, name: str, given: tuple[object, ...], named: dict[str, Any], asked: tuple[object, ...]
    ) -> None:
        call = vars(Calls)[name].call(None, *given, **named)
        left_out: tuple[object, ...] = (None, {})[len(asked) - 2 :]
        assert (call.method, call.path, call.body, call.headers) == (*asked, *left_out)
        assert call.content is None
        assert call.read == READ_BY[name]

    def test_a_table_is_sent_as_it_is(self, tmp_path: Path) -> None:
        (table := tmp_path / "rows.CSV").write_text("x\n1\n")
        upload = vars(Calls)["upload_public_rows"].call
        call = upload(None, "s", table)
        assert (call.method, call.path) == ("PUT", "/v1/public?study=s&start=false&labelled=false")
        assert (call.body, call.content) == (None, b"x\n1\n")
        assert call.headers == {"Content-Type": "application/octet-stream"}
        assert call.options["content"] == b"x\n1\n"
        assert call.read == PublicRows.model_validate_json
        assert upload(None, "s", table, start=True, labelled=True).path.endswith("?study=s&start=true&labelled=true")
        (tmp_path / "rows.parquet").mkdir()
        for path in (tmp_path / "rows.parquet", tmp_path / "none.csv"):
            with pytest.raises(InvalidInputError, match="is no CSV"):
                upload(None, "s", path)

    def test_a_call_is_what_httpx_takes(self) -> None:
        call = json_call("POST", "/v1/x", {"a": np.int64(1)}, {"K": "v"})
        assert call.options == {
            "method": "POST",
            "url": "/v1/x",
            "headers": {"K": "v", "Content-Type": "application/json"},
            "content": b'{"a": 1}',
        }
        assert json_call("GET", "/v1/x").options == {"method": "GET", "url": "/v1/x", "headers": {}, "content": None}
        assert (call.read(b'{"a": 1}'), call.read(b"")) == ({"a": 1}, None)
        for value in ("a\tb", "\xe9"):
            with pytest.raises(InvalidInputError, match="K may have printable ASCII"):
                _ = json_call("GET", "/v1/x", headers={"K": value}).options

    def test_addresses_have_their_options(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("PARLEY_PROXY", raising=False)
        context = ssl.create_default_context()
        options = options_of("https://learner.example", "t", context, None)
        assert options == {
            "base_url": "https://learner.example",
            "headers": {"Authorization": "Bearer t"},
            "proxy": None,
            "trust_env": False,
            "verify": context,
            "timeout": httpx.Timeout(connect=10.0, read=60.0, write=10.0, pool=10.0),
        }
        assert checked_url("http://[fe80::1%25eth0]:80") == "http://[fe80::1%eth0]:80"
        monkeypatch.setenv("PARLEY_PROXY", "http://proxy.example:3128")
        named = proxy_for("https://learner.example", None)
        assert options_of("https://learner.example", "t", context, named)["proxy"].url.host == "proxy.example"
        assert proxy_for("http://127.0.0.1:80", None) is None
        assert proxy_for("http://127.0.0.1:80", "http://given.example:1") == ProxyAccess("http://given.example:1")
        assert proxy_for("https://learner.example", "") is None
        with pytest.raises(InvalidInputError, match=rf"not be '{'x' * 200}'$"):
            checked_url("x" * 201)

    def test_all_runs_are_told_page_by_page(self) -> None:
        whole = [RUN_VIEW | {"id": name} for name in "abc"]
        pages = {None: (whole[:2], "b"), "b": (whole[2:], "c"), "c": ([], None)}

        def answer(request: httpx.Request) -> httpx.Response:
            runs, after = pages[request.url.params.get("after")]
            return httpx.Response(200, json={"runs": runs, "next": after, "damaged": []})

        async def told() -> list[str]:
            async with AsyncLearner(URL, TOKEN, httpx.MockTransport(answer)) as client:
                return [run.id async for run in client.runs()]

        assert [run.id for run in learner(answer).runs()] == ["a", "b", "c"]
        assert asyncio.run(told()) == ["a", "b", "c"]

    def test_a_run_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/events"):
                return httpx.Response(200, text=FIRST_SHOWN + spelt(3, "state", state="completed"))
            return httpx.Response(200, json=RUN_VIEW)

        bars: list[tuple[bool, list[int]]] = []

        class Bar(RunBar):
            def __init__(self, *, shown: bool) -> None:
                super().__init__(shown=False)
                bars.append((shown, []))

            def show(self, event: RunEvent) -> None:
                bars[-1][1].append(event.number)

        async def wait(**options: bool) -> str:
            async with AsyncLearner(URL, TOKEN, httpx.MockTransport(answer)) as client:
                return (await client.wait("a", **options)).id

        monkeypatch.setattr("parley.learner.client.learner.RunBar", Bar)
        ended = [learner(answer).wait("a").id, learner(answer).wait("a", progress=False).id]
        ended += [asyncio.run(wait()), asyncio.run(wait(progress=False))]
        assert ended == ["a"] * 4
        assert bars == [(shown, [1, 2, 3]) for shown in (True, False, True, False)]

    def test_a_run_is_asked_for_in_the_words_of_the_api(self) -> None:
        fields = set(RunRequest.model_fields) - {"study", "epsilon", "delta"}
        assert set(RunOptions.__annotations__) == fields

    def test_methods_have_the_words_and_arguments_of_their_calls(self) -> None:
        assert "idempotency_key" in inspect.signature(Learner.submit).parameters
        assert inspect.signature(Learner.submit).return_annotation == "RunView"
        assert inspect.getdoc(Learner.submit) == inspect.getdoc(AsyncLearner.submit)
        public = {name for name in dir(Learner) if not name.startswith("_")}
        assert public == {name for name in dir(AsyncLearner) if not name.startswith("_")}

    def test_each_record_is_spelt_once_in_all_pieces_it_is_sent_in(self, monkeypatch: pytest.MonkeyPatch) -> None:
        spelt: list[object] = []
        records: list[dict[str, Any]] = [{"x": 1.5, "c": "\u0437"}, {"x": None}, {}, {"x": [1, 2]}, {"x": 0}]

        def spell(record: object) -> bytes:
            spelt.append(record)
            return body_bytes(record)

        monkeypatch.setattr(calls, "_MOST_RECORDS", 2)
        monkeypatch.setattr(calls, "body_bytes", spell)
        bodies = list(calls.bodies_of(records))
        assert [json.loads(body)["records"] for body in bodies] == [records[:2], records[2:4], records[4:]]
        assert spelt == records
        assert list(calls.bodies_of([])) == [body_bytes({"records": []})]

    def test_rows_are_predicted_in_pieces_and_their_order(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pieces: list[list[dict[str, float]]] = []

        def answer(request: httpx.Request) -> httpx.Response:
            assert (request.method, request.url.path) == ("POST", "/v1/runs/run/predictions")
            assert request.headers["Content-Type"] == "application/json"
            pieces.append(json.loads(request.content)["records"])
            if any(record["x"] < 0 for record in pieces[-1]):
                return httpx.Response(422, json=document_of(InvalidInputError("record 0: x must be positive")))
            no_chances = {"score": 0.0, "probability": None, "probabilities": None}
            return httpx.Response(200, json=[{"label": record["x"]} | no_chances for record in pieces[-1]])

        async def ask() -> list[str | float]:
            async with AsyncLearner(URL, TOKEN, httpx.MockTransport(answer)) as client:
                return [prediction.label for prediction in await client.predict("run", {"x": numbers})]

        numbers = [0.0, 1.0, 2.0, 3.0, 4.0]
        monkeypatch.setattr(calls, "_MOST_RECORDS", 2)
        with learner(answer) as client:
            assert [prediction.label for prediction in client.predict("run", {"x": numbers})] == numbers
            assert list(map(len, pieces)) == [2, 2, 1]
            with pytest.raises(InvalidInputError, match=r"^of the rows from 2 on: record 0: x must be positive"):
                client.predict("run", [{"x": 1.0}, {"x": 1.0}, {"x": -1.0}])
        pieces.clear()
        monkeypatch.setattr(calls, "_MOST_RECORDS", 100)
        monkeypatch.setattr(calls, "_MOST_BYTES", 3 * len('{"x": 0.0}, '))
        assert asyncio.run(ask()) == numbers
        assert list(map(len, pieces)) == [3, 2]

    @pytest.mark.slow
    def test_many_rows_are_predicted_in_pieces_that_a_learner_takes(self) -> None:
        """In the rows' order; a refusal says which piece its numbers count in."""
        sizes: list[int] = []

        def answer(request: httpx.Request) -> httpx.Response:
            records = json.loads(request.content)["records"]
            sizes.append(len(request.content))
            if any(record["x"] == "odd" for record in records):
                return httpx.Response(422, json=document_of(InvalidInputError("record 0: x must be a number")))
            return httpx.Response(
                200,
                json=[
                    {"label": each["x"], "score": 0.0, "probability": None, "probabilities": None} for each in records
                ],
            )

        numbers = np.arange(150_000.0).tolist()
        rows = {"x": numbers, "text": ["\u0437" * 20] * 150_000}
        with learner(answer) as client:
            assert [each.label for each in client.predict("run", rows)] == numbers
            assert sum(sizes) > Limits().run_bytes > 1.9 * max(sizes)
            with pytest.raises(InvalidInputError, match=r"^of the rows from \d+ on: record 0: x must"):
                client.predict("run", [{"x": 1.0}] * 100_000 + [{"x": "odd"}])

        async def ask() -> list[str | float]:
            async with AsyncLearner(URL, TOKEN, httpx.MockTransport(answer)) as client:
                return [each.label for each in await client.predict("run", rows)]

        assert asyncio.run(ask()) == numbers

    @pytest.mark.parametrize("key", ["one\ntwo", "\u0437", "\xe9tude"])
    def test_a_key_that_no_header_can_say_is_refused(self, key: str) -> None:
        said = pytest.raises(InvalidInputError, match="Idempotency-Key may have printable ASCII")
        with refused(NotFoundError("not to be asked")) as client, said:
            client.submit("study", epsilon=1, delta=1e-5, idempotency_key=key)

    def test_names_are_quoted_and_the_token_is_sent(self) -> None:
        seen = []

        def answer(request: httpx.Request) -> httpx.Response:
            seen.append((request.url.raw_path, request.headers["Authorization"]))
            return httpx.Response(404, json=document_of(NotFoundError("no")))

        with pytest.raises(NotFoundError):
            learner(answer).run("../a?b")
        assert seen == [(b"/v1/runs/..%2Fa%3Fb", f"Bearer {TOKEN}")]

    @pytest.mark.parametrize("asked", ["run", "model", "cancel", "watch", "study"])
    def test_a_name_that_is_no_text_is_refused(self, asked: str) -> None:
        with refused(NotFoundError("not to be asked")) as client:
            for name in (None, 7, object()):
                with pytest.raises(InvalidInputError, match=f"not by a {type(name).__name__}"):
                    list(getattr(client, asked)(name))

    @pytest.mark.parametrize("url", ["127.0.0.1:8000", "", "ftp://learner", "http://", None])
    def test_an_address_that_is_none_is_refused(self, url: str | None) -> None:
        with pytest.raises(InvalidInputError, match="http://"):
            Learner(url, TOKEN)  # type: ignore[arg-type]  # what is no text too

    def test_what_json_cannot_say_is_not_sent(self) -> None:
        client = refused(NotFoundError("sent"))
        for epsilon in (float("nan"), np.float64("inf"), object(), 1j):
            with pytest.raises(InvalidInputError, match="the request holds"):
                client.submit("made-up", epsilon=epsilon, delta=0)  # type: ignore[arg-type]
        given = {"bounds": np.arange(2), "rounds": np.int64(3), "names": {"a": 1}.keys()}
        with pytest.raises(NotFoundError, match="sent"):
            client.submit("made-up", epsilon=np.float64(0.5), delta=0, parameters=MappingProxyType(given))

    @pytest.mark.parametrize("answer", ["<html>a page</html>", "[]", "{}", ""])
    def test_another_service_at_the_address_is_no_learner(self, answer: str) -> None:
        with pytest.raises(ParleyError, match="is no learner of this version"):
            learner(lambda _: httpx.Response(200, text=answer)).run("a")

    def test_is_shared_by_copies(self) -> None:
        client = Learner(URL, TOKEN)
        assert copy.deepcopy(client) is client

    def test_a_table_is_needed_to_upload(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInputError, match="no CSV"):
            Learner(URL, TOKEN).upload_public_rows("made-up", tmp_path / "rows.xls")
        with pytest.raises(InvalidInputError, match="path of a CSV or Parquet file, not a list"):
            Learner(URL, TOKEN).upload_public_rows("made-up", [{"x": 1.0}])  # type: ignore[arg-type]

    def test_a_table_is_uploaded_by_its_path_as_text_too(self, tmp_path: Path) -> None:
        (table := tmp_path / "rows.csv").write_text("x\n1\n")
        upload = vars(Calls)["upload_public_rows"].call
        assert upload(None, "made-up", str(table)) == upload(None, "made-up", table)


class TestRefusals:
    @pytest.mark.long
    def test_every_kind_of_problem_is_its_exception_with_its_fields(self) -> None:
        kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, ParleyError)]
        assert len({each.kind for each in kinds}) == len(kinds)
        for each in kinds:
            more = {"reason": "why"} if each is SecureSumError else {}
            raised = each("some words", rule="a rule", epsilon_left=0.5, **more)
            with pytest.raises(each) as caught:
                refused(raised).user()
            assert type(caught.value) is each
            assert caught.value.detail == "some words"
            assert caught.value.facts == raised.facts | {"problem": document_of(raised)}

    def test_a_fault_of_form_is_told_with_its_place(self) -> None:
        document = document_of(
            InvalidInputError("wrong form", errors=[{"loc": ["body", "epsilon"], "reason": "is odd"}])
        )
        assert refusal_of(422, json.dumps(document).encode()).detail == "wrong form; body.epsilon is odd"

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"[]",
            b"\xff",
            b"null",
            b'{"detail": 1}',
            b'{"type": [], "detail": {}, "self": 1, "errors": [3, {"loc": 1, "reason": 2}]}',
            b'{"type": "", "detail": "", "errors": 1, "problem": 2}',
        ],
    )
    def test_an_answer_of_something_else_is_an_error_all_the_same(self, content: bytes) -> None:
        assert type(refusal_of(502, content)) is ParleyError

    def test_nobody_answers(self) -> None:
        def answer(_: httpx.Request) -> httpx.Response:
            raise httpx.ConnectError("")

        with pytest.raises(UnavailableError, match="no learner answers at http://learner"):
            learner(answer).studies()

    @pytest.mark.parametrize(
        ("error", "hint"),
        [
            (httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), "by --ca or PARLEY_CA"),
            (httpx.ConnectError("[SSL: WRONG_VERSION_NUMBER] wrong"), "is it http://"),
            (httpx.ConnectError("[Errno -2] Name or service not known"), "nobody here knows this name"),
            (httpx.RemoteProtocolError("Server disconnected"), "is it https://"),
        ],
    )
    def test_what_an_address_lacks_is_said(self, error: httpx.TransportError, hint: str) -> None:
        def answer(_: httpx.Request) -> httpx.Response:
            raise error

        with pytest.raises(UnavailableError, match=hint):
            learner(answer).studies()

    def test_only_the_likeliest_cause_is_said(self) -> None:
        both = httpx.ConnectError("CERTIFICATE_VERIFY_FAILED, and Name or service not known")
        told = Learner("http://learner", TOKEN)._unreachable(both).detail
        assert told == (
            "no learner answers at http://learner (ConnectError): its certificate is not trusted here, or has expired: "
            "name its authority, by --ca or PARLEY_CA"
        )
        plain = Learner("http://learner", TOKEN)._unreachable(httpx.ConnectError("refused")).detail
        assert plain == "no learner answers at http://learner (ConnectError)"
        cut = httpx.RemoteProtocolError("Server disconnected")
        assert (
            Learner("http://learner", TOKEN)
            ._unreachable(cut)
            .detail.endswith(" (RemoteProtocolError): is it https://?")
        )
        assert Learner("https://learner", TOKEN)._unreachable(cut).detail.endswith("(RemoteProtocolError)")

    def test_a_document_needs_a_type_and_a_detail_and_no_more(self) -> None:
        assert type(refusal_of(404, b'{"type": "urn:parley:problem:not-found", "detail": "no"}')) is NotFoundError
        lacking = refusal_of(404, b'{"type": "urn:parley:problem:not-found"}')
        assert (lacking.detail, lacking.facts) == ("HTTP status 404", {"problem": None})
        unknown = refusal_of(404, b'{"type": "urn:parley:problem:of-tomorrow", "detail": "no", "rule": 7}')
        assert (type(unknown), unknown.detail, unknown.facts["rule"]) == (ParleyError, "no", 7)
        sum_error = refusal_of(
            422, json.dumps({"type": f"urn:parley:problem:{SecureSumError.kind}", "detail": "no"}).encode()
        )
        assert sum_error.facts["reason"] == ""
        faults = [{"loc": ["body", 0], "reason": "is odd"}, {"reason": "no place"}, {"loc": ["x"]}]
        two = refusal_of(422, json.dumps({"type": "x", "detail": "wrong", "errors": [*faults, faults[0]]}).encode())
        assert two.detail == "wrong; body.0 is odd; body.0 is odd"


class TestConnections:
    def test_are_opened_with_what_they_are_given(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(TOKEN)
        given: list[tuple[object, ...]] = []

        def options(*arguments: object) -> dict[str, object]:
            given.append(arguments)
            return {"base_url": "http://other"}

        monkeypatch.setattr(connection, "options_of", options)
        monkeypatch.setattr(connection, "tls_of", lambda *files: files)
        files: dict[str, Any] = {"token_file": tmp_path / "token", "ca": "c", "certificate": "d", "key": "e"}
        client = Learner(URL, **files, proxy="http://p:1", patience=7.0)
        asynchronous = AsyncLearner(URL, "another")
        assert given == [
            (URL, TOKEN, ("c", "d", "e"), ProxyAccess("http://p:1")),
            (URL, "another", (None, None, None), None),
        ]
        assert (client.url, client.patience, asynchronous.patience) == (URL, 7.0, connection.PATIENCE)
        assert client._http.event_hooks["request"] == [spell_hosts]
        assert asynchronous._http.event_hooks["request"] == [spell_hosts_async]
        assert client._http.base_url == "http://other"

    def test_have_the_authority_and_certificate_that_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[tuple[Path | None, ...]] = []
        monkeypatch.setattr("parley.common.service.http.tls.client_context", lambda *files: given.append(files))
        for files in (("c", None, None), (None, Path("d"), "e"), ("c", "d", None)):
            connection.tls_of(*files)
        assert given == [(Path("c"), None, None), (None, Path("d"), Path("e")), (Path("c"), Path("d"), None)]
        assert isinstance(connection.tls_of(None, None, None), ssl.SSLContext)

    def test_a_method_has_the_words_and_arguments_of_its_call(self) -> None:
        class Ours:
            @api_call
            def greet(self, name: str, *, twice: bool = False) -> Call[RunView]:
                """Say hello."""
                return Call("GET", f"/{name}/{twice}", RunView.model_validate_json)

            def send(self, call: Call[Any]) -> str:
                """Return the path."""
                return call.path

        signature = inspect.signature(cast("Any", Ours).greet)
        assert list(signature.parameters) == ["self", "name", "twice"]
        assert signature.return_annotation == "RunView"
        assert vars(Ours)["greet"].__doc__ == cast("Any", Ours).greet.__doc__ == "Say hello."
        assert cast("Any", Ours()).greet("ann", twice=True) == "/ann/True"
        assert cast("Any", Ours).greet(Ours(), "bob") == "/bob/False"


FIRST = spelt(1, "state", state="running", rounds=2) + spelt(2, "round", round=1)
REST = spelt(3, "round", round=2) + spelt(5, "state", state="completed")


class TestWatching:
    @pytest.mark.parametrize(
        "between",
        [
            (),
            (httpx.ConnectError(""), httpx.ReadTimeout(""), httpx.RemoteProtocolError("")),
            (503, 502, 504),
            ("", ": ping\n\n", "event: round\ndata: {}\nid: 3"),
            (FIRST, spelt(2, "round", round=1)),
        ],
        ids=["stream ended", "no answer", "refused", "no news", "told again"],
    )
    def test_no_event_is_lost_or_told_twice(self, between: tuple[str | int | Exception, ...]) -> None:
        streams = Streams(FIRST, *between, REST)
        events = list(learner(streams).watch("a"))
        assert [event.number for event in events] == [1, 2, 3, 5]
        assert streams.after == [0, *[2] * (len(between) + 1)]

    def test_the_asynchronous_client_does_the_same(self) -> None:
        streams = Streams(FIRST, httpx.ConnectError(""), 503, "", FIRST, REST)

        async def numbers() -> list[int]:
            async with AsyncLearner(URL, TOKEN, httpx.MockTransport(streams)) as client:
                return [event.number async for event in client.watch("a")]

        assert asyncio.run(numbers()) == [1, 2, 3, 5]

    @pytest.mark.parametrize(
        ("answer", "words"),
        [(503, "HTTP status 503"), ("", "before the run has ended"), (httpx.ConnectError(""), "no learner answers")],
    )
    def test_patience_has_an_end(self, answer: str | int | Exception, words: str) -> None:
        with pytest.raises(ParleyError, match=words):
            list(learner(Streams(*[answer] * 10_000), patience=0.05).watch("a"))

    def test_a_silent_run_may_break_as_often_as_it_likes(self) -> None:
        """Patience is for a learner that says nothing at all, not for a run that waits for hours."""
        streams = Streams(FIRST, *[": ping\n\n"] * 300, REST)
        assert len(list(learner(streams, patience=0.02).watch("a"))) == 4

    def test_what_is_asked_for_after_a_break_follows_what_came(self) -> None:
        watching = Watching("a")
        assert watching.headers == {"Last-Event-ID": "0", "Accept": "text/event-stream"}
        told = [event for line in FIRST.splitlines() for event in watching.take(line)]
        assert [event.number for event in told] == [1, 2]
        assert not watching.has_ended
        assert list(watching.take("event: round")) == []
        assert watching.headers["Last-Event-ID"] == "2"
        assert [event for line in ("data: {}", "id: 3", "") for event in watching.take(line)] == [], "half was cut off"
        _ = watching.headers
        ended = [event for line in REST.splitlines() for event in watching.take(line)]
        assert [event.number for event in ended] == [3, 5]
        assert watching.has_ended

    def test_pauses_grow_until_patience_is_spent_and_news_makes_them_short_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [100.0]
        monkeypatch.setattr(connection, "_LONGEST", 4.0)
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        monkeypatch.setattr(random, "uniform", lambda least, most: {(0.5, 1.0): 0.75}[least, most])
        watching, lost = Watching("a", patience=10.0, _pause=1.0), UnavailableError("away")
        pauses = []
        for _ in range(4):
            pauses.append(watching.pause(lost))
            now[0] += pauses[-1]
        assert pauses == [0.75, 1.5, 3.0, 3.0]
        now[0] = 109.5
        assert watching.pause(lost) == 0.5
        now[0] = 110.0
        with pytest.raises(UnavailableError, match="away"):
            watching.pause(lost)
        assert [event for line in FIRST.splitlines() for event in watching.take(line)]
        assert watching.pause(lost) == pytest.approx(0.75e-4)
        now[0] = 119.9
        assert watching.pause(lost) == pytest.approx(1.5e-4)

    def test_a_stream_that_ends_early_names_its_run(self) -> None:
        assert cut_off("a" * 101).detail == f"the learner ends the news of run {'a' * 100} before the run has ended"

    def test_a_token_that_expires_ends_it_at_once(self) -> None:
        answers: Iterator[httpx.Response] = iter(
            [httpx.Response(200, text=FIRST), httpx.Response(401, json=document_of(UnauthorizedError("no more")))]
        )
        client = learner(lambda _: next(answers))
        with pytest.raises(UnauthorizedError, match="no more"):
            list(client.watch("a"))


class TestProgress:
    def test_is_drawn_on_a_terminal_alone(self) -> None:
        for is_terminal, shown in ((True, True), (False, False)):
            file = io.StringIO()
            with RunBar(console=Console(file=file, force_terminal=is_terminal, width=120)) as bar:
                for event in connection.parse_events((FIRST_SHOWN).splitlines()):
                    bar.show(event)
            assert ("objective 0.500" in file.getvalue()) is shown

    def test_is_drawn_with_the_figures_of_each_round(self) -> None:
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=150, color_system=None)
        news = [
            spelt(1, "state", state="running", rounds=4),
            spelt(2, "dropped", party="[b]bob", reason="it left"),
            spelt(3, "state", state="paused", reason="ann is away", rounds=4),
            spelt(4, "round", round=3, of=4, contributors=["a", "b"], epsilon={"a": 0.5, "b": 0.12345}, objective=0.5),
        ]
        with RunBar(console=console) as bar:
            for event in connection.parse_events("".join(news).splitlines()):
                bar.show(event)
        shown = file.getvalue()
        assert "dropped [b]bob: it left\n" in shown
        assert "paused: ann is away\n" in shown
        last = shown.rpartition("paused ")[2]
        assert " 3/4 0:00:00 " in last
        assert "2 parties · ε spent ≤ 0.5 · objective 0.500" in last

    def test_says_news_as_it_is(self) -> None:
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=150, color_system="truecolor")
        with RunBar(console=console) as bar:
            bar.show(RunEvent(1, "dropped", json.dumps({"party": "bob", "reason": "7 of [b]8"})))
            bar.show(RunEvent(2, "state", json.dumps({"state": "paused", "reason": "9 of [b]10"})))
        assert "dropped bob: 7 of [b]8\n" in file.getvalue()
        assert "paused: 9 of [b]10\n" in file.getvalue()

    def test_of_nobody_costs_nothing(self) -> None:
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=150, color_system=None)
        with RunBar(console=console) as bar:
            assert bar._bar.tasks[0].description == "queued"
            bar.show(RunEvent(1, "round", json.dumps({"round": 1, "of": 2, "contributors": [], "epsilon": {}})))
            assert bar._bar.tasks[0].fields == {"figures": "0 parties · ε spent ≤ 0"}
            assert (bar._bar.tasks[0].completed, bar._bar.tasks[0].total) == (1, 2)
            bar.show(RunEvent(2, "state", json.dumps({"state": "running"})))
            assert bar._bar.tasks[0].description == "running"

    def test_is_not_drawn_unless_it_is_to_be_shown(self) -> None:
        file = io.StringIO()
        console = Console(file=file, force_terminal=True, width=150)
        with RunBar(shown=False, console=console) as bar:
            bar.show(RunEvent(1, "state", json.dumps({"state": "running"})))
        assert "running" not in file.getvalue()

    def test_goes_to_the_errors_of_a_terminal_without_colours_if_they_are_unwanted(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert RunBar()._bar.console.stderr
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("FORCE_COLOR", "1")
        assert not terminal().is_terminal
        assert not terminal().stderr
        monkeypatch.delenv("NO_COLOR")
        monkeypatch.setenv("TERM", "xterm")
        for console, shown in ((terminal(), "\x1b[1;36m7\x1b[0m\n"), (terminal(highlight=False), "7\n")):
            with console.capture() as capture:
                console.print("7")
            assert (console.is_terminal, capture.get()) == (True, shown)

    def test_figures_have_words_and_three_places(self) -> None:
        assert metrics_in_words({"rmse": 0.12345, "ms": 3.0, "objective": 1}) == ["RMSE 0.123", "objective 1.000"]

    def test_a_run_that_did_not_complete_is_an_error(self) -> None:
        view = RunView.model_validate(RUN_VIEW)
        assert completed_run(view) is view
        with pytest.raises(ConflictError, match=r"^run a is cancelled$") as cancelled:
            completed_run(view.model_copy(update={"state": "cancelled"}))
        assert cancelled.value.facts == {"state": "cancelled"}
        problem = document_of(NotFoundError("no such party", party="ann"))
        with pytest.raises(NotFoundError, match="no such party") as failed:
            completed_run(RunView.model_validate(RUN_VIEW | {"state": "failed", "problem": problem}))
        assert failed.value.facts["party"] == "ann"

    def test_a_kind_of_news_that_is_not_known_is_not_drawn(self) -> None:
        with RunBar() as bar:
            bar.show(RunEvent(1, "something-new", "{}"))


FIRST_SHOWN = spelt(1, "state", state="running", rounds=2) + spelt(
    2, "round", round=1, of=2, contributors=["a"], epsilon={"a": 0.5}, objective=0.5
)


class TestRows:
    RECORDS = [{"x": 1.5, "c": "a"}, {"x": None, "c": None}]  # noqa: RUF012

    def test_all_forms_are_the_same_records(self) -> None:
        columns = {"x": np.array([1.5, np.nan]), "c": ["a", None]}
        assert (
            records_of(self.RECORDS)
            == records_of(columns)
            == records_of(pa.table({"x": [1.5, None], "c": ["a", None]}))
            == self.RECORDS
        )

    def test_cells_of_libraries_are_as_json_has_them(self) -> None:
        class Odd:
            def __eq__(self, other: object) -> bool:
                return False

            __hash__ = None  # type: ignore[assignment]

        cells = [np.float64(1.5), np.float32("nan"), np.arange(2), True, "a", [1], None, date(2026, 1, 2), Odd()]
        (record,) = records_of([dict(enumerate(cells))])
        assert list(record.values()) == [1.5, None, [0, 1], True, "a", [1], None, "2026-01-02", None]
        assert list(record) == [str(index) for index in range(9)]

    def test_rows_of_no_record_are_none(self) -> None:
        assert records_of([]) == records_of(()) == []
        with pytest.raises(InvalidInputError, match="their columns need names"):
            records_of(np.zeros((0, 2)))
        assert columns_of([], ["x"])["x"].tolist() == []

    def test_columns_that_rows_lack_are_named(self) -> None:
        with pytest.raises(InvalidInputError, match=r"^the rows lack 'a', 'b', 'c', 'd', 'e'$"):
            columns_of({}, list("abcde"))
        with pytest.raises(InvalidInputError, match=r"^the rows lack 'a', 'b', 'c', 'd', 'e' and 2 more$"):
            columns_of({}, list("abcdefg"))
        with pytest.raises(InvalidInputError, match=r"^column 'x' must be a list of values, not of shape \(1, 2\)$"):
            columns_of({"x": np.zeros((1, 2))}, ["x"])
        with pytest.raises(InvalidInputError, match=r"an array must have 2 columns.*not \(3,\)"):
            columns_of(np.zeros(3), ["x", "c"])

    def test_an_array_keeps_the_kind_of_its_cells(self) -> None:
        assert columns_of(np.zeros((2, 1)), ["x"])["x"].dtype == np.float64
        assert columns_of([[1, "a"]], ["x", "c"])["x"].tolist() == [1]
        assert columns_of({"x": (1, "a")}, ["x"])["x"].tolist() == [1, "a"]
        assert columns_of([{"x": 1}, {}], ["x"])["x"].tolist() == [1, None]
        assert columns_of(pa.table({"x": [1, 2]}), ["x"])["x"].dtype == np.int64

    def test_a_fault_of_a_later_piece_says_where_it_starts(self) -> None:
        for start, words in ((0, "a fault"), (7, "of the rows from 7 on: a fault")):
            with pytest.raises(InvalidInputError, match=f"^{words}$") as caught, calls.counted_from(start):
                raise InvalidInputError("a fault", column="x")
            assert caught.value.facts == {"column": "x"}

    def test_pieces_are_as_long_as_a_request_may_be(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calls, "_MOST_BYTES", 20)
        monkeypatch.setattr(calls, "_MOST_RECORDS", 3)
        assert list(calls.bodies_of([])) == [b'{"records": []}']
        four = [b'{"records": [{"a": 1}, {"a": 2}]}', b'{"records": [{"a": 3}]}']
        assert list(calls.bodies_of({"a": number} for number in (1, 2, 3))) == four
        assert list(calls.bodies_of([{}] * 4)) == [b'{"records": [{}, {}, {}]}', b'{"records": [{}]}']

    def test_an_array_has_its_columns_in_order(self) -> None:
        columns = columns_of([[1.0, "a"], [2.0, "b"]], ["x", "c"])
        assert columns["x"].tolist() == [1.0, 2.0]
        assert columns["c"].tolist() == ["a", "b"]

    @pytest.mark.parametrize(
        ("rows", "words"),
        [
            ({"x": [1.0]}, "lack 'c'"),
            ({"x": [1.0], "c": ["a", "b"]}, "unequal numbers"),
            ({"x": [1.0], "c": [["a"], ["b"]]}, "list of values"),
            ([[1.0]], "2 columns"),
            ([[1.0], [1.0, 2.0]], "unequal lengths|2 columns"),
            (3, "need names"),
            ("text", "need names"),
        ],
    )
    def test_what_is_no_table_is_refused(self, rows: object, words: str) -> None:
        with pytest.raises(InvalidInputError, match=words):
            columns_of(rows, ["x", "c"])
