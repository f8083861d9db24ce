"""Columns that are projected or turned into random features: where a row goes, to the bit, and what is refused."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import norm

from parley.common.arrays import FloatArray, IntArray
from parley.common.data import layout
from parley.common.data.auxiliary import with_bounds_of
from parley.common.data.columns import Category, Columns, Feature, Label, RealLabel
from parley.common.data.layout import centred
from parley.common.data.loading import shard_of
from parley.common.data.records import rows_of
from parley.common.data.study import Projection, RandomFeatures, Study, numbers_of
from parley.common.encoding.fixed_point import FEATURE_BITS, WEIGHT_BITS
from parley.common.encoding.number_lines import document_lines
from parley.common.errors import InvalidInputError
from parley.common.learning.column_sums import ColumnChoice, ColumnSums
from parley.common.learning.model import Model
from parley.common.runs.model_document import model_document
from parley.common.runs.predictions import predict
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.strict import faults

FEATURES = (
    Feature(name="age", lower=0, upper=100),
    Category(name="ward", values=("north", "south")),
    Feature(name="dose", lower=-1, upper=1),
)
MEAN = np.array([0.5, 0.25, 0.75, 0.0])
COMPONENTS = np.array([[0.6, 0.0, 0.0, 0.8], [0.0, 0.5, -0.5, 0.0]])
PROJECTION = Projection.of(MEAN, COMPONENTS, 2.0)
RANDOM = RandomFeatures(n=64, seed=7, gamma=0.5)
PLAIN = Study(name="s", features=FEATURES, label=Label(name="ill", values=("no", "yes")))
STUDY = Study(**dict(PLAIN) | {"projection": PROJECTION, "row_norm": "largest"})
TABLE: dict[str, Any] = {
    "age": np.array([0.0, 50, 100]),
    "ward": np.array(["north", "south", "north"], dtype=object),
    "dose": np.array([-1.0, 0.5, 1]),
    "ill": np.array(["no", "yes", "no"]),
}
UNDIVIDED = np.array([[-1, 1, 0, -1], [0, 0, 1, 0.5], [1, 1, 0, 1]])
STEP = 2.0**-FEATURE_BITS


def study_of(**fields: object) -> Study:
    """The plain study, read with more fields."""
    terms = PLAIN.model_dump(mode="json", exclude={"kind", "loss", "row_norm"}) | json.loads(json.dumps(fields))
    return Study.model_validate(terms)


def json_of(projection: Projection, **changes: object) -> dict[str, object]:
    """A projection as a study's file has it, with some fields changed."""
    return projection.model_dump(mode="json") | changes


def base64_of(*numbers: float) -> str:
    """Numbers as a study has them."""
    return b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()


def _integers(numbers: FloatArray, bits: int) -> IntArray:
    return np.asarray(np.trunc(numbers * 2**bits), dtype=np.int64)


def refused(**fields: object) -> str:
    """Why a study with these fields is refused."""
    with pytest.raises(ValidationError) as error:
        study_of(**fields)
    return faults(error.value)


