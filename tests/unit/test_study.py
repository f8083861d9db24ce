"""What a study may say, and how a table in its terms becomes a shard; what is refused tells names and counts."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from parley.common.arrays import FloatArray
from parley.common.data.columns import Category, Columns, Feature, Label, RealLabel
from parley.common.data.loading import load_columns, shard_of
from parley.common.data.records import rows_of
from parley.common.data.study import HingeLoss, HuberLoss, LogisticLoss, SoftmaxLoss, SquaredLoss, Study
from parley.common.encoding.canonical_json import canonical_digest
from parley.common.encoding.fixed_point import FEATURE_BITS
from parley.common.encoding.texts import spelling
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared, build_loss
from parley.common.strict import faults

FEATURES = (Feature(name="age", lower=0, upper=100), Feature(name="dose", lower=-1, upper=1))
WARD = Category(name="ward", values=("north", "south"))
STUDY = Study(name="s", features=FEATURES, label=Label(name="ill", values=("no", "yes")))
MIXED = Study(name="m", features=(FEATURES[0], WARD, FEATURES[1]), label=STUDY.label)
REAL = Study(name="r", features=FEATURES, label=RealLabel(name="days", lower=0, upper=10))
ROWS = np.array([[-1, 1, 0, 1, 1], [0, 0, 1, 0, 1], [1, 0, 1, -1, 1]])
"""What MIXED makes of `columns` before they are divided."""
SECRET = 61.803398875
STEP = 2.0**-FEATURE_BITS


def columns(**changes: np.ndarray[Any, Any] | None) -> Columns:
    """Three patients; ``changes`` replace columns, or take them away where they are None."""
    whole = {
        "age": np.array([0.0, 50, 100]),
        "dose": np.array([1.0, 0, -1]),
        "ward": np.array(["north", "south", "south"], dtype=object),
        "ill": np.array(["no", "yes", "no"]),
    }
    return {name: column for name, column in (whole | changes).items() if column is not None}


def objects(*values: object) -> np.ndarray[Any, Any]:
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells


def refused(**fields: object) -> str:
    """Why a study with these fields is refused when it is read."""
    terms = json.loads(MIXED.model_dump_json()) | fields
    with pytest.raises(ValidationError) as error:
        Study.model_validate_json(json.dumps(terms))
    return faults(error.value)


class TestWhatIsKnownOfTheLabel:
    """What a study may say about its label, as common knowledge."""

    def test_shares_are_parts_of_their_sum(self) -> None:
        label = Label(name="ill", values=("no", "yes", "both"), shares=(0.33, 0.33, 0.33))
        assert label.frequencies == pytest.approx((1 / 3,) * 3)
        assert Study(name="s", features=FEATURES, label=label).majority == pytest.approx(1 / 3)
        assert (STUDY.majority, REAL.majority, STUDY.usual_label, REAL.usual_label) == (None,) * 4

    @pytest.mark.parametrize(
        ("shares", "why"),
        [
            ([0.5], "2 values need as many shares"),
            ([0.5, 0.4], "must add up to 1, not 0.9"),
            ([0.0, 1.0], "greater than 0"),
            ([-0.2, 1.2], "greater than 0"),
        ],
    )
    def test_shares_that_are_none_are_refused(self, shares: list[float], why: str) -> None:
        assert why in refused(label={"name": "ill", "values": ["no", "yes"], "shares": shares})

    def test_mean_and_deviation_are_told_in_the_labels_units(self) -> None:
        label = RealLabel(name="days", lower=0, upper=10, mean=2, deviation=1)
        study = Study(name="r", features=FEATURES, label=label)
        usual = study.usual_label
        assert usual is not None
        assert usual[:2] == pytest.approx((-0.6, 0.2))
        assert study.model_copy(update={"intercept": False}).usual_label is None
        assert study.model_copy(update={"row_norm": "own"}).usual_label is None

    @pytest.mark.parametrize(("row_norm", "within"), [("largest", [0, 1, 2]), (1.2, [1])])
    def test_the_intercept_predicts_the_mean_for_every_row(self, row_norm: float | str, within: list[int]) -> None:
        """But for those beyond a bound that is less than the largest norm, which are projected."""
        label = {"name": "days", "lower": 0, "upper": 10, "mean": 2, "deviation": 1}
        study = Study.model_validate({"name": "r", "features": FEATURES, "label": label, "row_norm": row_norm})
        assert study.usual_label is not None
        rows = shard_of(study, columns(days=np.array([1.0, 2, 3]), ward=None, ill=None)).X
        assert label_of_mean(study, rows)[within] == pytest.approx(2.0, abs=1e-3)

    @pytest.mark.parametrize(
        ("told", "why"),
        [
            ({"mean": 2}, "mean and deviation go together"),
            ({"deviation": 2}, "mean and deviation go together"),
            ({"mean": 10, "deviation": 2}, "mean must lie between its bounds"),
            ({"mean": 5, "deviation": 5.1}, "no deviation exceeds half"),
            ({"mean": 5, "deviation": 0}, "greater than 0"),
            ({"mean": 5, "deviation": 9e-4}, "its bounds are more than 10,000 deviations apart"),
            ({"mean": 5, "deviation": float("inf")}, "finite"),
        ],
    )
    def test_a_mean_or_deviation_that_cannot_be_is_refused(self, told: dict[str, float], why: str) -> None:
        label = {"name": "days", "lower": 0, "upper": 10} | told
        assert why in refused(label=label, kind="regression", loss={"kind": "squared"}, row_norm="largest")


def label_of_mean(study: Study, rows: FloatArray) -> FloatArray:
    """What weights of the intercept alone predict for rows, in the label's units."""
    usual = study.usual_label
    assert usual is not None
    assert isinstance(study.label, RealLabel)
    return study.label.in_units(rows[:, -1] * usual.intercept)


