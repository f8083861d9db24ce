"""A study from a table, and a table against a study: names and counts, values of public files alone."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from parley.common.data.columns import Category, RealLabel
from parley.common.data.study import Study
from parley.common.encoding.key_words import words_of
from parley.common.errors import InvalidDataError
from parley.common.files.examples import load_examples
from parley.common.files.sources import DataSource
from parley.common.files.studies import read_study
from parley.common.files.study_fit import SurveyedColumn, fit_of_file, survey_table
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import public_hex
from parley.common.storage.keys import identity_key
from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app

ADULT = Path(__file__).parents[1] / "data" / "adult" / "study.json"
SECRET = "Xenotransplantation"
N_ROWS = 60


def adult(folder: Path, **changes: list[str]) -> Path:
    """A raw CSV file as UCI has it, spaces after its commas; ``changes`` replace a column's first cells."""
    study, rng = read_study(ADULT), np.random.default_rng(7)
    columns: dict[str, list[str]] = {}
    for column in study.named:
        if isinstance(column, Category):
            columns[column.name] = [column.values[i] for i in rng.integers(len(column.values), size=N_ROWS)]
        else:
            lower, upper = int(column.lower), int(column.upper)
            columns[column.name] = [str(i) for i in rng.integers(lower, min(lower + 20, upper + 1), size=N_ROWS)]
    columns[study.label.name] = ["<=50K", ">50K", ">50K"] * (N_ROWS // 3)
    for name, cells in changes.items():
        columns[name] = [*cells, *columns.get(name, ["0"] * N_ROWS)[len(cells) :]]
    rows = [", ".join(row) for row in zip(*columns.values(), strict=True)]
    path = folder / "adult.csv"
    path.write_text("\n".join([",".join(columns), *rows]) + "\n", encoding="utf-8")
    return path


def init(data: Path, *words: str, given: str = "") -> Result:
    out = data.parent / "study.json"
    return CliRunner().invoke(learner_app, ["study", "init", str(data), "--out", str(out), *words], input=given)


def made(data: Path, *words: str, given: str = "") -> Study:
    done = init(data, *words, given=given)
    assert done.exit_code == 0, done.output
    return read_study(data.parent / "study.json")


def surveyed(path: Path, *, public: bool = False) -> tuple[SurveyedColumn, ...]:
    return survey_table(DataSource(source=str(path)), public=public)


def table(folder: Path, **columns: list[object]) -> Path:
    path = folder / "t.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    return path


def test_the_table_is_named_once_by_either_word(tmp_path: Path) -> None:
    """`study check`, `simulate` and `join` take --data, so that is what people type."""
    data, flags = adult(tmp_path), ["--public", "--label", "income", "--out", str(tmp_path / "study.json")]
    start = ["study", "init"]
    for words, status in (([], 2), ([str(data), "--data", str(data)], 2), (["--data", str(data)], 0)):
        done = CliRunner().invoke(learner_app, [*start, *words, *flags])
        assert done.exit_code == status, done.output
        assert ("say once which table" in done.stderr) == (status == 2)
    assert read_study(tmp_path / "study.json").name == "adult"


def test_a_public_raw_table_makes_a_study_that_it_fits(tmp_path: Path) -> None:
    data = adult(tmp_path)
    study = made(data, "--public", "--label", "income", "--positive", ">50K", "--unit", "age=years")
    assert study.kind == "binary"
    assert study.label.model_dump()["values"] == ("<=50K", ">50K")
    assert [each.name for each in study.named] == [each.name for each in read_study(ADULT).named]
    assert all(each.description for each in (*study.named, study.label))
    assert study.named[0].model_dump()["unit"] == "years"
    assert next(each for each in study.named if each.name == "workclass").model_dump()["values"].count("?") == 0
    assert load_examples(data, study).shard.n_examples == N_ROWS
    assert fit_of_file(study, data).fits


def test_a_private_table_gives_names_and_kinds_and_nothing_else(tmp_path: Path) -> None:
    data = adult(tmp_path, workclass=[SECRET])
    done = init(data, "--label", "income")
    assert done.exit_code == 3
    assert "--bounds age=LOWER:UPPER" in done.stderr
    assert "--values workclass=VALUE,VALUE" in done.stderr
    assert SECRET not in done.output
    assert not (tmp_path / "study.json").exists()
    told = ("values", "shares", "bounds", "median", "mean", "deviation", "blank")
    assert all(getattr(column, name) is None for column in surveyed(data) for name in told)


def test_what_a_public_table_shows_of_its_label_is_told(tmp_path: Path) -> None:
    kinds = table(tmp_path, age=[30, 40, 50, 60] * 5, ill=["no", "no", "yes", "no"] * 5)
    study = made(kinds, "--public", "--label", "ill", "--positive", "no")
    assert study.label.model_dump()["values"] == ("yes", "no")
    assert study.label.model_dump()["shares"] == (0.25, 0.75)
    (tmp_path / "study.json").unlink()
    costs = table(tmp_path, age=[30, 40, 50, 60] * 5, cost=[float(i) for i in range(20)])
    label = made(costs, "--public", "--label", "cost").label.model_dump()
    assert (label["mean"], label["deviation"]) == (9.5, 5.8)


@pytest.mark.parametrize(
    ("lower", "upper", "bounds"),
    [
        (17, 90, (17, 90)),
        (0.123, 4.567, (0.1, 4.6)),
        (-0.31, 0.3, (-0.31, 0.3)),
        (1577836800123, 1577836800149, (1577836800123, 1577836800149)),
        (1577836800123, 1577836820149, (1577836800000, 1577836821000)),
        (2**53, 2**53 + 20, (2**53, 2**53 + 20)),
        (1, 1 + 2**-51, (1, 1 + 2**-51)),
        (0, 5e-324, (0, 5e-324)),
    ],
)
def test_bounds_of_a_public_column_hold_its_numbers(
    tmp_path: Path, lower: float, upper: float, bounds: tuple[float, float]
) -> None:
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.table({"x": pa.array([float(lower), float(upper)] * 20)}), path)
    (column,) = surveyed(path, public=True)
    assert column.bounds == bounds


