"""What a secure sum cannot be built on is refused, and the problem names who or what it was."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import OwnKeyError
from parley.learner.settings import LearnerSettings
from tests.support.cluster import LEARNER, refused, submit, watch
from tests.support.intercepted import Intercept, Intercepted, always, learner_of, pass_on, silent, unreachable
from tests.support.secure_cluster import SUMS, Hang, SecureCluster, charges, secure_services

Services = dict[str, Intercepted]
GOOD: dict[str, Any] = {"study": "made-up", "epsilon": 1.0, "delta": 1e-5, **SUMS}
ROUNDS: dict[str, Any] = {"parameters": {"n_rounds": 3}, **SUMS}
ANOTHER = "ab" * 32
"""A public key that is nobody's."""


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3, algorithms=("dp_gd", "local"))


@pytest.fixture
async def services(cluster: SecureCluster) -> AsyncIterator[Services]:
    async with secure_services(cluster) as services:
        yield services


async def problem_of(client: httpx.AsyncClient, **terms: object) -> dict[str, Any]:
    """Submit a run that fails; return its problem."""
    run = await submit(client, **(ROUNDS | terms))
    ended: dict[str, Any] = (await watch(client, run))[-1][1]
    assert ended["state"] == "failed", ended
    problem: dict[str, Any] = ended["problem"]
    return problem


def be_away_at_first(services: Services) -> None:
    """Have parties not answer when a run is asked for, so that they refuse it only later, as they check it."""
    for name, service in services.items():
        if name.startswith("party-"):
            service.intercept = unreachable("/v1/party", times=1)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"minimum_contributors": 1}, "hides nothing below minimum_contributors = 2"),
        ({"parties": ["party-1"]}, "hides nothing below minimum_contributors = 2"),
        ({"algorithm": "local"}, "local asks for each party's answer, which a secure sum never shows"),
    ],
)
async def test_refuses_a_sum_that_would_hide_nothing(
    cluster: SecureCluster, services: Services, changes: dict[str, Any], word: str
) -> None:
    async with learner_of(cluster, services) as client:
        response = await client.post("/v1/runs", json=GOOD | changes)
    assert response.status_code == 422
    assert word in response.json()["detail"]
    assert not any(service.seen for service in services.values())


async def test_refuses_without_key_holders(cluster: SecureCluster, services: Services) -> None:
    async with learner_of(cluster, services, key_holders=[]) as client:
        response = await client.post("/v1/runs", json=GOOD)
    assert response.status_code == 422
    assert response.json()["detail"].startswith("secure_sum: this learner has no key holders")


async def test_refuses_parties_whose_keys_are_not_pinned(cluster: SecureCluster, services: Services) -> None:
    first, *others = pinned(cluster, "parties", "nobody")
    cluster.learner = {"parties": [first, *({**entry, "public_key": None} for entry in others)]}
    async with learner_of(cluster, services) as client:
        response = await client.post("/v1/runs", json=GOOD)
        plain = await client.post("/v1/runs", json=GOOD | {"secure_sum": "none"})
    assert response.status_code == 422
    assert response.json()["detail"] == "secure_sum: the settings give no public_key of party-2, party-3"
    assert plain.status_code == 202


def pinned(cluster: SecureCluster, kind: str, name: str) -> list[dict[str, Any]]:
    """The learner's entries of a kind, one with a wrong pin."""
    entries: list[dict[str, Any]] = [
        pin | {"url": f"http://{pin['name']}", "token": LEARNER, "plain_http": True}
        for pin in cluster.pins(cluster.names if kind == "parties" else cluster.key_holders)
    ]
    return [entry | {"public_key": ANOTHER} if entry["name"] == name else entry for entry in entries]


async def test_refuses_a_key_holder_whose_key_is_not_the_pinned_one(cluster: SecureCluster, services: Services) -> None:
    async with learner_of(cluster, services, key_holders=pinned(cluster, "key_holders", "key-holder-1")) as client:
        be_away_at_first(services)
        problem = await problem_of(client)
    assert problem["type"] == "urn:parley:problem:key-holder-refused"
    assert (problem["key_holder"], problem["reason"]) == ("key-holder-1", "wrong_pin")
    assert "public key is not the one pinned" in problem["detail"]
    assert not any(path.startswith("POST") for path in services["key-holder-1"].seen)


async def test_every_party_refuses_a_roster_with_another_key_in_the_name_of_one(
    cluster: SecureCluster, services: Services
) -> None:
    cluster.learner = {"parties": pinned(cluster, "parties", "party-2")}
    async with learner_of(cluster, services) as client:
        problem = await problem_of(client)
    assert (problem["party"], problem["reason"]) == ("party-2", "ledger-refused")
    assert "not signed with the key of party-2" in problem["detail"], "its receipts tell, before any roster"


@pytest.mark.parametrize("changed", ["party", "key holder"])
async def test_others_refuse_a_learner_whose_key_is_not_the_pinned_one(tmp_path: Path, changed: str) -> None:
    cluster = WrongPins(tmp_path, n_parties=2, changed=changed)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        be_away_at_first(services)
        problem = await problem_of(client)
    if changed == "party":
        assert (problem["party"], problem["reason"]) == ("party-1", "bad_signature")
    else:
        assert (problem["key_holder"], problem["reason"]) == ("key-holder-1", "bad_signature")
    assert problem["status"] == 502


