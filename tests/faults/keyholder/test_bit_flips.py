"""Bits that fall over in a key holder's journal: what was changed is refused, and nothing is opened by it."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import pytest

from parley.common.errors import LedgerError, ParleyError, SecureSumError
from parley.common.secure_sum.envelope import Signed, sha256_hex
from parley.common.secure_sum.messages import Opened, Roster, RosterKeyHolder, RosterParty
from parley.party.keyholder.journal import Journal, Session, create_journal
from tests.support.keyholder import KEY_BITS
from tests.support.keyholder import LEARNER as HOLDER

FLIPS, SESSIONS, ROUNDS = 1000, 6, 5


def opening(session: str, round: int, contributors: str, sums: bytes) -> Signed:
    """An opening as a key holder signs it."""
    opened = Opened(session, "aa" * 32, round, sha256_hex(contributors.encode()), sha256_hex(sums))
    return opened.sign(HOLDER.signing_key, [sums])


def modulus(number: int) -> int:
    """As long as a key's, and odd."""
    return (1 << KEY_BITS - 1) + 2 * number + 1


def roster(session: str, number: int) -> Signed:
    """A roster as a learner signs it."""
    parties = tuple(RosterParty(f"party-{i}", f"{i:064x}", noise="1") for i in (1, 2, 3))
    holder = RosterKeyHolder("key-holder", "ee" * 32, f"{modulus(number):x}")
    return Roster(session, 5, KEY_BITS, 2, 0, "dd" * 32, parties, (holder,)).sign(HOLDER.signing_key)


def live(state: Path) -> list[Session]:
    """A journal of some sessions; what it says of each."""
    rng = random.Random(1)
    create_journal(state, HOLDER)
    with closing(Journal(state, HOLDER)) as journal:
        for number in range(SESSIONS):
            journal.add("learner", name := f"{number:032x}", modulus(number))
            journal.sign(journal.get("learner", name), roster(name, number))
            for round in range(ROUNDS):
                journal.append(journal.get("learner", name), opening(name, round, "first", rng.randbytes(2000)))
        journal.end(journal.get("learner", f"{0:032x}"))
        return [journal.get("learner", f"{number:032x}") for number in range(SESSIONS)]


def flip(path: Path, rng: random.Random) -> None:
    """Turn one bit of a file."""
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def acted_on(state: Path, before: list[Session]) -> tuple[int, str]:
    """How many sessions are said to be otherwise than they were, or let in a second set; what came of the flip."""
    try:
        journal = Journal(state, HOLDER)
    except ParleyError as error:
        return 0, f"refused at the start ({type(error).__name__})"
    wrong, outcome = 0, "without effect"
    with closing(journal):
        for session in before:
            try:
                wrong += journal.get("learner", session.id) != session
                with suppress(SecureSumError):
                    journal.append(session, opening(session.id, ROUNDS - 1, "second", b"second"))
                    wrong += 1
            except LedgerError:
                outcome = "refused when read"
    return wrong, outcome


@pytest.mark.slow
def test_flipped_bits_are_never_acted_on(tmp_path: Path) -> None:
    rng, state = random.Random(8), tmp_path / "state"
    before = live(state)
    assert acted_on(state, before) == (0, "without effect")
    outcomes: Counter[str] = Counter()
    wrong = 0
    for number in range(FLIPS):
        copy = tmp_path / str(number)
        shutil.copytree(state, copy)
        flip(copy / "keyholder.db", rng)
        acted, outcome = acted_on(copy, before)
        wrong, outcomes[outcome] = wrong + acted, outcomes[outcome] + 1
        shutil.rmtree(copy)
    print(f"{FLIPS} bits flipped in a journal: {wrong} acted on; {dict(outcomes)}")
    assert wrong == 0