def test_what_is_known_of_a_private_label_is_what_is_said(tmp_path: Path) -> None:
    data = table(tmp_path, age=[30, 40, 40], cost=[1, 2, 3], ill=["no", "yes", "no"])
    bounds = ("--bounds", "age=0:120")
    classes = ("--label", "ill", "--leave-out", "cost", *bounds, "--values", "ill=no,yes")
    assert made(data, *classes, "--share", "yes=0.1", "--share", "no=0.9").label.model_dump()["shares"] == (0.9, 0.1)
    number = ("--label", "cost", "--leave-out", "ill", *bounds, "--bounds", "cost=0:10", "--force")
    label = made(data, *number, "--mean", "2", "--deviation", "1").label.model_dump()
    assert (label["mean"], label["deviation"]) == (2, 1)
    assert made(data, *number).label.model_dump()["mean"] is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--share", "yes=0.1"), "say one of each value of the label, which has 'no', 'yes'"),
        (("--share", "yes=0.1", "--share", "no=0.5"), "its shares must add up to 1"),
        (("--share", "yes=few", "--share", "no=0.5"), "--share yes: it must be a number between 0 and 1"),
        (("--mean", "2"), "the label 'ill' is of classes: say --share"),
    ],
)
def test_what_cannot_be_known_of_classes_is_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    data = table(tmp_path, age=[30, 40, 40], ill=["no", "yes", "no"])
    done = init(data, "--label", "ill", "--bounds", "age=0:120", "--values", "ill=no,yes", *words)
    assert done.exit_code == 3
    assert why in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--share", "yes=0.1"), "the label 'cost' is a number: say --mean and --deviation"),
        (("--mean", "2"), "mean and deviation go together"),
        (("--mean", "12", "--deviation", "1"), "mean must lie between its bounds"),
    ],
)
def test_what_cannot_be_known_of_a_number_is_refused(tmp_path: Path, words: tuple[str, ...], why: str) -> None:
    data = table(tmp_path, age=[30, 40, 40], cost=[1, 2, 3])
    done = init(data, "--label", "cost", "--bounds", "age=0:120", "--bounds", "cost=0:10", *words)
    assert done.exit_code == 3
    assert why in done.stderr


@pytest.mark.parametrize("positive", ["true", " True", "TRUE"])
def test_the_positive_class_may_be_spelt_as_a_value_may(tmp_path: Path, positive: str) -> None:
    data = table(tmp_path, age=[30, 40, 40], ill=[True, False, True])
    study = made(data, "--public", "--label", "ill", "--positive", positive)
    assert study.label.model_dump()["values"] == ("False", "True")


def test_what_is_not_said_is_asked_for(tmp_path: Path) -> None:
    data = table(tmp_path, age=[30, 40, 40], sex=["F", "M", "M"], ill=["no", "yes", "no"])
    study = made(data, "--ask", given="ill\n0:120\nF,M\nno,yes\n")
    assert study.named[0].model_dump()["upper"] == 120
    assert study.named[1].model_dump()["values"] == ("F", "M")
    assert study.label.name == "ill"


def test_a_private_table_needs_no_question_where_all_is_said(tmp_path: Path) -> None:
    data = table(tmp_path, age=[30, 40, 40], sex=["F", "M", "M"], ill=["no", "yes", "no"])
    words = ("--label", "ill", "--bounds", "age=0:120", "--values", 'sex=F,M,"X, Y"', "--values", "ill=no,yes")
    study = made(data, *words, "--title", "Illness", "--purpose", "To see", "--describe", "age=at admission")
    assert (study.title, study.purpose) == ("Illness", "To see")
    assert study.named[0].description == "at admission"
    assert study.named[1].model_dump()["values"] == ("F", "M", "X, Y")


def test_all_that_is_not_said_is_told_at_once_as_flags_to_fill_in(tmp_path: Path) -> None:
    names = [f"x {i}" for i in range(12)]
    numbers: dict[str, list[object]] = {name: [1, 2, 2] for name in names}
    data = table(tmp_path, **numbers, sex=["F", "M", "M"], plot_id=[1, 2, 3], ill=[0, 1, 0])
    done = init(data, "--label", "ill")
    assert done.exit_code == 3
    assert "; left out, unless you say --column NAME: 'plot_id'; or be asked" in done.stderr
    flags = shlex.split(done.stderr.partition("each: ")[2].partition(";")[0])
    assert len(flags) == 2 * 14
    assert "--values ill=VALUE,VALUE, if the label 'ill' is of classes" in done.stderr
    assert init(data, "--label", "ill", *flags).exit_code == 3, "what stands for a value is none"
    assert "twice" in init(data, "--label", "ill", *[flag.replace("LOWER:UPPER", "0:9") for flag in flags]).stderr
    words = [flag.replace("LOWER:UPPER", "0:9").replace("VALUE,VALUE", "F,M") for flag in flags]
    assert [column.name for column in made(data, "--label", "ill", *words).named] == [*names, "sex"]


