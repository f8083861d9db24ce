"""A study of persons from a table, and what its owner learns about the persons in a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner, Result

from parley.common.data.columns import Label
from parley.common.data.study import Person
from parley.common.files.sources import DataSource
from parley.common.files.studies import read_study
from parley.common.files.study_fit import StudyFit, fit_of_source, survey_table
from parley.common.privacy.guarantee import Adjacency
from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app
from parley.party.policy import study_cautions
from parley.party.settings import Policy
from tests.support.studies import numbers_study

WORDS = ("--label", "ill", "--values", "ill=no,yes", "--bounds", "age=0:120", "--no-ask")
N = 40
ALIKE = "from another by capitals, leading zeros or the like alone"


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


def test_what_a_public_table_says_of_its_label_counts_each_person_once(tmp_path: Path) -> None:
    data = tmp_path / "visits.csv"
    ids, ill, cost = ["a", "A ", "a", "b", "", "c"], ["yes", "yes", "no", "no", "no", "no"], [1, 2, 3, 10, 20, 34]
    csv.write_csv(pa.table({"patient_nbr": ids, "ill": ill, "cost": cost}), data)
    by_rows, by_persons = (
        {column.name: column for column in survey_table(DataSource(source=str(data)), public=True, person=person)}
        for person in (None, "patient_nbr")
    )
    assert by_rows["ill"].shares == pytest.approx((4 / 6, 2 / 6))
    assert by_persons["ill"].shares == pytest.approx((1 - 2 / 12, 2 / 12))
    assert by_persons["cost"].mean == pytest.approx((2 + 10 + 20 + 34) / 4)
    costs, weights = np.array(cost), np.array([1 / 3, 1 / 3, 1 / 3, 1, 1, 1])
    assert by_persons["cost"].deviation == pytest.approx(np.average((costs - 16.5) ** 2, weights=weights) ** 0.5)
    private = survey_table(DataSource(source=str(data)), person="patient_nbr")
    assert all(column.shares is None and column.mean is None for column in private)


def test_the_author_of_a_public_table_is_asked_whether_the_column_is_a_number_of_rows(tmp_path: Path) -> None:
    ids = visits(8)
    data = table(tmp_path, ids)
    done = init(data, "--person", "patient_nbr", "--public")
    assert "what this file says of the label counts each person once" in done.output
    assert "is this a row's number?" not in done.output
    ill = csv.read_csv(data)["ill"].to_pylist()
    label = read_study(tmp_path / "study.json").label
    assert isinstance(label, Label)
    rows_of = {person: [kind == "yes" for who, kind in zip(ids, ill, strict=True) if who == person] for person in ids}
    assert label.shares is not None
    assert label.shares[1] == pytest.approx(np.mean([np.mean(rows) for rows in rows_of.values()]), abs=1e-3)
    done = init(table(tmp_path, [f"E{i}" for i in range(N)]), "--person", "patient_nbr", "--public")
    assert "warning: each row has another 'patient_nbr': is this a row's number?" in done.output
    assert "counts each person once" not in init(data, "--public").output


def test_what_is_no_column_of_persons_is_refused(tmp_path: Path) -> None:
    data = table(tmp_path, visits(8))
    for words, reason in {
        ("--person", "nobody"): "no column 'nobody'",
        ("--most-rows", "5"): "--most-rows: say whose a row is",
        ("--person-missing", "alone"): "--person-missing: say whose a row is",
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
        (["p1", "P1", "P2", "P02"] * 10, (), f"1 identifier of 'patient_nbr' differs {ALIKE}, and stands for the same"),
        (["7", "007", "7.0", "8"] * 10, (), f"2 identifiers of 'patient_nbr' differ {ALIKE}, and stand for the same"),
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
    assert "--person-missing alone" in "\n".join(fit.lines())
    fit = checked(tmp_path / "visits.csv", "--person", "patient_nbr", "--person-missing", "alone")
    assert fit.fits
    assert "1 row without 'patient_nbr' counts as a person by itself" in "\n".join(fit.lines())


def test_an_author_whose_public_table_misses_identifiers_says_what_such_rows_are(tmp_path: Path) -> None:
    data = table(tmp_path, ["", *visits(8)[1:]])
    words = ("--person", "patient_nbr", "--public")
    refused = init(data, *words)
    assert (refused.exit_code, (tmp_path / "study.json").exists()) == (3, False), "nothing is signed with it"
    assert "add these with what is true of each: --person-missing alone|refuse" in refused.output
    assert "rows of this file have no 'patient_nbr'" in refused.output
    assert "unless you say --column" not in refused.output, "whose a row is can be no feature"
    assert "neither can change once owners are invited" in refused.output
    asked = ["study", "init", str(data), "--out", str(tmp_path / "study.json"), *WORDS[:-1], "--ask", *words]
    done = CliRunner().invoke(learner_app, asked, input="age\nalone\n")
    assert done.exit_code == 0, done.output
    assert "say alone or refuse" in done.output
    for said in ("alone", "refuse"):
        done = init(data, *words, "--person-missing", said)
        assert done.exit_code == 0, done.output
        person = read_study(tmp_path / "study.json").person
        assert person is not None
        assert person.missing == said
    assert "owners with such rows cannot join: --person-missing alone has each be a person" in done.output
    assert "--person-missing" not in init(table(tmp_path, visits(8)), *words).output


def test_a_study_of_records_says_nothing_of_persons(tmp_path: Path) -> None:
    fit = checked(table(tmp_path, visits(8)))
    assert fit.lines()[0] == f"the data fits visits: {N} rows"
    assert not {"person", "persons", "most_rows"} & fit.to_json().keys()


@pytest.mark.parametrize(
    ("adjacency", "named", "pinned", "words"),
    [
        ("replace_one", None, None, ""),
        ("replace_one", "patient", "patient", ""),
        ("person", "patient", "patient", ""),
        ("whole_party", None, None, ""),
        ("person", "patient", None, 'if it is that, the owner says data.person = "patient" in its settings'),
        ("person", "visit", "patient", "and the owner pins 'patient'"),
        ("person", None, None, "and a run about many protects one record"),
        ("person", None, "patient", "and the study many names no person"),
    ],
)
def test_an_owner_reads_of_a_study_whose_runs_its_settings_refuse(
    adjacency: Adjacency, named: str | None, pinned: str | None, words: str
) -> None:
    person = None if named is None else Person(column=named)
    study = numbers_study(2).model_copy(update={"name": "many", "person": person})
    most: dict[str, Any] = {"max_epsilon_per_run": 1, "max_delta_per_run": 1e-6}
    policy = Policy(epsilon=1, delta=1e-6, adjacency=adjacency, algorithms=("dp_gd",), **most)
    said = study_cautions(policy, study, pinned, 1000)
    assert len(said) == bool(words)
    assert all(one.startswith("runs about many will be refused: ") and words in one for one in said)
    if adjacency != "whole_party":
        assert "above 1/10,000,000" in study_cautions(policy, study, pinned, 10**7)[-1]
