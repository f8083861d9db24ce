"""What fits a study by the letter and is most likely read wrongly, and what an owner says that values mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from parley.common.data.cells import CellRules
from parley.common.data.columns import Category, Feature, Label, RealLabel
from parley.common.data.faults import CodeWatch
from parley.common.data.loading import Loading
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files.sources import DataSource, parse_source
from parley.common.files.study_fit import StudyFit, fit_of_source
from parley.party.cli.main import party_app

AGE, INCOME = Feature(name="age", lower=18, upper=90), Feature(name="income", lower=-1e6, upper=1e6)
SMOKER = Category(name="smoker", values=("yes", "no"))
ILL = Label(name="ill", values=("no", "yes"))
STUDY = Study(name="s", features=(AGE, INCOME, SMOKER), label=ILL)


def table(path: Path, n: int = 100, **columns: list[Any]) -> Path:
    """A CSV file that fits, but for what ``columns`` say of the first rows."""
    whole: dict[str, list[Any]] = {
        "age": [20 + i % 60 for i in range(n)],
        "income": [1000 * (i % 50) for i in range(n)],
        "smoker": ["yes" if i % 3 else "no" for i in range(n)],
        "ill": ["no" if i % 2 else "yes" for i in range(n)],
    }
    for name, values in columns.items():
        whole[name][: len(values)] = values
    lines = [",".join(whole), *(",".join(map(str, row)) for row in zip(*whole.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def fit(path: Path, *values: str, study: Study = STUDY, **more: bool) -> StudyFit:
    return fit_of_source(study, parse_source(str(path), values=values), **more)


@pytest.mark.parametrize(
    ("numbers", "doubted"),
    [
        ([-999], ("income",)),
        ([-99, -99], ("income",)),
        ([999_999], ("income",)),
        ([-9999.0], ("income",)),
        ([-500, -999, -1200, 400], ()),  # an income may be negative
        ([99_999, 80_000], ()),
        ([-9], ()),
        ([99, 999], ()),  # among others
    ],
)
def test_a_number_that_stands_for_a_missing_one_is_told_by_digits_and_distance(
    tmp_path: Path, numbers: list[float], doubted: tuple[str, ...]
) -> None:
    told = fit(table(tmp_path / "t.csv", income=numbers))
    assert (told.doubted, told.fits) == (doubted, not doubted)
    if doubted:
        text = "\n".join(told.lines())
        assert f"counts as a number in {len(numbers)} row" in text
        assert "--value income:-999=" in text
        assert fit(table(tmp_path / "t.csv", income=numbers), as_is=True).fits


def test_a_code_is_said_to_be_missing_or_to_be_a_number(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", income=[-999, -999])
    missing = fit(path, "income:-999=")
    assert missing.faults == {"income": {"missing": 2}}
    dropped = fit(path, "income:-999=", study=STUDY.model_copy(update={"missing": "drop"}))
    assert (dropped.fits, dropped.dropped) == (True, 0.02)
    assert fit(path, "income:-999=-999").fits


def test_a_code_beyond_the_bounds_is_not_advised_to_be_clipped_alone(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", age=[-999])
    refused = "\n".join(fit(path).lines())
    assert "--value COLUMN:-999=" in refused
    assert "age: what looks like a code for a missing value" in refused
    clipped = fit(path, clip=True)
    assert (clipped.fits, clipped.doubted) == (False, ("age",))


@pytest.mark.parametrize(
    ("no", "yes", "said"),
    [
        ("False", "True", "--value ill:True=yes --value ill:False=no"),
        ("0", "1", "--value ill:1=yes --value ill:0=no"),
        ("NO", "YES", "--value ill:YES=yes --value ill:NO=no"),
        ("n", "y", "--value ill:y=yes --value ill:n=no"),
        ("nein", "Ja", "--value ill:Ja=yes --value ill:nein=no"),
        ("FALSCH", "WAHR", "--value ill:WAHR=yes --value ill:FALSCH=no"),
    ],
)
def test_yes_and_no_in_other_words_are_recognised_and_mapped_when_said(
    tmp_path: Path, no: str, yes: str, said: str
) -> None:
    path = table(tmp_path / "t.csv", ill=[no if i % 2 else yes for i in range(100)])
    refused = fit(path)
    assert refused.faults == {"ill": {"unknown label": 100}}
    assert said in "\n".join(refused.lines())
    told = fit(path, *(text for text in said.split() if text != "--value"))
    assert told.fits, told.lines()
    open_study = STUDY.model_copy(update={"features": (AGE, INCOME, SMOKER.model_copy(update={"other": True}))})
    path = table(tmp_path / "t.csv", smoker=[no if i % 2 else yes for i in range(100)])
    others = fit(path, study=open_study)
    assert (others.fits, others.doubted) == (False, ("smoker",))
    assert said.replace("ill", "smoker") in "\n".join(others.lines())


def test_which_of_1_and_2_is_yes_is_left_to_the_owner(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", ill=[1 + i % 2 for i in range(100)])
    message = "\n".join(fit(path).lines())
    assert "it has 1 and 2 for no and yes, and no rule says which is which" in message
    assert "--value ill:1=MEANING --value ill:2=MEANING" in message
    assert not ({"ill:1=yes", "ill:2=yes"} & set(message.split()))
    coded = STUDY.model_copy(update={"label": ILL.model_copy(update={"values": ("1", "2")})})
    message = "\n".join(fit(table(tmp_path / "t.csv"), study=coded).lines())
    assert "--value ill:no=MEANING --value ill:yes=MEANING" in message


def test_a_column_that_is_mostly_other_or_beyond_its_bounds_does_not_fit(tmp_path: Path) -> None:
    ward = Category(name="smoker", values=("a", "b"), other=True)
    study = STUDY.model_copy(update={"features": (AGE, INCOME, ward)})
    path = table(tmp_path / "t.csv", smoker=["a"] * 40 + ["elsewhere"] * 60)
    told = fit(path, study=study)
    assert (told.fits, told.doubted) == (False, ("smoker",))
    assert "60% of its values are none of the study's, and count as other" in "\n".join(told.lines())
    assert fit(table(tmp_path / "t.csv", smoker=["a"] * 60 + ["elsewhere"] * 40), study=study).fits
    in_months = table(tmp_path / "t.csv", age=[240 + i for i in range(100)])
    told = fit(in_months, clip=True)
    assert (told.fits, told.doubted) == (False, ("age",))
    assert "100% of its values lie beyond the bounds: are they in the study's unit?" in "\n".join(told.lines())


def test_a_label_of_numbers_may_hold_a_code_too(tmp_path: Path) -> None:
    study = STUDY.model_copy(update={"label": RealLabel(name="ill", lower=-1000, upper=1000)})
    path = table(tmp_path / "t.csv", ill=[-999, *range(99)])
    assert fit(path, study=study).doubted == ("ill",)


def test_codes_are_told_alike_in_blocks_of_any_size() -> None:
    rng = np.random.default_rng(0)
    values = rng.choice([-999.0, 3.0, 4.5, 99.0, np.nan], (2, 1000))
    found = []
    for size in (1, 7, 1000):
        watch = CodeWatch(2)
        for start in range(0, 1000, size):
            block = values[:, start : start + size]
            known = [row[~np.isnan(row)] for row in block]
            ends = [np.array([getattr(row, end)(initial=far) for row in known]) for end, far in _ENDS]
            watch.add(np.arange(2), block, *ends)
        found.append([watch.codes(0), watch.codes(1)])
    assert found[0] == found[1] == found[2]
    assert set(found[0][0]) == {-999.0, 99.0}


_ENDS = (("min", np.inf), ("max", -np.inf))


def test_meanings_reach_numbers_texts_and_truths_of_any_type() -> None:
    meanings = {
        "smoker": {"1": "yes", "0": "no"},
        "age": {"-1": "", "unknown": "30"},
        "ill": {"True": "yes", "False": "no"},
    }
    loading = Loading(STUDY, 3, CellRules(values=meanings))
    loading.expect(STUDY.table_names)
    age = np.array([20, "unknown", 40], dtype=object)
    block = {
        "age": age,
        "income": np.zeros(3),
        "smoker": np.array([1.0, 0.0, 1.0]),
        "ill": np.array([True, False, True]),
    }
    loading.add(0, block)
    loaded = loading.finish(3)
    assert loaded.shard.y.tolist() == [1, -1, 1]
    assert (loaded.shard.X[:, 2] > 0).tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"smokr": {"1": "yes"}}, "the study has no column 'smokr'"),
        ({"smoker": {"1": "maybe"}}, "the study knows no value 'maybe' of column 'smoker'"),
        ({"age": {"x": "old"}}, "'old', a meaning in column 'age', is no number"),
    ],
)
def test_a_meaning_that_the_study_does_not_know_is_refused(values: dict[str, dict[str, str]], words: str) -> None:
    with pytest.raises(InvalidDataError, match=words):
        Loading(STUDY, 0, CellRules(values=values))


def test_the_settings_say_what_values_mean_and_the_command_tells_the_remedy(tmp_path: Path) -> None:
    study = tmp_path / "study.json"
    study.write_text(STUDY.model_dump_json(), encoding="utf-8")
    path = table(tmp_path / "t.csv", smoker=["True", "False"] * 50, income=[-999])
    run = CliRunner().invoke(party_app, ["study", "check", str(study), "--data", str(path)])
    assert run.exit_code == 1
    assert "--value smoker:True=yes --value smoker:False=no" in run.output
    said = ["--value", "smoker:True=yes", "--value", "smoker:False=no", "--value", "income:-999=0"]
    run = CliRunner().invoke(party_app, ["study", "check", str(study), "--data", str(path), *said, "--format", "json"])
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout.splitlines()[-1])["doubts"] == []
    source = DataSource.model_validate({"source": str(path), "values": {"smoker": {"True": "yes", "False": "no"}}})
    assert fit_of_source(STUDY, source).doubted == ("income",)
    wrong = CliRunner().invoke(party_app, ["study", "check", str(study), "--data", str(path), "--value", "smoker"])
    assert (wrong.exit_code, "say COLUMN:VALUE=MEANING" in wrong.output) == (3, True)