class TestTerms:
    def test_kind_and_loss_follow_from_the_label(self) -> None:
        many = Study(name="m", features=FEATURES, label=Label(name="y", values=("a", "b", "c")))
        kinds = {study.kind: (build_loss(study), study.n_classes) for study in (STUDY, many, REAL)}
        losses: list[Loss] = [Logistic(), Softmax(3), Squared()]
        assert list(kinds) == ["binary", "multiclass", "regression"]
        assert list(kinds.values()) == list(zip(losses, (2, 3, 0), strict=True))
        assert json.loads(many.model_dump_json())["loss"] == {"kind": "softmax"}
        assert json.loads(many.model_dump_json())["format"] == "parley-study-2"
        assert Study.model_validate_json(many.model_dump_json()) == many

    def test_losses_are_what_they_are_called(self) -> None:
        losses = (LogisticLoss(), HuberLoss(h=0.25), SquaredLoss(), HingeLoss(), SoftmaxLoss())
        built: list[object] = [build_loss(STUDY.model_copy(update={"loss": loss})) for loss in losses]
        assert built == [Logistic(), Huber(0.25), Squared(), Hinge(), Softmax(2)]

    @pytest.mark.parametrize("n", [2, 3, 100])
    def test_labels_of_two_to_a_hundred_classes(self, n: int) -> None:
        study = Study(name="s", features=FEATURES[:1], label=Label(name="y", values=tuple(map(str, range(n)))))
        y = shard_of(study, {"age": np.zeros(n), "y": np.arange(n)}).y
        assert np.abs(y - np.linspace(-1, 1, n)).max() <= STEP

    @pytest.mark.parametrize("n", [0, 1, 101])
    def test_other_numbers_of_classes_are_refused(self, n: int) -> None:
        words = refused(label={"name": "y", "values": [str(i) for i in range(n)]})
        assert f"label 'y': there must be 2 to 100 values, not {n}" in words

    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"label": {"name": "y", "values": ["a", "a"]}}, "'a' twice"),
            ({"label": {"name": "y", "values": ["a", " a"]}}, "which read alike"),
            ({"features": [{"name": "x", "values": ["1", "2", "1"]}]}, "column 'x': its values must be distinct"),
            ({"features": [{"name": "x", "values": ["true", "True"]}]}, "which read alike"),
            ({"features": [{"name": "x", "values": ["other", "a"], "other": True}]}, "'other' twice"),
            ({"features": [{"name": "x", "values": [" "]}]}, "a blank is none"),
            ({"features": [{"name": "x", "values": []}]}, "at least 1 item"),
            ({"features": [{"name": "x", "lower": 0, "upper": 1, "values": ["a"]}]}, "Extra inputs"),
            ({"features": [{"name": "x", "lower": 1, "upper": 1}]}, "lower must be below upper"),
            ({"features": [{"name": "x", "lower": 0, "upper": 1, "fill": 2}]}, "fill must lie within"),
            ({"features": [{"name": "x", "lower": 0, "upper": 1, "missing": "value"}]}, "go together"),
            ({"features": [{"name": "x", "values": ["a"], "fill": "b"}]}, "fill must be one of its values"),
            ({"features": [{"name": "x", "values": ["a"], "fill": "other"}]}, "fill must be one of its values"),
            ({"features": [{"name": "x", "values": ["a"], "fill": "a", "missing": "drop"}]}, "go together"),
            ({"missing": "value"}, "needs a fill for each feature; none for age, ward, dose"),
            ({"missing": "guess"}, "'refuse', 'drop' or 'value'"),
            ({"features": [{"name": "ill", "values": ["a"]}]}, "columns named twice: ill"),
            ({"format": "parley-study-1"}, "parley-study-2"),
            ({"row_norm": 0}, "row_norm"),
            ({"row_norm": "each"}, "row_norm"),
            ({"label": {"name": "y", "values": ["a", "b", "c"]}}, "its loss must be 'softmax'"),
            ({"label": {"name": "y", "lower": 0, "upper": 1}, "loss": {"kind": "softmax"}}, "must be 'squared'"),
            ({"label": {"name": "y", "lower": 0, "upper": 1}}, "must be 'squared'"),
            ({"kind": "regression"}, "makes the study's kind 'binary', not 'regression'"),
        ],
    )
    def test_what_cannot_be_a_study_is_refused_in_words(self, fields: dict[str, Any], words: str) -> None:
        assert words in refused(**fields)

    def test_columns_of_the_design_are_named_in_order(self) -> None:
        other = Category(name="ward", values=("north",), other=True)
        study = Study(name="s", features=(other, FEATURES[0]), label=STUDY.label)
        assert study.column_names == ("ward=north", "ward=other", "age", "intercept")
        assert study.feature_names == ("ward", "age")
        assert study.n_features == len(study.column_names) == 4

    def test_the_hash_of_a_study_is_of_its_terms(self) -> None:
        terms = STUDY.model_dump()
        changes = ({"intercept": False}, {"row_norm": "largest"}, {"name": "t"}, {"missing": "drop"}, {"row_norm": 0.5})
        assert Study(**terms).digest == STUDY.digest
        assert len({study.digest for study in (STUDY, REAL, *(Study(**(terms | change)) for change in changes))}) == 7

    def test_a_copy_derives_its_hash_and_its_values_again(self) -> None:
        study = MIXED.model_copy()
        assert study.digest == MIXED.digest
        assert (
            study.model_copy(update={"row_norm": 0.5}).digest
            == Study(**(MIXED.model_dump() | {"row_norm": 0.5})).digest
        )
        assert WARD.codes == {"north": 0, "south": 1}
        assert WARD.model_copy(update={"values": ("east",)}).codes == {"east": 0}


