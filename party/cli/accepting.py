"""The command ``parley-party accept-data``: the owner's word that data have changed."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

import typer

from parley.common.service.commands import FormatOption, print_json_line
from parley.party.cli.output import DEFAULT_CONFIG, Config, quietly


def accept_data_command(config: Config = DEFAULT_CONFIG, output: FormatOption = "text") -> None:
    """Say that the data, or the query or study that make them, have changed and answers shall be about them from now.

    A party whose data changed under its ledger does not start before that. The ledger keeps the word, with the query's
    text. What was charged stays charged, and all runs of learners end: their answers were about other data.
    """
    from parley.party.answering.party import open_store
    from parley.party.answering.pin import pin_of
    from parley.party.data.owner_data import load_holding
    from parley.party.settings import PartySettings

    with quietly():
        settings = PartySettings.load(config)
        with open_store(settings) as store:
            before = store.open_runs()
            is_first = store.books.pinned is None
            changes = store.pin(pin_of(settings, load_holding(settings)), accept=True)
            ended = before if changes else []
    if output == "json":
        print_json_line({"changed": changes, "ended": [{"learner": learner, "run": run} for learner, run in ended]})
        return
    if not changes:
        typer.echo("the data are pinned for the first time" if is_first else "nothing has changed")
        return
    typer.echo(f"accepted: {', '.join(changes)} changed; what was charged stays charged")
    typer.echo("a service that runs answers nothing new before it is started again", err=True)
    for learner, run in ended:
        typer.echo(f"  run {run} of {learner} has ended")
