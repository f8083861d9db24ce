"""``parley-learner predict``: what the learner's route predicts, for a file's rows; bad rows are named, or skipped."""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import write_table
from typer.testing import CliRunner

from parley.common.data.columns import Category, Feature, Label, RealLabel, SparseFeatures
from parley.common.data.study import HuberLoss, LogisticLoss, Study
from parley.common.errors import InvalidInputError
from parley.common.runs.predictions import predict
from parley.learner.cli.main import learner_app
from parley.learner.models.feature_rows import FeatureRows
from tests.support.models import document_of

FEATURES = (
    Feature(name="age", lower=0, upper=100, missing="value", fill=40),
    Feature(name="dose", lower=-1, upper=1),
    Category(name="ward", values=("north", "007"), other=True),
)
TWO = Study(name="s", features=FEATURES, label=Label(name="ill", values=("no", "yes")), loss=LogisticLoss())
HUBER = Study(name="s", features=FEATURES, label=TWO.label, loss=HuberLoss())
GOOD = "id,age,dose,ward,note\na1,30,0.5,north,x\na2,,-0.25,007,y\na3,999,1,elsewhere,z\n"
RECORDS: list[dict[str, Any]] = [
    {"age": 30, "dose": 0.5, "ward": "north"},
    {"age": None, "dose": -0.25, "ward": "007"},
    {"age": 999, "dose": 1, "ward": "elsewhere"},
]


