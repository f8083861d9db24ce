"""A complete session in one process, from roster to sum, as the services run it over HTTP.

It is the protocol in the order things happen, and drives the golden vectors, the tests and the benchmark.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from phe import PaillierPrivateKey

from parley.common.arrays import IntArray
from parley.common.secure_sum.envelope import KEY_BYTES, Signed
from parley.common.secure_sum.keyholder import KeyHolderRole
from parley.common.secure_sum.learner import LearnerRole, Sum
from parley.common.secure_sum.messages import SESSION_BYTES, Roster, RosterKeyHolder, RosterParty
from parley.common.secure_sum.paillier import FreshObfuscators, ObfuscatorSource, RandomBytes
from parley.common.secure_sum.party import PartyPolicy, PartyRole
from parley.common.secure_sum.session import Identity


@dataclass(frozen=True, slots=True)
class LocalSession:
    """Every role of a session in one object, each role with its own identity."""

    roster: Roster
    identities: Mapping[str, Identity]
    learner: LearnerRole
    parties: Mapping[str, PartyRole]
    key_holders: tuple[KeyHolderRole, ...]
    random_bytes: RandomBytes
    obfuscators: ObfuscatorSource

    @classmethod
    def start(
        cls,
        keys: Sequence[PaillierPrivateKey],
        parties: int,
        d: int,
        minimum_contributors: int,
        random_bytes: RandomBytes,
    ) -> LocalSession:
        """Sign a roster of this many parties and one key holder for each Paillier key, ready for round one."""
        party_names = [f"party-{i + 1}" for i in range(parties)]
        holder_names = [f"key-holder-{j + 1}" for j in range(len(keys))]
        identities = {
            name: Identity(name, Ed25519PrivateKey.from_private_bytes(random_bytes(KEY_BYTES)))
            for name in ("learner", *party_names, *holder_names)
        }
        roster = Roster(
            session=random_bytes(SESSION_BYTES).hex(),
            d=d,
            key_bits=keys[0].public_key.n.bit_length(),
            minimum_contributors=minimum_contributors,
            colluders=0,
            learner=identities["learner"].key,
            parties=tuple(RosterParty(name, identities[name].key, noise="1") for name in party_names),
            key_holders=tuple(
                RosterKeyHolder(name, identities[name].key, f"{key.public_key.n:x}")
                for name, key in zip(holder_names, keys, strict=True)
            ),
        )
        session = cls.unsigned(roster, identities, keys, random_bytes)
        session.sign()
        return session

    @classmethod
    def unsigned(
        cls,
        roster: Roster,
        identities: Mapping[str, Identity],
        keys: Sequence[PaillierPrivateKey],
        random_bytes: RandomBytes,
    ) -> LocalSession:
        """Build the roles before anyone has signed the roster."""
        policy = PartyPolicy(
            learner=identities["learner"].key,
            key_holders={holder.name: holder.key for holder in roster.key_holders},
            parties={party.name: identities[party.name].key for party in roster.parties},
            minimum_contributors=roster.minimum_contributors,
            minimum_key_bits=roster.key_bits,
        )
        return cls(
            roster=roster,
            identities=identities,
            learner=LearnerRole(roster, identities["learner"].signing_key),
            parties={party.name: PartyRole(identities[party.name], policy) for party in roster.parties},
            key_holders=tuple(
                KeyHolderRole(
                    identities[holder.name],
                    key,
                    roster.learner,
                    random_bytes=random_bytes,
                    minimum_key_bits=roster.key_bits,
                )
                for holder, key in zip(roster.key_holders, keys, strict=True)
            ),
            random_bytes=random_bytes,
            obfuscators=FreshObfuscators(random_bytes),
        )

    def sign(self) -> None:
        """Exchange message 0: the key holders sign the roster, then the parties."""
        proposal = self.learner.propose()
        holders = zip(self.roster.key_holders, self.key_holders, strict=True)
        invitation = self.learner.invite({entry.name: holder.accept(proposal) for entry, holder in holders})
        self.learner.begin({name: party.join(invitation) for name, party in self.parties.items()})

    def ask(self, round: int, message: bytes = b"weights") -> Signed:
        """Make message 1: the query of a round."""
        return self.learner.ask(round=round, step="gradient", message=message, clip=1, noise="1", deadline=0)

    def contribute(self, name: str, query: Signed, values: IntArray) -> Signed:
        """Make message 2: one party's answer."""
        party = self.parties[name]
        return party.answer(party.receive(query), values, self.random_bytes, self.obfuscators)

    def open(self, contributors: Collection[str]) -> Sum:
        """Exchange messages 3 and 4: every key holder opens the sum, the learner decodes it."""
        requests = self.learner.open(contributors)
        return self.learner.close(
            [holder.open(request) for holder, request in zip(self.key_holders, requests, strict=True)]
        )

    def sum(self, round: int, answers: Mapping[str, IntArray]) -> Sum:
        """Run a complete round."""
        query = self.ask(round)
        for name, values in answers.items():
            self.learner.receive(self.contribute(name, query, values))
        return self.open(answers)
