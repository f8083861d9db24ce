"""The whole path by keyboard alone, with a focus that is seen at each step."""

from __future__ import annotations

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from tests.support.browser import Visitor
from tests.support.cluster import USER

MOST_STOPS = 40


def press(visitor: Visitor, keys: str) -> WebElement:
    """Press keys where the focus is; where it is then."""
    visitor.browser.switch_to.active_element.send_keys(keys)
    return visitor.browser.switch_to.active_element


def tab_to(visitor: Visitor, words: str) -> list[str]:
    """Press Tab until the focus, which is seen, is on what is so called; the identifiers of what it passed."""
    passed: list[str] = []
    for _ in range(MOST_STOPS):
        focused = press(visitor, Keys.TAB)
        is_seen = focused.tag_name == "body" or focused.value_of_css_property("outline-style") == "solid"
        assert is_seen, focused.get_attribute("outerHTML")
        if focused.accessible_name.startswith(words):
            return passed
        passed.append(focused.get_attribute("id") or "")
    raise AssertionError(words)


@pytest.mark.slow
def test_a_run_is_asked_for_by_keyboard(visitor: Visitor) -> None:
    visitor.browser.get(visitor.site.url)
    visitor.until(lambda: visitor.browser.switch_to.active_element.get_attribute("id") == "token")
    for _ in range(3):
        press(visitor, Keys.ESCAPE)
        assert visitor.find("#sign-in").is_displayed(), "there is nothing else to do"
    press(visitor, USER + Keys.ENTER)
    visitor.until_it_says("There are no runs yet")
    tab_to(visitor, "New run")
    press(visitor, Keys.ENTER)
    visitor.until_it_says("excess loss", "#expected")
    passed = tab_to(visitor, "Train")
    assert [name for name in passed if name and not name.startswith("field")] == [
        "sign-out",
        "study",
        "epsilon",
        "delta",
        "secure",
        "rule",
        "class-weights",
    ]
    press(visitor, Keys.ENTER)
    visitor.until_it_says("completed", "#state", 60)
    visitor.until_it_says("Take it away")
    assert visitor.browser.switch_to.active_element.tag_name == "main", "the button that led here is gone"
    tab_to(visitor, "Evaluate it")
    visitor.until_it_says("Of a model without any error", "#at-most")
    tab_to(visitor, "Download the model")


@pytest.mark.slow
def test_a_dialog_opens_closes_and_is_filled_by_keyboard(visitor: Visitor) -> None:
    visitor.sign_in("#studies")
    visitor.until_it_says("Describe its columns")
    tab_to(visitor, "Describe its columns")
    press(visitor, Keys.ENTER)
    visitor.until(lambda: visitor.all("dialog[open] .choices input"))
    focused = press(visitor, Keys.ESCAPE)
    assert not visitor.all("dialog[open]")
    assert focused.accessible_name == "Describe its columns", "the focus is where it was"
    press(visitor, Keys.ENTER)
    visitor.until(lambda: visitor.all("dialog[open] .choices input"))
    tab_to(visitor, "mean_radius")
    press(visitor, Keys.SPACE)
    press(visitor, Keys.ENTER)
    visitor.until_it_says("What the columns hold", seconds=60)
    assert len(visitor.all("#description svg")) == 1
    assert visitor.log() == []
