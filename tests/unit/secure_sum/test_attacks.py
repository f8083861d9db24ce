"""What a malicious learner, party, outsider or key holder may try, each refused with its reason."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from phe import PaillierPrivateKey

from parley.common.errors import SecureSumError
from parley.common.secure_sum.envelope import Signed, agreement_key, public_hex, sha256_hex, unseal
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.keyholder import KeyHolderRole
from parley.common.secure_sum.learner import LearnerRole
from parley.common.secure_sum.messages import Contribution, Open, Opened, Roster, SumQuery
from parley.common.secure_sum.packing import MAX_CONTRIBUTORS, Layout, add, decode, expand, reduced_sum
from parley.common.secure_sum.paillier import (
    blocks_to_blob,
    decrypt_blocks,
    encrypt_blocks,
    make_obfuscators,
    public_key,
)
from parley.common.secure_sum.party import PartyPolicy, PartyRole, PartyState
from parley.common.secure_sum.session import Identity, open_blob
from tests.support.attacks import request, resign, shifted, with_blob, with_ciphertexts

Refused = Callable[[Reason], AbstractContextManager[object]]
Start = Callable[..., LocalSession]
VALUES = np.arange(5)


def collect(session: LocalSession, number: int, *names: str) -> list[Signed]:
    """Honest contributions to a round, known to the learner."""
    asked = session.ask(number)
    contributions = [session.contribute(name, asked, VALUES) for name in names]
    for contribution in contributions:
        session.learner.receive(contribution)
    return contributions


# ── a malicious learner and the set it wants opened ──────────────────────────


def test_a_single_ciphertext(start: Start, refused: Refused) -> None:
    session = start()
    first, _ = collect(session, 1, "party-1", "party-2")
    with refused(Reason.TOO_FEW):
        session.key_holders[0].open(request(session, [first]))


def test_fewer_than_m_min(start: Start, refused: Refused) -> None:
    session = start(parties=4, minimum_contributors=3)
    contributions = collect(session, 1, "party-1", "party-2")
    with refused(Reason.TOO_FEW):
        session.key_holders[0].open(request(session, contributions))
    with refused(Reason.TOO_FEW):
        session.learner.open(["party-1", "party-2"])


def test_one_contribution_twice(start: Start, refused: Refused) -> None:
    session = start()
    first, _ = collect(session, 1, "party-1", "party-2")
    with refused(Reason.DUPLICATE_PARTY):
        session.key_holders[0].open(request(session, [first, first]))


def test_one_party_twice_with_different_contributions(start: Start, refused: Refused) -> None:
    session = start()
    first, _ = collect(session, 1, "party-1", "party-2")
    again = resign(session, first, seed=sha256_hex(b"another"))
    with refused(Reason.DUPLICATE_PARTY):
        session.key_holders[0].open(request(session, [first, again]))
    with refused(Reason.WRONG_HASH):
        session.learner.receive(again)
    other_seed = replace(again, attachments=(bytes(32), *again.attachments[1:]))
    with refused(Reason.DUPLICATE_PARTY):
        session.learner.receive(resign(session, other_seed, seed=sha256_hex(bytes(32))))


def test_a_copy_under_another_name(start: Start, refused: Refused) -> None:
    """A colluding party signs for the victim's ciphertexts."""
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    copy = with_blob(session, second, first.attachments[1])
    with refused(Reason.DUPLICATE_BLOB):
        session.key_holders[0].open(request(session, [first, copy]))