def test_free_text_of_a_public_table_that_is_asked_for_is_reported(tmp_path: Path) -> None:
    data = table(tmp_path, note=[f"n{i % 250}" for i in range(500)], ill=["no", "yes"] * 250)
    done = init(data, "--public", "--label", "ill", "--column", "note")
    assert "--values note=VALUE,VALUE; or --leave-out NAME what holds more than 200" in done.stderr


def test_a_value_other_is_covered_by_other(tmp_path: Path) -> None:
    data = table(tmp_path, payor=["other", "state", "self"] * 10, ill=["no", "yes"] * 15)
    for words in ((), ("--other",), ("--other", "--values", "payor=self,state,other")):
        category = made(data, "--public", "--label", "ill", "--force", *words).named[0]
        assert isinstance(category, Category)
        assert category.column_values == ("self", "state", "other")
        assert fit_of_file(read_study(tmp_path / "study.json"), data).fits
    kept = made(data, "--label", "ill", "--force", "--values", "payor=self,state,other", "--values", "ill=no,yes")
    assert kept.named[0].model_dump()["other"] is False
    closed = made(data, "--public", "--label", "ill", "--force", "--no-other").named[0].model_dump()
    assert (sorted(closed["values"]), closed["other"]) == (["other", "self", "state"], False)
    note = "'payor': a value that the study does not name counts as 'other', as does 'other' itself; if owners have no"
    assert note in init(data, "--public", "--label", "ill", "--force").stderr
    assert "--no-other" not in init(data, "--public", "--label", "ill", "--force", "--no-other").stderr


def test_missing_values_are_filled_by_what_is_said_or_is_likely(tmp_path: Path) -> None:
    data = table(
        tmp_path, pay=[1, 2, 90, ""] * 10, age=[30, "", 50, 50] * 10, sex=["F", "", "M", "M"] * 10, ill=[0, 1] * 20
    )
    own = ("--label", "ill", "--missing", "value")
    study = made(data, *own, "--public", "--fill", "age=40")
    assert study.missing == "value"
    assert [column.fill for column in study.named] == [2.0, 40.0, "other"]
    assert load_examples(data, study).dropped_share == 0
    one = made(data, "--label", "ill", "--public", "--fill", "sex=F", "--force")
    assert (one.missing, [column.fill for column in one.named]) == ("drop", [None, None, "F"])

    said = ("--bounds", "pay=0:100", "--bounds", "age=0:120", "--values", "sex=F,M", "--values", "ill=0,1")
    assert "each: --fill sex=VALUE;" in init(data, *own, *said, "--force").stderr
    private = made(data, *own, *said, "--fill", "sex=M", "--force")
    assert [column.fill for column in private.named] == [50.0, 60.0, "M"]
    asked = made(data, *own, *said, "--ask", "--force", given="M\n")
    assert [column.fill for column in asked.named] == [50.0, 60.0, "M"]


def test_rows_of_a_public_file_that_would_be_empty_are_reported(tmp_path: Path) -> None:
    data = table(
        tmp_path, misc=["a", "b", *[""] * 38], age=[30, "", 50, 50] * 10, size=[1, 2] * 20, ill=[*[0, 1] * 19, "", 1]
    )
    done = init(data, "--public", "--label", "ill")
    assert "97.50% of the rows of this file miss a value" in done.stderr
    assert "most blanks: 'misc' 95.00%, 'age' 25.00%, 'ill' (the label) 2.50%" in done.stderr
    for words in ("--leave-out NAME", "--fill NAME=VALUE", "--missing value", "next: parley-learner study check"):
        assert words in done.stderr
    assert f"parley-learner simulate --data {data} --study {tmp_path / 'study.json'}" in done.stderr

    filled = init(data, "--public", "--label", "ill", "--missing", "value", "--force", "--format", "json")
    document = json.loads(filled.stdout)
    assert (document["fits"], document["dropped"], document["blanks"]) == (True, 0.025, {"ill": 0.025})
    assert read_study(tmp_path / "study.json").missing == "drop"
    unfit = init(data, "--public", "--label", "ill", "--bounds", "size=0:1", "--force").stderr
    assert "does not fit the study itself" in unfit
    assert "size: beyond the bounds: 20 rows" in unfit
    assert "simulate" not in unfit


