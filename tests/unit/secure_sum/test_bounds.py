"""Each check of the roles on both sides of its bound, and what its refusal names."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from phe import PaillierPrivateKey

from parley.common.errors import SecureSumError
from parley.common.secure_sum import paillier
from parley.common.secure_sum.envelope import MOST_PARTS, Signed, frame, sha256_hex, unframe
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.keyholder import KeyHolderRole
from parley.common.secure_sum.learner import LearnerRole
from parley.common.secure_sum.messages import Opened, Roster, SumQuery
from parley.common.secure_sum.packing import SEED_BYTES, Layout, add, split
from parley.common.secure_sum.party import PartyPolicy
from tests.support.attacks import request

Refused = Callable[[Reason], AbstractContextManager[object]]
Start = Callable[..., LocalSession]
VALUES = np.arange(5)
SEED = bytes(SEED_BYTES)


def named(words: str) -> AbstractContextManager[object]:
    """What happens inside is refused in these words, which begin the message."""
    return pytest.raises(SecureSumError, match=f"^{words}")


def test_a_refusal_names_what_was_not_signed_for(start: Start) -> None:
    session = start()
    asked = session.ask(1)
    with named("the message is not what was signed for"):
        session.parties["party-1"].receive(replace(asked, attachments=(b"other",)))
    first, second, third = (session.contribute(name, asked, VALUES) for name in session.parties)
    seed, blob = first.attachments
    with named("the seed of party-1 is not what was signed for"):
        session.learner.receive(replace(first, attachments=(bytes(32), blob)))
    with named("the blob of party-1 is not what was signed for"):
        session.learner.receive(replace(first, attachments=(seed, blob[::-1])))
    for contribution in (first, second):
        session.learner.receive(contribution)
    honest = request(session, [first, second])
    heads = (*honest.attachments[:2], third.head.to_bytes(), third.attachments[1])
    with named("a contribution is not what was signed for"):
        session.key_holders[0].open(replace(honest, attachments=heads))
    (asked_for,) = session.learner.open(["party-1", "party-2"])
    opened = session.key_holders[0].open(asked_for)
    with named("the sum of key-holder-1 is not what was signed for"):
        session.learner.close([replace(opened, attachments=(bytes(248),))])


def test_strangers_count_as_colluders_and_as_no_contributors(start: Start) -> None:
    session = start()  # three parties: two must contribute, and none colludes
    parties = {name: session.identities[name].key for name in session.parties}
    holders = {holder.name: holder.key for holder in session.roster.key_holders}

    def check(strangers: int, policy: tuple[int, int], roster: tuple[int, int]) -> None:
        known = dict(list(parties.items())[: 3 - strangers])
        terms = PartyPolicy(session.roster.learner, holders, known, *policy, minimum_key_bits=2048)
        minimum, colluders = roster
        changed = replace(session.roster, minimum_contributors=minimum, colluders=colluders)
        terms.check(changed, "party-1")

    check(0, (2, 1), (2, 1))
    check(1, (2, 0), (3, 1))
    check(1, (1, 1), (3, 2))
    check(2, (1, 0), (3, 2))
    check(3, (1, 0), (3, 2))  # itself is no stranger, whether its policy names it or not
    for strangers, policy, roster, words in (
        (0, (3, 0), (2, 1), "minimum_contributors is 2, this party's policy asks for 3: the keys of 0 parties"),
        (1, (2, 0), (2, 1), "minimum_contributors is 2, this party's policy asks for 3: the keys of 1 parties"),
        (0, (2, 2), (3, 1), "colluders is 1, this party's policy asks for 2: the keys of 0 parties"),
        (2, (1, 0), (3, 1), "colluders is 1, this party's policy asks for 2: the keys of 2 parties"),
    ):
        with named(words):
            check(strangers, policy, roster)


@pytest.mark.parametrize("key_holders", [1, 2])
def test_receipts_are_of_one_earlier_round(key_holders: int, start: Start, refused: Refused) -> None:
    session = start(key_holders=key_holders)
    receipts = session.sum(3, {"party-1": VALUES, "party-2": VALUES}).receipts
    asked = session.ask(5)
    holders = [session.identities[holder.name].signing_key for holder in session.roster.key_holders]

    def tell(*rounds: int) -> None:
        told = [
            replace(Opened.parse(receipt.body), round=round).sign(key).to_bytes()
            for receipt, key, round in zip(receipts, holders, rounds, strict=True)
        ]
        session.parties["party-1"].receive(replace(asked, attachments=(b"weights", *told)))

    for round in (0, 3, 4):
        tell(*[round] * key_holders)
    for round in (5, 6):
        with refused(Reason.WRONG_ROUND):
            tell(*[round] * key_holders)
    if key_holders > 1:
        for rounds in ((3, 4), (4, 3)):
            with refused(Reason.WRONG_ROUND):
                tell(*rounds)


def test_an_empty_message_need_not_be_attached_and_any_other_must(start: Start, refused: Refused) -> None:
    session = start()
    party = session.parties["party-1"]
    empty = session.ask(1, b"")
    assert party.receive(replace(empty, attachments=())) == party.receive(empty) == SumQuery.parse(empty.body)
    with refused(Reason.WRONG_HASH):
        party.receive(replace(session.ask(2), attachments=()))


def test_a_learner_begins_with_no_contributors_and_with_the_receipts_it_stored(start: Start) -> None:
    session = start()
    receipts = session.sum(1, {"party-1": VALUES, "party-2": VALUES}).receipts
    restarted = LearnerRole(session.roster, session.identities["learner"].signing_key, list(receipts))
    assert restarted.contributors == ()
    invitation = restarted.invite({"key-holder-1": session.key_holders[0].accept(restarted.propose())})
    restarted.begin({name: party.join(invitation) for name, party in session.parties.items()})
    asked = restarted.ask(round=2, step="gradient", message=b"weights", clip=1, noise="1", deadline=0)
    assert [Signed.from_bytes(data) for data in asked.attachments[1:]] == list(receipts)


def roster_faults(roster: Roster) -> dict[str, list[Mapping[str, Any]]]:
    """Changes of a good roster, by the words of the refusal."""
    first, second, third = roster.parties
    (holder,) = roster.key_holders
    return {
        "two members share a name": [
            {"parties": (first, second, replace(third, name=first.name))},
            {"key_holders": (replace(holder, name=first.name),)},
        ],
        "two members share a key": [
            {"parties": (first, second, replace(third, key=first.key))},
            {"key_holders": (replace(holder, key=first.key),)},
            {"key_holders": (replace(holder, key=roster.learner),)},
        ],
        "fewer parties than minimum_contributors": [{"minimum_contributors": 4}],
        "colluders is not below minimum_contributors": [{"colluders": 2}, {"colluders": 3}],
        "key_bits is not in whole bytes": [
            {"key_bits": bits, "key_holders": (replace(holder, modulus=f"{1 << (bits - 1) | 1:x}"),)}
            for bits in (2052, 2049)
        ],
        f"the modulus of {holder.name} is not an odd number of key_bits bits": [
            {"key_holders": (replace(holder, modulus=modulus),)}
            for modulus in (
                "0" + holder.modulus,
                "0" + holder.modulus[1:],
                holder.modulus[1:],
                holder.modulus + "1",
                f"{holder.n - 1:x}",
                f"{holder.n >> 1 | 1:x}",
            )
        ],
    }


def test_a_roster_is_refused_in_words_that_say_why(start: Start) -> None:
    roster = start().roster
    replace(roster, minimum_contributors=3, colluders=2)
    wide = replace(roster.key_holders[0], modulus=f"{1 << 2055 | 1:x}")
    assert replace(roster, key_bits=2056, key_holders=(wide,)).key_holders[0].n == 2**2055 + 1
    for words, changes in roster_faults(roster).items():
        for change in changes:
            with named(f"Roster: {words}$"):
                replace(roster, **change)


@pytest.mark.parametrize("bits", [2048, 2056, 8192])
def test_keys_have_2048_to_8192_bits_in_whole_bytes(bits: int, refused: Refused) -> None:
    assert paillier.require_key_bits(bits) == bits
    assert paillier.public_key(2 ** (bits - 1) + 1).n == 2 ** (bits - 1) + 1  # odd, and a multiple of three
    with refused(Reason.WRONG_KEY):
        paillier.public_key(2 ** (bits - 1))
    for other in (2040, 2047, bits + 1, bits + 4, 8200):
        with refused(Reason.WRONG_KEY_SIZE):
            paillier.require_key_bits(other)


def test_a_key_holder_takes_a_key_of_just_the_size_it_asks_for(
    keys: list[PaillierPrivateKey], start: Start, refused: Refused
) -> None:
    session = start()
    who = session.identities["key-holder-1"]
    KeyHolderRole(who, keys[0], session.roster.learner, random_bytes=os.urandom, minimum_key_bits=2048)
    with refused(Reason.WRONG_KEY_SIZE):
        KeyHolderRole(who, keys[0], session.roster.learner, random_bytes=os.urandom, minimum_key_bits=2049)


def test_vectors_of_unequal_length_are_never_cut_to_the_shortest(keys: list[PaillierPrivateKey]) -> None:
    """A block that is dropped would be an answer that is wrong and opens all the same."""
    key, layout = keys[0].public_key, Layout(60, 2048)  # two blocks
    obfuscators = paillier.make_obfuscators(key, 2, random.Random(0).randbytes)
    for uneven in (
        lambda: paillier.encrypt_blocks(key, [1, 2], obfuscators[:1]),
        lambda: paillier.encrypt_blocks(key, [1], obfuscators),
        lambda: paillier.add_blocks(key, [obfuscators, obfuscators[:1]]),
        lambda: paillier.add_blocks(key, [obfuscators[:1], obfuscators]),
        lambda: split([1], [SEED], layout),
        lambda: split([1, 2, 3], [SEED], layout),
        lambda: add([[1, 2], [1]], layout),
        lambda: add([[1], [1, 2]], layout),
    ):
        with pytest.raises(ValueError, match=r"is (shorter|longer) than argument"):
            uneven()


def test_a_frame_has_as_many_parts_as_are_asked_for() -> None:
    parts = [b"a", b"", b"x" * 300]
    assert unframe(frame(parts), at_least=3) == parts
    assert unframe(b"") == []
    with named("a torn frame"):
        unframe(frame(parts), at_least=4)
    assert frame(parts)[:5] == b"\0\0\0\x01a"
    assert sha256_hex(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def test_a_frame_has_so_many_parts_and_no_more() -> None:
    """64 MiB may be 16 million empty parts, which took six seconds to cut: a key holder answered nobody meanwhile."""
    most = [b""] * MOST_PARTS
    assert unframe(frame(most)) == most
    for frames in (frame([*most, b""]), bytes(2**26)):
        began = time.perf_counter()
        with named(f"a frame of more than {MOST_PARTS} parts"):
            unframe(frames)
        took = time.perf_counter() - began
        print(f"{len(frames):,} bytes of empty parts are refused in {1e3 * took:.1f} ms")
        assert took < 0.5
