"""What would keep a secure sum from beginning is named before anybody is asked, in the words of the one who refuses."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.learner.cli.client import LearnerClient
from parley.learner.cli.forecast import outlook
from parley.party.keyholder.settings import KeyHolderSettings
from parley.party.settings import PartySettings
from tests.support.cluster import refused, submit, until_paused, watch
from tests.support.intercepted import Intercepted, learner_of, pass_on, unreachable
from tests.support.secure_cluster import KEY_BITS, SUMS, SecureCluster, charges, secure_services

ANOTHER = "ab" * 32
GOOD: dict[str, Any] = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, "budgets": {}}
TERMS: dict[str, Any] = {"parameters": {"n_rounds": 3}, **SUMS}
Pins = dict[str, Any]
Change = Callable[[Pins], Pins]


@dataclass
class Pinning(SecureCluster):
    """A cluster whose first owner pins otherwise: ``changed`` is made of its tables ``secure_sum`` and ``learner``."""

    changed: Change = field(default=dict)

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """A party's settings."""
        settings = super().party_settings(name)
        if name == "party-1":
            document = settings.model_dump()
            pins = self.changed({"secure_sum": document["secure_sum"], "learner": document["learners"][0]})
            changes = {"secure_sum": pins["secure_sum"], "learners": [pins["learner"]]} | changes
        return super().party_settings(name, **changes)


def sums(**changes: object) -> Change:
    """Other pins of secure sums."""
    return lambda pins: pins | {"secure_sum": pins["secure_sum"] | changes}


def learners_key(key: str | None) -> Change:
    """Another pin of the learner."""
    return lambda pins: pins | {"learner": pins["learner"] | {"public_key": key}}


@pytest.fixture
async def services(cluster: SecureCluster) -> AsyncIterator[dict[str, Intercepted]]:
    async with secure_services(cluster) as services:
        yield services


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3)


class Answering(LearnerClient):
    """A client of a learner that answers all the same."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self._answer = answer

    def ask(self, *_: object) -> dict[str, Any]:
        """Return the fixed answer."""
        return self._answer


async def foreseen(client: httpx.AsyncClient, **terms: object) -> dict[str, Any]:
    """Return a forecast of three rounds."""
    body = GOOD | TERMS | terms
    answer: dict[str, Any] = (await client.post("/v1/forecasts", json=body)).raise_for_status().json()
    return answer


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            lambda pins: pins | {"secure_sum": None},
            "the owner pins no public key of key holders, so there is no secure",
        ),
        (learners_key(None), "the owner pins no public key of the learner, so there is no secure sum"),
        (
            sums(key_holders=[{"name": "key-holder-1", "public_key": ANOTHER}]),
            "the key holders are not the pinned ones",
        ),
        (
            sums(parties=[]),
            "at least 2 colluders: the keys of 2 of its parties are not pinned, so each may be the learn",
        ),
        (sums(minimum_key_bits=3072), f"key_bits is {KEY_BITS}, this party's policy asks for 3072"),
    ],
)
async def test_whom_an_owner_does_not_trust_is_told_as_its_party_refuses_it(
    tmp_path: Path, changed: Change, told: str
) -> None:
    cluster = Pinning(tmp_path, n_parties=3, changed=changed)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        first, *others = (await foreseen(client))["owners"]
        (objection,) = first["objections"]
        assert told in objection
        assert [owner["objections"] for owner in others] == [[], []]
        assert not any(owner["objections"] for owner in (await foreseen(client, secure_sum="none"))["owners"])
        assert await refused(client, **TERMS) == {"party-1": [objection]}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (learners_key(ANOTHER), "the learner's key is not the pinned one"),
        (sums(parties=[{"name": "party-2", "public_key": ANOTHER}]), "the key of party-2 is not the pinned one"),
    ],
)
async def test_a_pin_of_another_key_is_told(tmp_path: Path, changed: Change, told: str) -> None:
    cluster = Pinning(tmp_path, n_parties=3, changed=changed)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        first, *others = (await foreseen(client, colluders=2))["owners"]
        assert first["objections"] == [told]
        assert [other["objections"] for other in others] == [[], []]
        assert await refused(client, **TERMS, colluders=2) == {"party-1": [told]}


async def test_pins_are_told_to_the_learner_and_not_with_what_users_see(
    cluster: SecureCluster, services: dict[str, Intercepted]
) -> None:
    async with learner_of(cluster, services) as client:
        await foreseen(client)
        listed = (await client.get("/v1/parties")).raise_for_status().json()
    assert services["party-1"].seen.count("GET /v1/party/pins") == 1
    keys = [pin["public_key"] for pin in cluster.pins((*cluster.names, *cluster.key_holders))]
    assert not any(key in str(listed) for key in keys)


async def test_a_key_holder_that_is_away_is_told_before_a_run_waits_for_it(
    cluster: SecureCluster, services: dict[str, Intercepted]
) -> None:
    async with learner_of(cluster, services, deadline_seconds=0.5, key_holder_seconds=0.5) as client:
        assert (await foreseen(client))["key_holders"] == []
        services["key-holder-1"].intercept = unreachable()
        away = "key-holder-1 cannot be reached (ConnectError)"
        answer = await foreseen(client)
        assert answer["key_holders"] == [f"{away}; the run would wait for it"]
        assert f"warning: {away}; the run would wait for it" in outlook(Answering(answer), GOOD, explain=False)
        assert (await foreseen(client, secure_sum="none"))["key_holders"] == []
        run = await submit(client, **TERMS)
        assert (await until_paused(client, run))["reason"] == away
        services["key-holder-1"].intercept = pass_on
        assert (await watch(client, run))[-1][1]["state"] == "completed"


class Short(SecureCluster):
    """A cluster whose key holders read short requests alone."""

    def keyholder_settings(self, name: str, **changes: object) -> KeyHolderSettings:
        """A key holder's settings."""
        return super().keyholder_settings(name, limits={"body_bytes": 2**13}, **changes)


async def test_a_sum_too_long_for_its_key_holder_is_told_and_refused_before_anything_is_charged(tmp_path: Path) -> None:
    cluster = Short(tmp_path, n_parties=3)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        (holder,) = (await foreseen(client))["key_holders"]
        run = await submit(client, **TERMS)
        ended = (await watch(client, run))[-1][1]
    assert "key-holder-1: 3 contributions of" in holder
    assert "its limits.body_bytes are 8,192" in holder
    assert ended["state"] == "failed"
    assert holder.removeprefix("key-holder-1: ") in ended["problem"]["detail"]
    assert not any(any(spent) for spent in charges(cluster, run).values())


async def test_a_key_holder_that_is_another_is_told(cluster: SecureCluster, services: dict[str, Intercepted]) -> None:
    async def another(request: httpx.Request) -> httpx.Response | None:
        facts = {
            "name": "key-holder-1",
            "public_key": ANOTHER,
            "key_bits": KEY_BITS,
            "body_bytes": 2**26,
            "version": "0",
        }
        return httpx.Response(200, json=facts) if request.url.path == "/v1/keyholder" else None

    services["key-holder-1"].intercept = another
    async with learner_of(cluster, services) as client:
        holders = (await foreseen(client))["key_holders"]
        ended = (await watch(client, await submit(client, **TERMS)))[-1][1]
    assert holders == [ended["problem"]["detail"]]
    assert "public key is not the one pinned in the settings" in holders[0]
