"""A file that a child reads gives the shard, or the refusal, that it gives when it is read here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from parley.common.data.columns import Category, Feature, Label
from parley.common.data.study import Study
from parley.common.errors import InvalidDataError
from parley.common.files.examples import load_examples
from parley.common.files.study_fit import fit_of_file
from parley.party.data.owner_data import Holding, load_apart
from parley.party.settings import Data

STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=10),), label=Label(name="y", values=("no", "yes")))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.json"
    path.write_text(STUDY.model_dump_json(), encoding="utf-8")
    (tmp_path / "data.csv").write_text("x,y\n1.5,yes\n12,no\n", encoding="utf-8")
    return path


def test_what_is_loaded_is_the_same(study: Path) -> None:
    file = study.with_name("data.csv")
    apart, in_process = (
        load_apart(Data(source=str(file), out_of_bounds="clip"), STUDY),
        load_examples(file, STUDY, clip=True),
    )
    np.testing.assert_array_equal(apart.shard.X, in_process.shard.X)
    np.testing.assert_array_equal(apart.shard.y, in_process.shard.y)
    assert apart.clipped == in_process.clipped == {"x": 0.5}
    assert (apart.clipped_share, apart.dropped_share) == (in_process.clipped_share, in_process.dropped_share)


def test_so_is_what_is_said_of_values_that_the_study_does_not_name(tmp_path: Path) -> None:
    ward = Category(name="ward", values=("north", "south"), other=True)
    study, file = STUDY.model_copy(update={"features": (*STUDY.features, ward)}), tmp_path / "data.csv"
    file.write_text("x,ward,y\n1,north,yes\n2,east,no\n3,east,no\n4,south,no\n", encoding="utf-8")
    data = Data(source=str(file))
    assert load_apart(data, study).others == load_examples(file, study).others == {"ward": 0.5}
    assert Holding(study, load_apart(data, study)).mended == {"values of 'ward' that the study does not name": 0.5}
    assert "  ward: 50.00% of the values are none of the study's: other" in fit_of_file(study, file).lines()


@pytest.mark.parametrize("name", ["data.csv", "missing.csv", "study.json"])
def test_a_refusal_is_the_same(study: Path, name: str) -> None:
    file = study.with_name(name)
    with pytest.raises(InvalidDataError) as in_process:
        load_examples(file, STUDY)
    with pytest.raises(InvalidDataError) as apart:
        load_apart(Data(source=str(file)), STUDY)
    assert apart.value.detail == in_process.value.detail


def test_who_loads_imports_little_else() -> None:
    """Each of these took 10 to 20 MB beside a shard."""
    program = "import sys, parley.party.data.loader, parley.common.files.examples, parley.common.files.query\n"
    program += "print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "duckdb" in loaded
    assert not loaded & {"scipy", "cryptography", "phe", "parley.party.settings", "pyarrow.parquet", "asyncio"}
