"""A key holder's service, and a learner with its parties in this process who ask it over HTTP."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from phe import PaillierPrivateKey

from parley.common.secure_sum.envelope import KEY_BYTES, Signed
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.learner import LearnerRole
from parley.common.secure_sum.messages import SESSION_BYTES, Roster, RosterKeyHolder, RosterParty
from parley.common.secure_sum.paillier import FreshObfuscators, generate_key
from parley.common.secure_sum.party import PartyPolicy, PartyRole
from parley.common.secure_sum.session import Identity
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from parley.common.service.tokens import hash_token
from parley.party.keyholder.journal import create_journal
from parley.party.keyholder.settings import KeyHolderSettings

TOKEN, STRANGER = "the-learners-token", "another-learners-token"
KEY_BITS = 2048
LEARNER = Identity("learner", Ed25519PrivateKey.from_private_bytes(b"L" * KEY_BYTES))


class FreshKeys:
    """Keys made where they are asked for: small ones take no time."""

    def take(self) -> PaillierPrivateKey:
        return generate_key(KEY_BITS)

    def close(self) -> None:
        pass


def make_journal(settings: KeyHolderSettings) -> KeyHolderSettings:
    """The settings, whose journal there is from now on."""
    if not (settings.state / "keyholder.db").exists():
        create_journal(settings.state, Identity(settings.name, settings.signing_key()))
    return settings


@dataclass(frozen=True)
class NotedOpening:
    """A round that a key holder has opened, as its journal has it."""

    session: str
    round: int
    contributors: str
    receipt: bytes


def noted_openings(state: Path) -> list[NotedOpening]:
    """All rounds opened by the key holder with this state directory, in order."""
    with closing(sqlite3.connect(state / "keyholder.db")) as journal:
        rows = journal.execute(
            "SELECT record, value FROM entries JOIN attachments USING (number) WHERE name = 'receipt' ORDER BY number"
        ).fetchall()
    openings = [(json.loads(record), receipt) for record, receipt in rows]
    return [
        NotedOpening(opening["session"], opening["round"], opening["contributors"], receipt)
        for opening, receipt in openings
    ]


def keyholder_settings(root: Path, **changes: object) -> KeyHolderSettings:
    """A key holder that knows two learners; its journal is made where there is none."""
    learners = [
        {"name": "learner", "token_hash": hash_token(TOKEN), "public_key": LEARNER.key},
        {"name": "stranger", "token_hash": hash_token(STRANGER), "public_key": "ab" * 32},
    ]
    settings = {"name": "key-holder", "state": root, "secret": "sixteen bytes or more", "key_bits": KEY_BITS}
    return make_journal(KeyHolderSettings.model_validate(settings | {"learners": learners} | changes))


def send(client: httpx.Client, path: str, signed: Signed, token: str = TOKEN) -> httpx.Response:
    """PUT a signed message."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": SIGNED_MEDIA_TYPE}
    return client.put(path, content=signed.to_bytes(), headers=headers)


def call(client: httpx.Client, method: str, path: str, json: object = None, token: str = TOKEN) -> httpx.Response:
    """A request of the learner."""
    return client.request(method, path, json=json, headers={"Authorization": f"Bearer {token}"})


def new_roster(client: httpx.Client, seed: int, parties: int, d: int, m_min: int) -> tuple[Roster, dict[str, Identity]]:
    """The roster of a session that the key holder has begun, and all identities; the seed determines the session."""
    randbytes = random.Random(seed).randbytes
    names = [f"party-{i + 1}" for i in range(parties)]
    identities = {name: Identity(name, Ed25519PrivateKey.from_private_bytes(randbytes(KEY_BYTES))) for name in names}
    session = randbytes(SESSION_BYTES).hex()
    begun = call(client, "POST", "/v1/sessions", {"session": session, "key_bits": KEY_BITS}).raise_for_status().json()
    facts = call(client, "GET", "/v1/keyholder").json()
    roster = Roster(
        session=session,
        d=d,
        key_bits=KEY_BITS,
        minimum_contributors=m_min,
        colluders=0,
        learner=LEARNER.key,
        parties=tuple(RosterParty(name, identities[name].key, noise="1") for name in names),
        key_holders=(RosterKeyHolder(facts["name"], facts["public_key"], begun["modulus"]),),
    )
    return roster, {"learner": LEARNER, **identities}


def begin(client: httpx.Client, seed: int = 0, parties: int = 3, d: int = 5, m_min: int = 2) -> LocalSession:
    """A session whose roster all have signed, the key holder over HTTP."""
    roster, identities = new_roster(client, seed, parties, d, m_min)
    (holder,) = roster.key_holders
    pins = {party.name: party.key for party in roster.parties}
    policy = PartyPolicy(LEARNER.key, {holder.name: holder.key}, pins, m_min, minimum_key_bits=KEY_BITS)
    randbytes = random.SystemRandom().randbytes
    session = LocalSession(
        roster=roster,
        identities=identities,
        learner=LearnerRole(roster, LEARNER.signing_key),
        parties={party.name: PartyRole(identities[party.name], policy) for party in roster.parties},
        key_holders=(),
        random_bytes=randbytes,
        obfuscators=FreshObfuscators(randbytes),
    )
    path = f"/v1/sessions/{roster.session}/roster"
    signature = send(client, path, session.learner.propose()).raise_for_status().json()["signature"]
    invitation = session.learner.invite({holder.name: bytes.fromhex(signature)})
    session.learner.begin({name: party.join(invitation) for name, party in session.parties.items()})
    return session


def open_round(client: httpx.Client, session: LocalSession, round: int, request: Signed) -> httpx.Response:
    """Ask the key holder to open a round."""
    return send(client, f"/v1/sessions/{session.roster.session}/rounds/{round}", request)


def ask_to_open(session: LocalSession, contributors: Collection[str]) -> Signed:
    """The learner's honest request to the only key holder."""
    (request,) = session.learner.open(contributors)
    return request
