"""``parley-learner verify``: whether a model's document is what its owners and its learner signed; nobody is asked."""
# ruff: noqa: PLC0415 -- help comes without numpy

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.errors import InvalidInputError
from parley.common.service.commands import ExitCode, FormatOption, print_json_line, print_next
from parley.common.storage.handed_files import read_handed_json
from parley.learner.models.model_files import read_model_file, written_whole

if TYPE_CHECKING:
    from parley.learner.models.verification import PublicKeys

VERIFICATIONS = "Example: parley-learner verify model.json --keys keys.json"


def verify_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="public keys that you know to be theirs")
    ] = None,
    save_keys: Annotated[
        Path | None, typer.Option("--save-keys", metavar="FILE", help="write the keys of the document, for --keys")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Option(
            "--words", metavar="NAME=WORDS", help="the six words of a key, as its owner reads them out; may be repeated"
        ),
    ] = None,
    output: FormatOption = "text",
) -> None:
    """Check a model against its certificate, offline: what its owners approved, and what was altered since.

    Without --keys the document is checked against the keys that it names itself: say the words that each owner reads
    out, save the keys once, and check every later model with them. Ends with 1 where anything does not hold.
    """
    from parley.learner.models.verification import verify_document

    found = verify_document(read_model_file(model), _read_keys(keys))
    compared = _compare(words or (), found.keys)
    if output == "json":
        print_json_line(
            {
                "holds": found.holds,
                "faults": found.faults,
                "keys": found.keys.model_dump(),
                "keys_assumed": found.assumed,
                "keys_compared": compared,
            }
        )
    else:
        for told in found.holds:
            typer.echo(f"holds    {told}")
        for fault in found.faults:
            typer.echo(f"ALTERED  {fault}")
        for name in compared:
            typer.echo(f"holds    the key of {name} has the words that were read out")
        if found.assumed and (assumed := [name for name in found.keys.by_name if name not in compared]):
            typer.echo(
                "assumed  these keys are theirs; ask each of them for its six words, and say --words NAME=WORDS:"
            )
            for name in assumed:
                typer.echo(f"  {name}")
    if found.faults:
        raise typer.Exit(ExitCode.NO)
    if save_keys:
        with written_whole(save_keys) as file:
            file.write_text(found.keys.model_dump_json(indent=2) + "\n", encoding="utf-8")
        print_next(output, f"parley-learner verify {model} --keys {save_keys}")


def _compare(words: Sequence[str], keys: PublicKeys) -> list[str]:
    """The names whose keys have the words that were read out; raises InvalidInputError where one has not."""
    from parley.common.encoding.key_words import check_words, named_words

    typed = dict(named_words(each, "--words") for each in words)
    for name, said in typed.items():
        if name not in keys.by_name:
            raise InvalidInputError(f"--words: the document names no key of {name}")
        check_words(said, keys.by_name[name], name)
    return list(typed)


def _read_keys(path: Path | None) -> PublicKeys | None:
    """Keys that the asker knows; raises InvalidInputError."""
    from pydantic import ValidationError

    from parley.common.strict import faults
    from parley.learner.models.verification import PublicKeys

    if path is None:
        return None
    try:
        return PublicKeys.model_validate_json(read_handed_json(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"keys {path} cannot be read ({type(error).__name__})") from None
    except ValidationError as error:
        raise InvalidInputError(f"keys {path}: {faults(error)}") from None
