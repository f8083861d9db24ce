"""Where a study hides persons, the page counts persons, from the studies to a model and its evaluation."""

from __future__ import annotations

import numpy as np
import pytest

from parley.common.data.columns import Columns
from parley.common.data.study import Person, RowWeights
from tests.support.browser import Visitor
from tests.support.cluster import Cluster, made_up

PATIENTS = 200


def visits(seed: int) -> Columns:
    """The visits of so many patients, one to three of each."""
    rng = np.random.default_rng(seed)
    of_visits = np.repeat(np.arange(PATIENTS), rng.integers(1, 4, PATIENTS))
    features = {f"x{column}": rng.uniform(-1, 1, len(of_visits)).round(3) for column in range(3)}
    return {
        "weight": rng.integers(1, 5, len(of_visits)) / 4,
        "patient_nbr": np.char.add("p", of_visits.astype(str)),
        **features,
        "y": np.where(features["x0"] > 0, "yes", "no"),
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Two owners of patients, who may each be with both."""
    person, weights = Person(column="patient_nbr", most_rows=5), RowWeights(column="weight")
    study = made_up(3).model_copy(update={"person": person, "row_weights": weights, "hold_out": 0.2})
    return Cluster(
        tmp_path_factory.mktemp("cluster"),
        given=(study, [visits(1), visits(2)]),
        epsilon=5.0,
        algorithms=("dp_gd", "describe", "evaluate"),
    )


def test_a_page_of_persons_counts_persons(visitor: Visitor, cluster: Cluster) -> None:
    visitor.sign_in("#studies")
    visitor.until_it_says(f"2, with {2 * PATIENTS} persons")
    assert "all rows of a person: those with the same patient_nbr" in visitor.text()
    visitor.photograph("persons-studies")
    visitor.go(f"new/{cluster.study.name}")
    visitor.until_it_says("Expected excess loss")
    assert "with so many persons, it may" in visitor.text("#expected")
    visitor.find("#rest summary").click()
    visitor.find("#overlap").send_keys("2")
    visitor.until_it_says(
        "The same person may be with up to 2 owners: epsilon 1, delta 1e-05 is promised to one that is"
    )
    visitor.photograph("persons-new")
    visitor.find("#submit").click()
    visitor.until_it_says("completed", "#state", 60)
    visitor.until_it_says("for all rows of one person, with up to 2 owners, replaced", "#terms")
    visitor.until_it_says("a run with all rows of one person, with up to 2 owners, replaced by at most", "#promise")
    visitor.find("#promises summary").click()
    promises = visitor.text("#promises")
    for owners in ("up to 2 owners", "one owner"):
        assert promises.count(f"all rows of one person, with {owners}, replaced") == 1
    visitor.until_it_says("Evaluate it on held-out persons")
    visitor.photograph("persons-model")
    visitor.find("#evaluation-epsilon").clear()
    visitor.find("#evaluation-epsilon").send_keys("1")
    visitor.until_it_says(f"on {2 * PATIENTS // 5} held-out persons", "#at-most")
    visitor.find("#evaluate button").click()
    visitor.until_it_says(f"On {2 * PATIENTS // 5} persons that 2 owners held out", seconds=60)
    assert "Persons count by the weights of their rows, in the column weight:" in visitor.text()
    assert "rows" not in visitor.text("#evaluation").lower()
    assert visitor.log() == []