class TestDesign:
    def test_a_row_is_divided_by_its_own_norm(self) -> None:
        shard = shard_of(MIXED, columns(extra=np.zeros(3)))
        rows = ROWS / np.array([[2.0], [math.sqrt(2)], [2.0]])
        assert np.abs(shard.X - rows).max() <= STEP
        assert (np.linalg.norm(shard.X, axis=1) <= 1).all()
        assert shard.y.tolist() == [-1, 1, -1]

    def test_a_row_without_a_norm_stays_one_of_zeros(self) -> None:
        study = Study(name="s", features=(FEATURES[0],), label=STUDY.label, intercept=False)
        X = shard_of(study, {"age": np.array([50.0, 100.0]), "ill": np.array(["no", "yes"])}).X
        assert X[0].tolist() == [0.0]
        assert abs(X[1, 0] - 1) <= STEP

    def test_many_rows_are_divided_block_by_block(self) -> None:
        study = Study(name="s", features=(FEATURES[0],), label=STUDY.label)
        ages = np.linspace(0, 100, 300_000)
        X = shard_of(study, {"age": ages, "ill": np.full(len(ages), "no")}).X
        scaled = (ages - 50) / 50
        assert np.abs(X[:, 0] - scaled / np.sqrt(scaled**2 + 1)).max() <= STEP

    def test_a_row_may_be_divided_by_the_largest_norm_instead(self) -> None:
        largest = MIXED.model_copy(update={"row_norm": "largest"})
        assert np.abs(shard_of(largest, columns()).X - ROWS / math.sqrt(4)).max() <= STEP
        without = largest.model_copy(update={"intercept": False})
        assert np.abs(shard_of(without, columns()).X - ROWS[:, :4] / math.sqrt(3)).max() <= STEP

    def test_the_intercept_of_a_number_has_a_quarter_of_the_largest_squared_norm(self) -> None:
        label = RealLabel(name="score", lower=0, upper=1)
        features = tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(12))
        X = shard_of(
            Study(name="s", features=features, label=label),
            dict.fromkeys([*(f.name for f in features), "score"], np.ones(2)),
        ).X
        assert np.abs(X[:, -1] ** 2 - 1 / 4).max() <= 2 * STEP
        assert np.abs((X**2).sum(axis=1) - 1).max() <= 30 * STEP
        assert Study(name="s", features=features[:1], label=label).constant == 1, "and no less than others have"
        assert Study(name="s", features=features, label=label, intercept=False).constant == 0

    def test_a_smaller_public_bound_projects_what_lies_beyond(self) -> None:
        narrow = MIXED.model_copy(update={"row_norm": 1.5})
        X = shard_of(narrow, columns()).X
        assert np.abs(X[1] - ROWS[1] / 1.5).max() <= STEP
        assert np.abs(X[0] - ROWS[0] / 2).max() <= STEP
        wide, largest = (MIXED.model_copy(update={"row_norm": norm}) for norm in (99.0, "largest"))
        assert np.array_equal(shard_of(wide, columns()).X, shard_of(largest, columns()).X)

    def test_values_beyond_the_bounds_are_clipped_only_where_the_owner_chose(self) -> None:
        wild = columns(age=np.array([-SECRET, 50, 1e300]))
        loaded = load_columns(STUDY, wild, clip=True)
        assert np.array_equal(loaded.shard.X, shard_of(STUDY, columns()).X)
        assert loaded.clipped == {"age": 2 / 3}
        assert loaded.clipped_share == 2 / 6
        infinite = columns(age=objects(-math.inf, 50, 10**400))
        assert np.array_equal(shard_of(STUDY, infinite, clip=True).X, loaded.shard.X)

    def test_a_value_not_declared_is_other_where_there_is_one(self) -> None:
        other = MIXED.model_copy(update={"features": (Category(name="ward", values=("north",), other=True),)})
        X = shard_of(other, columns(ward=objects("north", "south", " north "))).X
        assert (X[:, :2] > 0).tolist() == [[True, False], [False, True], [True, False]]

    @pytest.mark.parametrize(
        ("column", "values"),
        [
            (np.array([1, 2, 2]), ("1", "2")),
            (np.array([1.0, 2.0, 2.0]), ("1", "2")),
            (objects(" 1", 2.0, 2), ("1", "2")),
            (np.array([False, True, True]), ("False", "True")),
            (objects("false", "TRUE", np.True_), ("False", "True")),
            (np.array(["a", "é", "é"]), ("a", "é")),
            (np.array([-1.5, 2.5, 2.5]), ("-1.5", "2.5")),
            (np.array(["2020-01-01", "2021-01-01", "2021-01-01"], dtype="M8[D]"), ("2020-01-01", "2021-01-01")),
            (objects("01", "1", "1"), ("01", "1")),
            (objects("NA", "b", "b"), ("NA", "b")),
        ],
    )
    def test_values_are_spelt_as_people_write_them(self, column: np.ndarray[Any, Any], values: tuple[str, str]) -> None:
        study = STUDY.model_copy(update={"label": Label(name="ill", values=values)})
        assert shard_of(study, columns(ill=column)).y.tolist() == [-1, 1, 1]
        ward = MIXED.model_copy(update={"features": (Category(name="ward", values=values),)})
        assert (shard_of(ward, columns(ward=column)).X[:, :2] > 0).tolist() == [
            [True, False],
            [False, True],
            [False, True],
        ]

    def test_a_number_of_any_type_is_spelt_alike(self) -> None:
        assert [spelling(value) for value in (1.5, Decimal("1.50"), b"x ", -0.0, 1e22, np.float32(2))] == [
            "1.5", "1.5", "x", "0", "10000000000000000000000", "2",
        ]  # fmt: skip
        assert [spelling(value) for value in (None, math.nan, np.datetime64("NaT"), Decimal("NaN"), "")] == [None] * 5

    def test_a_text_is_spelt_as_it_is(self) -> None:
        codes = ["250.1", "250.10", "007", "7", "1.0", "-0.0", "1e3", "+1"]
        assert [spelling(code) for code in codes] == codes
        study = Study(name="icd", features=(Category(name="code", values=("250.1", "250.10")),), label=STUDY.label)
        ill = np.array(["no", "yes"])
        shard = shard_of(study, {"code": np.array(["250.10", "250.1"]), "ill": ill})
        assert (shard.X[:, :2] > 0).tolist() == [[False, True], [True, False]]
        assert (shard_of(study, {"code": np.array([250.10, 250.1]), "ill": ill}).X[:, 0] > 0).all()  # numbers: 250.1
        with pytest.raises(InvalidDataError, match="unknown category"):
            shard_of(study, {"code": np.array(["250.1", "250.100"]), "ill": ill})

    def test_a_real_label_is_scaled_by_its_bounds_and_back(self) -> None:
        days = np.array([0.0, 2.5, 10.0])
        shard = shard_of(REAL, columns(days=days))
        assert shard.y.tolist() == [-1, -0.5, 1]
        assert isinstance(REAL.label, RealLabel)
        assert np.allclose(REAL.label.in_units(shard.y), days)
        loaded = load_columns(REAL, columns(days=np.array([-3.0, 5, 99])), clip=True)
        assert loaded.shard.y.tolist() == [-1, 0, 1]
        assert loaded.clipped == {"days": 2 / 3}