def test_the_negatives_of_others_ciphertexts(start: Start, refused: Refused) -> None:
    """A colluding party takes others out of a sum that all are in: one answer, with its share of the noise, is left.

    It needs others' ciphertexts for that, and a key holder opens what was sealed for it by who contributes it.
    """
    session = start(parties=4, minimum_contributors=4)
    victim, *others, colluder = collect(session, 1, *session.parties)
    layout, key = session.roster.layout, public_key(session.roster.key_holders[0].n)

    def without_the_others(blobs: list[bytes]) -> bytes:
        zeros = encrypt_blocks(key, [0], make_obfuscators(key, 1, random.Random(1).randbytes))
        size = layout.ciphertext_bytes
        negatives = [pow(int.from_bytes(blob[-size:]), -1, key.nsquare) for blob in blobs]
        return blocks_to_blob([math.prod((*zeros, *negatives)) % key.nsquare], size)

    identity = session.identities["key-holder-1"].signing_key
    query = Contribution.parse(victim.body).query
    first, second = (other.attachments[1] for other in others)
    bare = [unseal(first, identity, query, "party-2"), unseal(second, identity, query, "party-3")]
    seen = with_ciphertexts(session, colluder, without_the_others(bare))
    opened = session.key_holders[0].open(request(session, [victim, *others, seen]))
    left = add([[int.from_bytes(opened.attachments[0])], expand(victim.attachments[0], layout)], layout)
    assert decode(left, 1, layout).tolist() == VALUES.tolist()  # which is why ciphertexts are sealed

    again = start(parties=4, minimum_contributors=4)
    victim, *others, colluder = collect(again, 1, *again.parties)
    sealed = [other.attachments[1] for other in others]
    for blob in (without_the_others(sealed), sealed[0][:32] + without_the_others(sealed) + sealed[0][-16:]):
        with refused(Reason.WRONG_LENGTH if len(blob) < len(sealed[0]) else Reason.NOT_SEALED):
            again.key_holders[0].open(request(again, [victim, *others, with_blob(again, colluder, blob)]))
    guess = with_ciphertexts(again, colluder, without_the_others(sealed))
    opened = again.key_holders[0].open(request(again, [victim, *others, guess]))
    left = add([[int.from_bytes(opened.attachments[0])], expand(victim.attachments[0], layout)], layout)
    with refused(Reason.COUNT_MISMATCH):
        decode(left, 1, layout)


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_share_just_below_the_modulus(start: Start, beyond: int) -> None:
    """A colluding party compares the sum of others' shares with a number: it makes it wrap modulo n, or just not."""
    session = start()
    *others, colluder = collect(session, 1, *session.parties)
    layout, key = session.roster.layout, public_key(session.roster.key_holders[0].n)
    holder = session.key_holders[0]
    signing, terms = session.identities["key-holder-1"].signing_key, (0, session.roster)
    bare = [open_blob(other.attachments[1], Contribution.parse(other.body), *terms, signing) for other in others]
    honest = sum(decrypt_blocks(holder._private_key, blocks)[0] for blocks in bare)
    share = key.n - honest - beyond  # with 0 it wraps, with 1 it did not: n modulo 2^L told which
    blob = encrypt_blocks(key, [share], make_obfuscators(key, 1, random.Random(1).randbytes))
    forged = with_ciphertexts(session, colluder, blocks_to_blob(blob, layout.ciphertext_bytes))
    opened = holder.open(request(session, [*others, forged]))
    assert int.from_bytes(opened.attachments[0]) == -beyond % layout.modulus


@pytest.mark.parametrize("key_bits", [2048, 2056, 2104, 2112, 3072, 8192])
def test_whether_a_sum_wraps_tells_nothing_of_it(key_bits: int) -> None:
    """Of honest shares none does; what a dishonest one adds wraps by chance, for every sum of the others."""
    layout = Layout(1, key_bits)
    most = MAX_CONTRIBUTORS * (layout.modulus - 1)
    for n in (2 ** (key_bits - 1) + 1, 2**key_bits - 1):
        for honest in (0, 1, layout.modulus - 1, layout.modulus, most):
            for drawn in (b"\0", b"\xff"):
                assert reduced_sum(honest, n, layout, lambda size: drawn * size) == honest % layout.modulus  # noqa: B023
        dishonest = n - 2**55 * layout.modulus
        wrapped = [
            reduced_sum((honest + dishonest) % n, n, layout, os.urandom) != dishonest % layout.modulus
            for honest in (0, layout.modulus * MAX_CONTRIBUTORS) * 40
        ]
        assert 0 < sum(wrapped[::2]) < 40
        assert 0 < sum(wrapped[1::2]) < 40


