"""An owner's columns as a shard: what is refused, by which name, and that no value is told."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from common.data.columns import Columns, Feature, Label, RealLabel
from common.data.losses import HingeLoss, HuberLoss, LogisticLoss, SquaredLoss
from common.data.study import Study
from common.encoding.fixed_point import FEATURE_BITS
from common.errors import InvalidDataError, InvalidInputError
from common.learning.losses import Hinge, Huber, Logistic, Squared

FEATURES = (Feature(name="age", lower=0, upper=100), Feature(name="dose", lower=-1, upper=1))
STUDY = Study(name="s", features=FEATURES, label=Label(name="ill", values=("no", "yes")))
REAL = Study(name="r", features=FEATURES, label=RealLabel(name="days", lower=0, upper=10), loss=SquaredLoss())
SECRET = 61.803398875


def columns(**changes: np.ndarray[Any, Any] | None) -> Columns:
    """Three patients; ``changes`` replace columns, or take them away where they are None."""
    whole = {"age": np.array([0.0, 50, 100]), "dose": np.array([1.0, 0, -1]), "ill": np.array(["no", "yes", "no"])}
    return {name: column for name, column in (whole | changes).items() if column is not None}


def test_columns_become_rows_of_the_unit_ball() -> None:
    shard = STUDY.shard(columns(extra=np.zeros(3)))
    scaled = np.array([[-1, 1], [0, 0], [1, -1]]) / math.sqrt(2)  # by the square root of the number of features
    rows = np.hstack([scaled, np.ones((3, 1))]) / math.sqrt(2)  # with the intercept folded in
    assert np.abs(shard.X - rows).max() <= 2.0**-FEATURE_BITS
    assert shard.y.tolist() == [-1, 1, -1]
    assert STUDY.n_features == 3
    without = STUDY.model_copy(update={"intercept": False})
    assert np.abs(without.shard(columns()).X - scaled).max() <= 2.0**-FEATURE_BITS
    assert without.n_features == 2


def test_values_beyond_the_bounds_are_clipped_only_where_the_owner_chose() -> None:
    wild = columns(age=np.array([-SECRET, 50, 1e300]))
    assert np.array_equal(STUDY.shard(wild, clip=True).X, STUDY.shard(columns()).X)
    with pytest.raises(InvalidDataError, match="column 'age' has a value beyond the study's bounds"):
        STUDY.shard(wild)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"age": None, "ill": None}, "columns missing from the data: age, ill"),
        ({"age": np.array([SECRET, math.nan, 1])}, "column 'age' has a missing or non-finite value"),
        ({"age": np.array([SECRET, math.inf, 1])}, "column 'age' has a missing or non-finite value"),
        ({"age": np.array([SECRET, None, 1], dtype=object)}, "column 'age' has a missing or non-finite value"),
        ({"age": np.array([f"{SECRET} years", "", "3"])}, "column 'age' is not numeric"),
        ({"age": np.array([[SECRET], {}, 3], dtype=object)}, "column 'age' is not numeric"),
        ({"dose": np.array([0, SECRET, 1])}, "column 'dose' has a value beyond the study's bounds"),
        ({"ill": np.array(["no", "yes", f"{SECRET}"])}, "column 'ill' holds a value that is not one of the label's"),
        ({"ill": np.array(["no", "yes", None], dtype=object)}, "column 'ill' holds a value that is not"),
        ({"ill": np.array([0.0, 1.0, math.nan])}, "column 'ill' holds a value that is not"),
        ({name: np.array([]) for name in ("age", "dose", "ill")}, "the data has no row"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_unfit_data_is_named_and_not_shown(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidDataError, match=named) as error:
        STUDY.shard(columns(**changes))
    assert str(SECRET) not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.status == 422


def test_a_wide_study_names_the_first_of_many_missing_columns() -> None:
    features = tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(1000))
    with pytest.raises(InvalidDataError, match=r"missing from the data: x0, x1, x2, x3, x4$"):
        STUDY.model_copy(update={"features": features}).shard({})


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (np.array([0, 1, 1]), ("0", "1")),
        (np.array([0.0, 1.0, 1.0]), ("0", "1")),
        (np.array([False, True, True]), ("False", "True")),
        (np.array(["a", "é", "é"]), ("a", "é")),
        (np.array([-1.5, 2.5, 2.5]), ("-1.5", "2.5")),
    ],
)
def test_labels_are_spelt_as_people_write_them(column: np.ndarray[Any, Any], values: tuple[str, str]) -> None:
    study = STUDY.model_copy(update={"label": Label(name="ill", values=values)})
    assert study.shard(columns(ill=column)).y.tolist() == [-1, 1, 1]


def test_more_than_two_classes_need_an_algorithm_of_their_own() -> None:
    study = STUDY.model_copy(update={"label": Label(name="ill", values=("no", "yes", "maybe"))})
    with pytest.raises(InvalidInputError, match="label 'ill' has 3 values; two are needed"):
        study.shard(columns())


def test_a_real_label_is_scaled_by_its_bounds_and_back() -> None:
    days = np.array([0.0, 2.5, 10.0])
    shard = REAL.shard(columns(ill=None, days=days))
    assert shard.y.tolist() == [-1, -0.5, 1]
    assert isinstance(REAL.label, RealLabel)
    assert np.allclose(REAL.label.in_units(shard.y), days)
    for bad, named in ((np.array([0, SECRET, 1]), "beyond"), (np.array([0, math.nan, 1]), "non-finite")):
        with pytest.raises(InvalidDataError, match=f"column 'days' has a .*{named}") as error:
            REAL.shard(columns(ill=None, days=bad))
        assert str(SECRET) not in str(error.value)
    assert REAL.shard(columns(ill=None, days=np.array([-3.0, 5, 99])), clip=True).y.tolist() == [-1, 0, 1]


def test_losses_are_what_they_are_called() -> None:
    built = [loss.build() for loss in (LogisticLoss(), HuberLoss(h=0.25), SquaredLoss(), HingeLoss())]
    assert built == [Logistic(), Huber(0.25), Squared(), Hinge()]
    with pytest.raises(ValueError, match="label 'days' is a real number: its loss must be 'squared'"):
        Study(name="r", features=FEATURES, label=REAL.label)


def test_records_to_predict_are_scaled_as_the_data_was() -> None:
    rows = STUDY.rows([{"age": 50, "dose": 0.5}, {"dose": -7, "age": 1e9}])
    assert np.array_equal(rows, STUDY.design(np.array([[50, 0.5], [100, -1]])))
    assert STUDY.rows([]).shape == (0, 3)
    with pytest.raises(InvalidInputError, match="features missing from a record: dose"):
        STUDY.rows([{"age": 50}])
    with pytest.raises(InvalidInputError, match="feature values must be finite"):
        STUDY.rows([{"age": math.nan, "dose": 0}])


def test_the_hash_of_a_study_is_of_its_terms() -> None:
    terms = STUDY.model_dump()
    others = [Study(**(terms | change)) for change in ({"intercept": False}, {"clip_norm": 0.5}, {"name": "t"})]
    assert Study(**terms).digest == STUDY.digest
    assert len({study.digest for study in (STUDY, REAL, *others)}) == 5