class TestProjection:
    def test_a_row_is_projected_and_joined_by_the_intercept(self) -> None:
        X = shard_of(STUDY, TABLE).X
        projected = (UNDIVIDED - MEAN) @ COMPONENTS.T / 2
        assert np.linalg.norm(projected, axis=1).max() < 1
        assert np.abs(X - np.column_stack([projected, np.ones(3)]) / math.sqrt(2)).max() <= STEP
        assert STUDY.column_names == ("component 1", "component 2", "intercept")
        assert X.shape[1] == STUDY.n_features == 3

    def test_a_row_beyond_the_radius_is_scaled_onto_the_sphere(self) -> None:
        study = study_of(projection=json_of(PROJECTION, radius=0.5), intercept=False)
        X, projected = shard_of(study, TABLE).X, (UNDIVIDED - MEAN) @ COMPONENTS.T
        longer = np.maximum(np.linalg.norm(projected, axis=1), 0.5)
        assert (longer > 0.5).sum() == 2
        assert np.abs(X - projected / longer[:, None]).max() <= STEP
        assert np.linalg.norm(X, axis=1).max() <= 1

    def test_without_saying_rows_are_divided_by_the_radius_and_not_by_their_own_norm(self) -> None:
        assert (PLAIN.row_norm, study_of(projection=json_of(PROJECTION)).row_norm) == ("own", "largest")
        study = study_of(projection=json_of(PROJECTION), row_norm="own")
        assert np.linalg.norm(shard_of(study, TABLE).X, axis=1) == pytest.approx(np.ones(3), abs=3 * STEP)
        bound = study_of(projection=json_of(PROJECTION), row_norm=1.0)
        assert np.allclose(shard_of(bound, TABLE).X, shard_of(study, TABLE).X, atol=3 * STEP), "all lie beyond it"

    def test_the_intercept_of_a_number_is_as_long_as_a_row_can_be(self) -> None:
        study = study_of(projection=json_of(PROJECTION), label={"name": "days", "lower": 0, "upper": 9})
        assert isinstance(study.label, RealLabel)
        assert (study.constant, study.largest_norm) == (1, math.sqrt(2))

    def test_what_is_within_the_radius_is_exact(self) -> None:
        rng = np.random.default_rng(1)
        columns = rng.uniform(-1, 1, (300, 561))
        basis = np.linalg.qr(rng.standard_normal((561, 50)))[0].T
        projection = Projection.of(rng.uniform(-1, 1, 561), basis, 3.0)
        found = centred(projection, columns)
        mean, matrix = (numbers_of(text) for text in (projection.mean, projection.components))
        apart = _integers(columns, FEATURE_BITS) - _integers(mean, FEATURE_BITS)
        weights = np.rint(matrix * 2**WEIGHT_BITS).astype(np.int64).reshape(50, 561)
        assert np.array_equal(found * 2.0 ** (FEATURE_BITS + WEIGHT_BITS), (apart @ weights.T).astype(float))
        assert np.array_equal(centred(projection, columns[7:8]), found[7:8]), "alone as among others"

    def test_many_rows_are_mapped_block_by_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = [shard_of(study, TABLE).X for study in (STUDY, study_of(random_features=dict(RANDOM)))]
        monkeypatch.setattr(layout, "_MAPPED", 1)
        blocks = [shard_of(study, TABLE).X for study in (STUDY, study_of(random_features=dict(RANDOM)))]
        assert np.array_equal(whole[0], blocks[0])
        assert np.abs(whole[1] - blocks[1]).max() <= STEP

    def test_a_radius_however_small_or_large_leaves_numbers(self) -> None:
        for radius in (5e-324, 1e308):
            X = shard_of(study_of(projection=json_of(PROJECTION, radius=radius)), TABLE).X
            assert np.isfinite(X).all()
            assert (X[:, -1] > 0.7).all(), "no row was taken for a bad one"

    def test_dropped_rows_stay_empty_and_records_become_the_rows_of_the_data(self) -> None:
        study = study_of(projection=json_of(PROJECTION), missing="drop")
        X = shard_of(study, TABLE | {"age": np.array([0.0, np.nan, 100])}).X
        assert not X[1].any()
        assert X[0].any()
        records = [{name: TABLE[name].tolist()[i] for name in PLAIN.feature_names} for i in range(3)]
        assert np.array_equal(rows_of(STUDY, records), shard_of(STUDY, TABLE).X)

    def test_a_study_keeps_every_bit_and_the_projection_is_part_of_its_name(self) -> None:
        again = Study.model_validate_json(STUDY.model_dump_json())
        assert again == STUDY
        assert (again.digest, len({STUDY.digest, PLAIN.digest})) == (STUDY.digest, 2)
        nudged = Projection.of(MEAN, np.nextafter(COMPONENTS.astype("<f4"), np.float32(0)), 2.0)
        assert STUDY.model_copy(update={"projection": nudged}).digest != STUDY.digest

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                {"mean": base64_of(0, 0, 0)},
                "projection: components have 8 numbers, not a multiple of the 3 of the mean",
            ),
            (
                {"mean": base64_of(0, 0), "components": base64_of(1, 0)},
                "the projection is of 2 columns, and the features make 4",
            ),
            ({"components": base64_of(*[0.1] * 20)}, "projection: there are 5 components, more than 4 columns"),
            ({"components": base64_of(1, 0, 0, math.nan)}, "projection.components: its numbers must be finite"),
            ({"mean": base64_of(1, 0, 0, math.inf)}, "projection.mean: its numbers must be finite"),
            ({"mean": base64_of(1.5, 0, 0, 0)}, "projection: the mean must lie in [-1, 1], as the columns do"),
            (
                {"components": base64_of(1, 0, 0, 0.5)},
                "projection: components must have norms of at most 1, and one has 1.11803",
            ),
            ({"components": "AAAA"}, "projection.components: must be base64 of float32 numbers"),
            ({"components": "AAAAAB=="}, "projection.components: must be base64 of float32 numbers"),
            ({"components": "AAAAAA"}, "projection.components: must be base64 of float32 numbers"),
            ({"mean": ""}, "projection.mean: must be base64 of float32 numbers"),
            ({"mean": [0.5, 0.25]}, "projection.mean: Input should be a valid string"),
            ({"components": "AAAAAAAA" * 2**19}, "projection.components: String should have at most"),
            ({"radius": 0}, "projection.radius: Input should be greater than 0"),
            ({"radius": "2"}, "projection.radius: Input should be a valid number"),
            ({"radius": None}, "projection.radius: Input should be a valid number"),
            ({"auxiliary": "x"}, "projection.auxiliary: String should match pattern"),
            ({"scale": 1}, "projection.scale: Extra inputs are not permitted"),
        ],
    )
    def test_what_cannot_be_a_projection_is_refused_in_words(self, change: dict[str, Any], words: str) -> None:
        assert words in refused(projection=json_of(PROJECTION, **change))

    def test_there_is_one_projection(self) -> None:
        assert "projection: Input should be" in refused(projection=[json_of(PROJECTION), json_of(PROJECTION)])

    @pytest.mark.parametrize(
        ("mean", "components", "words"),
        [
            (MEAN, COMPONENTS[:, :2], r"components \(k, m\); got \(4,\) and \(2, 2\)"),
            (MEAN, COMPONENTS[0], r"got \(4,\) and \(4,\)"),
            (MEAN, COMPONENTS[:0], "must be base64 of float32 numbers"),
            (MEAN * 1e300, COMPONENTS, "its numbers must be finite"),
        ],
    )
    def test_arrays_that_do_not_fit_are_refused(self, mean: FloatArray, components: FloatArray, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            Projection.of(mean, components, 1.0)


class TestRandomFeatures:
    def test_products_are_about_those_of_the_kernel(self) -> None:
        rng = np.random.default_rng(3)
        study = study_of(random_features={"n": 2**13, "seed": 1, "gamma": 0.5}, intercept=False)
        table: Columns = {
            "age": rng.uniform(0, 100, 40),
            "ward": rng.choice(np.array(["north", "south"]), 40),
            "dose": rng.uniform(-1, 1, 40),
            "ill": np.repeat("no", 40),
        }
        X = shard_of(study, table).X
        plain = study_of(intercept=False, row_norm="largest")
        columns = shard_of(plain, table).X * math.sqrt(3)
        apart = ((columns[:, None] - columns) ** 2).sum(axis=-1)
        assert np.abs(X @ X.T - np.exp(-0.5 * apart)).max() < 0.05  # about four deviations of a mean of 4,096 cosines
        assert np.linalg.norm(X, axis=1) == pytest.approx(np.ones(40), abs=64 * STEP)
        assert np.linalg.norm(X, axis=1).max() <= 1

    def test_they_may_follow_a_projection(self) -> None:
        study = study_of(projection=json_of(PROJECTION), random_features=dict(RANDOM))
        X = shard_of(study, TABLE).X
        assert X.shape == (3, 65)
        assert (study.column_names[0], study.column_names[32], study.column_names[-1]) == (
            "cosine 1",
            "sine 1",
            "intercept",
        )
        W = math.sqrt(2 * RANDOM.gamma) * layout._normals(RANDOM.seed, 32, 2)
        angles = (UNDIVIDED - MEAN) @ COMPONENTS.T / 2 @ W.T
        assert np.abs(X[:, :32] - np.cos(angles) * math.sqrt(2 / 64 / 2)).max() <= 2 * STEP
        assert np.abs(X[:, 32:64] - np.sin(angles) * math.sqrt(2 / 64 / 2)).max() <= 2 * STEP

    def test_the_numbers_of_a_seed_are_the_stated_ones(self) -> None:
        W = layout._normals(7, 32, 2)
        assert (W[:2] * 2**WEIGHT_BITS).tolist() == [[1191442, -563900], [-211439, -251044]]
        assert np.array_equal(W, layout._normals(7, 32, 2))
        assert not np.array_equal(W, layout._normals(8, 32, 2))
        first = int(np.random.Philox(key=7).random_raw()) >> 11
        assert W[0, 0] == pytest.approx(norm.ppf((first + 0.5) * 2.0**-53), abs=2.0**-WEIGHT_BITS)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"n": 0}, "random_features.n: Input should be greater than or equal to 2"),
            ({"n": 65}, "random_features.n: Input should be a multiple of 2"),
            ({"n": 2**14 + 2}, "random_features.n: Input should be less than or equal to 16384"),
            ({"n": 64.0}, "random_features.n: Input should be a valid integer"),
            ({"seed": -1}, "random_features.seed: Input should be greater than or equal to 0"),
            ({"seed": 2**53}, "random_features.seed: Input should be less than 9007199254740992"),
            ({"gamma": 0}, "random_features.gamma: Input should be greater than 0"),
            ({"gamma": 2.0**21}, "random_features.gamma: Input should be less than or equal to 1048576"),
            ({"bandwidth": 1}, "random_features.bandwidth: Extra inputs are not permitted"),
        ],
    )
    def test_what_cannot_be_random_features_is_refused_in_words(self, change: dict[str, Any], words: str) -> None:
        assert words in refused(random_features=dict(RANDOM) | change)

    def test_many_features_of_many_columns_are_refused(self) -> None:
        many = [{"name": f"x{i}", "lower": 0, "upper": 1} for i in range(1000)]
        words = "random_features of 1000 columns may be at most 8388, not 8390"
        assert words in refused(features=many, random_features=dict(RANDOM) | {"n": 8390})
        assert study_of(features=many, random_features=dict(RANDOM) | {"n": 8388}).n_features == 8389