def test_free_texts_and_numbers_of_people_in_a_public_file_are_left_out_unless_asked_for(tmp_path: Path) -> None:
    n = 600
    columns: dict[str, list[object]] = {
        "patient_nbr": [37 * (i % 400) for i in range(n)],
        "visit_no": [37 * (i % 400) for i in range(n)],
        "diagnosis": [f"d{i % 300}" for i in range(n)],
        "amount": [i % 400 for i in range(n)],
        "ill": [0, 1] * (n // 2),
    }
    data = table(tmp_path, **columns)
    found = json.loads(init(data, "--public", "--label", "ill", "--format", "json").stdout)
    by_name = "looks like an identifier: by its name"
    assert found["left_out"] == {
        "patient_nbr": by_name,
        "visit_no": by_name,
        "diagnosis": "holds more than 200 different texts: take those you name by --values NAME=A,B --other",
    }
    taken = ("--column", "visit_no", "--values", "diagnosis=d0,d1", "--other", "--force")
    assert [column.name for column in made(data, "--public", "--label", "ill", *taken).features] == [
        "visit_no",
        "diagnosis",
        "amount",
    ]


def test_no_rows_of_a_private_file_are_reported(tmp_path: Path) -> None:
    data = table(tmp_path, age=[3, 4, "", ""] * 10, ill=["no", "yes"] * 20)
    words = ("--label", "ill", "--bounds", "age=0:9", "--values", "ill=no,yes", "--format")
    assert json.loads(init(data, *words, "json").stdout).keys() == {"file", "name", "left_out", "doubtful"}
    done = init(data, *words, "text", "--force")
    assert done.stderr.splitlines()[3:] == [f"next: parley-learner study check {tmp_path / 'study.json'} --data TABLE"]
    assert all(column.blank is None and column.median is None for column in surveyed(data))


def test_a_public_table_of_forms_has_bounds_without_negative_codes_and_yes_as_the_positive_class(
    tmp_path: Path,
) -> None:
    data = table(tmp_path, age=[30, 40, -999, 60] * 10, ill=["Ja", "Nein", "Nein", "Nein"] * 10)
    study = made(data, "--public", "--label", "ill", "--force")
    age = study.features[0].model_dump()
    assert (age["lower"], age["upper"]) == (30.0, 60.0)
    assert study.label.model_dump()["values"] == ("Nein", "Ja")
    told = init(data, "--public", "--label", "ill", "--force").stderr
    assert "study.json --data TABLE --clip --value age:-999=" in told
    assert "'Ja' is the positive class" in told
    assert "does not fit" not in told
    assert "25.00% of the rows of this file miss a value" in told
    alone: tuple[list[object], ...] = ([-999] * 40, [-999, -99] * 20)
    for codes_alone in alone:
        codes = table(tmp_path, age=codes_alone, ill=["no", "yes"] * 20)
        made(codes, "--public", "--label", "ill", "--column", "age", "--force")


def test_a_regression_is_one_of_bounds(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    columns = {"x": rng.normal(size=40).round(3), "rate": rng.uniform(5, 20, size=40).round(2)}
    parquet.write_table(pa.table(columns), tmp_path / "loans.parquet")
    study = made(tmp_path / "loans.parquet", "--public", "--label", "rate", "--unit", "rate=%")
    assert study.kind == "regression"
    assert isinstance(study.label, RealLabel)
    assert study.label.lower <= columns["rate"].min() < columns["rate"].max() <= study.label.upper
    assert fit_of_file(study, tmp_path / "loans.parquet").fits


def test_a_study_from_a_table_trains(tmp_path: Path) -> None:
    data = adult(tmp_path)
    made(data, "--public", "--label", "income")
    words = [
        "simulate",
        "--data",
        str(data),
        "--study",
        str(tmp_path / "study.json"),
        "--repeat",
        "1",
        "--parties",
        "2",
    ]
    done = CliRunner().invoke(learner_app, [*words, "--no-baselines"])
    assert done.exit_code == 0, done.output


def test_what_looks_like_an_identifier_is_left_out_unless_it_is_asked_for(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "patient_id": list(range(30)), "Kürzel": [f"{SECRET}{i}" for i in range(30)],
        "born": ["1970-01-02", "1980-02-03"] * 15,
        "site": ["a"] * 30, "blank": [""] * 30, "age": [30, 31, 32] * 10, "ill": ["no", "yes"] * 15,
    }  # fmt: skip
    data = table(tmp_path, **columns)
    done = init(data, "--public", "--label", "ill")
    assert done.exit_code == 0, done.output
    assert [column.name for column in read_study(tmp_path / "study.json").named] == ["age"]
    assert "left out 'patient_id': looks like an identifier: by its name" in done.stderr
    assert "left out 'Kürzel': looks like an identifier: its values differ by row" in done.stderr
    assert "left out 'born': is a date" in done.stderr
    assert "left out 'site': holds one value only" in done.stderr
    assert "left out 'blank': is empty" in done.stderr
    assert "by --column NAME; --leave-out NAME" in done.stderr
    assert SECRET not in done.output
    asked = init(data, "--public", "--label", "ill", "--bounds", "patient_id=0:99", "--force")
    assert "warning: 'patient_id' looks like an identifier" in asked.stderr
    assert "patient_id" in [column.name for column in read_study(tmp_path / "study.json").named]


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([f"{i}%" for i in range(60)], "holds numbers with a comma, a %"),
        ([f"${i},{i:03}.50" for i in range(60)], "holds numbers with a comma, a %"),
        ([f"{i % 7},5" for i in range(60)], None),
        ([f"{i % 7}.004,5" for i in range(60)], None),
        (["none", *range(59)], "holds numbers, but for a few texts"),
        (["?", *(i / 4 for i in range(58)), "-"], None),
        (["unknown", *(i / 4 for i in range(58)), "-"], "holds numbers, but for a few texts"),
        ([f"2020/{i % 12 + 1}/{i % 28 + 1}" for i in range(60)], "is a date"),
        (["Dec-2011", "Jan-1985"] * 30, "is a date"),
        (["1 Jan 2020", "12 March 1985"] * 30, "is a date"),
        (["1", "2", "3A"] * 20, None),
        (["0-10", "10-20"] * 30, None),
        (["may", "june"] * 30, None),
        (["5 mg", "10 mg"] * 30, None),
    ],
)
@pytest.mark.parametrize("public", [False, True])
def test_numbers_and_dates_are_known_however_they_are_written(
    tmp_path: Path, cells: list[object], why: str | None, *, public: bool
) -> None:
    (column,) = surveyed(table(tmp_path, x=cells), public=public)
    assert (column.warning or "").startswith(why or "")
    assert (column.warning is None) == (why is None)


