"""What a key holder has promised: its sessions, and the one set that it opened in each round; in one SQLite file.

A row of ``openings`` is committed, which SQLite syncs, before its answer leaves; its primary key and `append`'s
condition let no second set into a round, whichever thread or process asks. The sums of a round that is over are erased,
its receipt stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.errors import NotFoundError
from common.secure_sum.envelope import Signed
from common.secure_sum.errors import Reason, RosterError, RoundError, StateError
from common.secure_sum.messages import Opened
from common.storage.sqlite import Database, Schema

_TABLES = (
    """CREATE TABLE sessions (
        learner TEXT NOT NULL,
        session TEXT NOT NULL,
        modulus TEXT NOT NULL UNIQUE,                 -- hexadecimal; names the key's file
        roster BLOB,                                  -- as the learner signed it
        used INTEGER NOT NULL,                        -- seconds since 1970: when something new was last asked
        ended INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 1)),
        PRIMARY KEY (learner, session)
    ) STRICT""",
    """CREATE TABLE openings (
        learner TEXT NOT NULL,
        session TEXT NOT NULL,
        round INTEGER NOT NULL,
        contributors TEXT NOT NULL,                   -- hash of the set
        receipt BLOB NOT NULL,                        -- the answer's head
        sums BLOB,                                    -- its attachment, while the round is the last one
        PRIMARY KEY (learner, session, round),
        FOREIGN KEY (learner, session) REFERENCES sessions
    ) STRICT""",
)
_SCHEMA = Schema("journal", application=0x50_4B_45_59, version=1, tables=_TABLES)  # which spells PKEY
_SESSION = "learner = :learner AND session = :session"
_NOW = "CAST(strftime('%s', 'now') AS INTEGER)"
_FIND = f"SELECT modulus, roster, ended FROM sessions WHERE {_SESSION}"  # noqa: S608 -- a constant
_ADD = f"""
    INSERT INTO sessions (learner, session, modulus, used) VALUES (:learner, :session, :modulus, {_NOW})
    ON CONFLICT (learner, session) DO NOTHING"""  # noqa: S608
_SET_ROSTER = f"""
    UPDATE sessions SET roster = :roster, used = {_NOW}
    WHERE {_SESSION} AND NOT ended AND (roster IS NULL OR roster = :roster)"""  # noqa: S608
_USE = f"UPDATE sessions SET used = {_NOW} WHERE {_SESSION}"  # noqa: S608
_END = f"UPDATE sessions SET ended = 1 WHERE {_SESSION}"  # noqa: S608
_LAST = f"SELECT round, contributors, receipt, sums FROM openings WHERE {_SESSION} ORDER BY round DESC LIMIT 1"  # noqa: S608
_HAS_ENDED = f"SELECT ended FROM sessions WHERE {_SESSION}"  # noqa: S608
_COUNT = f"SELECT count(*) FROM openings WHERE {_SESSION}"  # noqa: S608
_OPEN = """
    INSERT INTO openings (learner, session, round, contributors, receipt, sums)
    VALUES (:learner, :session, :round, :contributors, :receipt, :sums)"""
_ERASE = f"UPDATE openings SET sums = NULL WHERE {_SESSION} AND sums IS NOT NULL"  # noqa: S608
_ACTIVE = "SELECT modulus FROM sessions WHERE NOT ended"
_EXPIRE = f"UPDATE sessions SET ended = 1 WHERE NOT ended AND used <= {_NOW} - :seconds RETURNING modulus"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Session:
    """A session as the journal has it: its key's modulus, its roster, and the last opening."""

    learner: str
    id: str
    n: int
    roster: Signed | None
    ended: bool
    last: Signed | None

    @property
    def state(self) -> str:
        """``new`` until the roster is signed, then ``serving``, then ``ended``."""
        return "ended" if self.ended else "serving" if self.roster else "new"


