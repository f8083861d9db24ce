"""``parley-learner card``: a model's card, made of its document; nobody is asked.

``parley-learner export`` and ``schema``: a model for other tools, and the form of its document; nobody is asked.

``parley-learner predict``: what a model's document predicts for the rows of a file; no service is asked.

``parley-learner verify``: whether a model's document is what its owners and its learner signed; nobody is asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from csv import DictWriter
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from parley.common.encoding.texts import so_many
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.service.commands import CsvOption, ExitCode, Printer, deferred
from parley.common.storage.handed_files import read_handed_json
from parley.learner.models.model_files import read_model_file, written_whole

with deferred():
    import pydantic

    from parley.common import strict
    from parley.common.encoding import key_words
    from parley.common.files import sources
    from parley.common.runs import model_document, predictions
    from parley.learner.models import card, exported, feature_rows, verification

if TYPE_CHECKING:
    from parley.common.arrays import BoolArray
    from parley.common.runs.predictions import Predictor
    from parley.learner.models.feature_rows import FeatureRows
    from parley.learner.models.verification import PublicKeys, Verification

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
    document = read_model_file(model)
    text = card.model_card(document, verification.verification_of(document))
    text = card.card_page(text) if to is CardForm.HTML else text
    if save is None:
        typer.echo(text, nl=False)
        return
    with written_whole(save) as file:
        file.write_text(text, encoding="utf-8")


EXPORTS = "Example: parley-learner export model.json --to onnx --output m.onnx; pip install 'parley-learning[export]'"
SCHEMAS = "Example: parley-learner schema > model.schema.json"


class ExportForm(StrEnum):
    """What a model can be exported to."""

    ONNX = "onnx"
    SKLEARN = "sklearn"


def export_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    to: Annotated[ExportForm, typer.Option(help="an ONNX graph, or a scikit-learn pipeline in a skops file")],
    save: Annotated[Path, typer.Option("--output", help="file to write")],
    out: Printer,
) -> None:
    """Write a model as a file that other tools predict with from raw columns, without Parley.

    What the study makes of a record is in the file: values that stand in for missing ones, bounds, scales, categories,
    random features, division. Texts must be spelt as the study spells them.
    """
    predictor = predictions.Predictor.of(read_model_file(model))
    exported.check_portable(predictor)
    content, said = (exported.onnx_bytes if to is ExportForm.ONNX else exported.skops_bytes)(predictor)
    with written_whole(save) as file:
        file.write_bytes(content)
    out.done(f"{save}: {said}", file=str(save), form=to, note=said)


def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of a model's document."""
    typer.echo(json.dumps(model_document.document_schema(), indent=2))


PREDICTIONS = (
    "Example: parley-learner predict model.json patients.csv --proba --keep id --output predicted.csv   (the document "
    "is what the command model saves; `-` reads a table from standard input)"
)
"""How the command is used."""
_ROW, _PREDICTION = "row", "prediction"


def predict_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    table: Annotated[
        str, typer.Argument(help="a CSV, Parquet or LIBSVM file with the study's features; - is standard input")
    ],
    proba: Annotated[bool, typer.Option("--proba", help="tell the probability of each value of the label")] = False,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="COLUMN", help="copy a column of the table; repeat for more")
    ] = None,
    skip: Annotated[
        bool, typer.Option("--skip", help="predict nothing for rows that the study has no place for, and count them")
    ] = False,
    csv: CsvOption = None,
    save: Annotated[Path | None, typer.Option("--output", help="file to write; standard output if not given")] = None,
    *,
    out: Printer,
) -> None:
    """Predict the label of each row of a table by a model: as CSV, or an object a line with --format json.

    The study inside the document says how a record becomes a row: categories, missing values, bounds, projection.
    Numbers beyond the bounds are clipped, as in training. Columns that the study does not name are not read. Rows count
    from 1, below the header.
    """
    predictor = predictions.Predictor.of(read_model_file(model))
    predictor.check_predicts()
    with TemporaryDirectory() as folder:
        path = (
            Path(table) if table != "-" else _standard_input(Path(folder), ".svm" if predictor.study.sparse else ".csv")
        )
        rows = feature_rows.FeatureRows(path, predictor.study, _checked(keep or []), sources.parse_csv_format(csv))
        found = _predicted(predictor, rows, proba=proba, skip=skip)
        names = (_ROW, *dict.fromkeys(keep or []), _PREDICTION, *(_chances(predictor) if proba else ()))
        count, skipped = _write(found, names, save, as_json=out.is_json)
    where = f" in {save}" if save else ""
    without = f"; {skipped:,} of them have no prediction, for the study has no place for them" if skipped else ""
    for note in rows.notes:
        typer.echo(note, err=True)
    typer.echo(f"{so_many(count, 'row')}{where}{without}", err=True)


def _checked(keep: list[str]) -> list[str]:
    """Columns to copy; raises InvalidInputError for one of a name that a prediction has."""
    if taken := [name for name in keep if name in {_ROW, _PREDICTION} or name.startswith("P(")]:
        raise InvalidInputError(f"the column {taken[0]!r} cannot be kept: what is predicted has a column of that name")
    return keep