def test_blobs_are_sealed_by_one_party_for_one_query(start: Start, refused: Refused) -> None:
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    old = Contribution.parse(first.body)
    asked = session.ask(2)
    third, fourth = (session.contribute(name, asked, VALUES) for name in ("party-1", "party-2"))
    stale = with_blob(session, third, first.attachments[1])  # its own, of the round before
    taken = with_blob(session, fourth, second.attachments[1])
    low = with_blob(session, fourth, bytes(32) + fourth.attachments[1][32:])  # a point of low order
    for forged in ([stale, fourth], [third, taken], [third, low]):
        with refused(Reason.NOT_SEALED):
            session.key_holders[0].open(request(session, forged))
    key = session.identities["key-holder-1"].signing_key
    for query, party in ((sha256_hex(b"another"), "party-1"), (old.query, "party-2")):
        with refused(Reason.NOT_SEALED):
            unseal(first.attachments[1], key, query, party)
    assert unseal(first.attachments[1], key, old.query, "party-1")
    for length in (0, 31, 32, 47):
        with refused(Reason.NOT_SEALED):
            unseal(first.attachments[1][:length], key, old.query, "party-1")
    with refused(Reason.NOT_SEALED):  # another key holder's
        unseal(first.attachments[1], session.identities["party-3"].signing_key, old.query, "party-1")
    assert session.key_holders[0].open(request(session, [third, fourth]))


def test_an_identity_key_is_a_key_to_seal_for() -> None:
    """The public half maps to the public half of the private one's: as libsodium's tests have it."""
    private = Ed25519PrivateKey.from_private_bytes(
        bytes.fromhex("421151a459faeade3d247115f94aedae42318124095afabe4d1451a559faedee")
    )
    assert agreement_key(public_hex(private)).hex() == (
        "f1814f0e8ff1043d8a44d25babff3cedcae6c22c3edaa48f857ae70de2baae50"
    )


def test_padded_copies(start: Start, refused: Refused) -> None:
    """The victim's blob spelt otherwise, or ciphertexts above n^2."""
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    padded = with_blob(session, second, b"\0" + first.attachments[1])
    with refused(Reason.WRONG_LENGTH):
        session.key_holders[0].open(request(session, [first, padded]))
    with refused(Reason.OUT_OF_RANGE):
        session.key_holders[0].open(request(session, [first, shifted(session, second)]))


def test_an_unknown_party(start: Start, refused: Refused) -> None:
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    with refused(Reason.UNKNOWN_PARTY):
        session.key_holders[0].open(request(session, [first, resign(session, second, "party-2", party="party-9")]))
    with refused(Reason.BAD_SIGNATURE):  # an outsider, or the learner itself, under a party's name
        session.key_holders[0].open(request(session, [first, resign(session, second, "learner")]))
    with refused(Reason.UNKNOWN_PARTY):
        session.learner.open(["party-1", "party-9"])


def test_a_tampered_blob(start: Start, refused: Refused) -> None:
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    seed, blob = second.attachments
    tampered = replace(second, attachments=(seed, blob[:-1] + bytes([blob[-1] ^ 1])))
    with refused(Reason.WRONG_HASH):
        session.key_holders[0].open(request(session, [first, tampered]))
    with refused(Reason.WRONG_HASH):
        session.learner.receive(tampered)


def test_substituting_encryptions_of_zero(start: Start, refused: Refused) -> None:
    """All but the victim's ciphertexts replaced by E(0) would open the victim's share alone."""
    session = start(parties=4, minimum_contributors=3)
    victim, *others = collect(session, 1, "party-1", "party-2", "party-3")
    key = public_key(session.roster.key_holders[0].n)
    (zero,) = encrypt_blocks(key, [0], make_obfuscators(key, 1, random.Random(1).randbytes))
    blob = blocks_to_blob([zero], session.roster.layout.ciphertext_bytes)
    zeros = [replace(other, attachments=(other.attachments[0], blob)) for other in others]
    with refused(Reason.WRONG_HASH):
        session.key_holders[0].open(request(session, [victim, *zeros]))


def test_another_session_roster_round_or_query(start: Start, refused: Refused) -> None:
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    wrong: list[tuple[dict[str, object], Reason]] = [
        ({"session": "00" * 16}, Reason.WRONG_SESSION),
        ({"roster": "00" * 32}, Reason.WRONG_ROSTER),
        ({"round": 2}, Reason.WRONG_ROUND),
        ({"query": "00" * 32}, Reason.WRONG_QUERY),
    ]
    for claims, reason in wrong:
        with refused(reason):  # what the learner asks for
            session.key_holders[0].open(request(session, [first, second], **claims))
        with refused(reason):  # what a party signed
            session.key_holders[0].open(request(session, [first, resign(session, second, **claims)]))
        with refused(reason):
            session.learner.receive(resign(session, second, **claims))