class TestMissing:
    def test_a_dropped_row_stays_as_a_row_of_zeros(self) -> None:
        drop = MIXED.model_copy(update={"missing": "drop"})
        loaded = load_columns(drop, columns(age=np.array([0, math.nan, 100]), ward=objects("north", "south", None)))
        assert loaded.shard.n_examples == 3
        assert not loaded.shard.X[1:].any()
        assert loaded.shard.X[0].any()
        assert loaded.dropped_share == 2 / 3
        unlabelled = load_columns(drop, columns(ill=objects("no", math.nan, "yes"))).shard
        assert not unlabelled.X[1].any()
        assert unlabelled.mask.all()

    def test_a_public_value_stands_in(self) -> None:
        features = (
            Feature(name="age", lower=0, upper=100, missing="value", fill=25),
            Category(name="ward", values=("north", "south"), other=True, fill="other"),
        )
        study = Study(name="s", features=features, label=STUDY.label)
        X = shard_of(study, columns(age=np.array([math.nan, 50, 100]), ward=objects("north", "", "south"))).X
        assert X[0, 0] == pytest.approx(-0.5 / 1.5, abs=STEP)
        assert (X[:, 1:4] > 0).tolist() == [[True, False, False], [False, False, True], [False, True, False]]

    def test_a_feature_overrides_the_study(self) -> None:
        lenient = (FEATURES[0].model_copy(update={"missing": "drop"}), FEATURES[1])
        study = STUDY.model_copy(update={"features": lenient})
        assert not shard_of(study, columns(age=np.array([math.nan, 50, 100]))).X[0].any()
        with pytest.raises(InvalidDataError, match="column 'dose': missing in 1 row;"):
            shard_of(study, columns(dose=np.array([math.nan, 0, 0])))

    @pytest.mark.parametrize("empty", [math.nan, None, "", " ", "nan", "NaN", "NA", "null", np.datetime64("NaT")])
    @pytest.mark.parametrize("other", [False, True])
    def test_nothing_is_never_a_category(self, empty: object, *, other: bool) -> None:
        study = MIXED.model_copy(update={"features": (WARD.model_copy(update={"other": other}),)})
        with pytest.raises(InvalidDataError, match="column 'ward': missing in 1 row;"):
            shard_of(study, columns(ward=objects("north", empty, "south")))

    def test_a_column_of_nothing(self) -> None:
        for nothing in (np.full(3, math.nan), objects(None, None, None)):
            with pytest.raises(InvalidDataError, match="column 'ward': missing in 3 rows"):
                shard_of(MIXED, columns(ward=nothing))
            drop = load_columns(MIXED.model_copy(update={"missing": "drop"}), columns(age=nothing, ill=nothing))
            assert not drop.shard.X.any()
            assert drop.dropped_share == 1