def _write(
    found: Iterator[dict[str, Any]], names: Sequence[str], save: Path | None, *, as_json: bool
) -> tuple[int, int]:
    """Write predictions to a file, whole or not at all, or to standard output; how many, and how many are none."""
    if save is None:
        return _write_to(sys.stdout, found, names, as_json=as_json)
    with written_whole(save) as part, part.open("w", encoding="utf-8", newline="") as file:
        return _write_to(file, found, names, as_json=as_json)


def _write_to(
    target: TextIO, found: Iterator[dict[str, Any]], names: Sequence[str], *, as_json: bool
) -> tuple[int, int]:
    """Write predictions, as CSV with a header of these names or as JSON; how many, and how many are none."""
    count = skipped = 0
    writer = DictWriter(target, names, lineterminator="\n")
    for told in found:
        if as_json:
            target.write(json.dumps(told, ensure_ascii=False) + "\n")
        else:
            if not count:  # not before a row is read: what is wrong with the first leaves nothing behind
                writer.writeheader()
            writer.writerow(told)
        count, skipped = count + 1, skipped + (told[_PREDICTION] is None)
    if not count and not as_json:
        writer.writeheader()
    return count, skipped


def _predicted(predictor: Predictor, rows: FeatureRows, *, proba: bool, skip: bool) -> Iterator[dict[str, Any]]:
    """What is told of each row."""
    number = 0
    for matrix, usable, kept in _blocks(rows, skip=skip):
        scores = predictor.scores(matrix)
        labels = predictor.labels(scores)
        chances = predictor.probabilities(scores) if proba else None
        if proba and chances is None:
            raise InvalidInputError(f"a model with the loss {predictor.study.loss.kind!r} has no probabilities")
        for i, label in enumerate(labels):
            number += 1
            told: dict[str, Any] = {_ROW: number, **kept[i], _PREDICTION: label if usable[i] else None}
            if chances is not None:
                shares = chances[i].tolist() if usable[i] else [None] * chances.shape[1]
                told |= zip(_chances(predictor), shares, strict=True)
            yield told


def _blocks(rows: FeatureRows, *, skip: bool) -> Iterator[tuple[Any, BoolArray, list[dict[str, Any]]]]:
    """The rows' blocks; a refusal of a row says how to do without."""
    try:
        yield from rows.blocks(skip=skip)
    except InvalidDataError:
        raise
    except InvalidInputError as error:
        raise InvalidInputError(f"{error.detail}; --skip predicts nothing for such rows, and goes on") from None


def _chances(predictor: Predictor) -> tuple[str, ...]:
    """What the probability of each value of the label is called, if the label has values."""
    return tuple(f"P({value})" for value in getattr(predictor.study.label, "values", ()))


def _standard_input(folder: Path, text: str) -> Path:
    """What comes on standard input, as a file: Parquet by its first bytes, else of the kind that ends in ``text``."""
    content = sys.stdin.buffer.read()
    path = folder / f"rows{'.parquet' if content.startswith(b'PAR1') else text}"
    path.write_bytes(content)
    return path


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
    *,
    out: Printer,
) -> None:
    """Check a model against its certificate, offline: what its owners approved, and what was altered since.

    Without --keys the document is checked against the keys that it names itself: say the words that each owner reads
    out, save the keys once, and check every later model with them. Ends with 1 where anything does not hold.
    """
    found = verification.verify_document(read_model_file(model), _read_keys(keys))
    compared = _compare(words or (), found.keys)
    value = {
        "holds": found.holds,
        "faults": found.faults,
        "keys": found.keys.model_dump(),
        "keys_assumed": found.assumed,
        "keys_compared": compared,
    }
    out.result(value, _verified_lines(found, compared))
    if found.faults:
        raise typer.Exit(ExitCode.NO)
    if save_keys:
        with written_whole(save_keys) as file:
            file.write_text(found.keys.model_dump_json(indent=2) + "\n", encoding="utf-8")
        out.next(f"parley-learner verify {model} --keys {save_keys}")


def _verified_lines(found: Verification, compared: Sequence[str]) -> Iterator[str]:
    """What holds of a document, what was altered, and which keys nobody has compared, in lines."""
    yield from (f"holds    {claim}" for claim in found.holds)
    yield from (f"ALTERED  {fault}" for fault in found.faults)
    yield from (f"holds    the key of {name} has the words that were read out" for name in compared)
    if found.assumed and (assumed := [name for name in found.keys.by_name if name not in compared]):
        yield "assumed  these keys are theirs; ask each of them for its six words, and say --words NAME=WORDS:"
        yield from (f"  {name}" for name in assumed)


def _compare(words: Sequence[str], keys: PublicKeys) -> list[str]:
    """The names whose keys have the words that were read out; raises InvalidInputError where one has not."""
    typed = dict(key_words.named_words(each, "--words") for each in words)
    for name, said in typed.items():
        if name not in keys.by_name:
            raise InvalidInputError(f"--words: the document names no key of {name}")
        key_words.check_words(said, keys.by_name[name], name)
    return list(typed)


def _read_keys(path: Path | None) -> PublicKeys | None:
    """Keys that the asker knows; raises InvalidInputError."""
    if path is None:
        return None
    try:
        return verification.PublicKeys.model_validate_json(read_handed_json(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"keys {path} cannot be read ({type(error).__name__})") from None
    except pydantic.ValidationError as error:
        raise InvalidInputError(f"keys {path}: {strict.faults(error)}") from None
