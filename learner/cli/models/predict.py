"""``parley-learner predict``: what a model's document predicts for the rows of a file; no service is asked."""
# ruff: noqa: PLC0415 -- help comes without numpy

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from csv import DictWriter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from parley.common.encoding.spelling import so_many
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.service.commands import CsvOption, FormatOption
from parley.learner.models.model_files import read_model_file, written_whole

if TYPE_CHECKING:
    from parley.common.arrays import BoolArray
    from parley.common.runs.predictions import Predictor
    from parley.learner.models.feature_rows import FeatureRows

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
    output: FormatOption = "text",
) -> None:
    """Predict the label of each row of a table by a model: as CSV, or an object a line with --format json.

    The study inside the document says how a record becomes a row: categories, missing values, bounds, projection.
    Numbers beyond the bounds are clipped, as in training. Columns that the study does not name are not read. Rows count
    from 1, below the header.
    """
    from parley.common.files.csv_format import said_csv
    from parley.common.runs.predictions import Predictor
    from parley.learner.models.feature_rows import FeatureRows

    predictor = Predictor.of(read_model_file(model))
    predictor.check_predicts()
    with TemporaryDirectory() as folder:
        path = (
            Path(table) if table != "-" else _standard_input(Path(folder), ".svm" if predictor.study.sparse else ".csv")
        )
        rows = FeatureRows(path, predictor.study, _checked(keep or []), said_csv(csv))
        found = _predicted(predictor, rows, proba=proba, skip=skip)
        names = (_ROW, *dict.fromkeys(keep or []), _PREDICTION, *(_chances(predictor) if proba else ()))
        count, skipped = _write(found, names, save, as_json=output == "json")
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
