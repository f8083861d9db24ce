"""Tokens, certificates and authorities are replaced while runs go on, at services that are killed besides."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.service.tokens import hash_token
from parley.learner.settings import LearnerSettings
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from tests.support.certificates import Certificates, make_certificates
from tests.support.cluster import AUTHORIZED, LEARNER, submit
from tests.support.keyholder_process import start_keyholder
from tests.support.nightly import nightly
from tests.support.outage import DEADLINE, SameNoise, check_end
from tests.support.processes import free_port, start_learner, start_party, stopped_at_exit, wait_until_ready
from tests.support.rounds import run_spec
from tests.support.secure_cluster import SecureCluster
from tests.support.toml import write

ROUNDS = {"none": 250, "paillier": 40}
"""To one change, by kind of sum: more than there is time for until a service has read its settings again."""
ROUNDS_EACH = 3  # between two changes, at least


@dataclass
class Peer:
    """A party or a key holder whose settings, token and certificate are files, as the learner's copies of them are."""

    settings: PartySettings | KeyHolderSettings
    files: Certificates
    noise: SameNoise | None
    process: BaseProcess = field(init=False)
    changes: int = 0

    def __post_init__(self) -> None:
        self.write(LEARNER)
        self.token_file.write_text(LEARNER)
        self.start()

    @property
    def path(self) -> Path:
        return self.settings.state.with_suffix(".toml")

    @property
    def token_file(self) -> Path:
        return self.settings.state.with_suffix(".token")

    def write(self, token: str) -> None:
        """The settings file, in which the learner has this token alone."""
        (learner,) = self.settings.model_dump(exclude_none=True)["learners"]
        entry = {"name": "learner", "public_key": learner["public_key"], "token_hash": hash_token(token)}
        write(self.path, self.settings.model_dump(exclude_none=True) | {"learners": [entry]})

    def start(self) -> None:
        """Start the service from its settings file."""
        if isinstance(self.settings, PartySettings):
            assert self.noise is not None
            self.process = start_party(PartySettings.load(self.path), self.noise)
        else:
            self.process = start_keyholder(KeyHolderSettings.load(self.path))

    def change(self, directory: Path, *, killed: bool) -> str:
        """Replace certificate, authority and token, which the learner learns of later; the new token."""
        self.changes += 1
        fresh = make_certificates(directory / f"{self.settings.name}-{self.changes}")
        for old, new in zip(self._paths(self.files), self._paths(fresh), strict=True):
            old.write_bytes(new.read_bytes())
        token = f"token-{self.changes}-of-{self.settings.name}"
        self.write(token)
        if killed:
            self.process.kill()
            self.process.join(10)
            self.start()
        else:
            os.kill(self.process.pid or 0, signal.SIGHUP)
        return token

    @staticmethod
    def _paths(files: Certificates) -> tuple[Path, ...]:
        return files.authority, files.certificate, files.key


@pytest.mark.slow
@pytest.mark.parametrize("changes", [2, pytest.param(26, marks=nightly)])
@pytest.mark.parametrize("kind", list(ROUNDS))
async def test_keys_change_in_mid_run(tmp_path: Path, kind: str, changes: int) -> None:
    rng, cluster = random.Random(5), SecureCluster(tmp_path, n_parties=2)
    n_rounds, pauses = ROUNDS[kind] * changes, 0
    async with AsyncExitStack() as stack:
        peers = started(cluster, kind)
        learner = learner_of(cluster, peers)
        processes = [start_learner(learner)]
        stack.callback(lambda: stop(*processes, *(peer.process for peer in peers.values())))
        url = f"http://127.0.0.1:{learner.port}"
        await asyncio.to_thread(wait_until_ready, url)
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=url, headers=AUTHORIZED, trust_env=False, timeout=60)
        )
        run = await submit(
            client,
            parameters={"n_rounds": n_rounds},
            secure_sum=kind,
            minimum_contributors=2,
        )
        done = 0
        for number in range(changes):
            await until(client, run, done + ROUNDS_EACH)
            peer = rng.choice(list(peers.values()))
            token = await asyncio.to_thread(peer.change, tmp_path / "fresh", killed=number % 2 == 1)
            view = await until(client, run, n_rounds, "paused")
            pauses += view["state"] == "paused"
            peer.token_file.write_text(token)
            done = view["rounds"]["done"]
        terms: dict[str, Any] = {"secure_sum": kind, "minimum_contributors": 2, "colluders": int(kind != "none")}
        await check_end(client, run, cluster, run_spec(cluster, n_rounds, **terms))
    assert pauses == changes, "each change was noticed before the run had ended"
    print(
        f"token, certificate and authority of a service replaced {changes} times in mid-run, half of them with kill -9 "
        f"({kind}, TLS): {pauses} pauses, 0 runs lost, twin =, charges = price"
    )


def started(cluster: SecureCluster, kind: str) -> dict[str, Peer]:
    """All parties, and the key holders of a secure sum."""
    peers = {}
    for index, name in enumerate((*cluster.names, *(cluster.key_holders if kind != "none" else ()))):
        files = make_certificates(cluster.root / f"{name}-tls")
        terms: dict[str, Any] = {"port": free_port(), "tls": {"certificate": files.certificate, "key": files.key}}
        if name in cluster.names:
            peers[name] = Peer(cluster.party_settings(name, **terms), files, SameNoise(index))
        else:
            peers[name] = Peer(cluster.keyholder_settings(name, **terms), files, None)
    return peers


def learner_of(cluster: SecureCluster, peers: dict[str, Peer]) -> LearnerSettings:
    """A learner that reads each peer's token and authority from files."""
    entries = [
        pin
        | {
            "url": f"https://127.0.0.1:{peers[pin['name']].settings.port}",
            "token_file": peers[pin["name"]].token_file,
            "ca": peers[pin["name"]].files.authority,
        }
        for pin in cluster.pins(tuple(peers))
    ]
    n_parties = len(cluster.names)
    changes: dict[str, Any] = {"parties": entries[:n_parties], "key_holders": entries[n_parties:]}
    return cluster.learner_settings(port=free_port(), deadline_seconds=DEADLINE, key_holder_seconds=2.0, **changes)


async def until(client: httpx.AsyncClient, run: str, rounds: int, *states: str) -> dict[str, Any]:
    """A run once it has done so many rounds, or is in one of these states."""
    async with asyncio.timeout(60):
        while True:
            view: dict[str, Any] = (await client.get(f"/v1/runs/{run}")).raise_for_status().json()
            if view["state"] in {*states, "completed", "failed"} or view["rounds"]["done"] >= rounds:
                return view
            await asyncio.sleep(0.01)


def stop(*processes: BaseProcess) -> None:
    """End the processes."""
    with stopped_at_exit(*processes):
        pass
