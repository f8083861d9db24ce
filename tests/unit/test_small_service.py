"""A small service with the web side that all share: its document, its page, its answers, its log and its metrics."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import date
from types import SimpleNamespace
from typing import Annotated, Any

import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from structlog.testing import capture_logs

from parley.common import parley_version
from parley.common.errors import ForbiddenError, InvalidInputError, ShareUsedUpError, UnavailableError
from parley.common.routes import Route
from parley.common.service import problems
from parley.common.service.application import Boundary, _address, _Reply, answers, caller, completed, service
from parley.common.service.fair_use import CallerTurns
from parley.common.service.http.connections import SIGNED_IN
from parley.common.service.http.pages import page_headers, parts_of
from parley.common.service.prometheus import Metrics
from parley.common.service.settings import Limits, Shares
from parley.common.service.tokens import AnyCaller, KnownToken, NamedCaller, Tokens, hash_token

SECRET = "0.271828"
TOKENS = [
    KnownToken(hash_token("of-ann"), NamedCaller("ann")),
    KnownToken(hash_token("of-old"), NamedCaller("old"), date(2020, 1, 1)),
]
ANN = {"Authorization": "Bearer of-ann"}


class Word(BaseModel):
    """A word."""

    text: Annotated[str, Field(max_length=9, description="its `letters`")]


ERRORS: dict[int, Exception] = {
    0: RuntimeError(SECRET),
    1: ForbiddenError("not here", rule="no-words"),
    2: InvalidInputError("no such word", rule="kept quiet"),
    3: UnavailableError("later", retry_after=7),
    4: UnavailableError("not now"),
    5: ForbiddenError("nor here"),
}


def small(**options: Any) -> FastAPI:  # noqa: ANN401 -- those of `service`
    """A service with two routes."""

    async def ready() -> None:
        """It is always ready."""

    given: dict[str, Any] = {"tokens": TOKENS, "metrics": Metrics(), "ready": ready, "limits": Limits()}
    app = service("Words", "Words & more.", **(given | options))

    @answers(app, Route("PUT", "/v1/words/{number}", "viewer"), tags=["words"], summary="Keep a word")
    async def keep(number: int, word: Word, request: Request) -> Word:
        """Keep ``it``."""
        if number in ERRORS:
            raise ERRORS[number]
        return Word(text=f"{caller(request)}:{number}")

    @app.put("/v1/raw", include_in_schema=False)
    async def count(request: Request) -> int:
        return len(await request.body())

    return app


@asynccontextmanager
async def asking(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False, client=("192.0.2.7", 5))
    async with httpx.AsyncClient(transport=transport, base_url="http://words") as client:
        yield client


def refused(media: str = "application/json", /, **schema: object) -> dict[str, object]:
    """The responses of a route whose answer has this media type and schema."""
    fits = {"content": {media: {"schema": schema}}}
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    ok = {"description": "Successful Response", **fits}
    return {"200": ok, "default": {"description": "Refused", "content": problem}}


def test_the_document_says_what_is_asked_what_is_answered_and_what_needs_a_token() -> None:
    document = small().openapi()
    assert document["info"] == {"title": "Words", "description": "Words & more.", "version": parley_version()}
    word = {"$ref": "#/components/schemas/Word"}
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    assert document["paths"] == {
        "/healthz": {
            "get": {
                "tags": ["operations"],
                "summary": "Whether the process answers",
                "description": 'Return ``{"status": "ok"}``, always: any answer shows that the process runs.',
                "operationId": "check_health",
                "responses": refused(**texts, title="Response Check Health"),
                "security": [],
            }
        },
        "/readyz": {
            "get": {
                "tags": ["operations"],
                "summary": "Whether the service can do its work",
                "description": '``{"status": "ready"}``, or 503 and the reason.',
                "operationId": "check_readiness",
                "responses": refused(**texts, title="Response Check Readiness"),
                "security": [],
            }
        },
        "/metrics": {
            "get": {
                "tags": ["operations"],
                "summary": "Metrics for Prometheus",
                "description": "Show what everybody may know, in Prometheus' text format; the listener of "
                "``[metrics]`` shows all.",
                "operationId": "show_metrics",
                "responses": refused("text/plain", type="string"),
                "security": [],
            }
        },
        "/v1/words/{number}": {
            "put": {
                "tags": ["words"],
                "summary": "Keep a word",
                "description": "Keep ``it``.",
                "operationId": "keep",
                "parameters": [
                    {
                        "name": "number",
                        "in": "path",
                        "required": True,
                        "schema": {"type": "integer", "title": "Number"},
                    }
                ],
                "requestBody": {"required": True, "content": {"application/json": {"schema": word}}},
                "responses": refused(**word),
                "security": [{"bearer": []}],
            }
        },
    }
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
    assert sorted(document["components"]["schemas"]) == ["ProblemDocument", "Word"]
    assert document["components"]["schemas"]["ProblemDocument"]["required"] == ["type", "title", "status", "detail"]


def test_a_service_without_a_body_or_with_other_public_paths_is_documented_as_well() -> None:
    app = small(public_paths=frozenset({"/v1/words/{number}"}))

    @app.get("/v1/news", response_class=StreamingResponse, responses={200: {"content": {"text/event-stream": {}}}})
    async def tell() -> None:
        """Tell news."""

    paths = app.openapi()["paths"]
    assert [operation["security"] for path in paths.values() for operation in path.values()] == [
        [{"bearer": []}] if path != "/v1/words/{number}" else [] for path in paths
    ]
    events = {"description": "server-sent events: id, event and data, whose value is JSON"}
    assert paths["/v1/news"]["get"]["responses"]["200"]["content"]["text/event-stream"] == {"schema": events}


class Noun(BaseModel):
    """A word of a kind."""

    kind: str = "noun"


def test_what_is_sent_and_what_is_shown_have_one_schema() -> None:
    app = small()

    @app.put("/v1/nouns")
    async def echo(noun: Noun) -> Noun:
        return noun

    assert sorted(app.openapi()["components"]["schemas"]) == ["Noun", "ProblemDocument", "Word"]
    components = completed({"paths": {}}, frozenset())["components"]
    assert (list(components["securitySchemes"]), list(components["schemas"])) == (["bearer"], ["ProblemDocument"])


async def test_a_service_begins_and_ends_and_knows_a_path_in_one_spelling() -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        seen.append(app)
        yield
        seen.append("ended")

    app = small(lifespan=lifespan)
    async with app.router.lifespan_context(app), asking(app) as client:
        assert seen == [app]
        for path in ("/healthz/", "/redoc", "/docs/oauth2-redirect"):
            assert (await client.get(path, headers=ANN)).status_code == 404
    assert seen == [app, "ended"]


async def test_the_page_shows_the_document_and_runs_nothing() -> None:
    async with asking(small()) as client:
        answer = await client.get("/docs")
        other = await client.get("/docs")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = re.fullmatch(
        r"default-src 'none'; style-src 'nonce-([\w-]{22})'; base-uri 'none'; form-action 'none'; "
        r"frame-ancestors 'none'",
        answer.headers["content-security-policy"],
    )
    assert policy
    assert f'<style nonce="{policy[1]}">' in answer.text
    assert policy[1] not in other.text
    assert page_headers(f"style-src 'nonce-{policy[1]}'") == {
        "Content-Security-Policy": policy[0],
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
        "Referrer-Policy": "no-referrer",
    }
    assert (answer.headers["x-content-type-options"], answer.headers["x-frame-options"]) == ("nosniff", "DENY")
    assert "<title>Words: reference</title>" in answer.text
    shown = re.sub(r"\s*\n\s*", "\n", answer.text.partition("</style>")[2])
    assert '<a href="#tag-1">operations</a><a href="#tag-2">words</a><a href="#schemas">schemas</a>' in shown
    assert "<p>Return <code>{&#34;status&#34;: &#34;ok&#34;}</code>, always: any answer" in shown
    assert shown.partition('<h2 id="tag-2">')[2] == (
        """Words</h2>
