"""People sign in, are who the provider says, may do what their role allows, and sign out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
from fastapi import FastAPI

from parley.common.service.tokens import SignedInCaller
from parley.learner.api.sign_in.sessions import BrowserSession
from tests.services.sign_in.conftest import PAGE, URL, Browser
from tests.support.cluster import AUTHORIZED, Cluster, asgi_learner
from tests.support.identity_provider import CLIENT, IdentityProvider, sessions_of


async def test_a_person_signs_in_with_the_code_flow_and_pkce(browser: Browser) -> None:
    address = await browser.begin()
    asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
    assert asked["redirect_uri"] == f"{URL}/sign-in/callback"
    assert (asked["response_type"], asked["scope"], asked["code_challenge_method"]) == (
        "code",
        "openid profile",
        "S256",
    )
    back = await browser.client.get(await browser.log_in(address, "ada"))
    assert (back.status_code, back.headers["location"]) == (303, "/")
    session, mark, begun = back.headers.get_list("set-cookie")
    assert session.startswith("__Host-parley-session=")
    for attribute in ("HttpOnly", "Path=/", "SameSite=strict", "Secure"):
        assert attribute in session
    assert "Max-Age" not in session, "it goes with the browser"
    assert "HttpOnly" not in mark, "scripts see that there may be a session, and no more"
    assert 'parley-sign-in="";' in begun
    user = (await browser.user()).raise_for_status().json()
    assert (user["role"], user["title"]) == ("operator", "Ada Lovelace")
    assert user["name"].startswith("oidc:")


async def test_two_people_are_two_users_and_one_is_the_same_each_time(browser: Browser) -> None:
    names = []
    for person in ("ada", "sam", "ada"):
        await browser.sign_in(person)
        names.append((await browser.user()).json()["name"])
    assert names[0] == names[2] != names[1]


async def test_a_run_has_its_user_from_the_provider(
    provider: IdentityProvider, sign_in: dict[str, Any], tmp_path: Path
) -> None:
    with_parties = Cluster(tmp_path, n_parties=2).learner_settings(None, sign_in=sign_in)
    async with asgi_learner(with_parties, lambda _: httpx.MockTransport(lambda _: httpx.Response(503))) as client:
        del client.headers["authorization"]
        client.base_url = httpx.URL(URL)
        await check_run(Browser(client, provider))


async def check_run(browser: Browser) -> None:
    await browser.sign_in("sam")
    user = (await browser.user()).json()
    order = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5}
    run = (await browser.client.post("/v1/runs", json=order, headers=PAGE)).raise_for_status().json()
    assert run["user"] == user["name"]
    cancel = f"/v1/runs/{run['id']}/cancel"
    by_token = await browser.client.post(cancel, headers=AUTHORIZED)
    assert by_token.status_code == 403, "another user's"
    assert (await browser.client.post(cancel, headers=PAGE)).status_code == 200


async def test_a_role_says_what_a_person_may_do(browser: Browser) -> None:
    await browser.sign_in("sam")
    refused = await browser.client.post("/v1/invitations", json={"name": "x"}, headers=PAGE)
    assert (refused.status_code, refused.json()["rule"]) == (403, "role")


async def test_a_person_without_a_role_is_refused_in_words(browser: Browser) -> None:
    answer = await browser.sign_in("eve")
    assert answer.status_code == 403
    assert "Your account has no role here: its claim &#34;roles&#34; holds none" in answer.text
    assert "visitors" not in answer.text
    assert (await browser.user()).status_code == 401


async def test_a_session_counts_for_the_page_alone(browser: Browser) -> None:
    await browser.sign_in("ada")
    for site in ("cross-site", "same-site", "none"):
        answer = await browser.client.get("/v1/user", headers={"Sec-Fetch-Site": site})
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert (await browser.client.post("/v1/runs", json={})).status_code == 401, "a request without the header"
    assert (await browser.client.post("/sign-out", headers={"Sec-Fetch-Site": "cross-site"})).status_code == 401
    cookies = dict(browser.client.cookies)
    browser.client.cookies.clear()  # a browser sends none along with another site's form
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {}):
        answer = await browser.client.post("/sign-out", headers=headers)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (401, None)
    browser.client.cookies.update(cookies)
    assert (await browser.user()).status_code == 200


async def test_a_token_goes_before_a_session(browser: Browser) -> None:
    await browser.sign_in("ada")
    assert (await browser.user(**AUTHORIZED)).json()["name"] == "alice"
    assert (await browser.user(Authorization="Bearer wrong")).status_code == 401


async def test_signing_out_ends_the_session_here_and_there(browser: Browser) -> None:
    await browser.sign_in("sam")
    browser.provider.paths.clear()
    out = await browser.client.post("/sign-out", headers=PAGE)
    place = urlsplit(out.json()["next"])
    assert f"{place.scheme}://{place.netloc}{place.path}" == f"{browser.provider.url}/session"
    said = {"client_id": [CLIENT], "post_logout_redirect_uri": [f"{URL}/"]}
    assert parse_qs(place.query) == said, "no ID token is in an address"
    assert "/revocation" in browser.provider.paths
    assert (await browser.user()).status_code == 401
    assert (await browser.client.post("/sign-out", headers=PAGE)).json() == {"next": None}


async def test_signing_out_of_a_session_that_has_ended_drops_its_cookies(app: FastAPI, browser: Browser) -> None:
    await browser.sign_in("sam")
    sessions_of(app).end(lambda _: True)
    out = await browser.client.post("/sign-out", headers=PAGE)
    assert (out.status_code, out.json()) == (200, {"next": None})
    assert dict(browser.client.cookies) == {}


async def test_the_provider_ends_a_session_at_once(app: FastAPI, browser: Browser, provider: IdentityProvider) -> None:
    await browser.sign_in("sam")
    told: list[str] = []

    def take(_method: str, _url: str, data: str, **_: object) -> httpx.Response:
        told.append(data)
        return httpx.Response(200)

    provider.server.context.httpc = take
    provider.log_out_everywhere()
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answers = [await browser.client.post("/sign-in/ended", content=data, headers=form) for data in (told[-1], told[-1])]
    assert [answer.status_code for answer in answers] == [200, 400], "a logout token counts once"
    assert (await browser.user()).status_code == 401


def test_the_provider_ends_the_session_that_it_names() -> None:
    caller = SignedInCaller("oidc:sam", "viewer", "Sam")
    with_name, without = (BrowserSession(caller, "sam", sid, None, ends=1.0, renewed=0.0) for sid in ("1", None))
    for named in (("sam", "1"), (None, "1"), ("sam", None)):
        assert with_name.is_named_by(*named), named
    for named in (("sam", "2"), ("ada", "1"), ("ada", None)):
        assert not with_name.is_named_by(*named), named
    assert without.is_named_by("sam", "1")
    assert not without.is_named_by(None, "1")


async def test_a_person_has_at_most_sixteen_sessions(app: FastAPI, browser: Browser) -> None:
    await browser.sign_in("sam")
    first = dict(browser.client.cookies)
    sessions = sessions_of(app)._sessions
    sessions |= {str(index): replace(next(iter(sessions.values()))) for index in range(9)}
    await browser.sign_in("sam")
    await browser.sign_in("ada")
    assert len(sessions) == 12
    sessions |= {str(index): replace(next(iter(sessions.values()))) for index in range(9, 14)}
    await browser.sign_in("sam")
    assert len(sessions) == 17, "sixteen and another person's"
    browser.client.cookies.clear()
    browser.client.cookies.update(first)
    assert (await browser.user()).status_code == 401, "the oldest went"


def test_people_are_told_apart_by_name_alone() -> None:
    assert SignedInCaller("oidc:a", "viewer", "Ann") == SignedInCaller("oidc:a", "operator", "Bea")
    assert str(SignedInCaller("oidc:a", "viewer", "Ann")) == "oidc:a"
