"""A session lasts as long as the provider renews it, whose word comes within the minutes that the settings say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from structlog.testing import capture_logs
from typer.testing import CliRunner

from parley.common.service.tokens import hash_token
from parley.learner.api import app as learner_app_module
from parley.learner.cli.main import learner_app
from tests.services.sign_in.conftest import Browser, learner, visiting
from tests.services.sign_in.test_forged import changed
from tests.support.clock import Clock
from tests.support.cluster import AUTHORIZED
from tests.support.identity_provider import IdentityProvider, sessions_of
from tests.support.toml import write


@pytest.fixture
def clock(app: FastAPI) -> Clock:
    """The clock of the sessions."""
    sessions_of(app)._clock = clock = Clock()
    return clock


async def test_a_session_is_renewed_when_it_is_due_and_once_for_many_requests(browser: Browser, clock: Clock) -> None:
    await browser.sign_in("sam")
    browser.provider.paths.clear()
    clock.now += 599
    assert (await browser.user()).status_code == 200
    assert browser.provider.paths == []
    clock.now += 1
    answers = await asyncio.gather(*(browser.user() for _ in range(5)))
    assert {answer.status_code for answer in answers} == {200}
    assert browser.provider.paths.count("/token") == 1, "a refresh token counts once"
    clock.now += 600
    assert (await browser.user()).status_code == 200, "and the next one counts too"


async def test_a_revoked_session_ends_within_the_minutes(browser: Browser, clock: Clock) -> None:
    await browser.sign_in("sam")
    browser.provider.revoke_all()
    clock.now += 599
    assert (await browser.user()).status_code == 200, "not asked yet: this is what is promised"
    clock.now += 1
    refused = await browser.user()
    assert (refused.status_code, "does not let this session" in refused.json()["detail"]) == (401, True)
    assert "the session has ended" in (await browser.user()).json()["detail"]


async def test_a_role_that_was_taken_away_goes_at_the_renewal(browser: Browser, clock: Clock) -> None:
    browser.provider.people["ann"] = {"name": "Ann", "roles": ["parley-operators"]}
    await browser.sign_in("ann")
    assert (await browser.user()).json()["role"] == "operator"
    browser.provider.people["ann"]["roles"] = ["staff"]
    clock.now += 600
    assert (await browser.user()).json()["role"] == "submitter"
    browser.provider.people["ann"]["roles"] = []
    clock.now += 600
    assert (await browser.user()).status_code == 403
    assert (await browser.user()).status_code == 401


async def test_another_persons_token_does_not_renew_a_session(browser: Browser, clock: Clock) -> None:
    await browser.sign_in("sam")
    browser.provider.forge = lambda token: changed(sub="somebody-else")(browser.provider, token)
    clock.now += 600
    answer = await browser.user()
    assert (answer.status_code, "another person's" in answer.json()["detail"]) == (401, True)


async def test_a_renewal_without_an_id_token_ends_the_session_for_nothing_says_its_role(
    browser: Browser, clock: Clock
) -> None:
    await browser.sign_in("sam")
    browser.provider.forge = lambda _: None
    clock.now += 600
    answer = await browser.user()
    assert (answer.status_code, "the session has ended" in answer.json()["detail"]) == (401, True)
    browser.provider.forge = None
    assert (await browser.user()).status_code == 401


async def test_a_provider_that_is_away_ends_no_session_and_lets_none_go_on(
    browser: Browser, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    await browser.sign_in("sam")
    browser.provider.broken["/token"] = PlainTextResponse("later", 503)
    clock.now += 600
    answer = await browser.user()
    assert (answer.status_code, "cannot answer now" in answer.json()["detail"]) == (503, True)
    assert (await browser.user()).status_code == 503
    assert capsys.readouterr().out.count("no session can be renewed now") == 1, "a line a minute, not one a request"
    assert (await browser.client.get("/v1/user", headers=AUTHORIZED)).status_code == 200, "tokens count"
    browser.provider.broken.clear()
    assert (await browser.user()).status_code == 200


async def test_a_session_ends_after_its_hours(browser: Browser, clock: Clock) -> None:
    await browser.sign_in("sam")
    clock.now += 36_000
    assert "the session has ended" in (await browser.user()).json()["detail"]


async def test_a_session_without_a_refresh_token_ends_when_it_is_due(
    browser: Browser, app: FastAPI, clock: Clock
) -> None:
    await browser.sign_in("sam")
    next(iter(sessions_of(app)._sessions.values())).refresh_token = None
    clock.now += 599
    assert (await browser.user()).status_code == 200
    clock.now += 1
    assert "the session has ended" in (await browser.user()).json()["detail"]


async def test_a_stream_ends_with_its_session(
    browser: Browser, app: FastAPI, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await browser.sign_in("sam")
    monkeypatch.setattr(learner_app_module, "_EVERY", 0.0)
    headers = [(b"cookie", f"__Host-parley-session={browser.client.cookies['__Host-parley-session']}".encode())]
    request = Request({"type": "http", "app": app, "headers": [*headers, (b"sec-fetch-site", b"same-origin")]})

    async def news() -> AsyncIterator[int]:
        yield 1
        sessions_of(app).end(lambda _: True)
        yield 2

    assert [item async for item in learner_app_module._while_token_counts(news(), request)] == [1]


async def test_a_learner_starts_without_its_provider_and_says_so(
    sign_in: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = learner(tmp_path, sign_in | {"issuer": "http://127.0.0.1:9"})
    async with visiting(app) as client:
        assert (await client.get("/readyz")).status_code == 200
        for _ in range(3):
            answer = await client.get("/sign-in")
            assert (answer.status_code, "does not answer" in answer.text) == (503, True)
        assert (await client.get("/v1/user", headers=AUTHORIZED)).status_code == 200
    assert capsys.readouterr().out.count("nobody can sign in now") == 1, "a line a minute, not one a visitor"


async def test_the_log_says_why_nobody_can_sign_in_once_a_minute(app: FastAPI, browser: Browser) -> None:
    provider = sessions_of(app)._provider
    await provider.check()
    provider._document._value, provider._logged = None, {}
    provider._clock = clock = Clock()
    browser.provider.broken["/.well-known/openid-configuration"] = PlainTextResponse("{}", 404)
    with capture_logs() as lines:
        for seconds in (0, 59, 1):
            clock.now += seconds
            assert (await browser.client.get("/sign-in")).status_code == 502
    said = [line["why"] for line in lines if line["event"] == "nobody can sign in now"]
    assert said == ["the identity provider has no document at its issuer: HTTP status 404"] * 2


def test_the_check_says_whether_the_provider_answers(
    provider: IdentityProvider, sign_in: dict[str, Any], tmp_path: Path
) -> None:
    fields = {"name": "learner", "state": tmp_path / "learner", "users": [{"name": "a", "token_hash": hash_token("a")}]}
    for changes, code, words in (
        ({}, 0, "sign_in: reached"),
        ({"issuer": f"{provider.url}/"}, 1, "names another issuer than sign_in.issuer: spell it alike"),
        ({"issuer": "http://127.0.0.1:9"}, 1, "sign_in: the identity provider does not answer"),
        ({"client_secret_file": tmp_path / "none"}, 3, "none cannot be read"),
    ):
        file = write(tmp_path / "learner.toml", fields | {"sign_in": sign_in | changes})
        done = CliRunner().invoke(learner_app, ["check", "--config", str(file)])
        assert (done.exit_code, words in done.output) == (code, True), done.output


async def test_a_public_client_shows_no_secret(
    provider: IdentityProvider, sign_in: dict[str, Any], tmp_path: Path
) -> None:
    app = learner(tmp_path, sign_in | {"client_secret_file": None})
    async with visiting(app) as client:
        provider.clients["parley"]["token_endpoint_auth_method"] = "none"
        assert (await Browser(client, provider).sign_in("sam")).status_code == 303
