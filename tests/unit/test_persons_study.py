"""A study of persons from a table, and what its owner learns about the persons in a table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner, Result

from parley.common.files.sources import DataSource
from parley.common.files.studies import read_study
from parley.common.files.study_fit import StudyFit, fit_of_source
from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app

WORDS = ("--label", "ill", "--values", "ill=no,yes", "--bounds", "age=0:120", "--no-ask")
N = 40


def table(folder: Path, ids: list[str]) -> Path:
    rng, path = np.random.default_rng(0), folder / "visits.csv"
    columns = {"patient_nbr": ids, "age": rng.integers(20, 90, len(ids)), "ill": rng.choice(["no", "yes"], len(ids))}
    csv.write_csv(pa.table(columns), path)
    return path


def init(data: Path, *words: str) -> Result:
    out = data.with_name("study.json")
    return CliRunner().invoke(learner_app, ["study", "init", str(data), "--out", str(out), "--force", *WORDS, *words])


def checked(data: Path, *words: str) -> StudyFit:
    assert init(data, *words).exit_code == 0
    return fit_of_source(read_study(data.with_name("study.json")), DataSource(source=str(data)))


def visits(n_persons: int) -> list[str]:
    return [f"P{i % n_persons}" for i in range(N)]


def test_the_author_names_whose_a_row_is(tmp_path: Path) -> None:
    data = table(tmp_path, visits(8))
    proposed = init(data)
    assert "say --person" in proposed.output
    assert read_study(tmp_path / "study.json").person is None
    done = init(data, "--person", "patient_nbr", "--most-rows", "5")
    assert done.exit_code == 0, done.output
    assert "say --person" not in done.output
    assert "all rows of a person are hidden together, by 'patient_nbr'; 5 rows at most" in done.output
    assert "of each owner's persons are held out" in done.output
    study = read_study(tmp_path / "study.json")
    assert study.person is not None
    assert (study.person.column, study.person.most_rows, study.unit) == ("patient_nbr", 5, "person")
    assert study.feature_names == ("age",)


def test_what_is_no_column_of_persons_is_refused(tmp_path: Path) -> None:
    data = table(tmp_path, visits(8))
    for words, reason in {
        ("--person", "nobody"): "no column 'nobody'",
        ("--most-rows", "5"): "--most-rows: say whose a row is",
        ("--person", "age", "--column", "age"): "is a feature or the label",
        ("--person", "patient_nbr", "--most-rows", "200000"): "person: ",
    }.items():
        done = init(data, *words)
        assert done.exit_code != 0
        assert reason in done.output, words


def test_the_owner_alone_is_told_how_many_rows_persons_have(tmp_path: Path) -> None:
    data = table(tmp_path, visits(8))
    fit = checked(data, "--person", "patient_nbr")
    assert fit.lines()[0] == "the data fits visits: 8 persons, up to 5 rows each, 5.00 on average"
    assert "  patient_nbr: no row is without one, and none differs from another" in "\n".join(fit.lines())
    assert "never read" not in "\n".join(fit.lines())
    check = ["study", "check", str(tmp_path / "study.json"), "--data", str(data)]
    for app in (party_app, learner_app):
        done = CliRunner().invoke(app, [*check, "--format", "json"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["persons"] == {
            "persons": 8, "rows": N, "most": 5, "left_out": 0, "alike": 0, "missing": 0
        }  # fmt: skip
    done = CliRunner().invoke(party_app, [*check, "--minimum-rows", "9"])
    assert done.exit_code == 1
    assert "8 persons, and 9 are needed" in done.output


@pytest.mark.parametrize(
    ("ids", "words", "warning"),
    [
        ([f"E{i}" for i in range(N)], (), "is this a row's number? Then persons are records"),
        (["P"] * N, (), "all rows have one 'patient_nbr': they count as one person's"),
        (["p1", "P1", "P2", "P02"] * 10, (), "1 identifier of 'patient_nbr' differs from another"),
        (["7", "007", "7.0", "8"] * 10, (), "2 identifiers of 'patient_nbr' differ from another"),
        (visits(8), ("--most-rows", "3"), "16 rows of persons with more than 3 are left out"),
    ],
)
def test_what_is_strange_about_persons_is_said(
    tmp_path: Path, ids: list[str], words: tuple[str, ...], warning: str
) -> None:
    fit = checked(table(tmp_path, ids), "--person", "patient_nbr", *words)
    assert fit.fits
    assert warning in "\n".join(fit.lines())


def test_a_missing_identifier_is_a_fault_of_its_column(tmp_path: Path) -> None:
    fit = checked(table(tmp_path, ["", *visits(8)[1:]]), "--person", "patient_nbr")
    assert not fit.fits
    assert fit.faults == {"patient_nbr": {"identifier missing": 1}}
    study = read_study(tmp_path / "study.json")
    assert study.person is not None
    alone = study.model_copy(update={"person": study.person.model_copy(update={"missing": "alone"})})
    fit = fit_of_source(alone, DataSource(source=str(tmp_path / "visits.csv")))
    assert fit.fits
    assert "1 row without 'patient_nbr' counts as a person by itself" in "\n".join(fit.lines())


def test_a_study_of_records_says_nothing_of_persons(tmp_path: Path) -> None:
    fit = checked(table(tmp_path, visits(8)))
    assert fit.lines()[0] == f"the data fits visits: {N} rows"
    assert not {"person", "persons", "most_rows"} & fit.to_json().keys()