class TestWhatElseReadsAStudy:
    def test_a_model_predicts_from_records_as_they_were(self) -> None:
        party = Member(name="a", n_examples=3, budget=Budget(epsilon=1.0, delta=1e-5))
        spec = RunSpec(study=STUDY, algorithm="dp_gd", parameters={}, parties=(party,), minimum_contributors=1)
        weights = np.array([3.0, -1.0, 0.5])
        document = json.loads("".join(document_lines(model_document(spec.settled()[0], [], Model(weights), ["a"]))))
        assert document["column_names"] == ["component 1", "component 2", "intercept"]
        records = [{name: TABLE[name].tolist()[i] for name in PLAIN.feature_names} for i in range(3)]
        scores = [row["score"] for row in predict(document, records)]
        assert scores == pytest.approx((shard_of(STUDY, TABLE).X @ weights).tolist())

    def test_columns_that_were_mapped_cannot_be_described_and_the_label_can(self) -> None:
        for study in (STUDY, study_of(random_features=dict(RANDOM))):
            for columns in ({}, {"age": None}, {"ward": None}):
                with pytest.raises(
                    InvalidInputError, match="cannot be described: the study's projection or random_features"
                ):
                    ColumnSums.of(study, ColumnChoice(columns, 10, moments=True))
            sums = ColumnSums.of(study, ColumnChoice({"ill": None}, 10, moments=True))
            assert (sums.add_up(shard_of(study, TABLE)) >> 32).tolist() == [2, 1]

    def test_bounds_are_taken_before_a_projection(self) -> None:
        with pytest.raises(InvalidInputError, match="take the bounds first, then project"):
            with_bounds_of(STUDY, TABLE, 0.1, "0" * 64)
