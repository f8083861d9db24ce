"""Who is let in, and what one finds: runs, studies, owners."""

from __future__ import annotations

from datetime import date

import pytest

from parley.common.service.tokens import KnownToken, NamedCaller, hash_token
from tests.services.page.conftest import ROLES
from tests.support.browser import Visitor
from tests.support.cluster import USER


def test_a_visitor_signs_in_and_out(visitor: Visitor) -> None:
    visitor.sign_in(token="nobodys")
    visitor.until_it_says("not known here", "#sign-in-why")
    visitor.give(USER)
    visitor.until_it_says("alice · submitter", "#who")
    visitor.until_it_says("There are no runs yet")
    assert visitor.browser.execute_script("return sessionStorage.getItem('token')") == USER
    visitor.browser.refresh()
    visitor.until_it_says("alice", "#who")
    visitor.find("#sign-out").click()
    assert visitor.find("#sign-in").is_displayed()
    assert visitor.text() == ""
    assert visitor.browser.execute_script("return sessionStorage.length") == 0


def test_a_viewer_is_offered_nothing_that_is_refused(visitor: Visitor) -> None:
    visitor.sign_in("#studies", ROLES["viewer"])
    visitor.until_it_says("viewer · viewer", "#who")
    visitor.until_it_says("biopsies")
    assert "New run" not in visitor.text("nav")
    assert "Train a model" not in visitor.text()


def test_studies_show_owners_sizes_health_and_budgets(visitor: Visitor) -> None:
    visitor.sign_in("#studies")
    visitor.until_it_says("biopsies")
    message = visitor.text()
    assert "diagnosis, two classes" in message
    assert "3, with 427 rows" in message
    assert all(f"party-{index}" in message for index in (1, 2, 3))
    assert "their length (2-norm)" in message
    assert "dense" in message
    bars = [bar.get_attribute("aria-label") for bar in visitor.all("svg.bar")]
    assert len(bars) == 3
    assert all("of 5" in (bar or "") for bar in bars)
    visitor.photograph("studies")
    assert visitor.log() == []


@pytest.mark.slow
def test_a_token_that_ends_while_watching_is_asked_for_again(visitor: Visitor) -> None:
    tokens = visitor.site.app.state.tokens
    valid_tokens = tokens._tokens
    visitor.sign_in()
    visitor.until_it_says("alice", "#who")
    visitor.until_it_says("Runs")
    try:
        tokens.replace([KnownToken(hash_token(USER), NamedCaller("alice"), date(2020, 1, 1)), *valid_tokens[1:]])
        visitor.until(lambda: visitor.find("#sign-in").is_displayed(), 30)
        assert "expired" in visitor.text("#sign-in-why")
        assert "Runs" in (visitor.find("main").get_attribute("textContent") or "")
    finally:
        tokens.replace(valid_tokens)
    visitor.give(USER)
    visitor.until_it_says("alice", "#who")
    assert not visitor.find("#sign-in").is_displayed()
