"""The command that shows what a party holds of others' ledgers."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import typer

from party.cli.output import DEFAULT_CONFIG, Config, refusing


def witnessed_command(
    name: Annotated[str | None, typer.Argument(help="A party or a key holder; all, if not given.")] = None,
    config: Config = DEFAULT_CONFIG,
) -> None:
    """Print the newest receipts that this party holds of others, one a line: for parley-party recover --receipt FILE.

    Learners hand them on; those are kept whose public key the owner has pinned in [secure_sum].
    """
    from common.protocol.receipts import read_receipt
    from party.answering.party import open_witness
    from party.settings import PartySettings

    with refusing(), closing(open_witness(PartySettings.load(config))) as witness:
        texts = witness.texts()
    for text in texts:
        if name in {None, read_receipt(text).signer}:
            typer.echo(text)
