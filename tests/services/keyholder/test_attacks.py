"""Every attack of a malicious learner or party on the key holder, over HTTP: refused, and its reason named.

The same attacks on the role itself are in tests/unit/secure_sum; here the point is what a service says, and that a
refusal neither burns the round nor leaves anything in the journal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import httpx
import numpy as np
import pytest

from parley.common.secure_sum.envelope import Signed, sha256_hex
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.messages import SumQuery
from parley.common.secure_sum.paillier import FreshObfuscators, blocks_to_blob, encrypt_blocks, public_key
from tests.support.attacks import request, resign, shifted, with_blob, with_ciphertexts
from tests.support.keyholder import STRANGER, begin, call, open_round, send

Refused = Callable[[httpx.Response, Reason], None]
Contributions = list[Signed]
VALUES = np.arange(5)
_seeds = itertools.count(100)


def blob(session: LocalSession, number: int) -> bytes:
    """An integer as the single ciphertext of an answer."""
    return blocks_to_blob([number], session.roster.layout.ciphertext_bytes)


def zero(session: LocalSession) -> bytes:
    """An encryption of zero, which anybody can make."""
    key = public_key(session.roster.key_holders[0].n)
    return blob(session, encrypt_blocks(key, [0], FreshObfuscators(session.random_bytes).take(key, 1))[0])


def padded(session: LocalSession, first: Signed, second: Signed) -> Signed:
    """A copy of the victim's ciphertext with a leading zero byte."""
    return with_blob(session, second, b"\0" + first.attachments[1])


def other_model(session: LocalSession) -> Contributions:
    """Ask two parties about different weights in one round."""
    queries = session.ask(1, b"weights")
    other = replace(SumQuery.parse(queries.body), message=sha256_hex(b"others"))
    signed = other.sign(session.identities["learner"].signing_key, [b"others"])
    return [session.contribute("party-1", queries, VALUES), session.contribute("party-2", signed, VALUES)]


def tampered(second: Signed) -> Signed:
    """Flip one bit of a blob."""
    seed, sent = second.attachments
    return replace(second, attachments=(seed, sent[:-1] + bytes([sent[-1] ^ 1])))


def swapped(session: LocalSession, second: Signed) -> Signed:
    """An encryption of zero in place of what a party signed for."""
    return replace(second, attachments=(second.attachments[0], zero(session)))


