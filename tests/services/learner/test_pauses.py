"""Paused runs as their users see them; and peers that say not now."""

from __future__ import annotations

import asyncio
import json
from io import StringIO
from typing import Any

import httpx
import numpy as np
import pytest
from rich.console import Console
from structlog.testing import capture_logs

from parley.common.client import outbound
from parley.common.client.endpoints import LearnerAddress
from parley.common.client.party import PartyClient
from parley.common.client.peer import all_of, ask_all
from parley.common.encoding.npy import NPY, pack_array
from parley.common.errors import PartyRefusedError, UnavailableError
from parley.learner.cli.display import follow
from parley.learner.client import connection
from parley.learner.execution.engine import Patience
from parley.learner.runs.states import RunEvent
from tests.support.cluster import DEADLINE, Cluster, submit, until_paused, watch
from tests.support.intercepted import Intercept, Intercepted, always, learner_of, pass_on, unreachable
from tests.support.lines import line_to

Parties = dict[str, Intercepted]


async def states(client: httpx.AsyncClient, run: str) -> list[str]:
    """The states that a run has been in, at its end."""
    return [data["state"] for kind, data in await watch(client, run) if kind == "state"]


@pytest.mark.parametrize(("path", "stage"), [("/v1/party", "recruiting"), ("/rounds/3", "running")])
async def test_a_run_pauses_says_why_and_goes_on_when_told(
    cluster: Cluster, parties: Parties, path: str, stage: str
) -> None:
    parties["party-2"].intercept = parties["party-3"].intercept = unreachable(path)
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        run = await submit(client)
        pause = await until_paused(client, run)
        assert pause["who"] == ["party-2", "party-3"]
        assert "party-3 cannot be reached" in pause["reason"]
        assert 'parley_runs{state="paused"} 1.0' in (await client.get("/metrics")).text
        parties["party-2"].intercept = parties["party-3"].intercept = pass_on
        response = await client.post(f"/v1/runs/{run}/resume")
        assert (response.status_code, response.json()["id"]) == (200, run)
        events = await watch(client, run)
        again = await client.post(f"/v1/runs/{run}/resume")
        ended = (await client.get(f"/v1/runs/{run}")).json()
    states = [data for kind, data in events if kind == "state"]
    before = ["queued", "recruiting"] if stage == "recruiting" else ["queued", "recruiting", "running"]
    assert [data["state"] for data in states] == [*before, "paused", "running", "completed"]
    assert {key: states[len(before)][key] for key in ("reason", "who", "since")} == {
        key: pause[key] for key in ("reason", "who", "since")
    }
    assert again.status_code == 409
    assert "is completed and cannot be resumed" in again.json()["detail"]
    assert ended["pause"] is None


async def test_an_unknown_run_cannot_be_resumed(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/runs/nobody/resume")).status_code == 404


async def test_a_paused_run_survives_a_restart_and_can_be_cancelled(cluster: Cluster, parties: Parties) -> None:
    parties["party-2"].intercept = unreachable("/rounds/3")
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        runs = [await submit(client) for _ in range(2)]
        since = [(await until_paused(client, run))["since"] for run in runs]
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        views = [(await client.get(f"/v1/runs/{run}")).json() for run in runs]
        assert [(view["state"], view["pause"]["since"]) for view in views] == [("paused", time) for time in since]
        assert (await client.post(f"/v1/runs/{runs[1]}/cancel")).json()["state"] == "cancelled"
        parties["party-2"].intercept = pass_on
        assert (await states(client, runs[0]))[-1] == "completed"
        assert (await states(client, runs[1]))[-2:] == ["paused", "cancelled"]


async def test_paused_runs_take_no_turn(cluster: Cluster, parties: Parties) -> None:
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE, concurrent_runs=1) as client:
        parties["party-2"].intercept = unreachable("/rounds/3")
        first = await submit(client)
        await until_paused(client, first)
        parties["party-2"].intercept = unreachable(f"/v1/runs/{first}")
        assert (await states(client, await submit(client)))[-1] == "completed"
        assert (await client.get(f"/v1/runs/{first}")).json()["state"] == "paused"


async def test_a_refusal_fails_a_paused_run_by_name(cluster: Cluster, parties: Parties) -> None:
    parties["party-1"].intercept = always(503, b'{"detail": "locked"}', "/rounds/2")
    async with learner_of(cluster, parties, deadline_seconds=DEADLINE) as client:
        run = await submit(client)
        await until_paused(client, run)
        refusal = b'{"detail": "the ledger was set back", "type": "urn:parley:problem:ledger-refused"}'
        parties["party-1"].intercept = always(503, refusal, "/rounds/2")
        problem = (await watch(client, run))[-1][1]["problem"]
    assert (problem["type"], problem["party"]) == ("urn:parley:problem:party-refused", "party-1")
    assert problem["reason"] == "ledger-refused"


class Answers(httpx.AsyncBaseTransport):
    """Answers (status, headers, body) in turn, the last for ever; ``asked`` has the time of each request."""

    def __init__(self, *answers: tuple[int, dict[str, str], bytes]) -> None:
        self.answers, self.asked = list(answers), list[float]()

    def party(self) -> PartyClient:
        """The party that answers so."""
        return PartyClient("party-1", line_to("party-1", self))

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(asyncio.get_running_loop().time())
        status, headers, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return httpx.Response(status, headers=headers, stream=httpx.ByteStream(body))


@pytest.mark.parametrize("status", [400, 401, 408, 425, 429, 500, 503])
async def test_what_time_may_mend_is_asked_again(status: int) -> None:
    answers = Answers((status, {}, b""), (status, {}, b""), (200, {}, b""))
    assert await ask_all([answers.party()], PartyClient.greet, 30) == [None]
    assert len(answers.asked) == 3