def test_bounds_of_numbers_that_are_none_yet_are_refused_with_what_to_do(tmp_path: Path) -> None:
    data = table(tmp_path, rate=[f"{i}%" for i in range(60)], ill=["no", "yes"] * 30)
    assert (
        "column 'rate' holds numbers with a comma, a %" in init(data, "--label", "ill", "--bounds", "rate=0:9").stderr
    )


def test_what_a_public_column_holds_says_more_than_its_name(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "phone_service": [0, 1] * 30, "sent_email": [0, 1] * 30, "plot_id": [1, 2, 3] * 20, "Street": ["a", "b"] * 30,
        "Latitude": [i + 0.5 for i in range(60)], "client_id": [*range(40), *range(20)],
        "code": [*range(59), 58], "ill": ["no", "yes"] * 30,
    }  # fmt: skip
    data = table(tmp_path, **columns)
    open_to_all = {column.name: column.warning for column in surveyed(data, public=True)}
    assert [name for name, why in open_to_all.items() if why] == ["client_id", "code"]
    private = {column.name: column.warning for column in surveyed(data)}
    assert [name for name, why in private.items() if why] == ["plot_id", "Street", "Latitude", "client_id"]


@pytest.mark.parametrize("public", [False, True])
def test_what_hardly_repeats_is_an_identifier_unless_it_measures(tmp_path: Path, *, public: bool) -> None:
    """Seconds and amounts differ by row because they are large; codes because somebody gave them."""
    rng, n = np.random.default_rng(5), 60
    measures = {
        "seconds": rng.choice(172_800, n, replace=False),
        "amount": rng.lognormal(7, 2, n).astype(int) * 100 + np.arange(n),
        "balance": rng.choice(20_000, n, replace=False) - 10_000,
    }
    codes = {
        "row": np.arange(n) + 7,
        "shuffled": rng.permutation(n) * 2,
        "code": rng.choice(90_000, n, replace=False) + 10_000,
        "ward": np.arange(n) + 990,
    }
    columns: dict[str, list[object]] = {name: each.tolist() for name, each in {**measures, **codes}.items()}
    told = {each.name: each.warning for each in surveyed(table(tmp_path, **columns), public=public)}
    assert [name for name, why in told.items() if why] == [*codes]


