"""``parley-party pin``: other owners' keys, and key holders', once their words have been compared."""

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
    from parley.party import membership
    from parley.party import settings as party_settings

if TYPE_CHECKING:
    from parley.common.wire.membership import KnownKey
    from parley.party.membership import Table
    from parley.party.settings import PartySettings

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
    """Compare the key of another owner's party, or of a key holder, with whose it is, and pin it.

    Until then it is so by the learner's word alone: such a party counts as one of the learner's, and such a key holder
    opens no sum of yours. Without a name: lists whose keys could be compared. With a name and the words that its owner
    reads to you by telephone, from a number that you do not have from the learner: pins it in the settings, which count
    when the service is started again.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        if name is None:
            kinds = {each: _KINDS[table] for each, (table, _) in _open_ones(settings).items()}
            lines = [f"{each} ({kind})" for each, kind in kinds.items()]
            lines.append(f"{len(kinds)} could be pinned: parley-party pin NAME WORDS")
            out.done("\n".join(lines), open=kinds)
            return
        held = _held(settings)
        table, key = _fitting(" ".join(words or ()), name, held, settings)
        if settings.secure_sum is None and table == "parties":
            raise InvalidInputError("there is no [secure_sum] yet: pin its key holder first")
        if name not in held or name in settings.uncompared:
            membership.save_settings(config, membership.with_pin(read_text(config), table, key))
    text = f"{name} is pinned as {_KINDS[table]} in {config}: start the service again"
    out.done(text, pinned=name, kind=_KINDS[table], settings=str(config))


def _open_ones(settings: PartySettings) -> dict[str, tuple[Table, KnownKey]]:
    """Whose keys could be compared: those of the settings, and those that the learner tells."""
    held = {name: at for name, at in _held(settings).items() if name in settings.uncompared}
    told = _by_learner(settings) if settings.outbound or not held else {}
    return held | {name: at for name, at in told.items() if name not in _held(settings)}


def _held(settings: PartySettings) -> dict[str, tuple[Table, KnownKey]]:
    """The keys of the settings by name, compared or not."""
    sums = settings.secure_sum
    held: dict[str, tuple[Table, wire_membership.KnownKey]] = {}
    for table in _KINDS if sums else ():
        for pin in getattr(sums, table):
            held[pin.name] = table, wire_membership.KnownKey(name=pin.name, public_key=pin.public_key)
    return held


def _fitting(
    typed: str, name: str, held: dict[str, tuple[Table, KnownKey]], settings: PartySettings
) -> tuple[Table, KnownKey]:
    """The key of this name that has the words: the settings', or the learner's where that was not compared.

    Raises InvalidInputError where no key has, UnavailableError where the learner is not reached.
    """
    if name in held and (name not in settings.uncompared or not settings.outbound or _fits(typed, held[name])):
        found = held[name]
    else:
        told = held | _by_learner(settings)
        if name not in told:
            raise InvalidInputError(f"the learner knows no {name}")
        found = told[name]
    key_words.check_words(typed, found[1].public_key, name)
    return found


def _fits(typed: str, at: tuple[Table, KnownKey]) -> bool:
    return key_words.are_words(typed, at[1].public_key)


def _by_learner(settings: PartySettings) -> dict[str, tuple[Table, KnownKey]]:
    """The keys of the learner's other members by name, by its word."""
    if not settings.outbound:
        raise InvalidInputError("there is no [[outbound]] learner in the settings: write the pins by hand")
    told = outbound.ask_as_member(settings.outbound[0], SHOW_KEYS.at(), wire_membership.RosterKeys, "tell")
    return {key.name: (table, key) for table in _KINDS for key in getattr(told, table)}