@pytest.mark.parametrize(
    ("status", "kind"), [(503, "ledger-refused"), (422, "invalid-input"), (404, "x"), (409, "conflict")]
)
async def test_what_time_does_not_mend_is_asked_once(status: int, kind: str) -> None:
    document = json.dumps({"type": f"urn:parley:problem:{kind}", "detail": "no"})
    answers = Answers((status, {}, document.encode()))
    (outcome,) = await ask_all([answers.party()], PartyClient.greet, 30)
    assert isinstance(outcome, PartyRefusedError)
    assert (outcome.facts["party"], outcome.facts["reason"]) == ("party-1", kind)
    assert len(answers.asked) == 1


@pytest.mark.parametrize(("wait", "seconds"), [("1", 1.0), ("Sat, 21 Nov 2026 20:00:00 GMT", 0.0), ("-1", 0.0)])
async def test_a_peer_is_left_alone_for_as_long_as_it_asks(wait: str, seconds: float) -> None:
    answers = Answers((429, {"Retry-After": wait}, b""), (200, {}, b""))
    party = answers.party()
    (outcome,) = await ask_all([party], PartyClient.greet, 0.5)  # the rest outlasts the attempt
    again = await ask_all([party], PartyClient.greet, 30)
    assert again == [None]
    assert outcome is None or isinstance(outcome, UnavailableError)
    first, second, *_ = answers.asked
    assert second - first >= seconds


class Pauses:
    """Stands in for `asyncio.sleep`, and notes how long each pause was meant to be; it ends all after ``most``."""

    def __init__(self, most: int) -> None:
        self.seconds, self._most, self._sleep = list[float](), most, asyncio.sleep

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) >= self._most:
            raise asyncio.CancelledError
        await self._sleep(0)


@pytest.mark.parametrize(("header", "longest"), [({"Retry-After": "999999999"}, 60.0), ({}, 1.0)])
async def test_no_peer_is_left_alone_for_ever(
    monkeypatch: pytest.MonkeyPatch, header: dict[str, str], longest: float
) -> None:
    """A peer is asked again, for any wait that it asks for, and however often it fails."""
    monkeypatch.setattr(asyncio, "sleep", pauses := Pauses(20))
    with pytest.raises(asyncio.CancelledError):
        await ask_all([Answers((429, header, b"")).party()], PartyClient.greet, 3600)
    assert 0.9 * longest < max(pauses.seconds) <= longest


async def test_no_run_pauses_for_longer_than_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    async def woken(self: asyncio.Event) -> bool:
        del self
        return True

    monkeypatch.setattr(asyncio.Event, "wait", woken)
    patience = Patience(86_400)
    pauses = [await patience.pause() for _ in range(20)]
    assert pauses[:3] == [0.25, 0.5, 1.0]
    assert max(pauses) == 60.0


def test_no_watcher_pauses_for_longer_than_five_seconds() -> None:
    watched = connection.Watching("run", patience=86_400)
    pauses = [watched.pause(UnavailableError("away")) for _ in range(50)]
    assert 2.5 < max(pauses) <= 5.0


async def test_no_dialer_pauses_for_longer_than_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(_: object) -> None:
        raise OSError("the network is down")

    monkeypatch.setattr(outbound, "open_to", refused)
    monkeypatch.setattr(asyncio, "sleep", pauses := Pauses(50))
    address = LearnerAddress.model_validate({"name": "learner", "url": "http://127.0.0.1:1", "token": "t"})
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        await outbound.dial(None, address)  # type: ignore[arg-type]  # it gets no connection to serve
    line = {"event": "outbound", "learner": "learner", "connected": False, "log_level": "warning"}
    assert lines == [line | {"reason": "the network is down"}], "once"
    assert 5.0 < max(pauses.seconds) <= 10.0


def test_several_silent_peers_are_all_named() -> None:
    silent: list[Any] = [UnavailableError(f"party-{n} cannot be reached", party=f"party-{n}") for n in (1, 3)]
    with pytest.raises(UnavailableError, match="party-1 cannot be reached; party-3 cannot be reached") as caught:
        all_of([silent[0], "an answer", silent[1]])
    assert caught.value.facts == {"silent": ["party-1", "party-3"]}
    with pytest.raises(PartyRefusedError):
        all_of([silent[0], PartyRefusedError("no", party="party-2")])


@pytest.mark.parametrize("width", [3, 5])
@pytest.mark.parametrize("name", ["party-1", "party-2"])
async def test_an_answer_of_a_wrong_length_blames_its_sender(
    cluster: Cluster, parties: Parties, name: str, width: int
) -> None:
    parties[name].intercept = of_width(width)
    async with learner_of(cluster, parties) as client:
        problem = (await watch(client, await submit(client)))[-1][1]["problem"]
    assert problem["party"] == name
    assert f"{name} refused: it answered {width} values where 4 were asked" in problem["detail"]


def of_width(width: int) -> Intercept:
    """Answers of another width, with all headers that an answer has."""
    return always(200, pack_array(np.zeros(width, np.int64)), "/rounds/", **{"content-type": NPY})


def test_a_terminal_says_why_a_run_is_paused() -> None:
    states = [{"state": "running", "rounds": 5}, {"state": "paused", "reason": "party-1 did not answer", "who": []}]
    events = [RunEvent(number, "state", json.dumps(data)) for number, data in enumerate(states)]
    console = Console(file=StringIO(), width=100)
    assert follow(events, console)["state"] == "paused"
    assert "paused, and asks again: party-1 did not answer" in console.file.getvalue()  # type: ignore[attr-defined]
