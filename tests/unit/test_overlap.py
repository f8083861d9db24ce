"""What answers of several owners about the same person cost together (`parley.common.privacy.overlap`)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.data.study import Person
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.calibration import gaussian_mu
from parley.common.privacy.events import DrawEvent, GaussianEvent, LaplaceEvent, NonPrivateEvent, TiltEvent
from parley.common.privacy.overlap import at_owners, for_one_owner
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.pricing import against_co_owner, guarantees, if_all_collude, price, transcript, with_one_owner
from parley.common.runs.specification import Budget, Member, RunSpec
from tests.support.cluster import made_up

TILT = TiltEvent(1.0, 1e-6, law=GaussianEvent(1.0), determinant=0.1, blur=GaussianEvent(0.1))


def facts(overlap: int = 1, *, secure_sum: bool = False) -> FederationFacts:
    uniform = FederationFacts.uniform(
        np.full(5, 100), epsilon=1.0, delta=1e-5, n_features=3, loss=Logistic(), secure_sum=secure_sum
    )
    return uniform.with_overlap(overlap, is_gaussian=True)


@pytest.mark.parametrize("overlap", [2, 3, 5])
def test_answers_apart_add_squares_and_one_sum_moves_so_many_times_as_far(overlap: int) -> None:
    assert at_owners(GaussianEvent(0.3), overlap, in_one_sum=True) == GaussianEvent(0.3 * overlap)
    assert at_owners(GaussianEvent(0.3), overlap, in_one_sum=False) == GaussianEvent(0.3 * math.sqrt(overlap))
    for in_one_sum in (True, False):
        laplace = at_owners(LaplaceEvent(0.1), overlap, in_one_sum=in_one_sum)
        assert epsilon_after([laplace], 0.0) == pytest.approx(0.1 * overlap)
        assert at_owners(DrawEvent(0.1, 4), overlap, in_one_sum=in_one_sum) == DrawEvent(0.1, 4 * overlap)
    assert at_owners(TILT, overlap, in_one_sum=True) == NonPrivateEvent()
    assert epsilon_after([at_owners(TILT, overlap, in_one_sum=False)], overlap * 1e-6) <= overlap


@pytest.mark.parametrize("secure_sum", [False, True])
@pytest.mark.parametrize("overlap", [2, 5])
def test_a_run_costs_what_was_agreed_and_noise_grows_instead(overlap: int, *, secure_sum: bool) -> None:
    algorithm = build_algorithm("dp_gd", {"n_rounds": 7})
    plain, several = facts(secure_sum=secure_sum), facts(overlap, secure_sum=secure_sum)
    times = overlap if secure_sum else math.sqrt(overlap)
    sigmas = [float(algorithm.sigma(one.of(0))) for one in (plain, several)]  # type: ignore[attr-defined]
    assert sigmas[1] / sigmas[0] == pytest.approx(times, rel=1e-6)
    together, alone = transcript(algorithm, several.of(0)), with_one_owner(algorithm, several.of(0))
    assert alone is not None
    assert 0.999 < together.epsilon <= 1.0
    assert gaussian_mu(alone.epsilon, 1e-5) == pytest.approx(gaussian_mu(1.0, 1e-5) / times, rel=1e-5)
    costs = [price(algorithm, one.of(0)).total for one in (plain, several)]
    assert costs[1].epsilon == pytest.approx(costs[0].epsilon, abs=2)
    assert costs[1].gdp == pytest.approx(costs[0].gdp, rel=1e-5)
    assert with_one_owner(algorithm, plain.of(0)) is None


def test_co_owners_and_those_who_open_sums_see_more() -> None:
    algorithm, several = build_algorithm("dp_gd", {"n_rounds": 7}), facts(2, secure_sum=True)
    co_owner = against_co_owner(algorithm, several.of(0))
    assert co_owner is not None
    assert co_owner.epsilon > transcript(algorithm, several.of(0)).epsilon
    plain, _ = if_all_collude(algorithm, facts(secure_sum=True).of(0))
    colluding, _ = if_all_collude(algorithm, several.of(0))
    assert colluding < plain  # each answer by itself has more noise, and two add but squares


def test_the_budget_of_one_owner_is_a_part() -> None:
    assert for_one_owner(1.0, 0.0, 4, is_gaussian=True, in_one_sum=False) == (0.25, 0.0)
    assert for_one_owner(1.0, 1e-5, 4, is_gaussian=False, in_one_sum=True) == (0.25, 2.5e-6)
    assert for_one_owner(1.0, 1e-5, 1, is_gaussian=True, in_one_sum=True) == (1.0, 1e-5)


def test_a_budget_that_an_epsilon_of_0_would_keep_leaves_one_all_the_same() -> None:
    epsilon, delta = for_one_owner(0.1, 0.05, 4, is_gaussian=True, in_one_sum=True)
    assert epsilon == 0.1 / 4
    assert gaussian_mu(epsilon, delta) == pytest.approx(gaussian_mu(0.1, 0.05) / 4, rel=1e-6)
    assert gaussian_mu(epsilon, delta) <= gaussian_mu(0.1, 0.05) / 4


@pytest.mark.parametrize("secure_sum", [False, True])
def test_one_owner_without_a_delta_makes_noise_pure_at_all(*, secure_sum: bool) -> None:
    algorithm = build_algorithm("parameter_average", {"regularization": 0.1})
    shared = replace(facts(secure_sum=secure_sum), delta=np.array([0.0, *[1e-5] * 4]))
    together = shared.with_overlap(4, is_gaussian=algorithm.noise_is_gaussian)
    for index in range(5):
        promise = transcript(algorithm, together.of(index))
        assert promise.epsilon == pytest.approx(1.0)
        assert promise.delta == 0


@pytest.mark.parametrize("secure_sum", [False, True])
@pytest.mark.parametrize("second", ["full", "own"])
def test_an_aggregator_whose_noise_is_inside_is_promised_what_was_agreed(second: str, *, secure_sum: bool) -> None:
    given = {"mechanism": "output", "second": second, "aggregator": "party-5", "second_mechanism": "objective"}
    algorithm = build_algorithm("feature", given)
    shared = facts(secure_sum=secure_sum).with_overlap(2, is_gaussian=algorithm.noise_is_gaussian)
    assert all(transcript(algorithm, shared.of(index)).epsilon <= 1 for index in range(5))
    assert not algorithm.noise_is_gaussian
    assert build_algorithm("feature", given | {"second_mechanism": "output"}).noise_is_gaussian


def test_there_are_no_more_owners_than_parties() -> None:
    with pytest.raises(InvalidInputError, match="overlap must lie between 1 and the 5 parties, not 6"):
        facts(6)
    with pytest.raises(InvalidInputError, match="joined first"):
        facts(2).curated()


@pytest.mark.parametrize("missing", ["refuse", "alone"])
@pytest.mark.parametrize("overlap", [1, 2])
def test_a_promise_to_persons_says_whose_rows_are_hidden_in_pieces(missing: str, overlap: int) -> None:
    person = Person.model_validate({"column": "patient", "missing": missing})
    study = made_up(3).model_copy(update={"person": person})
    members = tuple(Member(name=f"p{i}", n_examples=40, budget=Budget(epsilon=1, delta=1e-5)) for i in range(3))
    spec = RunSpec(
        study=study, algorithm="dp_gd", parameters={"n_rounds": 2}, parties=members, minimum_contributors=3,
        overlap=overlap,
    )  # fmt: skip
    spec, _ = spec.settled()
    promises = guarantees(spec.build(), spec.facts())
    assert len(promises) == overlap
    for promise in promises:
        words = "; ".join(promise.assumptions)
        assert "a person with two is hidden at each" in words
        assert ("a row without a value in the column that says whose it is" in words) == (missing == "alone")
