"""What parties said of themselves last, by name: a file each in the learner's state, for when they are away."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from parley.common.errors import ParleyError
from parley.common.storage.keys import read_private, replace_private, writing
from parley.common.wire.party_api import PartyFacts


class KnownParties:
    """Keeps the newest facts of parties in memory and in a directory.

    It is a memory and no promise: what another version wrote, or what cannot be read or written, is left out.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.facts: dict[str, PartyFacts] = {}
        for path in sorted(directory.glob("[!.]*.json")) if directory.is_dir() else ():
            with suppress(ParleyError, ValidationError):
                facts = PartyFacts.model_validate_json(read_private(path))
                self.facts[facts.name] = facts

    def note(self, said: Mapping[str, PartyFacts]) -> None:
        """Keep what parties say of themselves, by name, if it is new; what one says by another name is not its own."""
        new = {name: facts for name, facts in said.items() if facts.name == name and self.facts.get(name) != facts}
        if not new:
            return
        self.facts = self.facts | new
        with suppress(ParleyError), writing("what parties said"):
            for name, facts in new.items():
                replace_private(self._directory / f"{name}.json", facts.model_dump_json().encode())

    def forget(self, name: str) -> None:
        """Forget a party that was removed."""
        self.facts = {other: facts for other, facts in self.facts.items() if other != name}
        with suppress(OSError):
            (self._directory / f"{name}.json").unlink(missing_ok=True)
