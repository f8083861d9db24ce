"""The learner's role: it gathers signatures, then in each round asks, collects, has the sum opened and decodes it.

    drafted --Roster--> witnessed --Roster--> ready           key holders have signed, then parties
    ready --Query--> collecting --Contribution--> collecting
    collecting --Open--> opening --Opened--> ready            any --End--> ended
    collecting, opening --Query--> collecting                 the round is given up

After a restart, build the role again and take the same steps with what was stored: the roster and its signatures, the
round's query, the contributions and who was in the set; every message comes out the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.arrays import IntArray
from parley.common.secure_sum.envelope import Signed, check_digest, sha256_hex
from parley.common.secure_sum.errors import (
    BlobError,
    ContributorsError,
    MessageError,
    Reason,
    RoundError,
    SignatureError,
)
from parley.common.secure_sum.messages import (
    Contribution,
    Open,
    Opened,
    Roster,
    RosterMember,
    Scalar,
    SumQuery,
    set_digest,
)
from parley.common.secure_sum.packing import SEED_BYTES, add, decode, expand
from parley.common.secure_sum.paillier import blocks_from_blob
from parley.common.secure_sum.session import End, Role, Transitions, check_blob, check_contribution, check_set


class LearnerState(Enum):
    """The state of a learner in a session."""

    DRAFTED = "drafted"
    WITNESSED = "witnessed"
    READY = "ready"
    COLLECTING = "collecting"
    OPENING = "opening"
    ENDED = "ended"


LEARNER_TRANSITIONS: Transitions = {
    LearnerState.DRAFTED: {Roster: LearnerState.WITNESSED, End: LearnerState.ENDED},
    LearnerState.WITNESSED: {Roster: LearnerState.READY, End: LearnerState.ENDED},
    LearnerState.READY: {SumQuery: LearnerState.COLLECTING, End: LearnerState.ENDED},
    LearnerState.COLLECTING: {
        Contribution: LearnerState.COLLECTING,
        Open: LearnerState.OPENING,
        SumQuery: LearnerState.COLLECTING,
        End: LearnerState.ENDED,
    },
    LearnerState.OPENING: {
        Open: LearnerState.OPENING,
        Opened: LearnerState.READY,
        SumQuery: LearnerState.COLLECTING,
        End: LearnerState.ENDED,
    },
    LearnerState.ENDED: {End: LearnerState.ENDED},
}


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """The result of a round: the sum (d,) of the contributors' integers, and the key holders' receipts."""

    round: int
    values: IntArray
    contributors: tuple[str, ...]
    receipts: tuple[Signed, ...]


class LearnerRole(Role):
    """The learner in one session."""

    def __init__(self, roster: Roster, signing_key: Ed25519PrivateKey, receipts: Sequence[Signed] = ()) -> None:
        super().__init__(LEARNER_TRANSITIONS, LearnerState.DRAFTED, roster)
        self._signing_key = signing_key
        self._receipts = tuple(receipts)
        self._query: SumQuery | None = None
        self._received: dict[str, tuple[Contribution, Signed]] = {}
        self._chosen: tuple[str, ...] = ()

    def propose(self) -> Signed:
        """Return the roster under the learner's signature, for the key holders to sign.

        Raises KeyMaterialError(weak_key), naming the key holder.
        """
        self.roster.check_moduli()
        return self.roster.sign(self._signing_key)

    def invite(self, signatures: Mapping[str, bytes]) -> Signed:
        """Take every key holder's signature; return the roster for the parties to sign. Raises SignatureError."""
        with self._on(Roster):
            return self.roster.sign(self._signing_key, self._check_signatures(self.roster.key_holders, signatures))

    def begin(self, signatures: Mapping[str, bytes]) -> None:
        """Take every party's signature. Raises SignatureError."""
        with self._on(Roster):
            self._check_signatures(self.roster.parties, signatures)

    def ask(  # noqa: PLR0913 -- the fields of a query
        self, *, round: int, step: str, message: bytes, clip: Scalar, noise: Scalar, deadline: int
    ) -> Signed:
        """Ask a round's query of every party. Rounds go up; a round not opened is given up. Store before sending."""
        with self._on(SumQuery):
            if self._query is not None and round <= self._query.round:
                raise RoundError(f"round {round} is over", reason=Reason.ROUND_OLD)
            query = SumQuery(
                session=self.roster.session,
                roster=self._roster_digest,
                round=round,
                step=step,
                message=sha256_hex(message),
                clip=clip,
                noise=noise,
                deadline=deadline,
            )
            self._query, self._received, self._chosen = query, {}, ()
            return query.sign(self._signing_key, (message, *(receipt.to_bytes() for receipt in self._receipts)))

    @property
    def contributors(self) -> tuple[str, ...]:
        """The names of the parties that have contributed to the round so far."""
        return tuple(sorted(self._received))

    def receive(self, contribution: Signed) -> str:
        """Check and store a contribution; return the party's name.

        Raises MessageError, SignatureError, RoundError, BlobError, ContributorsError(unknown_party, duplicate_party).
        """
        with self._on(Contribution):
            query = self._current_query()
            claimed = check_contribution(contribution, query, query.digest, self.roster)
            if len(contribution.attachments) != 1 + len(self.roster.key_holders):
                raise MessageError("not a seed and one blob a key holder", reason=Reason.WRONG_FRAME)
            seed, *blobs = contribution.attachments
            if len(seed) != SEED_BYTES:
                raise BlobError(f"a seed of {len(seed)} bytes", reason=Reason.WRONG_LENGTH)
            check_digest(seed, claimed.seed, f"the seed of {claimed.party}")
            for position, blob in enumerate(blobs):
                check_blob(blob, claimed, position, self.roster)
            if self._received.setdefault(claimed.party, (claimed, contribution))[0] != claimed:
                raise ContributorsError(f"{claimed.party} contributed twice", reason=Reason.DUPLICATE_PARTY)
            return claimed.party

    def open(self, contributors: Collection[str]) -> tuple[Signed, ...]:
        """Return requests, one to each key holder, to open the sum of these contributors.

        Store their names before sending.

        Raises ContributorsError if one has not contributed or they are fewer than m_min, RoundError(round_opened) if
        another set was requested before.
        """
        with self._on(Open):
            query, chosen = self._current_query(), tuple(sorted(contributors))
            if missing := [name for name in chosen if name not in self._received]:
                raise ContributorsError(f"{missing[0]} has not contributed", reason=Reason.UNKNOWN_PARTY)
            pairs = [self._received[name] for name in chosen]
            check_set([claimed for claimed, _ in pairs], self.roster)
            if self._chosen not in ((), chosen):
                raise RoundError("the round is being opened for another set", reason=Reason.ROUND_OPENED)
            self._chosen = chosen
            request = Open(
                query.session, query.roster, query.round, query.digest, tuple(claimed.digest for claimed, _ in pairs)
            )
            heads = [signed.head.to_bytes() for _, signed in pairs]
            blobs = [[signed.attachments[1 + j] for _, signed in pairs] for j in range(len(self.roster.key_holders))]
            return tuple(
                request.sign(self._signing_key, [part for pair in zip(heads, column, strict=True) for part in pair])
                for column in blobs
            )

    def close(self, opened: Sequence[Signed]) -> Sum:
        """Check every key holder's answer, in the roster's order, and decode the sum.

        Raises SignatureError, MessageError, RoundError, BlobError; PackingError if the result is no sum of answers.
        """
        with self._on(Opened):
            layout, holders = self.roster.layout, self.roster.key_holders
            if len(opened) != len(holders):
                raise MessageError("not an answer by every key holder", reason=Reason.WRONG_FRAME)
            sums = [self._check_opened(signed, holder) for signed, holder in zip(opened, holders, strict=True)]
            pads = [expand(self._received[name][1].attachments[0], layout) for name in self._chosen]
            values = decode(add([*pads, *sums], layout), len(self._chosen), layout)
            self._receipts = tuple(signed.head for signed in opened)
            return Sum(self._current_query().round, values, self._chosen, self._receipts)

    def end(self) -> None:
        """End the session and forget its seeds."""
        with self._on(End):
            self._received = {}

    def _current_query(self) -> SumQuery:
        """Return the round's query. Raises RoundError(wrong_query) if none was asked."""
        if self._query is None:
            raise RoundError("no query asked", reason=Reason.WRONG_QUERY)
        return self._query

    def _check_signatures(self, members: Sequence[RosterMember], signatures: Mapping[str, bytes]) -> list[bytes]:
        """Return each member's signature of the roster, in order."""
        for member in members:
            if member.name not in signatures:
                raise SignatureError(f"{member.name} has not signed the roster", reason=Reason.BAD_SIGNATURE)
            Signed(self.roster.body, signatures[member.name]).verify(Roster.TAG, member.key)
        return [signatures[member.name] for member in members]

    def _check_opened(self, signed: Signed, holder: RosterMember) -> list[int]:
        """Return the sums of one key holder's answer, if it answers the request."""
        opened, layout = Opened.read(signed, holder.key), self.roster.layout
        self._check_session(opened)
        if opened.round != self._current_query().round:
            raise RoundError(f"{holder.name} opened another round", reason=Reason.WRONG_ROUND)
        if opened.contributors != set_digest(self._received[name][0].digest for name in self._chosen):
            raise RoundError(f"{holder.name} opened another set", reason=Reason.WRONG_SET)
        if len(signed.attachments) != 1:
            raise MessageError("not one blob of sums", reason=Reason.WRONG_FRAME)
        (sums,) = signed.attachments
        check_digest(sums, opened.sums, f"the sum of {holder.name}")
        return blocks_from_blob(sums, layout.block_bytes, layout.blocks)
