"""Pins in a settings file: whose key an owner has compared with whose it is, and whose it has by a learner's word.

A learner tells its members each other's keys, in invitations and on request, and may tell keys of its own making. So a
key counts once its six words have been compared with those that its owner reads out, and ``compared = true`` beside it
says so. What was not compared stays written down, so that it can be compared later, and counts for nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from parley.common.errors import InvalidInputError
from parley.common.storage.keys import replace_private, writing
from parley.common.wire.membership import KnownKey

if TYPE_CHECKING:
    from parley.party.settings import PartySettings

Table = Literal["key_holders", "parties"]
"""The arrays of ``[secure_sum]``."""

_TABLES = re.compile(r"(?m)^(?=[ \t]*\[)")
_PUBLIC_KEY, _COMPARED = re.compile(r"\s*public_key\s*="), re.compile(r"\s*compared\s*=")


def spell_pins(table: Table, keys: Iterable[KnownKey], compared: Iterable[str]) -> str:
    """TOML of pins; ``compared`` are the names of those that the owner has compared."""
    return "".join(
        f'\n[[secure_sum.{table}]]\nname = "{key.name}"\n{_spell(key, compared=key.name in compared)}' for key in keys
    )


def with_pin(text: str, table: Table, key: KnownKey) -> str:
    """The text of settings with this key as compared: under its name if that is there, else at the end.

    Raises InvalidInputError where the pins are written otherwise than as arrays of tables.
    """
    due = deepcopy(tomllib.loads(text))
    pins = due.setdefault("secure_sum", {}).setdefault(table, [])
    compared = {"name": key.name, "public_key": key.public_key, "compared": True}
    if known := next((pin for pin in pins if pin.get("name") == key.name), None):
        known |= compared
        pinned = "".join(_marked(part, table, key) for part in _TABLES.split(text))
    else:
        pins.append(compared)
        pinned = text.rstrip("\n") + "\n" + spell_pins(table, [key], [key.name])
    try:
        if tomllib.loads(pinned) == due:
            return pinned
    except tomllib.TOMLDecodeError:
        pass
    by_hand = f'{{ name = "{key.name}", public_key = "{key.public_key}", compared = true }}'
    raise InvalidInputError(f"secure_sum is not spelt as [[secure_sum.{table}]]: write the pin by hand: {by_hand}")


def save_settings(config: Path, text: str) -> None:
    """Replace settings by others, if a party can start with them; raises InvalidInputError, UnavailableError.

    Raises OwnKeyError where the party's own key cannot be read.
    """
    from parley.party.settings import PartySettings  # noqa: PLC0415 -- help comes faster without

    draft = config.resolve().with_name(f".{config.name}.draft")
    with writing(config):
        replace_private(draft, text.encode())
        try:
            _ = PartySettings.load(draft).identity
        except InvalidInputError as error:
            raise InvalidInputError(error.detail.replace(str(draft), str(config))) from None
        finally:
            draft.unlink()
        replace_private(config.resolve(), text.encode())


def key_cautions(settings: PartySettings, invited: Iterable[str] = ()) -> list[str]:
    """What the owner has to know of keys that it has not compared, and what to do.

    ``invited`` are key holders that an invitation names and the settings do not.
    """
    sums, uncompared = settings.secure_sum, settings.uncompared
    holders = [holder.name for holder in (sums.key_holders if sums else ()) if holder.name in uncompared]
    holders += sorted(invited)
    strangers = [party.name for party in (sums.parties if sums else ()) if party.name in uncompared]
    told = [
        f"the key of the key holder {name} was not compared, so it opens no sum of yours: ask its operator, not the "
        f"learner's, for its six words, by telephone: parley-party pin {name} WORDS"
        for name in holders
    ]
    if strangers:
        told.append(
            f"the keys of {', '.join(strangers)} were not compared, so a sum counts them as the learner's own: ask "
            "each owner for the six words, by telephone: parley-party pin NAME WORDS"
        )
    return told


def _spell(key: KnownKey, *, compared: bool) -> str:
    """A pin's key, and whether it counts."""
    counts = "true" if compared else "false  # until you say: parley-party pin NAME WORDS"
    return f'public_key = "{key.public_key}"\ncompared = {counts}\n'


def _marked(part: str, table: Table, key: KnownKey) -> str:
    """A part of settings, from the head of a table to the next; with the key if it is that pin's."""
    try:
        found = tomllib.loads(part).get("secure_sum", {})
    except tomllib.TOMLDecodeError:
        return part
    pins = found.get(table, []) if isinstance(found, dict) else []
    if not part.lstrip().startswith("[[") or [pin.get("name") for pin in pins] != [key.name]:
        return part
    lines = (line for line in part.splitlines(keepends=True) if not _COMPARED.match(line))
    return "".join(_spell(key, compared=True) if _PUBLIC_KEY.match(line) else line for line in lines)
