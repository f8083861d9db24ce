"""``parley-party config`` and ``parley-party keyholder config``: which settings there are, and which are in effect."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.service.commands import Format, FormatOption, print_json_line
from parley.party.cli.output import DEFAULT_CONFIG, Config, quietly

if TYPE_CHECKING:
    from parley.common.service.settings import Settings

Explain = Annotated[
    bool, typer.Option("--explain", help="Every setting there is: type, default, meaning. Reads no file.")
]


def party_config_command(
    config: Config = DEFAULT_CONFIG, explain: Explain = False, output: FormatOption = "text"
) -> None:
    """Print the settings in effect, and whether file or environment says so; secrets are hidden.

    With --explain, every setting there is with type, default and meaning.
    """
    from parley.party.settings import PartySettings

    show_settings(PartySettings, config, explain=explain, output=output)


def show_settings(cls: type[Settings], path: Path, *, explain: bool, output: Format) -> None:
    """Print what settings there are, or those of a file."""
    from parley.common.service.settings_guide import explain_settings, settings_in_effect

    with quietly():
        if explain:
            settings = list(explain_settings(cls))
            if output == "text":
                typer.echo("\n".join(f"{each.head}\n    {each.meaning}" for each in settings))
            else:
                print_json_line([asdict(each) for each in settings])
            return
        found = list(settings_in_effect(cls.load(path)))
        if output == "text":
            typer.echo("\n".join(each.line for each in found))
        else:
            print_json_line([asdict(each) for each in found])
