"""``/readyz`` says whether the next answer can be written, where ``/healthz`` says that the process lives."""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.processes import stopped_at_exit, wait_until_ready
from tests.support.services import NEEDS_IT, TOKENS, service

UNLIMITED = resource.RLIM_INFINITY
FRESH = 0.3
"""Seconds after which a service looks again whether it is ready."""


@dataclass
class Running:
    """A service, its process and its database."""

    name: str
    url: str
    pid: int
    database: Path

    def ask(self) -> int:
        """The status of a request that needs the database."""
        method, path, body = NEEDS_IT[self.name]
        headers = {"Authorization": f"Bearer {TOKENS[self.name]}"}
        return httpx.request(method, self.url + path, json=body, headers=headers, trust_env=False).status_code

    def readiness(self) -> tuple[int, str]:
        """The status of ``/readyz`` and what it says, while ``/healthz`` is well."""
        time.sleep(FRESH)
        assert httpx.get(f"{self.url}/healthz", trust_env=False).status_code == 200
        answer = httpx.get(f"{self.url}/readyz", trust_env=False)
        return answer.status_code, answer.json().get("detail", "")


@contextmanager
def running(name: str, root: Path) -> Iterator[Running]:
    settings, start, database = service(name, root)
    process = start(settings)
    with stopped_at_exit(process):
        url = f"http://127.0.0.1:{settings.port}"
        wait_until_ready(url)
        yield Running(name, url, process.pid or 0, database)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NEEDS_IT))
def test_a_service_that_cannot_write_is_not_ready(name: str, tmp_path: Path) -> None:
    with running(name, tmp_path) as service:
        assert service.readiness() == (200, "")
        for longest in (2**19, 0):  # of none not even the file of its log takes a line
            resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (longest, UNLIMITED))
            status, detail = service.readiness()
            reason = f"may write no file longer than {longest:,} bytes" if longest else "cannot be written"
            assert (status, reason in detail) == (503, True)
        resource.prlimit(service.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        assert service.readiness() == (200, "")
        assert service.ask() in {202, 404}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NEEDS_IT))
def test_a_service_whose_database_was_replaced_is_not_ready(name: str, tmp_path: Path) -> None:
    """By a rename, as rsync and restore tools do: nothing more is answered from the file that lost its name."""
    with running(name, tmp_path) as service:
        shutil.copy(service.database, tmp_path / "copy")
        (tmp_path / "copy").rename(service.database)
        refused = [service.ask() for _ in range(40)]
        print(f"{name}: {refused.count(503)} of {len(refused)} requests refused after its database was replaced")
        assert set(refused) == {503}
        assert service.readiness()[0] == 503
        assert "replaced, moved or deleted while it was open" in service.readiness()[1]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NEEDS_IT if name != "learner"])
def test_a_service_whose_receipts_of_others_were_moved_is_not_ready(name: str, tmp_path: Path) -> None:
    with running(name, tmp_path) as service:
        witness = service.database.with_name("witness.db")
        witness.rename(tmp_path / "away")
        assert service.readiness()[0] == 503
        (tmp_path / "away").rename(witness)
        assert service.readiness() == (200, "")