def test_contributions_of_another_shape(start: Start, refused: Refused) -> None:
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    shapes: list[dict[str, object]] = [{"d": 4}, {"blobs": ("00" * 32, "01" * 32)}]
    for claims in shapes:
        with refused(Reason.WRONG_SHAPE):
            session.key_holders[0].open(request(session, [first, resign(session, second, **claims)]))


def test_another_model_told_to_different_parties(start: Start, refused: Refused) -> None:
    session = start()
    asked = session.ask(1, b"weights")
    spy = SumQuery.parse(asked.body)
    other = replace(spy, message=sha256_hex(b"other weights"))
    told = other.sign(session.identities["learner"].signing_key, [b"other weights"])
    first = session.contribute("party-1", asked, VALUES)
    second = session.contribute("party-2", told, VALUES)
    with refused(Reason.WRONG_QUERY):
        session.key_holders[0].open(request(session, [first, second]))
    with refused(Reason.ROUND_ANSWERED):  # and none answers both
        session.contribute("party-1", told, VALUES)
    with refused(Reason.WRONG_HASH):  # nor is another message slipped under the query that was signed
        session.parties["party-3"].receive(replace(asked, attachments=(b"other weights",)))


# ── replays and second openings ──────────────────────────────────────────────


def test_a_second_set_for_a_round(start: Start, refused: Refused, keys: list[PaillierPrivateKey]) -> None:
    """The difference of two sums would be one party's answer; a restart does not help."""
    session = start()
    contributions = collect(session, 1, "party-1", "party-2", "party-3")
    journal = session.key_holders[0].open(request(session, contributions))
    with refused(Reason.ROUND_OPENED):
        session.key_holders[0].open(request(session, contributions[:2]))
    restarted = KeyHolderRole(
        session.identities["key-holder-1"],
        keys[0],
        session.roster.learner,
        random_bytes=os.urandom,
        minimum_key_bits=2048,
    )
    restarted.accept(session.learner.propose())
    restarted.restore(journal)
    with refused(Reason.ROUND_OPENED):
        restarted.open(request(session, contributions[:2]))
    session.learner.open(["party-1", "party-2"])
    with refused(Reason.ROUND_OPENED):
        session.learner.open(["party-1", "party-3"])


def test_replaying_an_older_round(start: Start, refused: Refused) -> None:
    session = start()
    old = collect(session, 1, "party-1", "party-2")
    old_request = request(session, old)
    session.key_holders[0].open(old_request)
    new = collect(session, 2, "party-1", "party-2")
    with refused(Reason.WRONG_ROUND):
        session.key_holders[0].open(request(session, [new[0], old[1]]))
    session.key_holders[0].open(request(session, new))
    with refused(Reason.ROUND_OLD):
        session.key_holders[0].open(old_request)
    with refused(Reason.WRONG_ROUND):
        session.learner.receive(old[0])


def test_asking_an_older_round(start: Start, refused: Refused) -> None:
    session = start()
    first = session.ask(1)
    session.contribute("party-1", session.ask(2), VALUES)
    with refused(Reason.ROUND_OLD):
        session.contribute("party-1", first, VALUES)
    with refused(Reason.ROUND_OLD):
        session.ask(2)


def test_a_journal_that_contradicts_itself(start: Start, refused: Refused) -> None:
    session = start()
    contributions = collect(session, 1, "party-1", "party-2", "party-3")
    journal = session.key_holders[0].open(request(session, contributions))
    key = session.identities["key-holder-1"].signing_key
    with refused(Reason.ROUND_OPENED):
        session.key_holders[0].restore(replace(Opened.parse(journal.body), contributors="00" * 32).sign(key))
    with refused(Reason.BAD_SIGNATURE):
        session.key_holders[0].restore(replace(journal, signature=bytes(64)))


# ── ciphertexts that would give away the key ─────────────────────────────────


