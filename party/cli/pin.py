"""``parley-party pin``: other owners' keys, once their words have been compared."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from common.errors import InvalidInputError
from common.service.commands import FormatOption, print_result
from party.cli.output import DEFAULT_CONFIG, Config, quietly, read_text


def pin_command(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Another owner's party, or a key holder.")] = None,
    words: Annotated[
        list[str] | None, typer.Argument(help="The six words of its key, as its owner reads them out.")
    ] = None,
    config: Config = DEFAULT_CONFIG,
    output: FormatOption = "text",
) -> None:
    """Pin the key of another owner's party, or of a key holder, that joined after you.

    A party of a secure sum that is not pinned counts as one of the learner's. Without a name: lists who could be
    pinned. With a name and the words that its owner reads to you by telephone: adds it to the settings, which count
    when the service is started again.
    """
    from common.client.handshake import ask_as_member
    from common.encoding.key_words import check_words
    from common.wire.membership import RosterKeys
    from party.settings import PartySettings

    with quietly():
        settings = PartySettings.load(config)
        if not settings.outbound:
            raise InvalidInputError("there is no [[outbound]] learner in the settings: write the pins by hand")
        told = ask_as_member(settings.outbound[0], "/v1/roster/keys", RosterKeys, "tell")
        pinned = settings.secure_sum.party_pins | settings.secure_sum.pins if settings.secure_sum else {}
        open_ones = {
            key.name: (table, key.public_key)
            for table, keys in (("parties", told.parties), ("key_holders", told.key_holders))
            for key in keys
            if key.name not in pinned
        }
        if name is None:
            kinds = {
                each: "a key holder" if table == "key_holders" else "a party" for each, (table, _) in open_ones.items()
            }
            lines = [f"{each} ({kind})" for each, kind in kinds.items()]
            lines.append(f"{len(open_ones)} could be pinned: parley-party pin NAME WORDS")
            print_result(output, "\n".join(lines), open=kinds)
            return
        if name in pinned:
            raise InvalidInputError(f"{name} is pinned already")
        if name not in open_ones:
            raise InvalidInputError(f"the learner knows no {name}")
        table, public_key = open_ones[name]
        check_words(" ".join(words or ()), public_key, name)
        if settings.secure_sum is None and table == "parties":
            raise InvalidInputError("there is no [secure_sum] yet: pin its key holder first")
        _append(config, f'\n[[secure_sum.{table}]]\nname = "{name}"\npublic_key = "{public_key}"\n')
    print_result(output, f"{name} is pinned in {config}: start the service again", pinned=name, settings=str(config))


def _append(config: Path, text: str) -> None:
    """Add to the settings, if what comes of it can be read."""
    import tomllib

    from common.storage.keys import replace_private, writing

    whole = read_text(config).rstrip("\n") + "\n" + text
    try:
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError:
        raise InvalidInputError(f"{config} has secure_sum in one line: add the pin by hand:{text}") from None
    with writing(config):
        replace_private(config.resolve(), whole.encode())