def run(folder: Path, document: object, table: str | Path, *options: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of the command."""
    model = folder / "model.json"
    model.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    if isinstance(table, str):
        (folder / "rows.csv").write_text(table, encoding="utf-8", errors="surrogateescape")
        table = folder / "rows.csv"
    result = CliRunner().invoke(learner_app, ["predict", str(model), str(table), *options])
    assert result.exit_code == code, result.stderr
    return result.stdout, result.stderr


def test_a_file_is_predicted_as_the_learner_predicts_records(tmp_path: Path) -> None:
    document = document_of(TWO)
    out, err = run(tmp_path, document, GOOD, "--proba", "--keep", "id")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert list(rows[0]) == ["row", "id", "prediction", "P(no)", "P(yes)"]
    assert [(row["row"], row["id"]) for row in rows] == [("1", "a1"), ("2", "a2"), ("3", "a3")]
    expected = predict(document, RECORDS)
    assert [row["prediction"] for row in rows] == [found["label"] for found in expected]
    assert [float(row["P(yes)"]) for row in rows] == [found["probability"] for found in expected]
    assert "3 rows" in err


@pytest.mark.parametrize("labels", [("a", "b", "c"), None])
def test_classes_and_numbers_too_from_parquet_as_json(tmp_path: Path, labels: tuple[str, ...] | None) -> None:
    label = Label(name="kind", values=labels) if labels else RealLabel(name="rate", lower=10, upper=30)
    study = Study.model_validate({
        "name": "s", "features": [feature.model_dump() for feature in FEATURES], "label": label.model_dump(),
        "loss": {"kind": "softmax" if labels else "squared"},
    })  # fmt: skip
    document, table = document_of(study), tmp_path / "rows.parquet"
    columns = {name: [record[name] for record in RECORDS] for name in ("age", "dose", "ward")}
    write_table(pa.table(columns), table)
    out, _ = run(tmp_path, document, table, "--format", "json", *(["--proba"] if labels else []))
    told = [json.loads(line) for line in out.splitlines()]
    expected = predict(document, RECORDS)
    assert [row["prediction"] for row in told] == [found["label"] for found in expected]
    if labels:
        assert [row["P(b)"] for row in told] == [found["probabilities"]["b"] for found in expected]


def test_rows_of_lists(tmp_path: Path) -> None:
    entries = SparseFeatures(name="entries", columns=5, entries=3, bound=2)
    study = Study(name="s", features=(entries,), label=Label(name="ill", values=("no", "yes")))
    document, table = document_of(study), tmp_path / "rows.parquet"
    records: list[dict[str, Any]] = [{"index": [1, 3], "value": [1.0, -2.0]}, {"index": [], "value": []}]
    write_table(pa.table({name: [record[name] for record in records] for name in ("index", "value")}), table)
    out, _ = run(tmp_path, document, table)
    assert [row["prediction"] for row in csv.DictReader(io.StringIO(out))] == [
        found["label"] for found in predict(document, records)
    ]
    lines = tmp_path / "rows.svm"
    lines.write_text("yes 1:1 3:-2 # the first\nno\n", encoding="utf-8")
    assert run(tmp_path, document, lines)[0] == out
    kept, _ = run(tmp_path, document, lines, "--keep", "ill")
    assert [row["ill"] for row in csv.DictReader(io.StringIO(kept))] == ["yes", "no"]
    lines.write_text("1:1 3:-2\nno\n", encoding="utf-8")
    assert run(tmp_path, document, lines)[0] == out, "a row needs no label, and its first entry is none"
    lines.write_text("no 2:1\nno 1:x\n", encoding="utf-8")
    assert "row 2: has a value that is not a number" in run(tmp_path, document, lines, code=3)[1]
    assert "is missing" in run(tmp_path, document, Path("absent.svm"), code=3)[1]
    unpack = "absent.svm.gz must end in .parquet, .svm or .libsvm, as the features are sparse: unpack it"
    assert unpack in run(tmp_path, document, Path("absent.svm.gz"), code=3)[1]
    piped = CliRunner().invoke(learner_app, ["predict", str(tmp_path / "model.json"), "-"], input="1:1 3:-2\nno\n")
    assert piped.stdout == out
    bad = [*records, {"index": [9], "value": [1.0]}]
    write_table(pa.table({name: [record[name] for record in bad] for name in ("index", "value")}), table)
    _, err = run(tmp_path, document, table, code=3)
    assert "row 3: has a place that is none of the 5 columns" in err
    out, err = run(tmp_path, document, table, "--skip")
    assert out.splitlines()[-1] == "3,"
    assert "3 rows; 1 of them have no prediction" in err


@pytest.mark.parametrize(
    ("table", "options", "why"),
    [
        (GOOD.replace("0.5", "SECRET"), (), "row 1: feature 'dose' is not a number"),
        (GOOD.replace("-0.25", ""), (), "row 2: feature 'dose' is missing; with --skip, such rows get no"),
        (GOOD.replace("dose", "dosis"), (), "lacks 'dose'"),
        (GOOD, ("--keep", "name"), "lacks 'name'"),
        (GOOD.replace("note", "id"), ("--keep", "id"), "names columns twice: see places 1, 5"),
        (GOOD, ("--keep", "row"), "'row' cannot be kept"),
        ("", (), "cannot be read"),
        (GOOD + "a4,1\n", (), "cannot be read"),
        (GOOD.replace("note", "\udcffä"), (), "cannot be read"),
        (GOOD.replace("north", "\udcffä"), (), "cannot be read"),
        (Path("absent.csv"), (), "is missing"),
        (Path("rows.docx"), (), "must end in .csv, .tsv, .txt, .parquet"),
    ],
)
def test_a_table_that_does_not_fit_is_told_by_row_and_column(
    tmp_path: Path, table: str | Path, options: tuple[str, ...], why: str
) -> None:
    _, err = run(tmp_path, document_of(TWO), table, *options, code=3)
    assert why in err
    assert "SECRET" not in err


@pytest.mark.parametrize(
    ("document", "options", "why"),
    [
        ('{"format": "parley-mod', (), "not JSON, or cut short"),
        ("[]", (), "is not a model's document"),
        (document_of(TWO) | {"format": "parley-model-1"}, (), "the model's format must be"),
        (document_of(TWO) | {"weights": [1.0]}, (), "not of the shape that its study has"),
        (document_of(TWO) | {"weights": [float("nan")]}, (), "not JSON, or cut short"),
        (json.dumps(document_of(TWO)).replace(": 100", ": 1e999", 1), (), "not JSON, or cut short"),
        (document_of(HUBER), ("--proba",), "has no probabilities"),
    ],
)
def test_a_model_that_cannot_predict_is_refused(
    tmp_path: Path, document: object, options: tuple[str, ...], why: str
) -> None:
    _, err = run(tmp_path, document, GOOD, *options, code=3)
    assert why in err


def test_a_table_without_rows_has_a_header_for_what_reads_it(tmp_path: Path) -> None:
    out, err = run(tmp_path, document_of(TWO), GOOD.splitlines()[0] + "\n", "--proba", "--keep", "id")
    assert (out, err) == ("row,id,prediction,P(no),P(yes)\n", "0 rows\n")
    assert run(tmp_path, document_of(TWO), GOOD.splitlines()[0] + "\n", "--format", "json")[0] == ""


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as reader:
        read = reader.submit(pipe.read_text)
        run(tmp_path, document_of(TWO), GOOD, "--output", str(pipe))
        assert read.result(20).startswith("row,prediction\n")
    assert pipe.is_fifo()
    run(tmp_path, document_of(TWO), GOOD, "--output", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    run(tmp_path, document_of(TWO), GOOD.replace("-0.25", "x"), "--output", str(target), code=3)
    assert not list(tmp_path.glob("out.csv*"))
    run(tmp_path, document_of(TWO), GOOD.replace("-0.25", "x"), "--output", str(target), "--skip")
    assert target.read_text(encoding="utf-8").splitlines()[2] == "2,"
    _, err = run(tmp_path, document_of(TWO), GOOD, "--output", str(tmp_path / "none" / "out.csv"), code=3)
    assert "cannot be written" in err


def test_predictions_are_written_to_the_letter(tmp_path: Path) -> None:
    label = Label(name="ill", values=("nö", "yes"))
    study = Study(name="s", features=FEATURES[1:2], label=label, loss=LogisticLoss(), intercept=False)
    document = document_of(study) | {"weights": [0.0]}
    table = "dose,name\n0.5,Ä\nx,b\n"
    out, err = run(tmp_path, document, table, "--skip", "--proba", "--keep", "name", "--keep", "name")
    assert out == "row,name,prediction,P(nö),P(yes)\n1,Ä,nö,0.5,0.5\n2,b,,,\n"
    assert err == "2 rows; 1 of them have no prediction, because they do not fit the study\n"
    out, _ = run(tmp_path, document, table, "--skip", "--proba", "--keep", "name", "--format", "json")
    assert out == (
        '{"row": 1, "name": "Ä", "prediction": "nö", "P(nö)": 0.5, "P(yes)": 0.5}\n'
        '{"row": 2, "name": "b", "prediction": null, "P(nö)": null, "P(yes)": null}\n'
    )
    target = tmp_path / "ö.csv"
    out, err = run(tmp_path, document, table.replace("x", "1"), "--output", str(target))
    assert (out, err) == ("", f"2 rows in {target}\n")
    assert target.read_text(encoding="utf-8") == "row,prediction\n1,nö\n2,nö\n"
    _, err = run(tmp_path, document, table, code=3)
    assert err == ("parley-learner: row 2: feature 'dose' is not a number; with --skip, such rows get no prediction\n")


def test_a_number_is_predicted_and_has_no_probabilities(tmp_path: Path) -> None:
    study = Study(name="s", features=FEATURES[1:2], label=RealLabel(name="rate", lower=10, upper=30))
    document = document_of(study)
    assert run(tmp_path, document, "dose\n1\n")[0].startswith("row,prediction\n1,")
    _, err = run(tmp_path, document, "dose\n1\n", "--proba", code=3)
    assert err == "parley-learner: a model with the loss 'squared' has no probabilities\n"


@pytest.mark.parametrize("name", ["row", "prediction", "P(yes)"])
def test_a_column_with_the_name_of_one_of_the_output_is_not_kept(tmp_path: Path, name: str) -> None:
    table = GOOD.replace("note", name)
    _, err = run(tmp_path, document_of(TWO), table, "--keep", "id", "--keep", name, code=3)
    assert err == f"parley-learner: the column {name!r} cannot be kept: the output has a column of that name\n"


def test_a_table_is_read_from_standard_input_of_either_kind(tmp_path: Path) -> None:
    expected, _ = run(tmp_path, document_of(TWO), GOOD)
    write_table(
        pa.table({name: [record[name] for record in RECORDS] for name in ("age", "dose", "ward")}), tmp_path / "t"
    )
    for given in ((tmp_path / "t").read_bytes(), GOOD.encode()):
        done = CliRunner().invoke(learner_app, ["predict", str(tmp_path / "model.json"), "-"], input=given)
        assert done.stdout == expected, done.stderr


@pytest.mark.parametrize(("n", "more"), [(5, ""), (6, " and 1 more"), (7, " and 2 more")])
def test_five_columns_that_a_table_lacks_are_named(tmp_path: Path, n: int, more: str) -> None:
    study = Study(name="s", features=tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(n)), label=TWO.label)
    _, err = run(tmp_path, document_of(study), "a,b\n1,2\n", code=3)
    assert err.endswith(f"rows.csv lacks 'x0', 'x1', 'x2', 'x3', 'x4'{more}\n")
    _, err = run(tmp_path, document_of(study), "a,b\n1,2\n", "--keep", "z", code=3)
    assert f"'x4' and {n - 4} more\n" in err


def test_a_table_of_a_database_is_predicted_as_a_file_is(tmp_path: Path) -> None:
    lines = GOOD.splitlines()
    with closing(sqlite3.connect(tmp_path / "lab.sqlite")) as database, database:
        database.execute(f"CREATE TABLE visits ({lines[0]})")
        rows = [[cell or None for cell in line.split(",")] for line in lines[1:]]
        database.executemany("INSERT INTO visits VALUES (?, ?, ?, ?, ?)", rows)
    expected, _ = run(tmp_path, document_of(TWO), GOOD, "--proba", "--keep", "id")
    at = f"{tmp_path}/lab.sqlite"
    assert run(tmp_path, document_of(TWO), Path(f"{at}::visits"), "--proba", "--keep", "id")[0] == expected
    assert "there is none of this name" in run(tmp_path, document_of(TWO), Path(f"{at}::labs"), code=3)[1]
    assert "of a database say FILE::TABLE" in run(tmp_path, document_of(TWO), Path(at), code=3)[1]


def test_rows_count_on_through_all_blocks(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("dose,name\n0.5,a\n1,b\nx,c\n")
    study = Study(name="s", features=FEATURES[1:2], label=TWO.label)
    rows = FeatureRows(path, study, ["name"])
    whole = list(rows._stream.batches())
    rows._stream = replace(rows._stream, read=lambda: [b.slice(i, 1) for b in whole for i in range(b.num_rows)])
    found = list(rows.blocks(skip=True))
    assert [(usable.tolist(), kept) for _, usable, kept in found] == [
        ([True], [{"name": "a"}]),
        ([True], [{"name": "b"}]),
        ([False], [{"name": "c"}]),
    ]
    with pytest.raises(InvalidInputError, match="row 3: feature 'dose' is not a number"):
        list(rows.blocks())


def test_a_table_is_read_as_the_option_says_and_written_in_utf8(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = run(tmp_path, document_of(TWO), GOOD)
    found, _ = run(tmp_path, document_of(TWO), GOOD.replace(",", "^"), "--csv", "separator=^")
    assert found == expected
    asked: list[str | None] = []

    def noted(encoding: str | None, _: int = 2) -> str:
        asked.append(encoding)
        return encoding or "utf-8"

    target, model = tmp_path / "out.csv", str(tmp_path / "model.json")
    (tmp_path / "rows.csv").write_text(GOOD, encoding="utf-8")
    for words in (["predict", model, str(tmp_path / "rows.csv")], ["card", model]):
        with monkeypatch.context() as patch:
            patch.setattr(io, "text_encoding", noted)
            done = CliRunner().invoke(learner_app, [*words, "--output", str(target)])
        assert done.exit_code == 0, done.output
        assert None not in asked, "the platform's own encoding is not asked for"
        asked.clear()
