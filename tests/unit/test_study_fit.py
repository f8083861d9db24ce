"""What `study check` says of a table most of whose rows a study would drop."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
import typer
from pyarrow.csv import write_csv
from pyarrow.parquet import write_table
from typer.testing import CliRunner, Result

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.files.sources import PostgresTable, parse_source
from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app

SECRET = 41.5
STUDY = Study(
    name="loans",
    missing="drop",
    features=(
        Feature(name="age", lower=0, upper=100),
        Feature(name="late", lower=0, upper=9),
        Category(name="work", values=("state", "other")),
    ),
    label=Label(name="repaid", values=("no", "yes")),
)


def checked(folder: Path, rows: list[str], *words: str, app: typer.Typer = party_app) -> Result:
    """The command on a table of these rows."""
    study, table = folder / "study.json", folder / "rows.csv"
    study.write_text(STUDY.model_dump_json())
    table.write_text("\n".join(["age,late,work,repaid", *rows]))
    return CliRunner().invoke(app, ["study", "check", str(study), "--data", str(table), *words])


@pytest.mark.parametrize("app", [party_app, learner_app], ids=["party", "learner"])
def test_a_table_of_mostly_empty_rows_is_warned_of_by_column(tmp_path: Path, app: typer.Typer) -> None:
    rows = [f"{SECRET},1,state,no"] * 2 + [f"{SECRET},,state,yes"] * 6 + [f"{SECRET},,,no"] + [",3,other,yes"]
    done = checked(tmp_path, rows, app=app)
    verdict, warning, columns, *rest = done.stdout.splitlines()
    assert (done.exit_code, verdict) == (0, "the data fits loans: 10 rows")
    assert warning.startswith("warning: 8 of its 10 rows (80.00%) miss a value and would be empty ones")
    assert columns.startswith("  most often missing: late in 7, age in 1, work in 1; ")
    assert not any("miss a value" in line for line in rest), "it is said once"
    assert str(SECRET) not in done.output
    document = json.loads(checked(tmp_path, rows, "--format", "json", app=app).stdout)
    assert (document["fits"], document["mostly_empty"], document["dropped"]) == (True, True, 0.8)
    assert document["missing"] == {"late": 7, "age": 1, "work": 1}


def test_a_few_empty_rows_are_no_warning(tmp_path: Path) -> None:
    done = checked(tmp_path, ["30,1,state,no", "30,,state,no"])
    assert "warning" not in done.stdout
    assert "50.00% of the rows miss a value and are kept as empty ones" in done.stdout


def test_what_helps_is_told_beside_what_does_not_fit(tmp_path: Path) -> None:
    stdout = checked(tmp_path, ["many,99,state,maybe"]).stdout
    assert 'a cell without a number has to be empty, or "NA"' in stdout
    assert "--clip, clips values to the bounds" in stdout
    assert "a label has to be spelt as in the study" in stdout
    assert "many" not in stdout
    assert "has to be" not in checked(tmp_path, ["30,1,state,no"]).stdout


def test_a_name_that_is_nearly_right_is_told(tmp_path: Path) -> None:
    study, table = tmp_path / "study.json", tmp_path / "rows.csv"
    study.write_text(STUDY.model_dump_json())
    table.write_text("Age, late,work,repaid,AGE\n30,1,state,no,30\n")
    stdout = CliRunner().invoke(party_app, ["study", "check", str(study), "--data", str(table)]).stdout
    assert "age: absent, but there is 'Age': its name has to be spelt alike" in stdout
    assert "late: absent" not in stdout
    draft = ["study", "init", str(table), "--label", "LATE", "--out", str(tmp_path / "draft.json")]
    assert "has no column 'LATE'; say 'late', as it does" in CliRunner().invoke(learner_app, draft).stderr


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
@pytest.mark.long
def test_a_name_that_can_mean_one_column_alone_is_taken_and_told(tmp_path: Path, kind: str) -> None:
    study, table = tmp_path / "study.json", tmp_path / f"rows.{kind}"
    study.write_text(STUDY.model_dump_json())
    cells = pa.table({"Age": [30], "late ": [1], "WORK": ["state"], "repaid": ["no"]})
    if kind == "jsonl":
        table.write_text("".join(json.dumps(row) + "\n" for row in cells.to_pylist()))
    else:
        (write_csv if kind == "csv" else write_table)(cells, table)
    stdout = CliRunner().invoke(party_app, ["study", "check", str(study), "--data", str(table)]).stdout
    assert stdout.startswith("the data fits")
    assert "column 'Age' is read as 'age'" in stdout
    assert "column 'WORK' is read as 'work'" in stdout


@pytest.mark.parametrize("app", [party_app, learner_app], ids=["party", "learner"])
def test_all_that_join_takes_can_be_checked_before(tmp_path: Path, app: typer.Typer) -> None:
    checked(tmp_path, ["30,1,state,no", "40,2,other,yes"])
    with closing(sqlite3.connect(tmp_path / "lab.sqlite")) as database, database:
        database.execute("CREATE TABLE labs (age, late, work, repaid, more)")
        database.execute("INSERT INTO labs VALUES (30, 1, 'state', 'no', 0)")

    def told(data: str) -> str:
        study = str(tmp_path / "study.json")
        return CliRunner().invoke(app, ["study", "check", study, "--data", data]).output

    assert "the data fits loans: 2 rows" in told(f"{tmp_path}/*.csv")
    assert "the data fits loans: 1 row" in told(f"{tmp_path}/lab.sqlite::labs")
    assert "never read: more" in told(f"{tmp_path}/lab.sqlite::labs")
    assert "there is none of this name" in told(f"{tmp_path}/lab.sqlite::visits")
    assert "--data: name your table" in told("")
    (tmp_path / "exported").mkdir()
    for name, way in (
        ("lab.sqlite", "of a database say FILE::TABLE"),
        ("exported", "of the files of a folder say FOLDER/*.csv"),
        ("rows.csv.zip", "unpack it"),
    ):
        assert f"must end in .csv or .parquet: {way}" in told(f"{tmp_path}/{name}")


QUERY = "SELECT age, late, work, repaid FROM loans JOIN labs USING (id) ORDER BY id"


@pytest.mark.parametrize("app", [party_app, learner_app], ids=["party", "learner"])
def test_a_query_over_tables_can_be_checked(tmp_path: Path, app: typer.Typer, monkeypatch: pytest.MonkeyPatch) -> None:
    checked(tmp_path, [])
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "loans.csv").write_text("id,age,repaid\n1,30,no\n2,40,yes\n")
    with closing(sqlite3.connect(tmp_path / "lab.sqlite")) as database, database:
        database.execute("CREATE TABLE labs (id, late, work)")
        database.execute("INSERT INTO labs VALUES (1, 0, 'state'), (2, 1, 'other')")

    def told(data: str, *tables: str) -> str:
        named = [word for table in tables for word in ("--table", table)]
        return CliRunner().invoke(app, ["study", "check", str(tmp_path / "study.json"), "--data", data, *named]).output

    labs = f"labs={tmp_path}/lab.sqlite::labs"
    assert "the data fits loans: 2 rows" in told(QUERY, f"loans={tmp_path}/loans.csv", labs)
    assert "the data fits loans: 2 rows" in told(QUERY, "loans=~/lo*.csv", labs), "no shell expands it there"
    missing = told(QUERY, labs)
    assert "Table with name loans does not exist! Say where it is: --table NAME=WHERE" in missing
    assert "the data fits" not in missing


@pytest.mark.parametrize(
    ("data", "tables", "words"),
    [
        (QUERY, ["hunter2"], "--table: say NAME=WHERE"),
        (QUERY, ["2hunter2=a.csv"], "that begins with no digit"),
        (QUERY, ["loans\n=hunter2.csv"], "--table: say NAME=WHERE"),
        (QUERY, ["=hunter2.csv"], "--table: say NAME=WHERE"),
        (QUERY, ["loans="], "--table loans: say where it is"),
        (QUERY, ["loans=hunter2.csv", "Loans=b.csv"], "--table Loans: it is named twice"),
        (QUERY, ["loans=postgresql://anna:hunter2@db/lab"], "--table loans: others see what is typed"),
        (QUERY, ["loans=env:postgresql://anna:hunter2@db/lab::t"], "--table loans: others see what is typed"),
        (QUERY, ["loans=host=db password=hunter2"], "--table loans: others see what is typed"),
        ("postgresql://anna:hunter2@db/lab", [], "--data: others see what is typed"),
        (QUERY, ["loans=env:HUNTER2"], "--table loans: a table in PostgreSQL is env:VARIABLE::TABLE"),
        (QUERY, ["loans=env:a hunter2::t"], "--table loans: a table in PostgreSQL is env:VARIABLE::TABLE"),
        (QUERY, ["loans=file:hunter2::"], "--table loans: a table in PostgreSQL is env:VARIABLE::TABLE"),
        ("rows.csv", ["loans=hunter2.csv"], "--table: only a query has tables"),
    ],
)
def test_what_names_no_table_is_said_in_a_line_without_what_was_typed(data: str, tables: list[str], words: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_source(data, tables)
    assert words in refused.value.detail
    assert "hunter2" not in refused.value.detail.lower()
    assert "\n" not in refused.value.detail


def test_paths_begin_where_they_were_typed(tmp_path: Path) -> None:
    named = parse_source("FROM a", ["a=x.csv", "b=/y.csv", "c=file:dsn::t", "d=env:DSN::clinic.t"]).within(tmp_path)
    assert named.tables == {
        "a": f"{tmp_path}/x.csv",
        "b": "/y.csv",
        "c": PostgresTable(postgres=f"file:{tmp_path}/dsn", table="t"),
        "d": PostgresTable(postgres="env:DSN", table="clinic.t"),
    }
    assert parse_source("x/*.csv").within(tmp_path).source == f"{tmp_path}/x/*.csv"
