"""``parley-learner card``: a model's card, made of its document; nobody is asked."""
# ruff: noqa: PLC0415 -- help comes without numpy

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from parley.learner.models.model_files import read_model_file, written_whole

CARDS = "Example: parley-learner card model.json --to html --output card.html"


class CardForm(StrEnum):
    """What a card is written in."""

    MARKDOWN = "markdown"
    HTML = "html"


def card_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    to: Annotated[CardForm, typer.Option(help="Markdown, or a page of HTML that loads nothing")] = CardForm.MARKDOWN,
    save: Annotated[Path | None, typer.Option("--output", help="file to write; standard output if not given")] = None,
) -> None:
    """Write what a model is: purpose, data by owner, training, privacy, evaluation, limits, certificate, checked."""
    from parley.learner.models.card import card_page, model_card
    from parley.learner.models.verification import verification_of

    document = read_model_file(model)
    card = model_card(document, verification_of(document))
    text = card_page(card) if to is CardForm.HTML else card
    if save is None:
        typer.echo(text, nl=False)
        return
    with written_whole(save) as file:
        file.write_text(text, encoding="utf-8")
