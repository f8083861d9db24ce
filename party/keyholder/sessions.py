"""What a key holder does for learners: begins sessions, signs rosters, opens sums, destroys keys.

All state is in the journal. Each request builds its `KeyHolderRole` from the journal, so that memory is never ahead of
the disk, however an earlier request ended.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import structlog
from phe import PaillierPrivateKey

from parley.common.encoding.texts import so_many
from parley.common.errors import ForbiddenError
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import KeyMaterialError, Reason, RoundError, StateError
from parley.common.secure_sum.keyholder import KeyHolderRole
from parley.common.secure_sum.messages import Open, Roster
from parley.common.secure_sum.packing import too_long
from parley.common.secure_sum.paillier import decrypt_blocks
from parley.common.secure_sum.session import Identity
from parley.party.keyholder.journal import Journal, Session, SessionEnd
from parley.party.keyholder.key_pool import KeySource
from parley.party.keyholder.vault import Vault

_END_REASONS: Mapping[SessionEnd, str] = {
    "learner": "",
    "idle": ": nothing new was asked of it for too long",
    "copy": ": this key holder's machine was restarted, or its files were put back from a copy, and either ends all "
    "sessions. Begin the run again",
    "upgrade": ": an older version of Parley began it, whose journal cannot be told from an old copy of it. Begin the "
    "run again",
}


class Cores:
    """Decrypts on all cores: exponentiations release the interpreter's lock, so threads suffice."""

    def __init__(self) -> None:
        self._count = os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._count, thread_name_prefix="decrypt")

    def decrypt(self, key: PaillierPrivateKey, blocks: Sequence[int]) -> list[int]:
        """Decrypt as `decrypt_blocks` does, with one chunk of blocks for each core."""
        size = -(-len(blocks) // self._count)
        chunks = [blocks[start : start + size] for start in range(0, len(blocks), size)]
        parts = self._threads.map(lambda chunk: decrypt_blocks(key, chunk), chunks)
        return [block for part in parts for block in part]

    def close(self) -> None:
        """Finish what was begun."""
        self._threads.shutdown()


class Sessions:
    """All sessions of one key holder; safe to call from several threads.

    All of them end if the journal is not where it was written: after a restore, a move, a restart of the machine.

    ``pins`` are the learners' public keys by name, and may be replaced; idle sessions end after ``idle_seconds``; a
    learner may begin ``most_a_day``; requests have ``most_bytes`` at most. Methods raise NotFoundError for an unknown
    session, UnavailableError while the journal cannot be written, LedgerError where it is an old copy, and what
    `KeyHolderRole` and `Vault` raise.
    """

    def __init__(  # noqa: PLR0913 -- its parts, by name
        self,
        identity: Identity,
        *,
        pins: Mapping[str, str],
        key_bits: int,
        idle_seconds: float,
        most_a_day: int,
        most_bytes: int,
        journal: Journal,
        vault: Vault,
        keys: KeySource,
    ) -> None:
        self.identity = identity
        self.pins = pins
        self._key_bits = key_bits
        self._idle_seconds = idle_seconds
        self._most_a_day = most_a_day
        self._most_bytes = most_bytes
        self.journal = journal
        self._vault = vault
        self._keys = keys
        self._cores = Cores()
        if copied := self.journal.end_copied():
            structlog.get_logger().warning(
                "all sessions ended: their files were put back, the machine restarted, or an older version wrote them",
                sessions=len(copied),
            )
        self.expire()
        self.journal.sweep(self._vault.keep_only)

    def close(self) -> None:
        """Finish what was begun; close the journal."""
        self._keys.close()
        self._cores.close()
        self.journal.close()

    def begin(self, learner: str, session: str, key_bits: int) -> Session:
        """Begin a session with its own Paillier key; a second call returns the same session.

        Raises KeyMaterialError(wrong_key_size) unless ``key_bits`` is the size that this key holder makes,
        StateError(out_of_turn) for a session that has ended, and ForbiddenError for one more than is allowed in a day.
        """
        if key_bits != self._key_bits:
            raise KeyMaterialError(
                f"this key holder's keys have {self._key_bits} bits, not {key_bits}", reason=Reason.WRONG_KEY_SIZE
            )
        self._end_if_idle(learner, session)
        if (book := self.journal.find(learner, session)) is None:
            self._check_today(learner)
            key = self._keys.take()
            self.journal.add(learner, session, key.public_key.n, lambda: self._vault.store(key))
            book = self.journal.get(learner, session)
        _check_not_ended(book)
        return book

    def sign(self, learner: str, session: str, proposal: Signed) -> bytes:
        """Sign a session's roster and return the signature; a session has one roster.

        Raises ForbiddenError if a request to open the sum of all parties' contributions would be too long, before any
        party contributes.
        """
        self._end_if_idle(learner, session)
        book = self.journal.get(learner, session)
        role = self._role(book)
        signature = role.accept(proposal)
        if role.roster.session != session:
            raise RoundError("the roster is of another session", reason=Reason.WRONG_SESSION)
        if reason := too_long(role.roster.layout, len(role.roster.parties), self._most_bytes):
            raise ForbiddenError(reason, rule="body_bytes")
        self.journal.sign(book, proposal)
        return signature

    def open(self, learner: str, session: str, round: int, request: Signed) -> bytes:
        """Open the sum of one set of contributions; return it as a frame, after the journal has stored it."""
        self._end_if_idle(learner, session)
        book = self.journal.get(learner, session)
        role = self._role(book)
        if Open.parse(request.body).round != round:
            raise RoundError("the request is for another round than its URL", reason=Reason.WRONG_ROUND)
        opened = self.journal.append(book, role.open(request))
        return opened.to_bytes()

    def end(self, learner: str, session: str) -> None:
        """End a session and destroy its key; the journal stays."""
        book = self.journal.get(learner, session)
        self.journal.end(book)
        self._vault.destroy(book.n)

    def expire(self) -> None:
        """End the sessions that nothing new was asked of for ``idle_seconds``, and destroy their keys.

        Also try again to delete keys that could not be deleted before.
        """
        self._vault.retry()
        for n in self.journal.expire(self._idle_seconds):
            self._vault.destroy(n)

    def _end_if_idle(self, learner: str, session: str) -> None:
        """End a session that was idle for too long, so that a late request does not prolong it."""
        if self.journal.is_idle(learner, session, self._idle_seconds):
            self.expire()

    def _check_today(self, learner: str) -> None:
        """Raise ForbiddenError where a learner has begun all the sessions that it may today."""
        if self.journal.begun_today(learner) >= self._most_a_day:
            raise ForbiddenError(
                f"{learner} has begun {so_many(self._most_a_day, 'session')} today (by UTC), and may begin no more",
                rule="max_sessions_per_day",
            )

    def _role(self, session: Session) -> KeyHolderRole:
        """Build the key holder's role in a session, as the journal says it stands."""
        _check_not_ended(session)
        role = KeyHolderRole(
            self.identity,
            self._vault.load(session.n),
            self.pins[session.learner],
            random_bytes=os.urandom,
            minimum_key_bits=self._key_bits,
            decrypt=self._cores.decrypt,
        )
        if session.roster is not None:
            role.accept(session.roster)
        if session.last is not None:
            role.restore(session.last)
        return role


def _check_not_ended(session: Session) -> None:
    """Raise StateError(out_of_turn) for a session that has ended."""
    if session.end:
        raise StateError(
            f"the session has ended and its key is destroyed{_END_REASONS[session.end]}", reason=Reason.OUT_OF_TURN
        )


def roster_digest(session: Session) -> str | None:
    """Return the hash of a session's roster, or None."""
    return None if session.roster is None else Roster.parse(session.roster.body).digest