async def test_a_party_refuses_key_holders_that_its_owner_did_not_pin(tmp_path: Path) -> None:
    cluster = WrongPins(tmp_path, n_parties=2, changed="key holders of a party")
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        told = "the key holders are not the pinned ones: key-holder-1 has another key than was compared"
        assert await refused(client, **SUMS) == {"party-1": [told]}
        be_away_at_first(services)
        problem = await problem_of(client)
    assert (problem["party"], problem["reason"]) == ("party-1", "wrong_pin")


class WrongPins(SecureCluster):
    """A cluster in which the first party or the key holder pins somebody else."""

    def __init__(self, root: Path, n_parties: int, changed: str) -> None:
        self.changed = changed
        super().__init__(root, n_parties=n_parties)

    def party_settings(self, name: str, **changes: object) -> Any:  # noqa: ANN401
        settings = super().party_settings(name, **changes)
        if name == "party-1" and self.changed == "party":
            (learner,) = settings.learners
            return settings.model_copy(update={"learners": (learner.model_copy(update={"public_key": ANOTHER}),)})
        if name == "party-1" and self.changed == "key holders of a party":
            sums = settings.secure_sum
            assert sums is not None
            (holder,) = sums.key_holders
            others = (holder.model_copy(update={"public_key": ANOTHER}),)
            return settings.model_copy(update={"secure_sum": sums.model_copy(update={"key_holders": others})})
        return settings

    def keyholder_settings(self, name: str, **changes: object) -> Any:  # noqa: ANN401
        settings = super().keyholder_settings(name, **changes)
        if self.changed != "key holder":
            return settings
        (learner,) = settings.learners
        return settings.model_copy(update={"learners": (learner.model_copy(update={"public_key": ANOTHER}),)})


def answering(**changes: object) -> Intercept:
    """A key holder whose facts are others."""
    facts = {
        "name": "key-holder-1",
        "public_key": ANOTHER,
        "key_bits": 2048,
        "body_bytes": 2**26,
        "version": "0",
    } | changes
    return always(200, json.dumps(facts).encode(), "/v1/keyholder", **{"content-type": "application/json"})


@pytest.mark.parametrize(
    ("intercept", "reason", "word"),
    [
        (answering(name="another"), "wrong-name", "it calls itself another"),
        (answering(), "wrong_pin", "public key is not the one pinned"),
        (always(200, b"{}", "/v1/keyholder"), "malformed-answer", "not KeyHolderFacts"),
        (always(200, b'{"session": "", "modulus": "ff"}', "/v1/sessions"), "wrong_key_size", "not one of 2048 bits"),
        (always(200, b'{"session": "", "modulus": "x"}', "/v1/sessions"), "wrong_key_size", "not one of 2048 bits"),
        (always(200, b'{"signature": "00"}', "/roster"), "bad_signature", "not by the pinned key"),
        (always(200, b'{"signature": "xyz"}', "/roster"), "bad_signature", "not by the pinned key"),
        (always(200, b"torn", "/rounds/2"), "wrong_frame", "a torn frame"),
        (always(200, Signed(b"{}", bytes(64)).to_bytes(), "/rounds/2"), "bad_signature", "does not verify"),
        (always(403, b'{"detail": "no", "reason": "too_few_contributors"}', "/rounds/2"), "too_few_contributors", "no"),
    ],
)
async def test_a_key_holder_that_is_wrong_or_refuses_fails_the_run_by_name(
    cluster: SecureCluster, services: Services, intercept: Intercept, reason: str, word: str
) -> None:
    services["key-holder-1"].intercept = intercept
    async with learner_of(cluster, services) as client:
        problem = await problem_of(client)
    assert problem["type"] == "urn:parley:problem:key-holder-refused"
    assert (problem["key_holder"], problem["reason"]) == ("key-holder-1", reason)
    assert problem["detail"].startswith("key-holder-1 refused: ")
    assert word in problem["detail"]


@pytest.mark.parametrize("path", ["/v1/keyholder", "/roster", "/rounds/2"])
@pytest.mark.parametrize("fault", [unreachable, silent, partial(always, 401, b"")])
async def test_a_key_holder_out_of_reach_fails_the_run_by_name(
    cluster: SecureCluster, services: Services, fault: Callable[[str], Intercept], path: str
) -> None:
    services["key-holder-1"].intercept = fault(path)
    async with learner_of(cluster, services, key_holder_seconds=0.5, patience_seconds=0) as client:
        problem = await problem_of(client)
    assert problem["type"] == "urn:parley:problem:unavailable"
    assert problem["key_holder"] == "key-holder-1"
    assert problem["detail"].startswith("key-holder-1 ")


