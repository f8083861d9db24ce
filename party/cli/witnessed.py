"""The command that shows what a party holds of others' ledgers."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from parley.common.service.commands import FormatOption, print_json_line
from parley.party.cli.output import DEFAULT_CONFIG, Config, quietly


def witnessed_command(
    name: Annotated[str | None, typer.Argument(help="A party or a key holder; all, if not given.")] = None,
    config: Config = DEFAULT_CONFIG,
    output: FormatOption = "text",
) -> None:
    """Print the newest receipts that this party holds of others, one a line: for parley-party recover --receipt FILE.

    Learners hand them on; those are kept whose public key in [secure_sum] the owner has compared.
    """
    from parley.common.protocol.receipts import read_receipt
    from parley.party.answering.party import open_witness
    from parley.party.settings import PartySettings

    with quietly(), closing(open_witness(PartySettings.load(config))) as witness:
        held = [receipt for receipt in map(read_receipt, witness.texts()) if name in {None, receipt.signer}]
    if output == "json":
        print_json_line(
            [
                {"signer": each.signer, "key": each.key, "entries": each.head.count, "receipt": each.text}
                for each in held
            ]
        )
        return
    for each in held:
        typer.echo(each.text)
