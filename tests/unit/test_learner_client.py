"""The client of the learner's API: what it sends, what it makes of refusals, and how it watches over a bad line."""

from __future__ import annotations

import asyncio
import copy
import inspect
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

from parley.common import errors
from parley.common.errors import (
    InvalidInputError,
    NotFoundError,
    ParleyError,
    SecureSumError,
    UnauthorizedError,
    UnavailableError,
)
from parley.common.service.problems import document_of
from parley.common.service.settings import Limits
from parley.learner.api.requests import RunRequest
from parley.learner.client import AsyncLearner, Learner, calls, connection
from parley.learner.client.calls import Calls, RunOptions, columns_of, records_of
from parley.learner.client.connection import body_bytes, refusal_of
from parley.learner.client.progress import RunBar
from parley.learner.client.token import read_token
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

    def test_is_in_no_words_of_a_client(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(0)
        with refused(NotFoundError("there is no such run")) as client, pytest.raises(NotFoundError) as caught:
            client.run("a")
        told = f"{client!r} {vars(client)!r} {client._http.headers!r} {caught.value!r} {caplog.text}"
        assert TOKEN not in told
        assert repr(client) == "Learner('http://learner')"


class TestRequests:
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

    def test_a_token_that_expires_ends_it_at_once(self) -> None:
        answers: Iterator[httpx.Response] = iter(
            [httpx.Response(200, text=FIRST), httpx.Response(401, json=document_of(UnauthorizedError("no more")))]
        )
        client = learner(lambda _: next(answers))
        with pytest.raises(UnauthorizedError, match="no more"):
            list(client.watch("a"))


class TestProgress:
    def test_is_drawn_on_a_terminal_alone(self) -> None:
        for terminal, shown in ((True, True), (False, False)):
            file = io.StringIO()
            with RunBar(console=Console(file=file, force_terminal=terminal, width=120)) as bar:
                for event in connection.parse_events((FIRST_SHOWN).splitlines()):
                    bar.show(event)
            assert ("objective 0.500" in file.getvalue()) is shown

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