@pytest.mark.parametrize("path", ["/v1/keyholder", "/v1/sessions", "/roster", "/rounds/2"])
async def test_a_key_holder_that_comes_back_in_time_is_waited_for(
    cluster: SecureCluster, services: Services, path: str
) -> None:
    services["key-holder-1"].intercept = away(path, times=3)
    async with learner_of(cluster, services) as client:
        run = await submit(client, **ROUNDS)
        assert (await watch(client, run))[-1][1]["state"] == "completed"


def away(path: str, times: int) -> Intercept:
    """Not there for the first requests of a path: no connection, then a service that cannot answer yet."""
    remaining = times

    async def refuse(request: httpx.Request) -> httpx.Response | None:
        nonlocal remaining
        if path not in request.url.path or remaining == 0:
            return None
        remaining -= 1
        if remaining % 2:
            return httpx.Response(503, stream=httpx.ByteStream(b'{"detail": "starting"}'))
        raise httpx.ConnectError("refused", request=request)

    return refuse


async def test_a_contribution_that_was_tampered_with_fails_the_run_by_name(
    cluster: SecureCluster, services: Services
) -> None:
    services["party-3"].intercept = tampering(services["party-3"])
    async with learner_of(cluster, services) as client:
        problem = await problem_of(client)
    assert problem["type"] == "urn:parley:problem:party-refused"
    assert (problem["party"], problem["reason"]) == ("party-3", "wrong_hash")
    assert not any("/rounds/2" in path for path in services["key-holder-1"].seen)


def tampering(party: Intercepted) -> Intercept:
    """Somebody on the way changes the ciphertexts of a party's second contribution."""

    async def tamper(request: httpx.Request) -> httpx.Response | None:
        if not request.url.path.endswith("/rounds/2"):
            return None
        response = await party.inner.handle_async_request(request)
        signed = Signed.from_bytes(await response.aread())
        seed, blob = signed.attachments
        changed = Signed(signed.body, signed.signature, (seed, blob[:-1] + bytes([blob[-1] ^ 1])))
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(changed.to_bytes()))

    return tamper


async def test_key_holders_with_keys_of_different_sizes_are_refused(tmp_path: Path) -> None:
    cluster = SecureCluster(tmp_path, n_parties=2, n_key_holders=2)
    async with secure_services(cluster) as services:
        larger = json.dumps({"session": "0", "modulus": "f" * 768}).encode()
        facts = {"name": "key-holder-2", "public_key": cluster.pins(("key-holder-2",))[0]["public_key"]}
        reply = json.dumps(facts | {"key_bits": 3072, "body_bytes": 2**26, "version": "0"}).encode()

        async def intercept(request: httpx.Request) -> httpx.Response | None:
            body = {"/v1/keyholder": reply, "/v1/sessions": larger}.get(request.url.path)
            return None if body is None else httpx.Response(200, stream=httpx.ByteStream(body))

        services["key-holder-2"].intercept = intercept
        async with learner_of(cluster, services) as client:
            problem = await problem_of(client)
    assert problem["type"] == "urn:parley:problem:invalid-input"
    assert "key-holder-1 2048 bits, key-holder-2 3072 bits" in problem["detail"]


async def test_a_run_whose_key_holder_is_gone_from_the_settings_fails_by_its_name(
    cluster: SecureCluster, services: Services
) -> None:
    services["key-holder-1"].intercept = hang = Hang("/rounds/2")
    async with learner_of(cluster, services) as client:
        run = await submit(client, **ROUNDS)
        await hang.reached.wait()
    services["key-holder-1"].intercept = pass_on
    async with learner_of(cluster, services, key_holders=pinned(cluster, "key_holders", "key-holder-1")) as client:
        be_away_at_first(services)
        problem = (await watch(client, run))[-1][1]["problem"]
    assert problem["type"] == "urn:parley:problem:not-found"
    assert "key holder key-holder-1" in problem["detail"]
    assert {len(charged) for charged in charges(cluster, run).values()} == {2}


def test_settings_refuse_one_owner_in_two_places(cluster: SecureCluster) -> None:
    entry = {"name": "key-holder-1", "url": "http://elsewhere", "plain_http": True, "token": "t", "public_key": ANOTHER}
    (pin,) = cluster.pins(("party-1",))
    for changes, word in (
        ({"name": "party-1"}, "name given twice: party-1"),
        ({"url": "http://party-1"}, "url given twice"),
        ({"public_key": pin["public_key"]}, "public_key given twice"),
        ({"public_key": "ab"}, "public_key"),
    ):
        with pytest.raises(ValueError, match=word):
            cluster.learner_settings(key_holders=[entry | changes])


def test_an_identity_key_that_is_none_or_open_to_others_is_refused(cluster: SecureCluster, tmp_path: Path) -> None:
    settings: LearnerSettings = cluster.learner_settings(identity_key="not a key")
    with pytest.raises(OwnKeyError, match="identity_key holds no Ed25519 key"):
        settings.signing_key()
    made = cluster.learner_settings(identity_key=None)
    key = made.signing_key()
    path = made.state / "identity.key"
    assert path.stat().st_mode & 0o777 == 0o600
    assert made.signing_key().private_bytes_raw() == key.private_bytes_raw()
    path.chmod(0o640)
    with pytest.raises(OwnKeyError, match="has mode 0640, not 0600"):
        made.signing_key()
