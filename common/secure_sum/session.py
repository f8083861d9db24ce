"""What the three roles share: a state that moves by a table, and the roster of the session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.secure_sum.envelope import public_hex
from parley.common.secure_sum.errors import Reason, RosterError, StateError

if TYPE_CHECKING:
    from parley.common.secure_sum.messages import Message, Roster, RosterMember, RoundMessage


class End:
    """The event that ends a session."""


SessionEvent: TypeAlias = "type[Message | End]"
Transitions: TypeAlias = "Mapping[Enum, Mapping[SessionEvent, Enum]]"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who someone is to the others: a name and an Ed25519 key."""

    name: str
    signing_key: Ed25519PrivateKey

    @property
    def key(self) -> str:
        """The public half of the key, in hexadecimal."""
        return public_hex(self.signing_key)

    def position(self, members: Sequence[RosterMember]) -> int:
        """Its place among members. Raises RosterError(not_on_roster)."""
        for position, member in enumerate(members):
            if (member.name, member.key) == (self.name, self.key):
                return position
        raise RosterError(f"{self.name} is not on the roster", reason=Reason.NOT_ON_ROSTER)


class Role:
    """A state, and the table that says which event may come next and where it leads."""

    def __init__(self, transitions: Transitions, start: Enum, roster: Roster | None = None) -> None:
        self.state = start
        self._transitions = transitions
        self._roster = roster
        self._roster_digest = "" if roster is None else roster.digest

    @property
    def roster(self) -> Roster:
        """The session's roster. Raises StateError(out_of_turn) where there is none."""
        if self._roster is None:
            raise StateError("no roster", reason=Reason.OUT_OF_TURN)
        return self._roster

    @contextmanager
    def _on(self, event: SessionEvent) -> Iterator[None]:
        """Take the transition of an event, once what is done inside succeeds. Raises StateError(out_of_turn)."""
        following = self._transitions[self.state].get(event)
        if following is None:
            raise StateError(f"{event.__name__} is out of turn when {self.state.value}", reason=Reason.OUT_OF_TURN)
        yield
        self.state = following

    def _adopt(self, roster: Roster) -> None:
        """Take this roster; a session has only one. Raises RosterError(roster_changed)."""
        if self._roster not in (None, roster):
            raise RosterError("this session has another roster", reason=Reason.ROSTER_CHANGED)
        self._roster = roster
        self._roster_digest = roster.digest

    def _check_session(self, message: RoundMessage) -> None:
        """Raise RoundError(wrong_session, wrong_roster) unless the message is of this session."""
        message.check_session(self.roster.session, self._roster_digest)
