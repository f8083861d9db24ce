"""People sign in to the page in a real browser, at a real identity provider, and out again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from tests.support.browser import Site, Visitor, chromium, served
from tests.support.cluster import USER
from tests.support.identity_provider import CLIENT, PASSWORD, SECRET, IdentityProvider, identity_provider, sessions_of
from tests.support.processes import free_port

pytestmark = pytest.mark.slow


@pytest.fixture
def provider() -> Iterator[tuple[IdentityProvider, int]]:
    """The provider, and the port of the learner that it knows."""
    port = free_port()
    with identity_provider(f"http://localhost:{port}") as provider:
        yield provider, port


@pytest.fixture
def visitor(provider: tuple[IdentityProvider, int], tmp_path: Path) -> Iterator[Visitor]:
    """Somebody at the page of a learner without parties."""
    (tmp_path / "secret").write_text(SECRET)
    sign_in: dict[str, Any] = {
        "issuer": provider[0].url,
        "client_id": CLIENT,
        "client_secret_file": tmp_path / "secret",
        "url": f"http://localhost:{provider[1]}",
        "provider": "St. Mary's Hospital",
        "roles": {"parley-operators": "operator"},
    }
    users = [{"name": "alice", "token_hash": hash_token(USER)}]
    fields: dict[str, Any] = {"name": "learner", "state": tmp_path / "learner", "users": users, "sign_in": sign_in}
    pictures = Path(os.environ.get("PARLEY_PICTURES") or tmp_path)
    with served(LearnerSettings(**fields), provider[1]) as site, chromium() as browser:
        yield Visitor(browser, Site(f"http://localhost:{provider[1]}", site.app), pictures)


def log_in(visitor: Visitor, person: str) -> None:
    visitor.until(lambda: visitor.find("#username")).send_keys(person)
    visitor.find("#password").send_keys(PASSWORD)
    visitor.find("button").click()


def test_people_sign_in_come_back_to_their_view_and_sign_out(
    visitor: Visitor, provider: tuple[IdentityProvider, int]
) -> None:
    visitor.browser.get(f"{visitor.site.url}/#studies")
    visitor.until(lambda: visitor.find("#to-provider").is_displayed())
    assert visitor.find("#to-provider").text == "Sign in with St. Mary's Hospital"
    assert not visitor.find("#token").is_displayed()
    visitor.photograph("sign-in")
    visitor.find("#to-provider").click()
    log_in(visitor, "ada")
    visitor.until_it_says("Ada Lovelace · operator", "#user")
    visitor.until(lambda: visitor.browser.current_url.endswith("/#studies"))
    assert visitor.browser.execute_script("return document.cookie") == "__Host-parley-signed-in=1"
    assert visitor.browser.execute_script("return Object.keys(sessionStorage)") == []
    visitor.photograph("signed-in")
    visitor.browser.execute_script("window.open('/')")
    visitor.browser.switch_to.window(visitor.browser.window_handles[1])
    visitor.until_it_says("Ada Lovelace", "#user")  # the session is the browser's, not the tab's

    sessions_of(visitor.site.app).end(lambda _: True)
    visitor.go("studies")
    visitor.until_it_says("The session has ended: sign in again. You come back to this view", "#sign-in-why")
    visitor.photograph("session-ended")
    visitor.find("#to-provider").click()
    log_in(visitor, "ada")
    visitor.until_it_says("Ada Lovelace", "#user")
    visitor.find("#sign-out").click()
    visitor.until(lambda: visitor.browser.current_url.startswith(f"{provider[0].url}/session?client_id="))
    visitor.browser.get(visitor.site.url)
    visitor.until(lambda: visitor.find("#to-provider").is_displayed())
    assert visitor.browser.execute_script("return document.cookie") == ""


def test_a_person_without_a_role_is_told_so_and_a_token_works(visitor: Visitor) -> None:
    visitor.browser.get(visitor.site.url)
    visitor.until(lambda: visitor.find("#to-provider").is_displayed())
    visitor.find("#to-provider").click()
    log_in(visitor, "eve")
    visitor.until_it_says("has no role here")
    visitor.photograph("no-role")
    visitor.find(".button").click()
    visitor.until(lambda: visitor.find("#to-provider").is_displayed())
    visitor.find("#with-token summary").click()
    visitor.give(USER)
    visitor.until_it_says("alice · submitter", "#user")