@pytest.mark.parametrize("multiple", [0, 1, 12345])
def test_zero_and_multiples_of_n(multiple: int, start: Start, refused: Refused, keys: list[PaillierPrivateKey]) -> None:
    """Signed for by a colluding party. Neither the refusal nor the key holder's state holds anything of the key."""
    session = start()
    first, second = collect(session, 1, "party-1", "party-2")
    n = session.roster.key_holders[0].n
    evil = with_ciphertexts(session, second, blocks_to_blob([multiple * n], session.roster.layout.ciphertext_bytes))
    with refused(Reason.NOT_A_UNIT) as caught:
        session.key_holders[0].open(request(session, [first, evil]))
    message = repr(vars(caught.value))  # type: ignore[attr-defined]
    leak = keys[0].raw_decrypt(multiple * n)
    assert not any(str(secret) in message or f"{secret:x}" in message for secret in (keys[0].p, keys[0].q, leak))
    assert "the blob of party-2: a ciphertext shares" in message
    session.key_holders[0].open(request(session, [first, second]))  # the round is not burnt


# ── who may speak ────────────────────────────────────────────────────────────


def test_requests_that_the_learner_did_not_sign(start: Start, refused: Refused) -> None:
    session = start()
    contributions = collect(session, 1, "party-1", "party-2")
    honest = request(session, contributions)
    stranger = session.identities["party-3"].signing_key
    with refused(Reason.BAD_SIGNATURE):
        session.key_holders[0].open(Open.parse(honest.body).sign(stranger, honest.attachments))
    with refused(Reason.BAD_SIGNATURE):
        session.key_holders[0].open(replace(honest, body=honest.body.replace(b'"round":1', b'"round":2')))
    asked = session.ask(2)
    with refused(Reason.BAD_SIGNATURE):
        session.parties["party-1"].receive(SumQuery.parse(asked.body).sign(stranger, asked.attachments))


def test_heads_and_blobs_that_are_not_those_asked_for(start: Start, refused: Refused) -> None:
    session = start()
    first, second, third = collect(session, 1, "party-1", "party-2", "party-3")
    honest = request(session, [first, second])
    with refused(Reason.WRONG_FRAME):
        session.key_holders[0].open(replace(honest, attachments=honest.attachments[:-1]))
    swapped = (*honest.attachments[:2], third.head.to_bytes(), third.attachments[1])
    with refused(Reason.WRONG_HASH):
        session.key_holders[0].open(replace(honest, attachments=swapped))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"session": "00" * 16}, Reason.WRONG_SESSION),
        ({"roster": "00" * 32}, Reason.WRONG_ROSTER),
    ],
)
def test_queries_of_another_session(claims: dict[str, str], reason: Reason, start: Start, refused: Refused) -> None:
    session = start()
    asked = session.ask(1)
    query = replace(SumQuery.parse(asked.body), **claims)  # type: ignore[arg-type]
    with refused(reason):
        session.parties["party-1"].receive(query.sign(session.identities["learner"].signing_key, asked.attachments))
    with refused(reason):
        session.parties["party-1"].answer(query, VALUES, session.random_bytes, session.obfuscators)


# ── rosters ──────────────────────────────────────────────────────────────────


def invitation(session: LocalSession, roster: Roster) -> Signed:
    """A roster signed by the learner and by the holder of the key holders' keys."""
    names = [holder.name for holder in roster.key_holders]
    signatures = [roster.sign(session.identities[name].signing_key).signature for name in names]
    return roster.sign(session.identities["learner"].signing_key, signatures)


def newcomer(session: LocalSession, /, **terms: object) -> PartyRole:
    """A party that has joined nothing yet."""
    policy = PartyPolicy(
        session.roster.learner,
        {holder.name: holder.key for holder in session.roster.key_holders},
        {party.name: session.identities[party.name].key for party in session.roster.parties},
        minimum_contributors=2,
        minimum_key_bits=2048,
    )
    return PartyRole(session.identities["party-1"], replace(policy, **terms))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ({"learner": "00" * 32}, Reason.BAD_SIGNATURE),
        ({"key_holders": {"key-holder-1": "00" * 32}}, Reason.WRONG_PIN),
        ({"key_holders": {}}, Reason.WRONG_PIN),
        ({"minimum_contributors": 3}, Reason.TOO_FEW_REQUIRED),
        ({"parties": {"party-2": "00" * 32}}, Reason.WRONG_PIN),
        ({"parties": {}}, Reason.TOO_FEW_REQUIRED),
        ({"colluders": 1}, Reason.TOO_FEW_REQUIRED),
        ({"minimum_key_bits": 3072}, Reason.WRONG_KEY_SIZE),
    ],
)
def test_rosters_against_the_partys_policy(
    terms: dict[str, object], reason: Reason, start: Start, refused: Refused
) -> None:
    session = start()
    with refused(reason):
        newcomer(session, **terms).join(invitation(session, session.roster))