class Journal:
    """The journal in a directory. Threads and processes may share it.

    Every method raises UnavailableError while the database cannot be used, and once it is closed.
    """

    def __init__(self, directory: Path) -> None:
        self._database = Database(directory / "keyholder.db", _SCHEMA)

    def close(self) -> None:
        """Close the database, once no thread uses it."""
        self._database.close()

    def probe(self) -> None:
        """Raise UnavailableError unless the journal can be written."""
        self._database.probe()

    def find(self, learner: str, session: str) -> Session | None:
        """A learner's session, or None."""
        key = {"learner": learner, "session": session}
        with self._database.transaction() as connection:
            row = connection.execute(_FIND, key).fetchone()
            last = connection.execute(_LAST, key).fetchone()
        if row is None:
            return None
        modulus, roster, ended = row
        return Session(
            learner,
            session,
            int(modulus, 16),
            None if roster is None else Signed.from_bytes(roster),
            bool(ended),
            None if last is None else _whole(*last[2:]),
        )

    def get(self, learner: str, session: str) -> Session:
        """A learner's session; raises NotFoundError."""
        if (found := self.find(learner, session)) is None:
            raise NotFoundError(f"session {session} is not known here")
        return found

    def add(self, learner: str, session: str, n: int) -> None:
        """Begin a session with the key of this modulus, unless it has begun."""
        with self._database.transaction() as connection:
            connection.execute(_ADD, {"learner": learner, "session": session, "modulus": f"{n:x}"})

    def sign(self, session: Session, roster: Signed) -> None:
        """Note the roster of a session that has no other. Raises RosterError(roster_changed)."""
        with self._database.transaction() as connection:
            if connection.execute(_SET_ROSTER, _key(session) | {"roster": roster.head.to_bytes()}).rowcount != 1:
                raise RosterError("this session has another roster, or has ended", reason=Reason.ROSTER_CHANGED)

    def append(self, session: Session, signed: Signed) -> Signed:
        """Note an opening, on the disk when this returns; the one to send: this, or the same set's noted before.

        Raises RoundError(round_old, round_opened), or StateError when the session has ended meanwhile.
        """
        opened, key = Opened.parse(signed.body), _key(session)
        with self._database.transaction() as connection:
            if connection.execute(_HAS_ENDED, key).fetchone() != (0,):
                raise StateError("the session has ended", reason=Reason.OUT_OF_TURN)
            last = connection.execute(_LAST, key).fetchone()
            if last is None or last[0] < opened.round:
                (sums,) = signed.attachments
                row = {"round": opened.round, "contributors": opened.contributors, "sums": sums}
                connection.execute(_USE, key)
                connection.execute(_ERASE, key)
                connection.execute(_OPEN, key | row | {"receipt": signed.head.to_bytes()})
                return signed
        round, contributors, receipt, kept_sums = last
        if round > opened.round:
            raise RoundError(f"round {opened.round} is over", reason=Reason.ROUND_OLD)
        if contributors != opened.contributors:
            raise RoundError(f"round {opened.round} was opened for another set", reason=Reason.ROUND_OPENED)
        return _whole(receipt, kept_sums)

    def end(self, session: Session) -> None:
        """Note that a session has ended."""
        with self._database.transaction() as connection:
            connection.execute(_END, _key(session))

    def expire(self, seconds: float) -> list[int]:
        """End all sessions of which nothing new was asked for so long; the moduli of their keys."""
        with self._database.transaction() as connection:
            return [int(modulus, 16) for (modulus,) in connection.execute(_EXPIRE, {"seconds": seconds}).fetchall()]

    def count(self, session: Session) -> int:
        """How many rounds of a session were opened."""
        with self._database.transaction() as connection:
            (count,) = connection.execute(_COUNT, _key(session)).fetchone()
        return int(count)

    def active(self) -> list[int]:
        """The moduli of all sessions that have not ended."""
        with self._database.transaction() as connection:
            return [int(modulus, 16) for (modulus,) in connection.execute(_ACTIVE)]


def _key(session: Session) -> dict[str, str]:
    """A session's key as parameters of a statement."""
    return {"learner": session.learner, "session": session.id}


def _whole(receipt: bytes, sums: bytes) -> Signed:
    """An opening from its row."""
    head = Signed.from_bytes(receipt)
    return Signed(head.body, head.signature, (sums,))
