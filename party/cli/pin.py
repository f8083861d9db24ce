"""``parley-party pin``: pins keys of other owners' parties and of key holders, once their words were compared."""

from __future__ import annotations

from collections.abc import Mapping
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

    _At = tuple[Table, KnownKey]
    """A key, and the array of ``[secure_sum]`` that it belongs in."""
    _Rosters = Mapping[LearnerAddress, RosterKeys]
    """The keys that each learner has of its members."""

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
        typed = " ".join(words or ())
        rosters = _rosters(settings) if _is_open(typed, name, in_settings, settings) else {}
        table, key = _fitting(typed, name, in_settings, rosters)
        if settings.secure_sum is None and table == "parties":
            raise InvalidInputError("there is no [secure_sum] yet: pin its key holder first")
        if name not in in_settings or name in settings.uncompared:
            learners = _who_know(rosters, key) if name not in in_settings and len(settings.learners) > 1 else None
            settings_text.save_settings(config, settings_text.with_pin(read_text(config), table, key, learners))
    text = f"{name} is pinned as {_KINDS[table]} in {config}: a service that runs takes it up by itself"
    out.done(text, pinned=name, kind=_KINDS[table], settings=str(config))


def _open_ones(settings: PartySettings) -> dict[str, _At]:
    """Return the keys that could be compared, by name: in the settings, and among those that the learner sends."""
    uncompared = {name: at for name, at in _held(settings).items() if name in settings.uncompared}
    by_learner = _by_learner(_rosters(settings)) if settings.outbound or not uncompared else {}
    return uncompared | {name: at for name, at in by_learner.items() if name not in _held(settings)}


def _held(settings: PartySettings) -> dict[str, _At]:
    """Return all keys in the settings by name, compared or not."""
    sums = settings.secure_sum
    keys: dict[str, _At] = {}
    for table in _KINDS if sums else ():
        for pin in getattr(sums, table):
            keys[pin.name] = table, wire_membership.KnownKey(name=pin.name, public_key=pin.public_key)
    return keys


def _is_open(typed: str, name: str, in_settings: Mapping[str, _At], settings: PartySettings) -> bool:
    """Say whether learners have to be asked for the key of this name: the settings' was not compared, or is another."""
    if name not in in_settings:
        return True
    return name in settings.uncompared and bool(settings.outbound) and not _fits(typed, in_settings[name])


def _rosters(settings: PartySettings) -> _Rosters:
    """Ask each learner for the keys of its other members.

    Raises InvalidInputError where the settings connect to none, and UnavailableError if one cannot be reached.
    """
    if not settings.outbound:
        raise InvalidInputError("there is no [[outbound]] learner in the settings: write the pins by hand")
    return {
        address: outbound.ask_as_member(address, SHOW_KEYS.at(), wire_membership.RosterKeys, "tell")
        for address in settings.outbound
    }


def _fitting(typed: str, name: str, in_settings: Mapping[str, _At], rosters: _Rosters) -> _At:
    """Return the key of this name that has the words: that of the ``rosters``, otherwise the settings'.

    Raises InvalidInputError if no key has them.
    """
    keys = {**in_settings, **_by_learner(rosters, typed)}
    if name not in keys:
        raise InvalidInputError(f"no learner of yours knows {name}")
    key_words.check_words(typed, keys[name][1].public_key, name)
    return keys[name]


def _who_know(rosters: _Rosters, key: KnownKey) -> list[str] | None:
    """Return the learners that have a member with this key, in whose sums it counts; None if none has."""
    knowing = (address for address, keys in rosters.items() if key in keys.parties or key in keys.key_holders)
    return [address.name for address in knowing] or None


def _fits(typed: str, at: _At) -> bool:
    return key_words.are_words(typed, at[1].public_key)


def _by_learner(rosters: _Rosters, typed: str = "") -> dict[str, _At]:
    """Return the keys in learners' rosters by name.

    Where two learners have different keys of one name, it is the one that has the words ``typed``, if either has.
    """
    keys: dict[str, _At] = {}
    for roster in rosters.values():
        for table in _KINDS:
            for key in getattr(roster, table):
                if key.name not in keys or _fits(typed, (table, key)):
                    keys[key.name] = table, key
    return keys
