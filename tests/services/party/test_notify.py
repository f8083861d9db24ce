"""How an owner hears of a run that waits: by a command, by a web hook; neither can delay its party, or fail it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from parley.party.answers.party import open_store
from parley.party.owner.questions import WaitingRuns
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster, asgi_cluster, submit, until_owners_are_asked

KEEP = "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"
FAIL = "import sys; sys.exit(3)"
HANG = "import time; time.sleep(60)"


@dataclass
class Notified(Cluster):
    """Owners who say yes by hand, and are told by these means."""

    means: dict[str, Any] = field(default_factory=dict)

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        return super().party_settings(name, **({"notify": self.means} | changes))


@asynccontextmanager
async def asked(root: Path, **means: object) -> AsyncIterator[tuple[Notified, str, httpx.AsyncClient]]:
    """A run whose only owner was asked, within the two seconds that a party has that does nothing else."""
    cluster = Notified(root, n_parties=1, epsilon=1.5, policy={"approval": "manual"}, means=means)
    async with asgi_cluster(cluster) as client:
        async with asyncio.timeout(2):
            run = await submit(client, parameters={"n_rounds": 3}, purpose="find what helps")
            await until_owners_are_asked(client, run)
        yield cluster, run, client


@contextmanager
def web_hook(status: int = 204) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """A receiver on loopback: its address, and the content type and body of each post."""
    heard = list[tuple[str, bytes]]()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.headers["Content-Type"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", heard
        finally:
            server.shutdown()
            thread.join()


async def until_logged(logs: list[Any], n: int) -> list[Any]:
    """The first ``n`` notes of failed notifications."""
    async with asyncio.timeout(30):
        while len(logged := [log for log in logs if log["event"] == "notify"]) < n:  # noqa: ASYNC110 -- other threads
            await asyncio.sleep(0.02)
    return logged


async def test_command_and_web_hook_are_told_what_pending_shows(tmp_path: Path) -> None:
    file = tmp_path / "told.json"
    command = [sys.executable, "-c", KEEP, str(file)]
    with web_hook() as (url, heard):
        async with asked(tmp_path, command=command, url=url) as (cluster, run, client), asyncio.timeout(30):
            while not heard:  # noqa: ASYNC110 -- another thread's
                await asyncio.sleep(0.02)
            await client.post(f"/v1/runs/{run}/resume")  # the learner asks again, and nobody is told again
            await until_owners_are_asked(client, run)
            with open_store(cluster.party_settings("party-1")) as store:
                (pending,) = WaitingRuns(store).questions()
    ((kind, body),) = heard
    question = json.loads(body)
    assert kind == "application/json"
    assert body == file.read_bytes()
    assert question == pending
    assert (question["run"], question["study"], question["purpose"]) == (run, "made-up", "find what helps")
    assert (question["epsilon"], question["delta"]) == (1.0, 1e-5)
    assert 0 < question["epsilon_left_after_it"] < 1.5
    assert "excess fitness" in question["you_gain"]
    assert {"about", "guarantee", "contributors", "learner_sees", "until"} <= set(question)


async def test_a_question_names_the_study_by_its_title(tmp_path: Path) -> None:
    with web_hook() as (url, heard):
        cluster = Notified(tmp_path, n_parties=1, policy={"approval": "manual"}, means={"url": url})
        titled = cluster.study.model_copy(update={"title": "Who recovers", "purpose": "to treat better."})
        cluster.study_path.write_text(titled.model_dump_json())
        async with asgi_cluster(cluster) as client, asyncio.timeout(30):
            await until_owners_are_asked(client, await submit(client, parameters={"n_rounds": 3}))
            while not heard:  # noqa: ASYNC110 -- another thread's
                await asyncio.sleep(0.02)
    assert json.loads(heard[0][1])["about"] == "Who recovers to treat better."


async def test_what_fails_is_logged_and_stops_nothing(tmp_path: Path) -> None:
    with web_hook(500) as (url, heard), capture_logs() as logs:
        async with asked(tmp_path, command=[sys.executable, "-c", FAIL], url=url) as (cluster, run, client):
            failed = await until_logged(logs, 2)
            with open_store(cluster.party_settings("party-1")) as store:
                store.questions.allow("learner", run)
            await client.post(f"/v1/runs/{run}/resume")
            assert (await client.get(f"/v1/runs/{run}/events", timeout=60)).status_code == 200
            assert (await client.get(f"/v1/runs/{run}")).json()["state"] == "completed"
    assert [(entry["means"], entry["failed"]) for entry in failed] == [
        ("command", "CalledProcessError"),
        ("url", "HTTPStatusError"),
    ]
    assert len(heard) == 1
    assert url not in str(failed)


async def test_who_is_not_there_is_logged(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with asked(tmp_path, command=[str(tmp_path / "nothing")], url="http://127.0.0.1:9/hook"):
            failed = await until_logged(logs, 2)
    assert [entry["failed"] for entry in failed] == ["FileNotFoundError", "ConnectError"]


async def test_who_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.party.owner.questions._SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent, capture_logs() as logs:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        async with asked(tmp_path, command=[sys.executable, "-c", HANG], url=url):
            failed = await until_logged(logs, 2)
    assert [entry["failed"] for entry in failed] == ["TimeoutExpired", "ReadTimeout"]


async def test_what_a_command_that_hangs_has_started_ends_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parley.party.owner.questions._SECONDS", 1.0)
    pipe = tmp_path / "open-while-any-lives"
    os.mkfifo(pipe)
    async with asyncio.timeout(30), asked(tmp_path, command=["sh", "-c", f"exec 3> {pipe}; sleep 600 & wait"]):
        assert await asyncio.to_thread(pipe.read_bytes) == b"", "it ends when nobody can write to it any more"
