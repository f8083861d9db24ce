"""Rows that are bounded in the largest coordinate: what a study says of them, and who takes them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import ValidationError

from parley.common.algorithms import REGISTRY, build_algorithm, settle
from parley.common.data.columns import Category, Feature, Label, RealLabel
from parley.common.data.loading import shard_of
from parley.common.data.records import rows_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate

FEATURES = (Feature(name="a", lower=0, upper=10), Category(name="b", values=("x", "y")))


CLASSES = Label(name="l", values=("0", "1"))


def study(label: Label | RealLabel = CLASSES, **terms: Literal["own"] | float) -> Study:
    return Study(name="s", features=FEATURES, label=label, norm="max", **terms)


@pytest.mark.parametrize("label", [Label(name="l", values=("0", "1")), RealLabel(name="l", lower=0, upper=1)])
def test_numbers_values_and_intercept_are_kept_as_they_are(label: Label | RealLabel) -> None:
    columns = {"a": np.array([0.0, 5, 10]), "b": np.array(["x", "y", "x"]), "l": np.array([0, 1, 1])}
    shard = shard_of(study(label=label), columns)
    assert shard.norm == "max"
    assert shard.X.tolist() == [[-1, 1, 0, 1], [0, 0, 1, 1], [1, 1, 0, 1]]
    assert study(label=label).largest_norm == 1


@pytest.mark.parametrize("cell", [[1], [1, 2], []])
def test_a_list_is_no_number(cell: list[int]) -> None:
    with pytest.raises(InvalidInputError, match="record 0: feature 'a' is not a number"):
        rows_of(study(), [{"a": cell, "b": "x"}])


@pytest.mark.parametrize("row_norm", ["own", 0.5])
def test_no_row_is_divided(row_norm: Literal["own"] | float) -> None:
    with pytest.raises(ValidationError, match="row_norm must be 'largest'"):
        study(row_norm=row_norm)


def facts(**terms: object) -> FederationFacts:
    return FederationFacts.uniform(np.array([5, 6]), epsilon=1.0, delta=1e-5, n_features=3, loss=Logistic(), **terms)


@pytest.mark.parametrize("name", [name for name, kind in REGISTRY.items() if "max" not in kind.norms])
def test_what_hides_rows_by_their_2_norm_refuses_others_and_says_why(name: str) -> None:
    with pytest.raises(InvalidInputError, match="norm = 'max'"):
        settle(name, {}, facts(norm="max"))


@pytest.mark.parametrize("name", [name for name, kind in REGISTRY.items() if not kind.sparse])
def test_what_needs_dense_rows_refuses_sparse_ones(name: str) -> None:
    with pytest.raises(InvalidInputError, match="needs dense rows"):
        build_algorithm(name).check_rows(facts(row_entries=2))


def test_rows_have_no_more_entries_than_were_agreed_on() -> None:
    algorithm, shard = build_algorithm("local", {"regularization": 1.0}), Shard(np.ones((2, 6, 3)), np.ones((2, 6)))
    with pytest.raises(InvalidInputError, match="more entries than the 2 that"):
        simulate(algorithm, shard, facts(row_entries=2), NoNoise())
    assert simulate(algorithm, shard, facts(row_entries=3), NoNoise()).weights.shape == (2, 3)


@pytest.mark.parametrize("terms", [{"norm": "max"}, {"row_entries": 2}, {"norm": "max", "row_entries": 2}])
@pytest.mark.parametrize("name", REGISTRY)
def test_who_refuses_rows_names_who_takes_them(name: str, terms: dict[str, Any]) -> None:
    try:
        build_algorithm(name).check_rows(facts(**terms))
    except InvalidInputError as error:
        named = re.findall(r"\w+", error.detail.rpartition("to train, take ")[2].replace(" or ", " "))
        assert named
        for other in named:
            assert REGISTRY[other].trains
            build_algorithm(other).check_rows(facts(**terms))


def test_shards_have_the_norm_that_was_agreed_on() -> None:
    shard = Shard(np.ones((2, 6, 3)), np.ones((2, 6)), norm="max")
    with pytest.raises(InvalidInputError, match="the shards' norm is 'max'"):
        simulate(build_algorithm("local"), shard, facts(), NoNoise())
    model = simulate(build_algorithm("local"), shard, replace(facts(), norm="max"), NoNoise())
    assert model.weights.shape == (2, 3)
