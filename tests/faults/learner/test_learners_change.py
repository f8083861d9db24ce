"""Learners come and go in the settings of a party that serves, and the others notice nothing."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from parley.party.settings import PartySettings
from tests.support import toml
from tests.support.cluster import AUTHORIZED, USER, Cluster, submit, train, watch
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready

PATIENCE = 30.0
NAMES = ("north", "south")


@dataclass
class Site:
    """A party with a settings file, and two learners that wait for it to connect."""

    cluster: Cluster
    learners: dict[str, LearnerSettings]
    port: int

    @classmethod
    def made(cls, root: Path) -> Site:
        cluster = Cluster(root, n_parties=1)
        user = {"name": "alice", "token_hash": hash_token(USER)}

        def settings(name: str) -> LearnerSettings:
            party = {"name": "party-1", "connects_with": hash_token(f"party to {name}"), "token": f"{name} to party"}
            return cluster.learner_settings(
                name=name, state=root / name, port=free_port(), parties=[party], users=[user]
            )

        return cls(cluster, {name: settings(name) for name in NAMES}, free_port())

    @property
    def path(self) -> Path:
        return self.cluster.root / "party.toml"

    def write(self, *names: str) -> None:
        """The party's settings file; the party connects to these learners."""
        outbound = [{"name": name, "url": self.url(name), "token": f"party to {name}"} for name in names]
        learners = [{"name": name, "token_hash": hash_token(f"{name} to party")} for name in names]
        changes = {"port": self.port, "learners": learners, "outbound": outbound}
        settings = self.cluster.party_settings("party-1", **changes)
        toml.write(self.path, settings.model_dump(exclude_unset=True))

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.learners[name].port}"

    def client(self, name: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url(name), headers=AUTHORIZED, trust_env=False, timeout=PATIENCE)

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of the party's log about an event."""
        lines = (self.cluster.root / "party-1.log").read_text().splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in parsed if line["event"] == event]

    def status(self, name: str) -> int:
        """What the party answers a learner at its own port."""
        bearer = {"Authorization": f"Bearer {name} to party"}
        return httpx.get(f"http://127.0.0.1:{self.port}/v1/party", headers=bearer, trust_env=False).status_code


async def until_connected(client: httpx.AsyncClient, *, is_connected: bool) -> float:
    """Wait until a learner's only party is connected, or is not; the seconds that it took."""
    clock = asyncio.get_running_loop().time
    began = clock()
    while (await client.get("/v1/roster")).json()[0]["connected"] != is_connected:
        assert clock() - began < PATIENCE
        await asyncio.sleep(0.05)
    return clock() - began


async def test_a_learner_comes_and_goes_while_a_party_answers_another(tmp_path: Path) -> None:
    site = Site.made(tmp_path)
    site.write("north")
    with ExitStack() as stack:
        stack.enter_context(stopped_at_exit(*map(start_learner, site.learners.values())))
        for name in NAMES:
            wait_until_ready(site.url(name))
        stack.enter_context(stopped_at_exit(start_party(PartySettings.load(site.path))))
        wait_until_ready(f"http://127.0.0.1:{site.port}")
        async with site.client("north") as north, site.client("south") as south:
            run = await submit(north, parameters={"n_rounds": 1000})
            events = asyncio.create_task(watch(north, run))
            assert site.status("south") == 401
            site.write(*NAMES)
            came = await until_connected(south, is_connected=True)
            await train(south)
            site.write("north")
            went = await until_connected(south, is_connected=False)
            assert (site.status("north"), site.status("south")) == (200, 401)
            assert not events.done(), "the run of the other began before, and ends after"
            await north.post(f"/v1/runs/{run}/cancel")
            states = [data["state"] for kind, data in await events if kind == "state"]
            connections = [(line["learner"], line["connected"]) for line in site.logged("outbound")]
            taken_up = [line["taken_up"] for line in site.logged("settings")]
    assert "paused" not in states
    assert connections == [("north", True), ("south", True), ("south", False)], "no other was opened again or lost"
    assert taken_up == [["learners", "outbound"]] * 2
    print(f"a learner in the settings is connected after {came:.1f} s, and after {went:.1f} s no more")