def test_keys_of_the_learners_own_behind_real_names(start: Start, refused: Refused) -> None:
    """Sybils: with four shares of its own, the learner takes the fifth party's answer out of the sum.

    A party that pins no other falls for it, as far as it counts nobody as a contributor or a colluder of the learner's.
    """
    sybils = start(parties=5, minimum_contributors=5)  # keys that all were drawn by the learner, but for one
    victim = sybils.identities["party-1"]
    secret = np.array([7, -3, 11, 0, 2])
    zeros = {party.name: np.zeros(5, dtype=np.int64) for party in sybils.roster.parties}
    opened = sybils.sum(1, zeros | {"party-1": secret})
    assert opened.values.tolist() == secret.tolist()

    theirs = Identity("party-2", Ed25519PrivateKey.from_private_bytes(bytes(32))).key
    known = {"party-2": theirs}
    for pins, reason in ((known, Reason.WRONG_PIN), ({}, Reason.TOO_FEW_REQUIRED)):
        careful = newcomer(sybils, parties=pins)
        assert careful.state == PartyState.NEW
        with refused(reason):
            careful.join(invitation(sybils, sybils.roster))
    priced = replace(sybils.roster, colluders=4)
    one_sum = newcomer(sybils, parties={}, minimum_contributors=1)
    one_sum.join(invitation(sybils, priced))  # whose share of the noise is then the whole
    print(f"{victim.name}'s answer opened for a party that pins nobody; refused with one pin, and with none")


def test_a_roster_whose_learner_is_not_who_signed_it(start: Start, refused: Refused) -> None:
    session = start()
    roster = replace(session.roster, learner="00" * 32)
    with refused(Reason.WRONG_PIN):
        newcomer(session).join(invitation(session, roster))


def test_a_modulus_of_the_learners_own(start: Start, refused: Refused, keys: list[PaillierPrivateKey]) -> None:
    """Beside the pinned key holder's name: the key holder has not signed that roster, and does not."""
    session = start()
    (holder,) = session.roster.key_holders
    roster = replace(session.roster, key_holders=(replace(holder, modulus=f"{keys[1].public_key.n:x}"),))
    learner_key = session.identities["learner"].signing_key
    old_signature = session.roster.sign(session.identities["key-holder-1"].signing_key).signature
    for signatures in ([old_signature], [bytes(64)]):
        with refused(Reason.BAD_SIGNATURE):
            newcomer(session).join(roster.sign(learner_key, signatures))
    with refused(Reason.WRONG_FRAME):
        newcomer(session).join(roster.sign(learner_key))
    with refused(Reason.WRONG_KEY):
        session.key_holders[0].accept(roster.sign(learner_key))


def test_a_roster_changed_between_rounds(start: Start, refused: Refused) -> None:
    session = start()
    changed = replace(session.roster, minimum_contributors=3)
    with refused(Reason.ROSTER_CHANGED):
        session.parties["party-1"].join(invitation(session, changed))
    with refused(Reason.ROSTER_CHANGED):
        session.key_holders[0].accept(changed.sign(session.identities["learner"].signing_key))


def test_rosters_without_oneself(start: Start, refused: Refused) -> None:
    session = start(parties=4)
    without = replace(session.roster, parties=session.roster.parties[1:])
    with refused(Reason.NOT_ON_ROSTER):
        newcomer(session).join(invitation(session, without))
    (holder,) = session.roster.key_holders
    renamed = replace(session.roster, key_holders=(replace(holder, name="other"),))
    with refused(Reason.NOT_ON_ROSTER):
        session.key_holders[0].accept(renamed.sign(session.identities["learner"].signing_key))


def test_rosters_that_not_all_have_signed(start: Start, refused: Refused) -> None:
    session = start()
    learner = LearnerRole(session.roster, session.identities["learner"].signing_key)
    with refused(Reason.BAD_SIGNATURE):
        learner.invite({})
    learner.invite({"key-holder-1": session.key_holders[0].accept(learner.propose())})
    with refused(Reason.BAD_SIGNATURE):
        learner.begin({party.name: bytes(64) for party in session.roster.parties})


