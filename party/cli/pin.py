"""``parley-party pin``: pins keys of other owners' parties and of key holders, once their words were compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.errors import InvalidInputError
from parley.common.routes import SHOW_KEYS
from parley.common.service.commands import Printer, deferred
from parley.party.commands import DEFAULT_CONFIG, Config, quietly, read_text

with deferred():
    from parley.common.client import outbound
    from parley.common.encoding import key_words
    from parley.common.wire import membership as wire_membership
    from parley.party import settings as party_settings
    from parley.party import settings_text

if TYPE_CHECKING:
    from parley.common.client.endpoints import LearnerAddress
    from parley.common.wire.membership import KnownKey, RosterKeys
    from parley.party.settings import PartySettings
    from parley.party.settings_text import Table

_KINDS: dict[Table, str] = {"key_holders": "a key holder", "parties": "a party"}


def pin_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Another owner's party, or a key holder.")] = None,
    words: Annotated[
        list[str] | None, typer.Argument(help="The six words of its key, as its owner reads them out.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    *,
    out: Printer,
) -> None:
    """Pin the key of another owner's party, or of a key holder, once you have compared its words with its owner.

    Until then you have only the learner's word for whose key it is: such a party counts as one of the learner's, and
    such a key holder opens no sum of yours. Without a name, the command lists whose keys could be compared. With a name
    and the words that its owner reads to you by telephone, it writes the pin into the settings, which a service that
    runs takes up by itself. Do not take the telephone number from the learner.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        if name is None:
            kinds = {member: _KINDS[table] for member, (table, _) in _open_ones(settings).items()}
            lines = [f"{member} ({kind})" for member, kind in kinds.items()]
            lines.append(f"{len(kinds)} could be pinned: parley-party pin NAME WORDS")
            out.done("\n".join(lines), open=kinds)
            return
        in_settings = _held(settings)
        table, key = _fitting(" ".join(words or ()), name, in_settings, settings)
        if settings.secure_sum is None and table == "parties":
            raise InvalidInputError("there is no [secure_sum] yet: pin its key holder first")
        if name not in in_settings or name in settings.uncompared:
            learners = _who_know(settings, key) if name not in in_settings and len(settings.learners) > 1 else None
            settings_text.save_settings(config, settings_text.with_pin(read_text(config), table, key, learners))
    text = f"{name} is pinned as {_KINDS[table]} in {config}: a service that runs takes it up by itself"
    out.done(text, pinned=name, kind=_KINDS[table], settings=str(config))


def _open_ones(settings: PartySettings) -> dict[str, tuple[Table, KnownKey]]:
    """Return the keys that could be compared, by name: in the settings, and among those that the learner sends."""
    uncompared = {name: at for name, at in _held(settings).items() if name in settings.uncompared}
    by_learner = _by_learner(settings) if settings.outbound or not uncompared else {}
    return uncompared | {name: at for name, at in by_learner.items() if name not in _held(settings)}


def _held(settings: PartySettings) -> dict[str, tuple[Table, KnownKey]]:
    """Return all keys in the settings by name, compared or not."""
    sums = settings.secure_sum
    keys: dict[str, tuple[Table, wire_membership.KnownKey]] = {}
    for table in _KINDS if sums else ():
        for pin in getattr(sums, table):
            keys[pin.name] = table, wire_membership.KnownKey(name=pin.name, public_key=pin.public_key)
    return keys


def _fitting(
    typed: str, name: str, in_settings: dict[str, tuple[Table, KnownKey]], settings: PartySettings
) -> tuple[Table, KnownKey]:
    """Return the key of this name that has the words: the settings', or a learner's if that was not compared.

    Raises InvalidInputError if no key has them, UnavailableError if a learner cannot be reached.
    """
    if name in in_settings and (
        name not in settings.uncompared or not settings.outbound or _fits(typed, in_settings[name])
    ):
        fitting = in_settings[name]
    else:
        keys = in_settings | _by_learner(settings, typed)
        if name not in keys:
            raise InvalidInputError(f"no learner of yours knows {name}")
        fitting = keys[name]
    key_words.check_words(typed, fitting[1].public_key, name)
    return fitting


def _who_know(settings: PartySettings, key: KnownKey) -> list[str] | None:
    """Return the learners that have a member with this key, in whose sums it counts; None if none has."""
    rosters = {address.name: _roster(address) for address in settings.outbound}
    return [name for name, keys in rosters.items() if key in keys.parties or key in keys.key_holders] or None


def _roster(address: LearnerAddress) -> RosterKeys:
    """Ask a learner for the keys of its other members. Raises UnavailableError."""
    return outbound.ask_as_member(address, SHOW_KEYS.at(), wire_membership.RosterKeys, "tell")


def _fits(typed: str, at: tuple[Table, KnownKey]) -> bool:
    return key_words.are_words(typed, at[1].public_key)


def _by_learner(settings: PartySettings, typed: str = "") -> dict[str, tuple[Table, KnownKey]]:
    """Ask each learner for the keys of its other members; return them by name.

    Where two learners have different keys of one name, it is the one that has the words ``typed``, if either has.
    """
    if not settings.outbound:
        raise InvalidInputError("there is no [[outbound]] learner in the settings: write the pins by hand")
    keys: dict[str, tuple[Table, KnownKey]] = {}
    for address in settings.outbound:
        roster = _roster(address)
        for table in _KINDS:
            for key in getattr(roster, table):
                if key.name not in keys or _fits(typed, (table, key)):
                    keys[key.name] = table, key
    return keys
