"""The commands that work on a model's document alone; they ask no service.

``parley-learner card`` writes a model's card, ``export`` a file for other tools, ``schema`` the form of the document,
``predict`` the labels of a file's rows, and ``verify`` says whether the document is what its owners and its learner
signed.
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
    from parley.common.learning import threshold
    from parley.common.runs import model_document, predictions
    from parley.learner.models import card, exported, feature_rows, verification

if TYPE_CHECKING:
    from parley.common.arrays import BoolArray
    from parley.common.runs.predictions import Predictor
    from parley.learner.models.feature_rows import FeatureRows
    from parley.learner.models.verification import PublicKeys, Verification

CARDS = "Example: parley-learner card model.json --to html --output card.html"


class CardForm(StrEnum):
    """The forms of a card."""

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


EXPORTS = "Example: parley-learner export model.json --to onnx --output m.onnx   (needs the extra export)"
SCHEMAS = "Example: parley-learner schema > model.schema.json"


class ExportForm(StrEnum):
    """The forms that a model can be exported to."""

    ONNX = "onnx"
    SKLEARN = "sklearn"


def export_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    to: Annotated[ExportForm, typer.Option(help="an ONNX graph, or a scikit-learn pipeline in a skops file")],
    save: Annotated[Path, typer.Option("--output", help="file to write")],
    out: Printer,
) -> None:
    """Write a model as a file that other tools predict with from raw columns, without Parley.

    The file holds all that the study does to a record: values that replace missing ones, bounds, scales, categories,
    random features, division. Texts must be spelt as in the study.
    """
    predictor = predictions.Predictor.of(read_model_file(model))
    exported.check_portable(predictor)
    content, note = (exported.onnx_bytes if to is ExportForm.ONNX else exported.skops_bytes)(predictor)
    with written_whole(save) as file:
        file.write_bytes(content)
    out.done(f"{save}: {note}", file=str(save), form=to, note=note)


def schema_command() -> None:
    """Print the JSON Schema (draft 2020-12) of a model's document."""
    typer.echo(json.dumps(model_document.document_schema(), indent=2))


PREDICTIONS = (
    "Example: parley-learner predict model.json patients.csv --proba --keep id --output predicted.csv   (the document "
    "is what the command model saves; `-` reads a table from standard input)"
)
"""The command's example, for its help."""
_ROW, _PREDICTION = "row", "prediction"


def predict_command(
    model: Annotated[Path, typer.Argument(help="a model's document, as the command model saves it")],
    table: Annotated[
        str,
        typer.Argument(
            help="a table with the study's features: a CSV, Parquet or LIBSVM file, file.sqlite::table or "
            "file.xlsx::sheet; - is standard input"
        ),
    ],
    proba: Annotated[bool, typer.Option("--proba", help="add the probability of each value of the label")] = False,
    keep: Annotated[
        list[str] | None, typer.Option("--keep", metavar="COLUMN", help="copy a column of the table; repeat for more")
    ] = None,
    skip: Annotated[
        bool,
        typer.Option("--skip", help="leave the prediction of rows that do not fit the study empty, and count them"),
    ] = False,
    csv: CsvOption = None,
    save: Annotated[Path | None, typer.Option("--output", help="file to write; standard output if not given")] = None,
    *,
    out: Printer,
) -> None:
    """Predict the label of each row of a table by a model: as CSV, or an object a line with --format json.

    Of two classes the positive one is predicted where the score exceeds the document's threshold, 0 without one. The
    study inside the document says how a record becomes a row: categories, missing values, bounds, projection.
    Numbers beyond the bounds are clipped, as in training. Columns that the study does not name are not read. Rows count
    from 1, below the header.
    """
    document = read_model_file(model)
    predictor = predictions.Predictor.of(document)
    predictor.check_predicts()
    with TemporaryDirectory() as folder:
        path = (
            Path(table) if table != "-" else _standard_input(Path(folder), ".svm" if predictor.study.sparse else ".csv")
        )
        kept, csv_format = _check_kept(keep or []), sources.parse_csv_format(csv)
        with feature_rows.FeatureRows(path, predictor.study, kept, csv_format) as rows:
            predictions_of_rows = _prediction_rows(predictor, rows, proba=proba, skip=skip)
            names = (_ROW, *dict.fromkeys(kept), _PREDICTION, *(_chances(predictor) if proba else ()))
            count, skipped = _write(predictions_of_rows, names, save, as_json=out.is_json)
    where = f" in {save}" if save else ""
    without = f"; {skipped:,} of them have no prediction, because they do not fit the study" if skipped else ""
    for note in rows.notes:
        typer.echo(note, err=True)
    for words in threshold.threshold_in_words(document)[:1]:
        typer.echo(words, err=True)
    typer.echo(f"{so_many(count, 'row')}{where}{without}", err=True)


def _check_kept(keep: list[str]) -> list[str]:
    """Return the columns to copy; raises InvalidInputError for one with the name of a column of the output."""
    if taken := [name for name in keep if name in {_ROW, _PREDICTION} or name.startswith("P(")]:
        raise InvalidInputError(f"the column {taken[0]!r} cannot be kept: the output has a column of that name")
    return keep


