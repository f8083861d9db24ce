"""One user with a thousand of anything, and how many of them are served while another user waits; on real services."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import mean, median

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
        order = RUN | {"parameters": {"n_rounds": ROUNDS}}
        run = self.one.post("/v1/runs", json=order).raise_for_status().json()["id"]
        with self.one.stream("GET", f"/v1/runs/{run}/events") as response:
            assert "completed" in "".join(response.raise_for_status().iter_lines())

    def answered(self) -> float:
        """How many requests were answered, beside those that ask for this."""
        return sum(self.answers().values())

    def served(self) -> float:
        """How many of them were not refused with 429: a refusal takes nobody's turn."""
        return sum(count for name, count in self.answers().items() if 'status="429"' not in name)

    def answers(self) -> dict[str, float]:
        """How many requests were answered, by the series that counts them, beside those that ask for this."""
        return {name: n for name, n in self.counters() if "requests_total{" in name and "/metrics" not in name}

    def rounds(self) -> float:
        """How many rounds all runs have had."""
        return dict(self.counters())["parley_rounds_total"]

    def counters(self) -> Iterator[tuple[str, float]]:
        url = self.one.base_url.join("/metrics")
        for line in again_if_closed(lambda: httpx.get(url, trust_env=False, timeout=60)).text.splitlines():
            if not line.startswith("#"):
                name, count = line.rsplit(maxsplit=1)
                yield name, float(count)

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


PAIRS, BLOCK, ROUNDS = 3, 5, 15
FEW = 20
"""Others that may be served meanwhile: 0 to 4 are, and hundreds where callers take no turns.

They are counted, and not the seconds: how long a call takes says more of the machine than of the service.
"""


def seconds_of(call: Callable[[], None], count: int) -> list[float]:
    """How long each of so many calls takes."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return taken


def others_served(  # noqa: PLR0913, PLR0917 -- what is served beside others, and how
    scene: Scene, name: str, call: Callable[[], None], request: bytes, pause: float = 0.0, pairs: int = PAIRS
) -> float:
    """How many requests of a flood are served while one call waits for its answer, by the mean.

    How long the call takes beside it and alone is printed. They are taken in turns, while the flood goes on and while
    it is paused: what else the machine does is in both.
    """
    call()
    alone, beside, others = list[float](), list[float](), list[float]()
    with flooded(scene.port, request, pause=pause) as flood:
        for _ in range(pairs):
            with flood.paused():
                scene.settle()
                alone += seconds_of(call, BLOCK)
                before = scene.answered()
            while request and scene.answered() == before:  # until it has begun again
                pass
            for _ in range(BLOCK):
                before = scene.served()
                beside += seconds_of(call, 1)
                others.append(scene.served() - before - 1)
    print(
        f"{name}: {1e3 * median(alone):.1f} ms alone, {1e3 * median(beside):.1f} beside a thousand: "
        f"ratio {median(beside) / median(alone):.2f}; {mean(others):.1f} of them served meanwhile "
        f"(most {max(others):g}); they saw {dict(flood.seen)}"
    )
    return mean(others)


def test_streams(scene: Scene) -> None:
    assert others_served(scene, "streams", scene.watch, request_of("GET", "/v1/events", MANY), pause=1.0) <= FEW


def test_forecasts(scene: Scene) -> None:
    request = request_of("POST", "/v1/forecasts", MANY, json.dumps(FORECAST).encode())
    assert others_served(scene, "forecasts", scene.forecast, request, pause=1.0) <= FEW


def test_uploads(scene: Scene) -> None:
    table = scene.cluster.public_table(500)
    request = request_of("PUT", "/v1/public?study=made-up", MANY, table, "application/octet-stream")
    assert others_served(scene, "uploads", scene.upload, request, pause=1.0, pairs=repeats(1, PAIRS)) <= FEW


def test_connections(scene: Scene) -> None:
    request = request_of("GET", "/v1/user", MANY)
    assert others_served(scene, "connections", scene.connect, request, pause=3.0) <= FEW
    assert others_served(scene, "idle strangers", scene.connect, b"") <= FEW


def test_failed_sign_ins(scene: Scene) -> None:
    request = request_of("GET", "/v1/user", "nobody's-token")
    assert others_served(scene, "failed sign-ins", scene.look, request, pause=1.0) <= FEW


def test_queued_runs(scene: Scene) -> None:
    scene.run()
    alone = seconds_of(scene.run, 3)
    order = RUN | {"parameters": {"n_rounds": 1000}}
    answers = [scene.many.post("/v1/runs", json=order) for _ in range(200)]
    queued = [answer.json()["id"] for answer in answers if answer.is_success]
    refused = [answer for answer in answers if not answer.is_success]
    beside, others = list[float](), list[float]()
    for _ in range(3):
        before = scene.rounds()
        beside += seconds_of(scene.run, 1)
        others.append(scene.rounds() - before - ROUNDS)
    for run in queued:
        scene.many.post(f"/v1/runs/{run}/cancel")
    print(
        f"a run: {median(alone):.2f} s alone, {median(beside):.2f} beside {len(queued)} of 1,000 rounds; "
        f"{others} rounds of theirs meanwhile; {len(refused)} refused"
    )
    assert 100 <= len(queued) < 200, "those that end meanwhile make room"
    assert {answer.status_code for answer in refused} == {429}
    assert {answer.headers["retry-after"] for answer in refused} == {"60"}
    assert mean(others) <= FEW * ROUNDS
