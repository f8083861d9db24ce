"""One real party on a stage: learner, key holder and the other parties of its secure sum are played in this process."""

from __future__ import annotations

import os
from dataclasses import replace

import httpx
import numpy as np

from parley.common.arrays import FloatArray, IntArray
from parley.common.encoding.npy import pack_array
from parley.common.runs.secure_terms import draft_roster, round_terms
from parley.common.secure_sum.envelope import Signed, unseal
from parley.common.secure_sum.keyholder import KeyHolderRole
from parley.common.secure_sum.learner import LearnerRole
from parley.common.secure_sum.messages import Contribution, Roster, RosterKeyHolder
from parley.common.secure_sum.paillier import FreshObfuscators
from parley.common.secure_sum.party import PartyPolicy, PartyRole
from parley.common.secure_sum.session import Identity
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from tests.support.rounds import propose, run_spec
from tests.support.secure_cluster import KEY_BITS, SecureCluster, paillier_key, signing_key

HOLDER = "key-holder-1"


class Stage:
    """A run of a cluster whose first party is real; the others contribute zeros."""

    def __init__(self, cluster: SecureCluster, run: str = "run", **changes: object) -> None:
        terms = {"minimum_contributors": 2, "secure_sum": "paillier"} | changes
        self.run = run
        self.spec = run_spec(cluster, **terms)  # type: ignore[arg-type]
        self.key = paillier_key(0)
        self.identities = {name: Identity(name, signing_key(name)) for name in ("learner", HOLDER, *cluster.names)}
        self.roster = draft_roster(
            run,
            self.spec,
            key_bits=KEY_BITS,
            learner=self.identities["learner"].key,
            party_keys={name: self.identities[name].key for name in cluster.names},
            key_holders=[RosterKeyHolder(HOLDER, self.identities[HOLDER].key, f"{self.key.public_key.n:x}")],
        )
        self.learner = LearnerRole(self.roster, self.identities["learner"].signing_key)
        self.holder = KeyHolderRole(
            self.identities[HOLDER], self.key, self.roster.learner, random_bytes=os.urandom, minimum_key_bits=KEY_BITS
        )
        self.invitation = self.learner.invite({HOLDER: self.holder.accept(self.learner.propose())})
        pins = {name: self.identities[name].key for name in cluster.names}
        policy = PartyPolicy(
            self.roster.learner, {HOLDER: self.identities[HOLDER].key}, pins, 2, minimum_key_bits=KEY_BITS
        )
        self.others = {name: PartyRole(self.identities[name], policy) for name in cluster.names[1:]}

    def invite(self, client: httpx.Client, roster: Roster | None = None, **claims: object) -> httpx.Response:
        """Ask the party to join the run's roster, or another that learner and key holder would sign."""
        changed = replace(roster or self.roster, **claims)  # type: ignore[arg-type]
        signature = changed.sign(self.identities[HOLDER].signing_key).signature
        return self.put(client, "roster", changed.sign(self.identities["learner"].signing_key, [signature]))

    def begin(self, client: httpx.Client) -> None:
        """Propose the run and have everybody sign the roster."""
        propose(client, self.spec, self.run).raise_for_status()
        mine = self.put(client, "roster", self.invitation).raise_for_status().json()["signature"]
        signatures = {name: other.join(self.invitation) for name, other in self.others.items()}
        self.learner.begin({self.roster.parties[0].name: bytes.fromhex(mine), **signatures})

    def begin_without(self, client: httpx.Client) -> None:
        """Propose the run, and forge the party's signature of a roster that it is never shown."""
        propose(client, self.spec, self.run).raise_for_status()
        signatures = {name: other.join(self.invitation) for name, other in self.others.items()}
        (first, *_) = self.roster.parties
        self.learner.begin({first.name: self.roster.sign(signing_key(first.name)).signature, **signatures})

    def query(self, round: int, message: FloatArray, deadline: int = 0) -> Signed:
        """The learner's signed query."""
        terms = round_terms(self.spec.build(), self.spec.facts(), round)
        packed = pack_array(message)
        return self.learner.ask(
            round=round, step="gradient", message=packed, clip=terms.clip, noise=terms.noise, deadline=deadline
        )

    def ask(self, client: httpx.Client, round: int, query: Signed) -> httpx.Response:
        """Ask the party a round."""
        return self.put(client, f"rounds/{round}", query)

    def put(self, client: httpx.Client, path: str, signed: Signed) -> httpx.Response:
        """Send the party a signed message."""
        url, headers = f"/v1/runs/{self.run}/{path}", {"Content-Type": SIGNED_MEDIA_TYPE}
        return client.put(url, content=signed.to_bytes(), headers=headers)

    def total(self, query: Signed, contribution: bytes) -> IntArray:
        """The opened sum of the party's contribution and the others' zeros."""
        self.learner.receive(Signed.from_bytes(contribution))
        for other in self.others.values():
            zeros = np.zeros(self.roster.d, np.int64)
            self.learner.receive(
                other.answer(other.receive(query), zeros, os.urandom, FreshObfuscators(os.urandom)),
            )
        requests = self.learner.open(self.learner.contributors)
        return self.learner.close([self.holder.open(request) for request in requests]).values

    def obfuscators(self, contribution: bytes) -> list[int]:
        """The r^n of a contribution, which the holder of the private key can see."""
        n, nsquare = self.key.public_key.n, self.key.public_key.nsquare
        signed = Signed.from_bytes(contribution)
        claimed = Contribution.parse(signed.body)
        blob = unseal(signed.attachments[1], self.identities[HOLDER].signing_key, claimed.query, claimed.party)
        width = self.roster.layout.ciphertext_bytes
        ciphertexts = [int.from_bytes(blob[start : start + width]) for start in range(0, len(blob), width)]
        return [c * pow(1 + n * self.key.raw_decrypt(c), -1, nsquare) % nsquare for c in ciphertexts]