@pytest.mark.parametrize("public", [False, True])
def test_people_who_have_many_rows_are_known_by_the_columns_name(tmp_path: Path, *, public: bool) -> None:
    people = ["subject#", "Patient", "participant_no", "PatientID", "case number", "customer id"]
    others: dict[str, list[object]] = {
        "student": ["no", "yes"] * 300, "member": [0, 1] * 300, "patient_age": [*range(20, 50)] * 20,
        "case": ["a", "b", "c"] * 200, "accounts": [1, 2, 3] * 200, "customer_type": ["a", "b", "c"] * 200,
    }  # fmt: skip
    columns: dict[str, list[object]] = {name: [i // 20 for i in range(600)] for name in people}
    data = table(tmp_path, **columns, **others)
    told = {column.name: column.warning for column in surveyed(data, public=public)}
    assert [name for name, why in told.items() if why] == people
    study = made(data, "--public", "--label", "student", *(word for name in people for word in ("--column", name)))
    assert list(fit_of_file(study, data).identifiers) == people


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--label", "nothing"), "no column 'nothing'"),
        (("--label", "ill", "--positive", "perhaps"), "which has 'no', 'yes'"),
        (("--label", "ill", "--bounds", "ill=0:1"), "column 'ill' does not hold numbers"),
        (("--label", "age", "--bounds", "ill=0:1"), "column 'ill' does not hold numbers"),
        (
            ("--label", "ill", "--unit", f"age={'x' * 60}"),
            "r: column 'age': unit: String should have at most 50 characters\n",
        ),
        (("--label", "ill", "--values", "age="), "column 'age': values: Tuple should have at least 1 item"),
        (("--label", "ill", "--fill", "age=old"), "column 'age' holds numbers, so a number"),
        (("--label", "ill", "--fill", "age=99"), ": column 'age': fill must lie within its bounds"),
        (("--label", "ill", "--fill", "ill=no"), "nothing stands in for a label"),
        (("--label", "ill", "--title", "x" * 201), "parley-learner: title: String"),
        (("--label", "ill", "--bounds", "age=old"), "bounds of 'age'"),
        (("--label", "ill", "--bounds", "age=9:1"), ": column 'age': lower must be below upper"),
        (("--label", "ill", "--bounds", "age"), "must be COLUMN="),
        ((), "--label"),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    data = table(tmp_path, age=[30, 40, 40], ill=["no", "yes", "no"])
    done = init(data, "--public", *words)
    assert done.exit_code == 3
    assert told in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_study_is_not_written_over(tmp_path: Path) -> None:
    data = table(tmp_path, age=[30, 40, 40], ill=["no", "yes", "no"])
    made(data, "--public", "--label", "ill")
    assert "--force" in init(data, "--public", "--label", "ill").stderr


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (b"age,ill\n", "no row"),
        (b"age,age,ill\n1,2,no\n", "names columns twice: see places 1, 2 of its first line"),
        (b"77516,a,77516\n1,2,no\n", "names columns twice: see places 1, 3"),
        (b"39, State-gov, 77516\n50, Private, 83311\n", "looks like values"),
        (b"age,ill\n1,no,3\n", "cannot be read: line 2 has 3 cells, and the line of names 2"),
        (b"\xff\xfe\x00age\n1\n", "cannot be read: it is not UTF-16"),
        (b"age,ill\n1,n\xf6\n2,n\xc3\xb6\n", "cannot be read: it is not UTF-8 throughout"),
        (b"age,ill\n1,n\x81\n", "cannot be read: it is not UTF-8 throughout"),
        (b"age\0,ill\n1,no\n", "cannot be read: it is no text"),
        (b"age,sex;ill\n77516,1;no\n", "cannot be read: its cells may stand between commas or semicolons"),
        (b'age,ill\n77516,"no\n2,yes\n', "cannot be read: a quoted cell in the row of line 2 does not end"),
        (b"age;ill\n7.516;no\n8.516;yes\n", "column 'age' a point may be the decimal sign of numbers"),
        (b"age;ill;x\n7,5;no;8.25\n", "a decimal point in column 'x', and a decimal comma in column 'age'"),
        (b"age,ill\n77516,no\nTotal,2\n", "line 3, the last, begins as one of totals"),
        (b"\x1f\x8b\x08\x00age", "cannot be read: it cannot be unpacked"),
    ],
)
def test_hostile_tables_are_refused_in_one_line(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    done = init(path, "--label", "ill", "--public")
    assert done.exit_code == 3
    assert told in done.stderr
    assert "77516" not in done.output
    assert not done.exception or isinstance(done.exception, SystemExit)
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_byte_order_mark_and_unicode_are_names_as_any(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\ufeffâge,病気\n1,no\n2,yes\n3,no\n", encoding="utf-8")
    study = made(path, "--public", "--label", "病気")
    assert [column.name for column in study.named] == ["âge"]
    assert fit_of_file(study, path).fits


@pytest.mark.slow
def test_five_thousand_columns_make_a_study(tmp_path: Path) -> None:
    text = io.StringIO()
    names = [f"x{i}" for i in range(5_000)]
    csv.writer(text).writerows([[*names, "ill"], [0.5] * 5_000 + ["no"], [1.5] * 5_000 + ["yes"]])
    path = tmp_path / "t.csv"
    path.write_text(text.getvalue())
    study = made(path, "--public", "--label", "ill")
    assert len(study.named) == 5_000
    assert fit_of_file(study, path).fits


def check(study: Path, data: Path, *words: str) -> Result:
    return CliRunner().invoke(party_app, ["study", "check", str(study), "--data", str(data), *words])


def test_what_does_not_fit_is_told_by_columns_and_counts(tmp_path: Path) -> None:
    data = adult(
        tmp_path,
        age=["190", "-5", ""],
        workclass=[SECRET, SECRET],
        income=[SECRET],
        education_num=["many"],
        extra=["1"],
    )
    done = check(ADULT, data)
    assert done.exit_code == 1
    for line in (
        "age: missing: 1 row, beyond the bounds: 2 rows",
        "workclass: unknown category: 2 rows",
        "education_num: not numeric: 1 row",
        "income: unknown label: 1 row",
        "not in the study, and never read: extra",
    ):
        assert line in done.stdout
    assert SECRET not in done.output
    assert "190" not in done.output
    rows = json.loads(check(ADULT, data, "--format", "json").stdout)
    assert not rows["fits"]
    assert rows["faults"]["workclass"] == {"unknown category": 2}


def test_a_column_that_is_gone_is_named(tmp_path: Path) -> None:
    data = adult(tmp_path)
    text = data.read_text().replace("workclass", "work_class", 1)
    data.write_text(text)
    fit = fit_of_file(read_study(ADULT), data)
    assert not fit.fits
    assert fit.absent == ("workclass",)
    assert fit.extra == ("work_class",)


def test_a_study_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    study = tmp_path / "study.json"
    study.write_text(f"\ufeff{ADULT.read_text()}", encoding="utf-8")
    assert check(study, adult(tmp_path)).exit_code == 0
    assert "none.json cannot be read: No such file" in check(tmp_path / "none.json", adult(tmp_path)).stderr


def test_too_few_rows_and_what_fits(tmp_path: Path) -> None:
    data = adult(tmp_path)
    assert check(ADULT, data).exit_code == 0
    few = check(ADULT, data, "--minimum-rows", "61")
    assert few.exit_code == 1
    assert "60 rows, and 61 are needed" in few.stdout
    assert check(ADULT, tmp_path / "none.csv").exit_code == 3
    same = CliRunner().invoke(learner_app, ["study", "check", str(ADULT), "--data", str(data)])
    assert same.exit_code == 0, same.output
    none = CliRunner().invoke(learner_app, ["study", "check", str(ADULT), "--data", str(tmp_path / "none.csv")])
    assert none.exit_code == 3


def test_bounds_far_wider_than_what_is_in_them_are_warned_of(tmp_path: Path) -> None:
    """By names alone; not of a column that does not vary, and not by what stands in for a missing value."""
    thin: list[object] = [40, 41, None, 49]
    wide: list[object] = [40, 41, None, 50]
    bounds = {"thin": "0:100", "wide": "0:100", "far": "0:1000", "same": "0:100"}
    data = table(tmp_path, thin=thin, wide=wide, far=[7, 8, 9, 7], same=[5] * 4, ill=["no", "yes", "no", "yes"])
    said = [f"{name}={bound}" for name, bound in bounds.items()]
    made(data, "--label", "ill", "--values", "ill=no,yes", *(word for each in said for word in ("--bounds", each)))
    for app in (party_app, learner_app):
        arguments = ["study", "check", str(tmp_path / "study.json"), "--data", str(data)]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        verdict, warning, named, *_ = done.stdout.splitlines()
        assert verdict.startswith("the data fits ")
        assert (
            warning == "warning: 2 columns fill less than 10% of the bounds, which leaves rows alike: noise is the more"
        )
        assert named == "  namely thin, far; take narrower bounds if they are common knowledge"
        assert not set(done.stdout.split()) & {"40", "41", "49", "7", "8", "9"}


def test_a_study_that_wants_an_identifier_is_reported(tmp_path: Path) -> None:
    data = table(tmp_path, patient_id=[1, 2, 3], ill=["no", "yes", "no"])
    made(data, "--public", "--label", "ill", "--bounds", "patient_id=0:9")
    assert "patient_id: looks like an identifier" in check(tmp_path / "study.json", data).stdout


def test_values_for_names_are_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"39,{SECRET}\n40,b\n")
    with pytest.raises(InvalidDataError, match="looks like values") as refused:
        fit_of_file(read_study(ADULT), path)
    assert SECRET not in str(refused.value)


def test_words_are_part_of_what_parties_approve_and_none_is_no_word() -> None:
    terms = json.loads(ADULT.read_text())
    plain = Study.model_validate(terms)
    assert "title" not in plain.model_dump()
    assert Study.model_validate(terms | {"title": ""}).digest == plain.digest
    digests = {plain.digest}
    years = [terms["features"][0] | {"unit": "years"}, *terms["features"][1:]]
    said = terms["label"] | {"description": "A"}
    for more in ({"title": "A"}, {"purpose": "A"}, {"features": years}, {"label": said}):
        study = Study.model_validate(terms | more)
        assert Study.model_validate_json(study.model_dump_json()) == study
        digests.add(study.digest)
    assert len(digests) == 5


@pytest.mark.parametrize("name", ["a\nthe data fits", "a\u202eb", "a\x1b[2Jb"])
def test_names_that_could_deceive_are_refused_and_not_drafted(tmp_path: Path, name: str) -> None:
    terms = json.loads(ADULT.read_text())
    for more in ({"name": name}, {"label": terms["label"] | {"name": name}}):
        with pytest.raises(ValueError, match="name"):
            Study.model_validate(terms | more)
    with pytest.raises(ValueError, match="name"):
        Study.model_validate(terms | {"features": [terms["features"][0] | {"name": name}]})
    columns: dict[str, list[object]] = {name: [1, 2, 3], "age": [30, 40, 40], "ill": ["no", "yes", "no"]}
    data = table(tmp_path, **columns)
    assert [column.name for column in made(data, "--public", "--label", "ill").named] == ["age"]


@pytest.mark.parametrize("words", ["a\nb", "a\u202eb", "a\x1b[2Jb", "x" * 201])
def test_words_that_could_deceive_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match="title"):
        Study.model_validate(json.loads(ADULT.read_text()) | {"title": words})