<details>
<summary><b>PUT</b> <code>/v1/words/{number}</code> <span>Keep a word</span></summary>
<p>Keep <code>it</code>.</p>
<p>Needs a bearer token.</p>
<table>
<tr><td><code>number (path)</code> *</td><td>integer </td></tr>
<tr><td><code>body application/json</code> *</td><td><a href="#Word">Word</a> </td></tr>
<tr><td><code>200 application/json</code></td><td><a href="#Word">Word</a> <br>Successful Response</td></tr>
<tr><td><code>default application/problem+json</code></td><td><a href="#ProblemDocument">ProblemDocument</a> \
<br>Refused</td></tr>
</table>
</details>
<h2 id="schemas">Schemas</h2>
<article id="ProblemDocument">
<h3><code>ProblemDocument</code></h3>
<p>A problem document; further public facts may stand beside these.</p>
<table>
<tr><td><code>type</code> *</td><td>string <br>urn:parley:problem: and the kind of problem</td></tr>
<tr><td><code>title</code> *</td><td>string <br>the kind of problem in words</td></tr>
<tr><td><code>status</code> *</td><td>integer <br>the HTTP status</td></tr>
<tr><td><code>detail</code> *</td><td>string <br>what was wrong; never a private value</td></tr>
</table>
</article>
<article id="Word">
<h3><code>Word</code></h3>
<p>A word.</p>
<table>
<tr><td><code>text</code> *</td><td>string of length ≤ 9 <br>its <code>letters</code></td></tr>
</table>
</article>
"""
    )


@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        ({"oneOf": [{"type": "string"}, {"$ref": "#/a/Run"}, {"const": 1}]}, ["string", "or", "=Run", "or", "1"]),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, ["integer", "or", "null"]),
        ({"type": "object", "additionalProperties": {"type": "null"}}, ["object of", "null"]),
        ({"type": "array", "items": {"type": "array", "items": {}}}, ["array of", "array of", "anything"]),
        ({"type": "array", "items": True}, ["array"]),
        ({"type": "object", "additionalProperties": False}, ["object"]),
        ({"enum": ["a", 2]}, ["'a' | 2"]),
        ({"const": None}, ["None"]),
        (
            {"type": "number", "minimum": 0, "exclusiveMinimum": -1, "maximum": 3, "exclusiveMaximum": 4},
            ["number ≥ 0 > -1 ≤ 3 < 4"],
        ),
        (
            {"type": "string", "maxLength": 4, "minLength": 2, "format": "uri", "pattern": "x+"},
            ["string matches x+ as uri of length ≥ 2 of length ≤ 4"],
        ),
    ],
)
def test_a_schema_is_told_in_words_and_links(schema: dict[str, Any], parts: list[str]) -> None:
    assert [f"={name}" if words == name else words + name for words, name in parts_of(schema)] == parts


async def test_the_page_shows_what_has_no_tag_last() -> None:
    app = small()

    @app.get("/v1/odd")
    async def odd() -> None:
        """Tell nothing."""

    async with asking(app) as client:
        page = (await client.get("/docs")).text
    assert '<a href="#tag-3">other</a>' in page
    assert '<h2 id="tag-3">Other</h2>' in page


def problem(status: int, kind: str, detail: str, **facts: object) -> dict[str, object]:
    title = kind.replace("-", " ").capitalize()
    return {"type": f"urn:parley:problem:{kind}", "title": title, "status": status, "detail": detail, **facts}


WORD: dict[str, Any] = {"json": {"text": "x"}}
UNREAD = "a compressed body is not read; send it as it is"
TOO_LARGE = "the body may have at most 2048 bytes (limits.body_bytes)"


@pytest.mark.parametrize(
    ("number", "request_", "status", "document", "headers"),
    [
        (9, {}, 401, problem(401, "unauthorized", "a bearer token is needed"), {"www-authenticate": "Bearer"}),
        (
            9,
            {"headers": {"Authorization": "Bearer no"}},
            401,
            problem(401, "unauthorized", "the bearer token is not known here"),
            {"www-authenticate": "Bearer"},
        ),
        (
            9,
            {"headers": {"Authorization": "bearer  of-old "}},
            401,
            problem(401, "unauthorized", "the bearer token has expired: ask for a new one"),
            {"www-authenticate": "Bearer"},
        ),
        (
            9,
            {"headers": ANN | {"Content-Encoding": "gzip"}},
            415,
            problem(415, "unsupported-media-type", UNREAD),
            {},
        ),
        (9, {"headers": ANN | {"Content-Length": "2049"}}, 413, problem(413, "too-large", TOO_LARGE), {}),
        (9, {"headers": ANN | {"Content-Length": "-1"}}, 413, problem(413, "too-large", TOO_LARGE), {}),
        (9, {"headers": ANN | {"Content-Length": "1" * 5000}}, 413, problem(413, "too-large", TOO_LARGE), {}),
        (
            0,
            {"headers": ANN, **WORD},
            500,
            problem(500, "internal", "an internal error; the service's log says where"),
            {},
        ),
        (1, {"headers": ANN, **WORD}, 403, problem(403, "policy-refusal", "not here", rule="no-words"), {}),
        (2, {"headers": ANN, **WORD}, 422, problem(422, "invalid-input", "no such word", rule="kept quiet"), {}),
        (3, {"headers": ANN, **WORD}, 503, problem(503, "unavailable", "later", retry_after=7), {"retry-after": "7"}),
        (4, {"headers": ANN, **WORD}, 503, problem(503, "unavailable", "not now"), {}),
        (9, {"headers": ANN, **WORD}, 200, {"text": "ann:9"}, {}),
        (9, {"headers": ANN | {"Content-Encoding": " Identity "}, **WORD}, 200, {"text": "ann:9"}, {}),
    ],
)
async def test_a_request_is_answered_or_refused_by_its_reason(
    number: int, request_: dict[str, Any], status: int, document: dict[str, object], headers: dict[str, str]
) -> None:
    async with asking(small(limits=Limits(body_bytes=2048))) as client:
        answer = await client.put(f"/v1/words/{number}", **request_)
    assert (answer.status_code, answer.json()) == (status, document)
    wanted = {"www-authenticate", "retry-after", "connection"}
    assert {name: value for name, value in answer.headers.items() if name in wanted} == headers
    media = "application/json" if status == 200 else "application/problem+json"
    assert answer.headers["content-type"] == media
    assert re.fullmatch("[0-9a-f]{16}", answer.headers["x-request-id"])


def test_an_unforeseen_error_is_told_as_nothing_but_that() -> None:
    answer = problems.internal()
    assert (answer.status_code, answer.media_type) == (500, "application/problem+json")
    assert b'"title":"Internal"' in bytes(answer.body)
    told = problems.problem(418, "a-kind", "why", more=1)
    assert json.loads(bytes(told.body)) == problem(418, "a-kind", "why", more=1) | {"title": "A kind"}
    assert problems.of_error(ShareUsedUpError("all")).headers["retry-after"] == "1"
    assert _address({"client": None}) == "unknown"


@pytest.mark.parametrize(
    ("chosen", "is_kept"),
    [("a-B.9_", True), ("x" * 64, True), ("x" * 65, False), ("a b", False), ("", False), ("é", False)],
)
async def test_a_plain_identifier_of_a_request_is_kept(chosen: str, *, is_kept: bool) -> None:
    async with asking(small()) as client:
        answer = await client.get("/healthz", headers={b"X-Request-Id": chosen.encode()})
    assert (answer.headers["x-request-id"] == chosen) == is_kept
    assert len(answer.headers["x-request-id"]) == (len(chosen) if is_kept else 16)


async def test_requests_and_refusals_are_counted_by_what_is_public() -> None:
    app = small()
    async with asking(app) as client:
        await client.head("/healthz")
        await client.get("/readyz")
        await client.get("/nowhere", headers=ANN)
        await client.request("MADEUP", "/nowhere", headers=ANN)
        await client.put("/v1/words/9")
        await client.put("/v1/words/9", headers={"Authorization": "Bearer no"})
        await client.put("/v1/words/9", headers={"Authorization": "Bearer of-old"})
        await client.put("/v1/words/9", headers=ANN | {"Content-Encoding": "br"})
        for number in (0, 1, 2, 5, 9):
            await client.put(f"/v1/words/{number}", headers=ANN, **WORD)
        app.state.metrics.expiry_days.labels("token").set(3)
        text = app.state.metrics.render().decode()
        public = (await client.get("/metrics")).text
    version = parley_version()
    python, revision = platform.python_version(), version.partition("+g")[2].partition(".")[0]
    assert (
        public
        == f"""\
