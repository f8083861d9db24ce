"""A learner's page in a real browser: Chromium without a screen, on a learner and parties of this machine."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

import httpx
import pytest
from fastapi import FastAPI
from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from parley.learner.api.app import create_learner_app as create_learner
from parley.learner.settings import LearnerSettings
from tests.support.cluster import AUTHORIZED, USER
from tests.support.processes import free_port, serving, wait_until_ready

_SECONDS = 20
_Found = TypeVar("_Found")


@dataclass
class Site:
    """A learner that is served: where, and the application itself."""

    url: str
    app: FastAPI

    def client(self) -> httpx.Client:
        """A user's client."""
        return httpx.Client(base_url=self.url, headers=AUTHORIZED, trust_env=False, timeout=30)


@contextmanager
def served(settings: LearnerSettings, port: int = 0) -> Iterator[Site]:
    """A learner that is served by a thread of this process."""
    app, port = create_learner(settings), port or free_port()
    with serving(app, port) as url:
        wait_until_ready(url)
        yield Site(url, app)


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """A browser; skips the test, and says so, where there is none."""
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("Chromium and its driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-proxy-server"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    try:
        yield browser
    finally:
        browser.quit()


@dataclass
class Visitor:
    """Somebody at the page."""

    browser: webdriver.Chrome
    site: Site
    pictures: Path

    def sign_in(self, at: str = "", token: str = USER) -> None:
        """Open the page and give a token."""
        self.browser.get("about:blank")
        self.browser.get(f"{self.site.url}/{at}")
        self.until(lambda: self.find("#sign-in").get_attribute("open") is not None)
        self.give(token)

    def give(self, token: str) -> None:
        """Fill the form that asks for a token."""
        self.find("#token").send_keys(token)
        self.find("#sign-in form button").click()

    def go(self, place: str) -> None:
        """Go to another view."""
        self.browser.execute_script("location.hash = arguments[0]", place)

    def find(self, selector: str) -> WebElement:
        """The first element that a CSS selector finds."""
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> list[WebElement]:
        """All that a CSS selector finds."""
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "main") -> str:
        """What an element says."""
        return self.find(selector).text

    def until(self, holds: Callable[[], _Found], seconds: float = _SECONDS) -> _Found:
        """What ``holds`` gives, once that is true."""
        return WebDriverWait(self.browser, seconds, 0.03).until(lambda _: _tried(holds))

    def until_it_says(self, words: str, selector: str = "main", seconds: float = _SECONDS) -> None:
        """Wait until an element says some words."""
        try:
            self.until(lambda: words in self.text(selector), seconds)
        except Exception:
            print(f"{selector} says:\n{self.text(selector)}\nnotice: {self.text('#notice')}\nlog: {self.log()}")
            raise

    def look(self, width: int, scheme: Literal["light", "dark"], height: int = 900) -> None:
        """Have the window so wide, and the user prefer a scheme."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)

    def photograph(self, name: str) -> None:
        """Pictures of the whole page, narrow and wide, light and dark; nothing of it may be wider than the window."""
        for width in (390, 1280):
            for scheme in ("light", "dark"):
                self.look(width, scheme)
                time.sleep(0.15)
                script = "return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]"
                width_of_page, height = self.browser.execute_script(script)
                self.look(width, scheme, min(max(height, 600), 4000))
                self.browser.save_screenshot(str(self.pictures / f"{name}-{width}-{scheme}.png"))
                assert width_of_page <= width, f"{name} is {width_of_page} points wide where there are {width}"
        self.look(1280, "light")

    def log(self) -> list[str]:
        """The messages of the browser since the last call."""
        return [entry["message"] for entry in self.browser.get_log("browser")]  # type: ignore[no-untyped-call]


def _tried(holds: Callable[[], _Found]) -> _Found | Literal[False]:
    """What a condition gives; nothing while the page is being changed."""
    try:
        return holds()
    except (NoSuchElementException, StaleElementReferenceException):
        return False