class TestFaults:
    @pytest.mark.parametrize(
        ("changes", "named"),
        [
            (
                {"age": None, "ill": None},
                "column 'age': absent; column 'ill': absent; a column under another name has to be renamed",
            ),
            ({"age": np.array([SECRET, math.nan, 1])}, "column 'age': missing in 1 row;"),
            ({"age": np.array([SECRET, math.inf, 1])}, "column 'age': beyond the bounds in 1 row;"),
            ({"age": objects(SECRET, None, 1)}, "column 'age': missing in 1 row;"),
            ({"age": np.array([f"{SECRET} years", "", "3"])}, "column 'age': not numeric in 1 row, missing in 1 row;"),
            ({"age": objects([SECRET], {}, 3)}, "column 'age': not numeric in 2 rows; a cell without a number [^;]*$"),
            (
                {"age": objects(dt.date(2020, 1, 1), 2, 3)},
                "column 'age': not numeric in 1 row; a cell without a number [^;]*$",
            ),
            (
                {"age": np.array(["2020-01-01"] * 3, dtype="M8[D]")},
                "column 'age': not numeric in 3 rows; a cell without a number [^;]*$",
            ),
            ({"age": objects(10**30, 2, 3)}, "column 'age': beyond the bounds in 1 row;"),
            ({"age": objects(1, 2, 10**400)}, "column 'age': beyond the bounds in 1 row;"),
            ({"dose": np.array([0, SECRET, 1])}, "column 'dose': beyond .*; data.out_of_bounds = \"clip\""),
            ({"ward": objects("east", "south", SECRET)}, "column 'ward': unknown category in 2 rows; --value COLUMN"),
            ({"ward": np.array([1, 2, 3])}, "column 'ward': unknown category in 3 rows"),
            (
                {"ill": np.array(["no", "yes", f"{SECRET}"])},
                "column 'ill': unknown label in 1 row; a label has to be spelt as in the study: --value",
            ),
            ({"ill": objects("no", "yes", None)}, 'column \'ill\': missing in 1 row; .*"missing": "drop"'),
            ({"ill": np.array([0.0, 1.0, math.nan])}, "column 'ill': missing in 1 row, unknown label in 2 rows"),
            ({name: np.array([]) for name in ("age", "dose", "ward", "ill")}, "the data has no row"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_unfit_data_is_named_and_not_shown(self, changes: dict[str, Any], named: str) -> None:
        with pytest.raises(InvalidDataError, match=named) as error:
            shard_of(MIXED, columns(**changes))
        assert str(SECRET) not in str(error.value)
        assert error.value.__cause__ is None
        assert error.value.status == 422

    def test_every_bad_column_is_told_at_once(self) -> None:
        bad = columns(age=np.array([-1.0, math.nan, 3]), dose=None, ward=objects("east", None, "south"))
        with pytest.raises(InvalidDataError) as error:
            shard_of(MIXED, {**bad, "ill": objects("no", "maybe", "")})
        assert error.value.detail.startswith(
            "the data does not fit the study: column 'age': missing in 1 row, beyond the bounds in 1 row; "
            "column 'ward': missing in 1 row, unknown category in 1 row; column 'dose': absent; "
            "column 'ill': missing in 1 row, unknown label in 1 row; "
        )

    def test_of_many_bad_columns_the_first_are_named_and_the_others_counted(self) -> None:
        features = tuple(Feature(name=f"x{i}", lower=0, upper=1) for i in range(1000))
        with pytest.raises(
            InvalidDataError, match=r"column 'x19': absent; and 981 columns more; a column under another name"
        ):
            shard_of(STUDY.model_copy(update={"features": features}), {})

    def test_faults_are_counted_over_all_blocks(self) -> None:
        n = 40_000
        bad = {"age": np.full(n, 101.0), "dose": np.zeros(n), "ill": np.full(n, "no")}
        with pytest.raises(InvalidDataError, match="column 'age': beyond the bounds in 40,000 rows"):
            shard_of(STUDY, bad)


class TestRecords:
    def test_records_to_predict_become_the_rows_of_the_data(self) -> None:
        table = columns()
        records = [{name: table[name].tolist()[i] for name in MIXED.feature_names} for i in range(3)]
        assert np.array_equal(rows_of(MIXED, records), shard_of(MIXED, table).X)
        assert np.array_equal(rows_of(STUDY, [{"dose": -7, "age": 1e9}]), rows_of(STUDY, [{"dose": -1, "age": 100}]))
        assert rows_of(MIXED, []).shape == (0, 5)

    @pytest.mark.parametrize(
        ("record", "words"),
        [
            ({"age": 50, "dose": 0}, "record 1: feature 'ward' is missing"),
            ({"age": math.nan, "dose": 0, "ward": "north"}, "record 1: feature 'age' is missing"),
            ({"age": None, "dose": 0, "ward": "north"}, "record 1: feature 'age' is missing"),
            ({"age": "old", "dose": 0, "ward": "north"}, "record 1: feature 'age' is not a number"),
            ({"age": 5, "dose": 0, "ward": "east"}, "record 1: feature 'ward' is not one of its values"),
            ({"age": 5, "dose": 0, "ward": ""}, "record 1: feature 'ward' is missing"),
        ],
    )
    @pytest.mark.parametrize("missing", ["refuse", "drop"])
    def test_a_record_that_does_not_fit_is_named(self, record: dict[str, Any], words: str, missing: str) -> None:
        study = MIXED.model_copy(update={"missing": missing})
        with pytest.raises(InvalidInputError, match=words):
            rows_of(study, [{"age": 1, "dose": 0, "ward": "south"}, record])

    def test_a_missing_value_is_filled_as_in_the_data(self) -> None:
        study = STUDY.model_copy(
            update={"features": (Feature(name="age", lower=0, upper=100, fill=25), WARD.model_copy())}
        )
        assert np.array_equal(rows_of(study, [{"ward": "north"}]), rows_of(study, [{"ward": "north", "age": 25}]))


@pytest.mark.parametrize("study", [STUDY, REAL])
def test_a_study_has_the_digest_of_versions_that_left_out_what_a_label_does_not_state(study: Study) -> None:
    content = study.model_dump(mode="json")
    label = {name: value for name, value in content["label"].items() if value is not None}
    assert label != content["label"]
    assert study.has_digest(study.digest)
    assert study.has_digest(canonical_digest(content | {"label": label}))
    assert not study.has_digest(canonical_digest(content | {"name": "other", "label": label}))


def test_a_study_of_the_first_versions_is_to_be_made_again() -> None:
    with pytest.raises(ValidationError, match=r"study of an older version of Parley\. Make it again"):
        Study.model_validate(STUDY.model_dump(mode="json") | {"clip_norm": 1.0})