@pytest.mark.slow
def test_rows_of_a_database_are_drafted_checked_and_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the words that `join` takes: a query over its tables, a table of SQLite, a pattern of files."""
    monkeypatch.chdir(tmp_path)
    with closing(sqlite3.connect("lab.sqlite")) as lab, lab:
        lab.execute("CREATE TABLE labs (key INTEGER, marker REAL, ill TEXT)")
        lab.executemany("INSERT INTO labs VALUES (?, ?, ?)", [(i, i % 7 / 2, "yn"[i % 2]) for i in range(N_ROWS)])
    rows = table(tmp_path, key=list(range(N_ROWS)), age=[20 + i % 50 for i in range(N_ROWS)])
    Path("visits").mkdir()
    rows.rename("visits/2024.csv")
    query = "SELECT v.age, l.marker, l.ill FROM visits v JOIN labs l USING (key) ORDER BY key"
    tables = ["--table", "visits=visits/*.csv", "--table", "labs=lab.sqlite::labs"]
    run = CliRunner().invoke
    made = run(learner_app, ["study", "init", query, *tables, "--public", "--label", "ill"])
    assert made.exit_code == 0, made.output
    assert [column.name for column in read_study(Path("study.json")).named] == ["age", "marker"]
    assert read_study(Path("study.json")).name == "visits"
    assert "--table 'visits=visits/*.csv' --table lab" in made.stderr
    tried = ["simulate", "--data", query, *tables, "--study", "study.json", "--repeat", "1", "--format", "json"]
    done = run(learner_app, tried)
    assert done.exit_code == 0, done.output
    assert (json.loads(done.stdout)["n_rows"], json.loads(done.stdout)["tables"]) == (N_ROWS, tables[1::2])
    for source, name, columns in (
        ("lab.sqlite::labs", "labs", ["key", "marker", "ill"]),
        ("visits/*.csv", "visits", ["key", "age"]),
    ):
        flags = ["--public", "--label", columns[-1], "--column", "key", "--out", f"{name}.json"]
        made = run(learner_app, ["study", "init", source, *flags])
        assert made.exit_code == 0, made.output
        assert read_study(Path(f"{name}.json")).name == name
        assert [*read_study(Path(f"{name}.json")).table_names] == columns
    private = run(learner_app, ["study", "init", query, *tables, "--label", "ill", "--force"])
    assert "not said; add these" in private.stderr
    nowhere = run(learner_app, ["study", "init", query, "--public", "--label", "ill", "--force"])
    assert "Table with name visits does not exist" in nowhere.stderr


# ── what `study init` prints and writes, to the letter ───────────────────────


def test_a_draft_is_told_with_what_its_author_should_look_at(tmp_path: Path) -> None:
    data = table(
        tmp_path, patient_id=list(range(40)), age=[30, 40, 50, 60] * 10, ill=["no", "yes"] * 20, case_id=list(range(40))
    )
    done = init(data, "--public", "--label", "ill", "--column", "case_id", "--name", "wards", "--csv", "separator=,")
    study, out = tmp_path / "study.json", tmp_path / "t.csv"
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{study}: wards, binary, 2 columns to learn 'ill' from\n"
    assert done.stderr.splitlines() == [
        "  left out 'patient_id': looks like an identifier: by its name",
        "  take one all the same by --column NAME; --leave-out NAME leaves another out",
        "  warning: 'case_id' looks like an identifier: by its name",
        "  'yes' is the positive class: --positive takes the other",
        "  bounds are those of this file: what lies beyond them in owners' rows counts as the bound, by --clip",
        (
            "  0.1 of each owner's rows are held out: no run trains on them, so that models can be evaluated on them "
            "(--hold-out 0: none); once owners have joined, this cannot change"
        ),
        "  read every bound, value and description: owners approve them as they stand",
        f"next: parley-learner study check {study} --data TABLE --clip",
        f"or try it at once, on this file: parley-learner simulate --data {out} --csv separator=, --study {study}",
    ]
    written = study.read_text(encoding="utf-8")
    assert written == read_study(study).model_dump_json(indent=2, exclude_none=True) + "\n"
    done = init(data, "--public", "--label", "ill", "--leave-out", "case_id", "--force", "--format", "json")
    assert json.loads(done.stdout) == {
        "file": str(study),
        "name": "t",
        "left_out": {"patient_id": "looks like an identifier: by its name", "case_id": "as you said"},
        "doubtful": {},
        "fits": True,
        "dropped": 0.0,
        "blanks": {},
    }
    refused = init(data, "--public", "--label", "ill")
    assert refused.stderr == (f"parley-learner: {study} is there already: say --force to write over it, or --out\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--bounds", "age"), "--bounds: 'age' must be COLUMN=..."),
        (("--values", "ill"), "--values: 'ill' must be COLUMN=..."),
        (("--unit", "age"), "--unit: 'age' must be COLUMN=..."),
        (("--describe", "age"), "--describe: 'age' must be COLUMN=..."),
        (("--fill", "age"), "--fill: 'age' must be COLUMN=..."),
        (("--share", "no"), "--share: 'no' must be COLUMN=..."),
        (("--share", "no=much"), "--share no: it must be a number between 0 and 1"),
        (("--bounds", "age=1"), "bounds of 'age': two numbers, LOWER:UPPER"),
    ],
)
def test_an_option_that_cannot_be_read_is_named(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    data = table(tmp_path, age=[30, 40, 40], ill=["no", "yes", "no"])
    assert init(data, "--public", "--label", "ill", *words).stderr == f"parley-learner: {message}\n"


def test_a_columns_name_may_hold_an_equals_sign(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {"a": [1, 2, 2], "a=b": [1, 2, 2], "ill": ["no", "yes", "no"]}
    data = table(tmp_path, **columns)
    words = ("--bounds", "a=b=0:7", "--bounds", "a=0:9", "--unit", "a=b=kg", "--describe", "a=x=y")
    study = made(data, "--public", "--label", "ill", *words)
    told = {column.name: column.model_dump() for column in study.named}
    assert (told["a=b"]["upper"], told["a=b"]["unit"], told["a"]["upper"]) == (7, "kg", 9)
    assert told["a"]["description"] == "x=y"


def test_a_signed_study_is_written_beside_it_and_its_words_are_told(tmp_path: Path) -> None:
    data = table(tmp_path, age=[30, 40, 40], ill=["no", "yes", "no"])
    made(data, "--public", "--label", "ill")
    folder = tmp_path / "learner"
    run = CliRunner().invoke
    begun = run(learner_app, ["init", "http://127.0.0.1:8100", "--plain-http", "--out", str(folder), "--name", "us"])
    assert begun.exit_code == 0, begun.output
    study, config = str(tmp_path / "study.json"), str(folder / "learner.toml")
    done = run(learner_app, ["study", "sign", study, "--config", config])
    target = tmp_path / "study.signed.json"
    words = " ".join(words_of(public_hex(identity_key(folder / "state" / "identity.key"))))
    assert done.stdout == f"{target}\n"
    assert done.stderr.splitlines() == [
        f"owners compare the words of us's key: {words}",
        f"next: parley-party study check {target} --data TABLE",
    ]
    signed = SignedStudy.model_validate_json(target.read_text())
    assert (signed.learner, signed.study) == ("us", read_study(tmp_path / "study.json"))
    assert target.read_text().endswith("}\n")
    checked = run(learner_app, ["study", "check", str(target), "--data", str(data), "--clip"])
    assert checked.exit_code == 0
    assert "us" in checked.stderr


def test_a_tenth_is_held_out_unless_the_author_says_otherwise(tmp_path: Path) -> None:
    data = table(tmp_path, age=[3, 4, 5, 6] * 10, ill=["no", "yes"] * 20)
    words = ("--public", "--label", "ill", "--force")
    shares = {}
    for option in ((), ("--hold-out", "0.25"), ("--hold-out", "0")):
        done = init(data, *words, *option)
        shares[option[-1:]] = read_study(tmp_path / "study.json").hold_out
    assert shares == {(): 0.1, ("0.25",): 0.25, ("0",): None}
    assert "no row is held out: nobody can evaluate a model" in done.stderr
    assert '"hold_out"' not in (tmp_path / "study.json").read_text(), "the digests of older studies stay"
    for wrong in ("1", "-0.1", "nan"):
        assert "--hold-out" in init(data, *words, "--hold-out", wrong).output
