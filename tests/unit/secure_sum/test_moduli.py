"""Rosters with moduli that anybody can tell to be weak: all roles refuse them, and name the key holder."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import gmpy2
import pytest
from phe import PaillierPrivateKey

from parley.common.secure_sum.errors import KeyMaterialError, Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.learner import LearnerRole
from parley.common.secure_sum.messages import Roster, RosterKeyHolder
from parley.common.secure_sum.paillier import check_moduli, public_key
from parley.common.secure_sum.party import PartyPolicy, PartyRole

BITS = 2048
LOW = 1 << BITS - 1


def prime(near: int) -> int:
    return int(gmpy2.next_prime(near))


def of_size(factor: int) -> int:
    """An odd multiple of a factor, of 2048 bits."""
    return factor * prime(LOW // factor + 2**60)


ROOT = int(gmpy2.isqrt(3 * LOW // 2))
CUBE_ROOT = int(gmpy2.iroot(gmpy2.mpz(3 * LOW // 2), 3)[0])
WEAK: dict[str, tuple[Callable[[], int], str]] = {
    "even": (lambda: LOW + 2, "is even"),
    "of three": (lambda: of_size(3), "small factor"),
    "of 65521": (lambda: of_size(65521), "small factor"),
    "of many small": (lambda: 3**1292 * 5, "small factor"),
    "prime": (lambda: prime(LOW), "is a prime"),
    "square": (lambda: prime(ROOT) ** 2, "is a power"),
    "cube": (lambda: prime(CUBE_ROOT) ** 3, "is a power"),
    "close": (lambda: (first := prime(ROOT)) * prime(first + 2**500), "close to each other"),
}


@pytest.mark.parametrize("kind", WEAK)
def test_a_weak_modulus_is_named(kind: str) -> None:
    make, why = WEAK[kind]
    n = make()
    assert n.bit_length() in {BITS, 2051}
    with pytest.raises(KeyMaterialError, match=f"the modulus of second .*{why}") as refused:
        check_moduli({"first": public_key(of_two()).n, "second": n})
    assert refused.value.reason == Reason.WEAK_KEY


def of_two() -> int:
    """A product of two primes that are far from each other."""
    return prime(ROOT + (1 << 1020)) * prime(ROOT - (1 << 1020))


def signed_by_all(session: LocalSession, roster: Roster) -> PartyRole:
    """A party that is asked to join a roster which its key holders have signed, against better knowledge."""
    identities = session.identities
    pins = {party.name: party.key for party in roster.parties}
    policy = PartyPolicy(
        roster.learner, {key_holder.name: key_holder.key for key_holder in roster.key_holders}, pins, 2, 0, BITS
    )
    party = PartyRole(identities["party-1"], policy)
    party.join(
        roster.sign(
            identities["learner"].signing_key,
            [roster.sign(identities[key_holder.name].signing_key).signature for key_holder in roster.key_holders],
        )
    )
    return party


def test_all_roles_refuse_them(start: Callable[..., LocalSession], keys: list[PaillierPrivateKey]) -> None:
    session = start(key_holders=2)
    first, second = session.roster.key_holders
    signed_by_all(session, session.roster)
    shared = keys[0].p * prime(LOW // keys[0].p + 2**60)
    faults = {
        "key-holder-1 and key-holder-2 have the same modulus": first.n,
        "the moduli of key-holder-1 and key-holder-2 share a factor": shared,
        "the modulus of key-holder-2 has a small factor": of_size(3),
    }
    for words, n in faults.items():
        roster = replace(session.roster, key_holders=(first, with_modulus(second, n)))
        learner = LearnerRole(roster, session.identities["learner"].signing_key)
        newcomer = start(key_holders=2, seed=0)
        for refuses in (
            learner.propose,
            lambda roster=roster, holder=newcomer.key_holders[0]: holder.accept(
                roster.sign(session.identities["learner"].signing_key)
            ),
            lambda roster=roster: signed_by_all(session, roster),
        ):
            with pytest.raises(KeyMaterialError, match=words):
                refuses()


def with_modulus(holder: RosterKeyHolder, n: int) -> RosterKeyHolder:
    """The same key holder with another modulus."""
    return replace(holder, modulus=f"{n:x}")
