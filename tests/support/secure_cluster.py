"""A learner, parties and key holders who can sum securely; keys are small, and the same in every test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import FastAPI
from phe import PaillierPrivateKey

from parley.common.arrays import FloatArray
from parley.common.encoding.fixed_point import to_reals
from parley.common.privacy.noise import Noise
from parley.common.protocol.driver import MemoryLog, drive
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.pricing import schedule
from parley.common.runs.specification import RunSpec
from parley.common.secure_sum.envelope import KEY_BYTES, public_hex, sha256_hex
from parley.common.secure_sum.paillier import generate_key, private_key
from parley.common.secure_sum.session import Identity
from parley.common.service.tokens import hash_token
from parley.common.storage.keys import write_key
from parley.learner.settings import LearnerSettings
from parley.party.answers.party import NoiseFactory
from parley.party.keyholder.app import create_key_holder_app as create_keyholder
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from tests.support.cluster import LEARNER, Cluster, party_apps, running
from tests.support.intercepted import Intercepted
from tests.support.keyholder import make_journal
from tests.support.ledgers import stored_answers

KEY_BITS = 2048
VECTORS = Path(__file__).parents[1] / "vectors" / "secure_sum"
SUMS = {"secure_sum": "paillier"}
"""What asks for a secure sum."""


def signing_key(name: str) -> Ed25519PrivateKey:
    """Somebody's key in every test."""
    return Ed25519PrivateKey.from_private_bytes(bytes.fromhex(sha256_hex(name.encode()))[:KEY_BYTES])


@cache
def paillier_key(number: int) -> PaillierPrivateKey:
    """The test vectors' keys, and as many others as are asked for."""
    stored = list(json.loads((VECTORS / "keys.json").read_text()).values())
    if number < len(stored):
        return private_key(*(int(stored[number][prime], 16) for prime in ("p", "q")))
    return generate_key(KEY_BITS)


class KnownKeys:
    """Keys in order, from number ``start`` in steps of ``step``: those of several key holders differ."""

    def __init__(self, start: int, step: int) -> None:
        self._next, self._step = start, step

    def take(self) -> PaillierPrivateKey:
        number, self._next = self._next, self._next + self._step
        return paillier_key(number)

    def close(self) -> None:
        pass


@dataclass
class SecureCluster(Cluster):
    """A cluster with key holders; everybody has an identity and pins the others'."""

    n_key_holders: int = 1

    def __post_init__(self) -> None:
        self.key_holders = tuple(f"key-holder-{index + 1}" for index in range(self.n_key_holders))
        super().__post_init__()

    def pins(self, names: tuple[str, ...]) -> list[dict[str, str]]:
        """Names with their public keys."""
        return [{"name": name, "public_key": public_hex(signing_key(name))} for name in names]

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """A party's settings."""
        (learner,) = self.pins(("learner",))
        secure: dict[str, object] = {
            "identity_key": _pem(name),
            "learners": [learner | {"token_hash": hash_token(LEARNER)}],
            "secure_sum": {
                "key_holders": self.pins(self.key_holders),
                "parties": self.pins(tuple(other for other in self.names if other != name)),
                "minimum_key_bits": KEY_BITS,
            },
        }
        return super().party_settings(name, **(secure | changes))

    def learner_settings(self, urls: Mapping[str, str] | None = None, **changes: object) -> LearnerSettings:
        """The learner's settings; ``urls`` by party and key holder, made up where they are not given."""
        urls_by_name = urls or {}
        entries = {
            kind: [
                pin
                | {"url": urls_by_name.get(pin["name"], f"http://{pin['name']}"), "token": LEARNER, "plain_http": True}
                for pin in self.pins(names)
            ]
            for kind, names in (("parties", self.names), ("key_holders", self.key_holders))
        }
        return super().learner_settings(urls, **({"identity_key": _pem("learner")} | entries | self.learner | changes))

    def keyholder_settings(self, name: str, **changes: object) -> KeyHolderSettings:
        """A key holder's settings."""
        (learner,) = self.pins(("learner",))
        fields: dict[str, Any] = {
            "name": name,
            "state": self.root / name,
            "secret": "sixteen bytes or more",
            "key_bits": KEY_BITS,
            "identity_key": _pem(name),
            "learners": [learner | {"token_hash": hash_token(LEARNER)}],
        }
        return make_journal(KeyHolderSettings(**(fields | changes)))

    def keyholder_app(self, name: str) -> FastAPI:
        """A key holder, as after a start of its service."""
        index = self.key_holders.index(name)
        return create_keyholder(self.keyholder_settings(name), KnownKeys(index, self.n_key_holders))


