"""Registries: objects by name, to which extensions add their own.

An entry is an object, or the place ``module:name`` that it is loaded from when it is first needed. So settings and help
can list a registry's names and load none of its entries. A module that `PARLEY_EXTENSIONS` names may add to registries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar, cast

from parley.common.errors import InvalidInputError

T = TypeVar("T")


class Registry(Mapping[str, T]):
    """Entries by name, in the order in which they were added; ``kind`` is the word for an entry in errors.

    >>> sums = Registry("sum", plain="builtins:sum")
    >>> sums.add("exact", "math:fsum")
    >>> sums["exact"]([0.1] * 10)
    1.0
    >>> sums.add("plain", "math:fsum")
    Traceback (most recent call last):
    ...
    parley.common.errors.InvalidInputError: another sum has the name 'plain'
    """

    def __init__(self, kind: str, **entries: T | str) -> None:
        self._kind = kind
        self._entries = entries

    def add(self, name: str, entry: T | str) -> None:
        """Add an entry; raises InvalidInputError if the name has another entry already."""
        if self._entries.setdefault(name, entry) != entry:
            raise InvalidInputError(f"another {self._kind} has the name {name!r}")

    def check(self, name: str, entry: T) -> T:  # noqa: ARG002 -- for registries that name what they refuse
        """Return the entry that was loaded for a name; a registry that refuses some raises InvalidInputError here."""
        return entry

    def names_of(self, place: str) -> list[str]:
        """Return the names whose entry is loaded from a place."""
        return [name for name, entry in self._entries.items() if entry == place]

    def __getitem__(self, name: str) -> T:
        entry = self._entries[name]
        if not isinstance(entry, str):
            return entry
        module, _, attribute = entry.partition(":")
        return self.check(name, cast("T", getattr(import_module(module), attribute)))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