def test_key_holders_of_the_wrong_size(keys: list[PaillierPrivateKey], start: Start, refused: Refused) -> None:
    session = start()
    with refused(Reason.WRONG_KEY_SIZE):
        KeyHolderRole(session.identities["key-holder-1"], keys[0], session.roster.learner, random_bytes=os.urandom)


# ── what comes back to the learner ───────────────────────────────────────────


def opened(session: LocalSession) -> tuple[Signed, Identity]:
    """An honest answer to an honest request, and who gave it."""
    collect(session, 1, "party-1", "party-2")
    (asked,) = session.learner.open(["party-1", "party-2"])
    return session.key_holders[0].open(asked), session.identities["key-holder-1"]


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"session": "00" * 16}, Reason.WRONG_SESSION),
        ({"roster": "00" * 32}, Reason.WRONG_ROSTER),
        ({"round": 2}, Reason.WRONG_ROUND),
        ({"contributors": "00" * 32}, Reason.WRONG_SET),
        ({"sums": "00" * 32}, Reason.WRONG_HASH),
    ],
)
def test_answers_to_something_else(claims: dict[str, object], reason: Reason, start: Start, refused: Refused) -> None:
    session = start()
    honest, holder = opened(session)
    other = replace(Opened.parse(honest.body), **claims)  # type: ignore[arg-type]
    with refused(reason):
        session.learner.close([other.sign(holder.signing_key, honest.attachments)])
    assert session.learner.close([honest]).values.tolist() == (2 * VALUES).tolist()


def test_answers_that_are_no_sum_or_not_the_key_holders(start: Start, refused: Refused) -> None:
    session = start()
    honest, holder = opened(session)
    noise = random.Random(1).randbytes(session.roster.layout.block_bytes)
    lie = replace(Opened.parse(honest.body), sums=sha256_hex(noise)).sign(holder.signing_key, [noise])
    with refused(Reason.COUNT_MISMATCH):
        session.learner.close([lie])
    with refused(Reason.BAD_SIGNATURE):
        session.learner.close([replace(honest, signature=bytes(64))])
    for answers in ([], [honest, honest], [replace(honest, attachments=())]):
        with refused(Reason.WRONG_FRAME):
            session.learner.close(answers)
    short = replace(Opened.parse(honest.body), sums=sha256_hex(noise[1:])).sign(holder.signing_key, [noise[1:]])
    with refused(Reason.WRONG_LENGTH):
        session.learner.close([short])


def test_contributions_with_another_seed(start: Start, refused: Refused) -> None:
    session = start()
    contribution = session.contribute("party-1", session.ask(1), VALUES)
    seed, blob = contribution.attachments
    with refused(Reason.WRONG_HASH):
        session.learner.receive(replace(contribution, attachments=(bytes(32), blob)))
    with refused(Reason.WRONG_LENGTH):
        session.learner.receive(replace(contribution, attachments=(seed[1:], blob)))
    with refused(Reason.WRONG_FRAME):
        session.learner.receive(replace(contribution, attachments=(seed,)))


def test_receipts_that_do_not_fit(start: Start, refused: Refused) -> None:
    session = start(key_holders=2)
    receipts = session.sum(1, {"party-1": VALUES, "party-2": VALUES}).receipts
    asked = session.ask(2)
    key = session.identities["key-holder-2"].signing_key
    second = Opened.parse(receipts[1].body)

    def tell(*given: Signed) -> None:
        told = replace(asked, attachments=(asked.attachments[0], *(receipt.to_bytes() for receipt in given)))
        session.parties["party-1"].receive(told)

    with refused(Reason.BAD_SIGNATURE):
        tell(receipts[1], receipts[0])
    with refused(Reason.WRONG_FRAME):
        tell(receipts[0])
    with refused(Reason.WRONG_SET):
        tell(receipts[0], replace(second, contributors="00" * 32).sign(key))
    with refused(Reason.WRONG_ROUND):
        tell(receipts[0], replace(second, round=0).sign(key))
    with refused(Reason.WRONG_ROSTER):
        tell(receipts[0], replace(second, roster="00" * 32).sign(key))
    tell(*receipts)


def test_refusals_repeat_no_value(start: Start) -> None:
    """For every reason to refuse an answer, its numbers stay out of the message."""
    session = start()
    secret = 2**53 + 123456789
    with pytest.raises(SecureSumError) as caught:
        session.contribute("party-1", session.ask(1), np.full(5, secret))
    assert str(secret) not in repr(vars(caught.value))
