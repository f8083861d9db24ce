"""One user with a thousand of anything, and what another user's same call takes meanwhile; on real services."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import httpx
import pytest

from parley.common.service.tokens import hash_token
from tests.support.cluster import Cluster
from tests.support.flood import flooded, request_of
from tests.support.nightly import repeats
from tests.support.processes import free_port, party_processes, start_learner, stopped_at_exit, wait_until_ready

pytestmark = pytest.mark.slow
ONE, MANY = "the-token-of-one", "the-token-of-many"
STREAM = {"Content-Type": "application/octet-stream"}
RUN = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "algorithm": "dp_gd"}
FORECAST = {**RUN, "owners": {f"owner-{number}": 1000 + number for number in range(12)}}


def again_if_closed(ask: Callable[[], httpx.Response]) -> httpx.Response:
    """An answer; whose connection is closed before it could say who it is, because there are too many, asks again."""
    for _ in range(50):
        with suppress(httpx.TransportError):
            return ask()
    return ask()


@dataclass(frozen=True)
class Scene:
    """A learner with parties, and two users of it."""

    cluster: Cluster
    port: int
    one: httpx.Client
    many: httpx.Client

    def look(self) -> None:
        self.one.get("/v1/user").raise_for_status()

    def forecast(self) -> None:
        self.one.post("/v1/forecasts", json=FORECAST).raise_for_status()

    def upload(self) -> None:
        table = self.cluster.public_table(500)
        response = self.one.put("/v1/public?study=made-up", content=table, headers=STREAM)
        assert response.is_success, response.text

    def watch(self) -> None:
        """Return the first event of all runs."""
        with self.one.stream("GET", "/v1/events") as response:
            next(response.raise_for_status().iter_lines())

    def run(self) -> None:
        order = RUN | {"parameters": {"n_rounds": 15}}
        run = self.one.post("/v1/runs", json=order).raise_for_status().json()["id"]
        with self.one.stream("GET", f"/v1/runs/{run}/events") as response:
            assert "completed" in "".join(response.raise_for_status().iter_lines())

    def answered(self) -> float:
        """How many requests were answered, beside those that ask for this."""
        url = self.one.base_url.join("/metrics")
        lines = again_if_closed(lambda: httpx.get(url, trust_env=False, timeout=60)).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if "requests_total{" in line and "/metrics" not in line)

    def settle(self) -> None:
        """Wait until what was sent is answered."""
        last = -1.0
        while (now := self.answered()) != last:
            last = now
            time.sleep(0.2)

    def connect(self) -> None:
        """Open a separate connection."""
        with httpx.Client(base_url=self.one.base_url, headers=self.one.headers, trust_env=False, timeout=60) as new:
            again_if_closed(lambda: new.get("/v1/user")).raise_for_status()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    cluster = Cluster(tmp_path_factory.mktemp("fair"), n_parties=2, epsilon=1e6)
    users = [{"name": name, "token_hash": hash_token(token)} for name, token in (("one", ONE), ("many", MANY))]
    with party_processes(cluster) as urls:
        settings = cluster.learner_settings(urls, port=free_port(), users=users)
        url = f"http://127.0.0.1:{settings.port}"
        with stopped_at_exit(start_learner(settings)):
            wait_until_ready(url)
            one, many = (
                httpx.Client(
                    base_url=url,
                    headers={"Authorization": f"Bearer {token}"},
                    trust_env=False,
                    timeout=60,
                    limits=httpx.Limits(keepalive_expiry=2),
                )
                for token in (ONE, MANY)
            )
            with one, many:
                yield Scene(cluster, settings.port, one, many)


PAIRS, BLOCK = 3, 5
BOUND = 3.0
"""Two, and half as much again for what else the machine does."""


def seconds_of(call: Callable[[], None], count: int) -> list[float]:
    """How long each of so many calls takes."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return taken


def compared(  # noqa: PLR0913, PLR0917 -- what is compared, and how
    scene: Scene, name: str, call: Callable[[], None], request: bytes, pause: float = 0.0, pairs: int = PAIRS
) -> float:
    """The median time of a call beside a flood in ratio to that alone, printed.

    They are taken in turns, while the flood is paused and while it goes on: what else the machine does is in both.
    """
    call()
    alone, beside = list[float](), list[float]()
    with flooded(scene.port, request, pause=pause) as flood:
        for _ in range(pairs):
            with flood.paused():
                scene.settle()
                alone += seconds_of(call, BLOCK)
                before = scene.answered()
            while request and scene.answered() == before:  # until it has begun again
                pass
            beside += seconds_of(call, BLOCK)
    ratio = median(beside) / median(alone)
    print(
        f"{name}: {1e3 * median(alone):.1f} ms alone, {1e3 * median(beside):.1f} beside a thousand: "
        f"ratio {ratio:.2f}; they saw {dict(flood.seen)}"
    )
    return ratio


def test_streams(scene: Scene) -> None:
    assert compared(scene, "streams", scene.watch, request_of("GET", "/v1/events", MANY), pause=1.0) < BOUND


def test_forecasts(scene: Scene) -> None:
    request = request_of("POST", "/v1/forecasts", MANY, json.dumps(FORECAST).encode())
    assert compared(scene, "forecasts", scene.forecast, request, pause=1.0) < BOUND


def test_uploads(scene: Scene) -> None:
    table = scene.cluster.public_table(500)
    request = request_of("PUT", "/v1/public?study=made-up", MANY, table, "application/octet-stream")
    assert compared(scene, "uploads", scene.upload, request, pause=1.0, pairs=repeats(1, PAIRS)) < BOUND


def test_connections(scene: Scene) -> None:
    request = request_of("GET", "/v1/user", MANY)
    assert compared(scene, "connections", scene.connect, request, pause=3.0) < BOUND
    assert compared(scene, "idle strangers", scene.connect, b"") < BOUND


def test_failed_sign_ins(scene: Scene) -> None:
    request = request_of("GET", "/v1/user", "nobody's-token")
    assert compared(scene, "failed sign-ins", scene.look, request, pause=1.0) < BOUND


def test_queued_runs(scene: Scene) -> None:
    scene.run()
    before = median(seconds_of(scene.run, 3))
    order = RUN | {"parameters": {"n_rounds": 1000}}
    answers = [scene.many.post("/v1/runs", json=order) for _ in range(200)]
    queued = [answer.json()["id"] for answer in answers if answer.is_success]
    refused = [answer for answer in answers if not answer.is_success]
    meanwhile = median(seconds_of(scene.run, 3))
    for run in queued:
        scene.many.post(f"/v1/runs/{run}/cancel")
    after = median(seconds_of(scene.run, 3))
    ratio = meanwhile / ((before + after) / 2)
    print(
        f"a run: {before:.2f} s alone, {meanwhile:.2f} beside {len(queued)} of 1,000 rounds, {after:.2f} again alone: "
        f"ratio {ratio:.2f}; {len(refused)} refused"
    )
    assert len(queued) == 100
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {"60"}
    assert ratio < BOUND