# HELP parley_build_info What runs here.
# TYPE parley_build_info gauge
parley_build_info{{python="{python}",revision="{revision}",version="{version}"}} 1.0
# HELP parley_ready 1 if the service can do its work, as /readyz says, and 0 if not.
# TYPE parley_ready gauge
parley_ready 1.0
"""
    )
    counted = text[text.index("# HELP parley_requests_total") : text.index("# HELP parley_request_seconds")]
    assert (
        counted
        == """\
# HELP parley_requests_total Requests by method, route and status.
# TYPE parley_requests_total counter
parley_requests_total{method="HEAD",route="/healthz",status="200"} 1.0
parley_requests_total{method="GET",route="/readyz",status="200"} 1.0
parley_requests_total{method="none",route="none",status="404"} 2.0
parley_requests_total{method="none",route="none",status="401"} 3.0
parley_requests_total{method="none",route="none",status="415"} 1.0
parley_requests_total{method="PUT",route="/v1/words/{number}",status="500"} 1.0
parley_requests_total{method="PUT",route="/v1/words/{number}",status="403"} 2.0
parley_requests_total{method="PUT",route="/v1/words/{number}",status="422"} 1.0
parley_requests_total{method="PUT",route="/v1/words/{number}",status="200"} 1.0
# HELP parley_failed_sign_ins_total Requests without a valid bearer token, by reason.
# TYPE parley_failed_sign_ins_total counter
parley_failed_sign_ins_total{why="absent"} 1.0
parley_failed_sign_ins_total{why="unknown"} 1.0
parley_failed_sign_ins_total{why="expired"} 1.0
parley_failed_sign_ins_total{why="refused"} 0.0
# HELP parley_refusals_total Requests that were refused, by kind of problem and, where it is one, by the rule of the \
owner or service.
# TYPE parley_refusals_total counter
parley_refusals_total{kind="unsupported-media-type",rule=""} 1.0
parley_refusals_total{kind="policy-refusal",rule="no-words"} 1.0
parley_refusals_total{kind="invalid-input",rule=""} 1.0
parley_refusals_total{kind="policy-refusal",rule=""} 1.0
# HELP parley_expiry_days Days until the first of the tokens, and of the certificates, expires; absent if none does.
# TYPE parley_expiry_days gauge
parley_expiry_days{what="token"} 3.0
"""
    )


async def test_the_log_tells_refusals_failed_sign_ins_and_places_of_errors() -> None:
    app = small(shares=Shares(failed_sign_ins=2))

    @app.put("/v1/questions")
    async def ask(question: str) -> None:
        raise ForbiddenError(question, rule="no-words")

    async with asking(app) as client:
        with capture_logs() as lines:
            for _ in range(2):
                await client.put("/v1/words/9")
            many = await client.put("/v1/words/9")
            await client.put("/v1/questions?question=secret", headers=ANN)
            unknown = await client.put("/v1/words/1?secret", headers=ANN, **WORD)
            await client.put(f"/v1/words/{'0' * 300}1", headers=ANN, **WORD)
            await client.put("/v1/words/0", headers=ANN, **WORD)
    sign_in = {"event": "sign-in", "log_level": "warning", "why": "absent", "peer": "192.0.2.7"}
    place, long = lines[-1].pop("place"), lines.pop(-2)
    assert long["path"] == f"/v1/words/{'0' * 190}"
    assert lines == [
        sign_in,
        sign_in | {"then": "unlogged for a minute"},
        {
            "event": "refused",
            "log_level": "info",
            "kind": "policy-refusal",
            "rule": "no-words",
            "method": "PUT",
            "path": "/v1/questions",
        },
        {"event": "internal", "log_level": "error", "error": "RuntimeError"},
    ]
    assert place.startswith(f"{__file__}:")
    assert (unknown.status_code, [fault["loc"] for fault in unknown.json()["errors"]]) == (422, [["query", "secret"]])
    assert (many.status_code, many.json()["share"], many.json()["most"]) == (429, "failed_sign_ins", 2)
    assert many.headers["retry-after"] == str(many.json()["retry_after"])
    assert many.json()["detail"] == (
        "a bearer token is needed; 2 sign-ins from this address have failed within a minute, and 2 may "
        "(shares.failed_sign_ins): wait, or show a valid token, which is accepted at any time"
    )


async def test_a_body_without_a_length_is_bounded_by_its_path() -> None:
    def pieces(size: int) -> Iterator[bytes]:
        yield from (b"x" * 1024, b"x" * (size - 1024))

    async def sized(size: int) -> AsyncIterator[bytes]:
        for piece in pieces(size):
            yield piece

    limits = Limits(body_bytes=2048, round_bytes=4096)
    for paths, most, name in ((None, 2048, "body_bytes"), (re.compile("/v1/r.w"), 4096, "round_bytes")):
        async with asking(small(limits=limits, round_paths=paths)) as client:
            kept = await client.put("/v1/raw", content=sized(most), headers=ANN)
            assert (kept.status_code, kept.text) == (200, str(most))
            longer = await client.put("/v1/raw", content=sized(most + 1), headers=ANN)
            assert longer.json()["detail"] == f"the body may have at most {most} bytes (limits.{name})"


async def test_a_connection_is_signed_in_by_its_caller_and_closed_where_it_is_one_too_many() -> None:
    seen: list[tuple[AnyCaller, bool]] = []
    app = small(keeps_room_for=lambda caller: caller.name == "ann")

    def sign_in(caller: AnyCaller, *, is_kept_room: bool) -> None:
        seen.append((caller, is_kept_room))
        raise UnavailableError("too many", share="connections")

    async def among_many(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 -- of ASGI
        await app({**scope, "state": {SIGNED_IN: sign_in}}, receive, send)

    async with asking(among_many) as client:  # type: ignore[arg-type]  # any application
        answer = await client.put("/v1/words/9", headers=ANN, **WORD)
        assert (await client.get("/healthz", headers=ANN)).status_code == 200
    assert (answer.status_code, answer.headers["connection"]) == (503, "close")
    assert seen == [(NamedCaller("ann"), True)]


def test_the_boundary_has_the_bounds_that_the_settings_name() -> None:
    boundary: Any = small(shares=Shares(requests=3, failed_sign_ins=4)).user_middleware[0]
    turns = vars(boundary.kwargs["turns"])
    assert boundary.cls is Boundary
    assert isinstance(boundary.kwargs["turns"], CallerTurns)
    assert isinstance(boundary.kwargs["tokens"], Tokens)
    bounds = ("_per_caller", "_slice", "_memory", "_most_rest")
    assert [turns[name] for name in bounds] == [3, 2.0, 2.0, 0.25]
    assert vars(boundary.kwargs["sign_ins"])["_most"] == 4
    assert not boundary.kwargs["keeps_room_for"](NamedCaller("ann"))
    other: Any = small().user_middleware[0]
    assert vars(other.kwargs["turns"])["_per_caller"] == Shares().requests
    paths = {"/healthz", "/readyz", "/metrics", "/openapi.json", "/docs"}
    assert other.kwargs["public_paths"] == paths


class Noted:
    """Turns that come at once, and whose they were."""

    def __init__(self) -> None:
        self.turns: list[tuple[object, bool]] = []

    @asynccontextmanager
    async def turn(self, caller: object, *, is_probe: bool = False) -> AsyncIterator[None]:
        self.turns.append((caller, is_probe))
        yield


async def test_work_and_refusals_are_turns_of_the_caller_or_of_the_address_and_checks_are_probes() -> None:
    app = small()
    middleware: Any = app.user_middleware[0]
    middleware.kwargs["turns"] = noted = Noted()
    async with asking(app) as client:
        await client.get("/healthz", headers=ANN)
        await client.get("/readyz")
        await client.get("/readyz", headers={"Authorization": "Bearer no"})
        await client.get("/readyz", headers=ANN)
        await client.put("/v1/words/9", headers=ANN, **WORD)
        await client.put("/v1/words/9", headers={"Authorization": "Bearer no"})
        await client.put("/v1/words/9", headers=ANN | {"Content-Encoding": "br"})
    ann = NamedCaller("ann")
    assert noted.turns == [
        ("/healthz", True),
        ("192.0.2.7 /readyz", True),
        ("192.0.2.7 /readyz", True),
        (ann, True),
        (ann, False),
        ("192.0.2.7", False),
        (ann, False),
        (ann, False),
    ]


async def test_what_is_no_request_passes_the_boundary_as_it_is() -> None:
    seen: list[tuple[object, ...]] = []

    async def inner(*given: object) -> None:
        seen.append(given)

    middleware: Any = small().user_middleware[0]
    given: Any = ({"type": "lifespan"}, object(), object())
    await Boundary(inner, **middleware.kwargs)(*given)
    assert seen == [given]


@pytest.mark.parametrize("media", [None, b"text/event-stream; charset=utf-8", b"application/json"])
async def test_a_stream_of_events_ends_the_turn_when_it_begins(media: bytes | None) -> None:
    sent: list[dict[str, Any]] = []
    ended: list[int] = []

    async def forward(message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        sent.append(message)

    turn: Any = SimpleNamespace(end=lambda: ended.append(len(sent)))
    reply = _Reply(forward, "an-id", turn=turn)
    headers = [(b"content-type", media)] if media else []
    await reply.send({"type": "http.response.start", "status": 200, "headers": headers})
    await reply.send({"type": "http.response.body", "body": b"x", "more_body": True})
    is_stream = bool(media and b"event" in media)
    assert (ended, reply.ended is not None) == ([0] if is_stream else [], is_stream)
    assert sent[0]["headers"][len(headers) :] == [(b"x-request-id", b"an-id"), (b"cache-control", b"no-store")]
    assert (sent[1]["body"], reply.status) == (b"x", 200)
    await _Reply(forward, "an-id").send({"type": "http.response.start", "status": 200, "headers": headers})


async def test_a_head_is_answered_without_a_body_even_if_it_would_never_end() -> None:
    sent: list[dict[str, Any]] = []

    async def forward(message: Any) -> None:  # noqa: ANN401 -- any message of ASGI
        sent.append(message)

    reply = _Reply(forward, "an-id", is_head=True)
    await reply.send({"type": "http.response.start", "status": 204, "headers": []})
    for _ in range(3):
        await reply.send({"type": "http.response.body", "body": b"x", "more_body": True})
    headers = [(b"x-request-id", b"an-id"), (b"cache-control", b"no-store")]
    start = {"type": "http.response.start", "status": 204, "headers": headers}
    assert sent == [start, {"type": "http.response.body", "body": b"", "more_body": False}]
    assert reply.ended is not None
