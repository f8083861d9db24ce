"""Stores invitations and members: each is a file in the learner's state, and they change while the learner runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import AwareDatetime, Field, ValidationError

from parley.common.errors import ConflictError, InvalidInputError
from parley.common.runs.specification import CHANGED_STUDY
from parley.common.storage.keys import read_private, replace_private, writing
from parley.common.strict import Digest, Identifier, PublicKey, Strict, TokenHash, faults
from parley.common.wire.membership import MemberRole

if TYPE_CHECKING:
    from parley.common.data.study import Study


class Invited(Strict):
    """An invitation that was handed out and not used."""

    name: Identifier
    role: MemberRole
    secret_hash: TokenHash
    expires: AwareDatetime
    studies: tuple[str, ...]
    digests: dict[str, Digest] = Field(default_factory=dict)
    """Of the studies, by name, as they were signed; those of older invitations are not known."""


class JoinedMember(Strict):
    """A party or key holder that has joined; it takes part once the operator has compared its words."""

    name: Identifier
    role: MemberRole
    public_key: PublicKey
    connects_with: TokenHash
    token: str
    """The token that the learner presents to the member."""
    joined: AwareDatetime
    confirmed: bool = False
    unchecked: bool = False
    """Whether it was confirmed although nobody compared the words of its key."""
    studies: tuple[str, ...]
    digests: dict[str, Digest] = Field(default_factory=dict)
    """Of the studies that it joined, by name; those that joined under an older version are not known."""
    secret_hash: TokenHash
    """Of the secret that it joined with: the same request with the same secret gets the same answer."""
    expires: AwareDatetime
    """When the secret expires."""


def check_agreed(studies: Mapping[str, Study], entries: Iterable[Invited | JoinedMember]) -> None:
    """Raise ConflictError if a study, by its name, is no longer the one that owners were invited to or have joined.

    Call it before studies that were read again replace those that are served. A study that is not there is no change.
    """
    changed: dict[str, list[str]] = {}
    for entry in entries:
        for name, digest in entry.digests.items():
            if name in studies and not studies[name].has_digest(digest):
                changed.setdefault(name, []).append(entry.name)
    if changed:
        name, owners = next(iter(changed.items()))
        raise ConflictError(CHANGED_STUDY.format(f"the study {name!r} of {', '.join(owners)}"))


_E = TypeVar("_E", Invited, JoinedMember)


class RosterStore:
    """Keeps invitations and members, by name, in memory and in the directory."""

    def __init__(self, directory: Path) -> None:
        """Raise InvalidInputError for a file that cannot be used, OwnKeyError for a file that others may read."""
        self._directory = directory
        self.invited = _read(directory / "invited", Invited)
        self.members = _read(directory / "members", JoinedMember)

    def invite(self, invited: Invited) -> None:
        """Keep an invitation, in place of an earlier one of that name; raises UnavailableError if it is not written."""
        self._write("invited", invited)
        self.invited = self.invited | {
            invited.name: invited
        }  # a new mapping, because others may iterate over the old one

    def keep(self, member: JoinedMember) -> None:
        """Keep a member and remove its invitation; raises UnavailableError if this cannot be written."""
        self._write("members", member)
        self.members = self.members | {member.name: member}
        self._forget("invited", member.name)
        self.invited = {name: entry for name, entry in self.invited.items() if name != member.name}

    def remove(self, name: str) -> None:
        """Remove the invitation and the member of a name; raises UnavailableError if this cannot be written."""
        for kind in ("invited", "members"):
            self._forget(kind, name)
        self.invited = {other: entry for other, entry in self.invited.items() if other != name}
        self.members = {other: entry for other, entry in self.members.items() if other != name}

    def expire(self, now: datetime) -> None:
        """Remove invitations that have expired."""
        for name in [name for name, entry in self.invited.items() if entry.expires <= now]:
            self._forget("invited", name)
        self.invited = {name: entry for name, entry in self.invited.items() if entry.expires > now}

    def _write(self, kind: str, entry: Invited | JoinedMember) -> None:
        with writing("the roster"):
            replace_private(self._directory / kind / f"{entry.name}.json", entry.model_dump_json(indent=1).encode())

    def _forget(self, kind: str, name: str) -> None:
        with writing("the roster"):
            (self._directory / kind / f"{name}.json").unlink(missing_ok=True)


def _read(directory: Path, schema: type[_E]) -> dict[str, _E]:
    """Read the entries of a directory, by name."""
    entries = {}
    for path in sorted(directory.glob("[!.]*.json")) if directory.is_dir() else ():
        try:
            entry = schema.model_validate_json(read_private(path))
        except ValidationError as error:
            raise InvalidInputError(f"{path}: {faults(error)}") from None
        entries[entry.name] = entry
    return entries