Attack = Callable[[LocalSession, Contributions], Signed]
ATTACKS: dict[str, tuple[Attack, Reason]] = {
    "a single ciphertext": (lambda s, c: request(s, c[:1]), Reason.TOO_FEW),
    "fewer than m_min": (lambda s, c: request(s, c[:2]), Reason.TOO_FEW),
    "one contribution twice": (lambda s, c: request(s, [c[0], c[0], c[1]]), Reason.DUPLICATE_PARTY),
    "one party twice": (
        lambda s, c: request(s, [c[0], c[1], resign(s, c[0], seed="00" * 32)]),
        Reason.DUPLICATE_PARTY,
    ),
    "a copy under another name": (
        lambda s, c: request(s, [c[0], c[1], with_blob(s, c[2], c[0].attachments[1])]),
        Reason.DUPLICATE_BLOB,
    ),
    "a padded copy": (lambda s, c: request(s, [c[0], c[1], padded(s, c[0], c[2])]), Reason.WRONG_LENGTH),
    "out of range": (lambda s, c: request(s, [c[0], c[1], shifted(s, c[2])]), Reason.OUT_OF_RANGE),
    "another party's blob of the same query, a bit changed": (
        lambda s, c: request(s, [c[0], c[1], with_blob(s, c[2], tampered(c[0]).attachments[1])]),
        Reason.NOT_SEALED,
    ),
    "an unknown party": (
        lambda s, c: request(s, [c[0], c[1], resign(s, c[2], "party-3", party="party-9")]),
        Reason.UNKNOWN_PARTY,
    ),
    "an outsider under a party's name": (
        lambda s, c: request(s, [c[0], c[1], resign(s, c[2], "learner")]),
        Reason.BAD_SIGNATURE,
    ),
    "a tampered blob": (lambda s, c: request(s, [c[0], c[1], tampered(c[2])]), Reason.WRONG_HASH),
    "E(0) for what a party sent": (
        lambda s, c: request(s, [c[0], swapped(s, c[1]), swapped(s, c[2])]),
        Reason.WRONG_HASH,
    ),
    "zero": (lambda s, c: request(s, [c[0], c[1], with_ciphertexts(s, c[2], blob(s, 0))]), Reason.NOT_A_UNIT),
    "a multiple of n": (
        lambda s, c: request(s, [c[0], c[1], with_ciphertexts(s, c[2], blob(s, 5 * s.roster.key_holders[0].n))]),
        Reason.NOT_A_UNIT,
    ),
    "another session": (lambda s, c: request(s, c, session="00" * 16), Reason.WRONG_SESSION),
    "another roster": (lambda s, c: request(s, c, roster="00" * 32), Reason.WRONG_ROSTER),
    "another round than its URL's": (lambda s, c: request(s, c, round=2), Reason.WRONG_ROUND),
    "another query": (lambda s, c: request(s, c, query="00" * 32), Reason.WRONG_QUERY),
    "a contribution to another round": (
        lambda s, c: request(s, [c[0], c[1], resign(s, c[2], round=2)]),
        Reason.WRONG_ROUND,
    ),
    "a contribution to another query": (
        lambda s, c: request(s, [c[0], c[1], resign(s, c[2], query="00" * 32)]),
        Reason.WRONG_QUERY,
    ),
    "a contribution of another shape": (
        lambda s, c: request(s, [c[0], c[1], resign(s, c[2], d=4)]),
        Reason.WRONG_SHAPE,
    ),
    "a request nobody signed": (lambda s, c: replace(request(s, c), signature=bytes(64)), Reason.BAD_SIGNATURE),
    "a blob missing": (
        lambda s, c: replace(request(s, c), attachments=request(s, c).attachments[:-1]),
        Reason.WRONG_FRAME,
    ),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_are_refused_with_their_reason(name: str, client: httpx.Client, refused: Refused) -> None:
    attack, reason = ATTACKS[name]
    session = begin(client, next(_seeds), m_min=3)
    queries = session.ask(1)
    contributions = [session.contribute(party, queries, VALUES) for party in session.parties]
    response = open_round(client, session, 1, attack(session, contributions))
    refused(response, reason)
    assert str(session.roster.key_holders[0].n) not in response.text
    assert call(client, "GET", f"/v1/sessions/{session.roster.session}").json()["opened"] == 0
    assert open_round(client, session, 1, request(session, contributions)).status_code == 200


def test_another_model_told_to_different_parties(client: httpx.Client, refused: Refused) -> None:
    session = begin(client, next(_seeds))
    refused(open_round(client, session, 1, request(session, other_model(session))), Reason.WRONG_QUERY)


def test_another_set_for_an_opened_round_and_a_replayed_round(client: httpx.Client, refused: Refused) -> None:
    session = begin(client, next(_seeds))
    queries = session.ask(1)
    old = [session.contribute(party, queries, VALUES) for party in session.parties]
    answer = open_round(client, session, 1, request(session, old))
    refused(open_round(client, session, 1, request(session, old[:2])), Reason.ROUND_OPENED)
    again = session.ask(2)
    new = [session.contribute(party, again, VALUES) for party in session.parties]
    refused(open_round(client, session, 2, request(session, [new[0], old[1]])), Reason.WRONG_ROUND)
    assert open_round(client, session, 1, request(session, old)).content == answer.content
    assert open_round(client, session, 2, request(session, new)).status_code == 200
    refused(open_round(client, session, 1, request(session, old)), Reason.ROUND_OLD)
    refused(open_round(client, session, 2, request(session, old)), Reason.WRONG_ROUND)


def test_rosters_are_signed_once_and_only_for_the_pinned_learner(client: httpx.Client, refused: Refused) -> None:
    session = begin(client, next(_seeds))
    path, sign = f"/v1/sessions/{session.roster.session}/roster", session.identities["learner"].signing_key
    (holder,) = session.roster.key_holders
    changed = replace(session.roster, minimum_contributors=3)
    refused(send(client, path, changed.sign(sign)), Reason.ROSTER_CHANGED)
    refused(send(client, path, session.roster.sign(session.identities["party-1"].signing_key)), Reason.BAD_SIGNATURE)
    other = begin(client, next(_seeds))
    refused(send(client, path, other.learner._roster.sign(sign)), Reason.WRONG_KEY)  # type: ignore[union-attr]
    for wrong, reason in (
        (replace(holder, name="other"), Reason.NOT_ON_ROSTER),
        (replace(holder, key="cd" * 32), Reason.NOT_ON_ROSTER),
    ):
        refused(send(client, path, replace(session.roster, key_holders=(wrong,)).sign(sign)), reason)
    again = send(client, path, session.roster.sign(sign))
    assert again.status_code == 200
    assert send(client, path, session.roster.sign(sign), STRANGER).status_code == 404


def test_a_roster_of_another_session_is_refused_before_any_is_signed(client: httpx.Client, refused: Refused) -> None:
    session = begin(client, next(_seeds))
    fresh = "5e" * 16
    begun = call(client, "POST", "/v1/sessions", {"session": fresh, "key_bits": 2048}).json()
    (holder,) = session.roster.key_holders
    swapped_in = replace(session.roster, key_holders=(replace(holder, modulus=begun["modulus"]),))
    signed = swapped_in.sign(session.identities["learner"].signing_key)
    refused(send(client, f"/v1/sessions/{fresh}/roster", signed), Reason.WRONG_SESSION)
    assert call(client, "GET", f"/v1/sessions/{fresh}").json()["state"] == "new"
    queries = session.ask(1)
    contributions = [session.contribute(party, queries, VALUES) for party in session.parties]
    response = send(client, f"/v1/sessions/{fresh}/rounds/1", request(session, contributions))
    refused(response, Reason.OUT_OF_TURN)