@asynccontextmanager
async def secure_services(
    cluster: SecureCluster, noises: Mapping[str, NoiseFactory] = MappingProxyType({})
) -> AsyncIterator[dict[str, Intercepted]]:
    """The parties and key holders of a cluster in this process, by name, open to interception."""
    async with AsyncExitStack() as stack:
        apps = await stack.enter_async_context(party_apps(cluster, noises))
        for name in cluster.key_holders:
            apps[name] = await stack.enter_async_context(running(cluster.keyholder_app(name)))
        signers = {name: Identity(name, signing_key(name)) for name in cluster.key_holders}
        yield {name: Intercepted(httpx.ASGITransport(app), signer=signers.get(name)) for name, app in apps.items()}


@dataclass
class Hang:
    """Never answers a request whose path contains ``path``; ``reached`` is set when there is one."""

    path: str
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, request: httpx.Request) -> httpx.Response | None:
        if self.path in request.url.path:
            self.reached.set()
            await asyncio.Event().wait()
        return None


def charges(cluster: Cluster, run: str) -> dict[str, list[int]]:
    """What each party's ledger says that a run was charged, round by round, in micro-units of epsilon."""
    charged = {}
    for name in cluster.names:
        charged[name] = [answered.cost.epsilon for answered, _ in stored_answers(cluster.root / name, run)]
    return charged


def due(spec: RunSpec, rounds: int | None = None) -> dict[str, list[int]]:
    """What the rounds of a run cost each party, as `charges` counts it; all rounds unless said otherwise."""
    algorithm, facts = spec.build(), spec.facts()
    return {
        name: [cost.epsilon for cost in schedule(algorithm, facts.of(index))][:rounds]
        for index, name in enumerate(spec.names)
    }


@dataclass
class Rehearsal:
    """The run as it should have been: in this process, with the parties' own streams of noise.

    ``rows`` are its public rows. ``absent`` gives, by party's index, the first round that it does not answer.
    """

    cluster: Cluster
    spec: RunSpec
    noises: Sequence[Noise]
    absent: Mapping[int, int] = field(default_factory=dict)
    rows: FloatArray | None = None

    async def answer(self, run: str, query: Query) -> Reply:
        """The present parties' answers, or their sum."""
        present = [i for i in range(len(self.noises)) if query.round < self.absent.get(i, query.round + 1)]
        algorithm, shard, policies = (
            self.spec.build(),
            self.cluster.shard,
            map(self.cluster.party_settings, self.spec.names),
        )
        facts = replace(
            self.spec.facts(),
            run=self.spec.digest,
            classifiers=tuple(settings.policy.classifier for settings in policies),
        )
        answers = [
            algorithm.local(query, algorithm.prepare(shard(i), facts.of(i)), facts.of(i), self.noises[i])
            for i in present
        ]
        value = np.array(answers) if query.reveal == "each" else np.sum(answers, axis=0)
        return Reply(to_reals(value), tuple(present))

    async def weights(self) -> bytes:
        """The final weights."""
        program = self.spec.build().program(self.spec.facts(self.rows))
        return (await drive(program, self, "rehearsal", MemoryLog())).weights.tobytes()


def _pem(name: str) -> str:
    return write_key(signing_key(name)).decode()
