"""A file that a child reads gives the shard, or the refusal, that it gives when it is read here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from common.data.columns import Feature, Label
from common.data.study import Study
from common.errors import InvalidDataError, InvalidInputError
from common.service.columns_files import read_columns
from party.data.reader import read_shard

STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=10),), label=Label(name="y", values=("no", "yes")))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.json"
    path.write_text(STUDY.model_dump_json(), encoding="utf-8")
    return path


def test_the_shard_is_the_same(study: Path) -> None:
    file = study.with_name("data.csv")
    file.write_text("x,y\n1.5,yes\n12,no\n", encoding="utf-8")
    apart, here = read_shard(study, file, clip=True), STUDY.shard(read_columns(file), clip=True)
    np.testing.assert_array_equal(apart.X, here.X)
    np.testing.assert_array_equal(apart.y, here.y)


def test_data_that_does_not_fit_is_refused(study: Path) -> None:
    file = study.with_name("data.csv")
    file.write_text("x,y\n1.5,yes\n12,no\n", encoding="utf-8")
    with pytest.raises(InvalidDataError, match=r"^column 'x' has a value beyond the study's bounds$"):
        read_shard(study, file, clip=False)
    with pytest.raises(InvalidDataError, match=r"missing\.csv is missing$"):
        read_shard(study, study.with_name("missing.csv"), clip=False)


def test_a_study_that_is_none_is_refused(study: Path) -> None:
    study.write_text("{}", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="name"):
        read_shard(study, study, clip=False)