def _write(
    rows: Iterator[dict[str, Any]], names: Sequence[str], save: Path | None, *, as_json: bool
) -> tuple[int, int]:
    """Write predictions to standard output or a whole file; returns the counts of rows, and of rows without one."""
    if save is None:
        return _write_to(sys.stdout, rows, names, as_json=as_json)
    with written_whole(save) as part, part.open("w", encoding="utf-8", newline="") as file:
        return _write_to(file, rows, names, as_json=as_json)


def _write_to(
    target: TextIO, rows: Iterator[dict[str, Any]], names: Sequence[str], *, as_json: bool
) -> tuple[int, int]:
    """Write predictions as CSV with these columns, or as JSON; returns the counts of rows, and of rows without one."""
    count = skipped = 0
    writer = DictWriter(target, names, lineterminator="\n")
    for row in rows:
        if as_json:
            target.write(json.dumps(row, ensure_ascii=False) + "\n")
        else:
            if not count:  # not before a row is read: what is wrong with the first leaves nothing behind
                writer.writeheader()
            writer.writerow(row)
        count, skipped = count + 1, skipped + (row[_PREDICTION] is None)
    if not count and not as_json:
        writer.writeheader()
    return count, skipped


def _prediction_rows(predictor: Predictor, rows: FeatureRows, *, proba: bool, skip: bool) -> Iterator[dict[str, Any]]:
    """Yield a row of the output for each row of the table; raises InvalidInputError if there are no probabilities."""
    number = 0
    for matrix, usable, copied in _blocks(rows, skip=skip):
        scores = predictor.scores(matrix)
        labels = predictor.labels(scores)
        chances = predictor.probabilities(scores) if proba else None
        if proba and chances is None:
            raise InvalidInputError(f"a model with the loss {predictor.study.loss.kind!r} has no probabilities")
        for i, label in enumerate(labels):
            number += 1
            row: dict[str, Any] = {_ROW: number, **copied[i], _PREDICTION: label if usable[i] else None}
            if chances is not None:
                shares = chances[i].tolist() if usable[i] else [None] * chances.shape[1]
                row |= zip(_chances(predictor), shares, strict=True)
            yield row


def _blocks(rows: FeatureRows, *, skip: bool) -> Iterator[tuple[Any, BoolArray, list[dict[str, Any]]]]:
    """Yield the blocks of rows; the error for a row that does not fit names ``--skip``."""
    try:
        yield from rows.blocks(skip=skip)
    except InvalidDataError:
        raise
    except InvalidInputError as error:
        raise InvalidInputError(f"{error.detail}; with --skip, such rows get no prediction") from None


def _chances(predictor: Predictor) -> tuple[str, ...]:
    """Return the column names of the label's probabilities; none for a label without values."""
    return tuple(f"P({value})" for value in getattr(predictor.study.label, "values", ()))


def _standard_input(folder: Path, text: str) -> Path:
    """Copy standard input to a file: Parquet if it begins so, otherwise a text file with the suffix ``text``."""
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
    verified = verification.verify_document(read_model_file(model), _read_keys(keys))
    compared = _compare(words or (), verified.keys)
    value = {
        "holds": verified.holds,
        "faults": verified.faults,
        "keys": verified.keys.model_dump(),
        "keys_assumed": verified.assumed,
        "keys_compared": compared,
    }
    out.result(value, _verified_lines(verified, compared))
    if verified.faults:
        raise typer.Exit(ExitCode.NO)
    if save_keys:
        with written_whole(save_keys) as file:
            file.write_text(verified.keys.model_dump_json(indent=2) + "\n", encoding="utf-8")
        out.next(f"parley-learner verify {model} --keys {save_keys}")


def _verified_lines(verified: Verification, compared: Sequence[str]) -> Iterator[str]:
    """Yield lines that say what holds of a document, what was altered, and which keys nobody has compared."""
    yield from (f"holds    {claim}" for claim in verified.holds)
    yield from (f"ALTERED  {fault}" for fault in verified.faults)
    yield from (f"holds    the key of {name} has the words that were read out" for name in compared)
    if verified.assumed and (assumed := [name for name in verified.keys.by_name if name not in compared]):
        yield "assumed  these keys are theirs; ask each of them for its six words, and say --words NAME=WORDS:"
        yield from (f"  {name}" for name in assumed)


def _compare(words: Sequence[str], keys: PublicKeys) -> list[str]:
    """Return the names whose keys have the words that were read out; raises InvalidInputError for a key with others."""
    typed = dict(key_words.named_words(text, "--words") for text in words)
    for name, spoken_words in typed.items():
        if name not in keys.by_name:
            raise InvalidInputError(f"--words: the document names no key of {name}")
        key_words.check_words(spoken_words, keys.by_name[name], name)
    return list(typed)


def _read_keys(path: Path | None) -> PublicKeys | None:
    """Read public keys from a file; raises InvalidInputError if it cannot be read."""
    if path is None:
        return None
    try:
        return verification.PublicKeys.model_validate_json(read_handed_json(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"keys {path} cannot be read ({type(error).__name__})") from None
    except pydantic.ValidationError as error:
        raise InvalidInputError(f"keys {path}: {strict.faults(error)}") from None
