"""A real Prometheus on loopback, with the alert rules made fast: seconds stand for what takes minutes and hours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]

from tests.support.processes import free_port

RULES = Path(__file__).parents[2] / "deployments" / "monitoring" / "alerts.yml"
INTERVAL = "500ms"
"""Between two scrapes, and two evaluations of the rules."""
HOLDS = "1s"
"""How long a condition must hold, in place of minutes."""
WINDOWS = {"30m": 4, "15m": 6, "10m": 6}
"""Seconds, in place of minutes, in which something happened; those for an hour depend on how fast it can be caused."""
_SELECTED = re.compile(r"\[(\d+[mh])\]|\boffset (\d+[mh])")
_START_SECONDS = 60.0

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None, reason="needs Debian's package prometheus"
)


def fast_rules(text: str, hour: int) -> str:
    """The rules with each window and each wait in seconds; ``hour`` stand for an hour."""
    seconds = WINDOWS | {"1h": hour}

    def shorten(match: re.Match[str]) -> str:
        window = match[1] or match[2]
        return match[0].replace(window, f"{seconds[window]}s")

    return _SELECTED.sub(shorten, re.sub(r"\bfor: \d+[mh]", f"for: {HOLDS}", text))


@dataclass
class Watch:
    """A Prometheus that runs; ``fired`` has all alerts that were seen firing."""

    url: str
    fired: set[str] = field(default_factory=set)

    def alerts(self) -> dict[str, str]:
        """The alerts that are pending or firing, with their state."""
        found = httpx.get(f"{self.url}/api/v1/alerts", trust_env=False).json()["data"]["alerts"]
        states = {alert["labels"]["alertname"]: "pending" for alert in found}
        states |= {alert["labels"]["alertname"]: "firing" for alert in found if alert["state"] == "firing"}
        self.fired |= {name for name, state in states.items() if state == "firing"}
        return states

    def until(self, *names: str, seconds: float = 60.0) -> None:
        """Wait until each of these alerts has fired."""
        self.until_holds(lambda: set(names) <= self.fired, seconds)

    def until_silent(self, seconds: float = 240.0) -> None:
        """Wait until no alert is pending or firing."""
        self.until_holds(lambda: not self.alerts(), seconds)

    def value(self, expression: str) -> float | None:
        """The value of an expression of one series; None if there is none."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, trust_env=False)
        query = answer.raise_for_status().json()
        return float(query["data"]["result"][0]["value"][1]) if query["data"]["result"] else None

    def until_holds(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until something holds, and note meanwhile what fires; raises TimeoutError, which says what does."""
        deadline = time.monotonic() + seconds
        while self.alerts() is None or not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(json.dumps({"now": self.alerts(), "fired": sorted(self.fired)}))
            time.sleep(0.1)


@contextmanager
def watching(root: Path, targets: Mapping[str, tuple[str, dict[str, Any]]], hour: int = 10) -> Iterator[Watch]:
    """Prometheus watches services: by name, the address of their metrics, and how they are read.

    ``hour`` is how many seconds stand for an hour.
    """
    root.mkdir()
    (root / "alerts.yml").write_text(fast_rules(RULES.read_text(encoding="utf-8"), hour), encoding="utf-8")
    jobs = [
        {"job_name": f"parley-{name}", "static_configs": [{"targets": [address]}], **how}
        for name, (address, how) in targets.items()
    ]
    times = {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL}
    configuration = {"global": times, "rule_files": ["alerts.yml"], "scrape_configs": jobs}
    (root / "prometheus.yml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    options = [f"--config.file={root}/prometheus.yml", f"--storage.tsdb.path={root}/data"]
    with (root / "log").open("w") as log:
        command = ["prometheus", *options, f"--web.listen-address={address}"]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        watch = Watch(f"http://{address}")
        deadline = time.monotonic() + _START_SECONDS
        while not _all_up(watch, len(targets)):
            assert time.monotonic() < deadline, (root / "log").read_text()[-2000:]
            time.sleep(0.1)
        yield watch
    finally:
        process.terminate()
        process.wait(30)


def _all_up(watch: Watch, count: int) -> bool:
    """Whether Prometheus answers and reaches each of so many services."""
    try:
        return watch.value("sum(up)") == count
    except httpx.HTTPError:
        return False
