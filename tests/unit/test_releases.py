"""Sites that release together: each as alone, noise drawn once, what they are charged, and who is refused, and how."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms._parameters import check_take_part
from parley.common.algorithms.average import AverageMethod
from parley.common.algorithms.release import Mechanism, Releases
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss
from parley.common.privacy.account import delta_units
from parley.common.privacy.calibration import gaussian_mu, gaussian_sigma
from parley.common.privacy.events import GaussianEvent, L2LaplaceEvent
from parley.common.privacy.mechanisms.objective import ObjectivePerturbation
from parley.common.privacy.mechanisms.output import OutputPerturbation, exact, output
from parley.common.privacy.mechanisms.site import Law, SiteCalibration
from parley.common.privacy.noise import NoNoise, SeededNoise
from parley.common.privacy.proofs import Additive, NoiseInside
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query
from parley.common.runs.pricing import guarantees, highest_charge, price, schedule, transcript
from tests.unit.test_mechanisms import CALIBRATIONS, EVERY_KIND, LAWS, rows, terms

QUERY = Query(1, "release", np.zeros(0))


def facts(k: int = 3, **changes: Any) -> FederationFacts:  # noqa: ANN401 -- fields of facts
    """What sites agree on, of different sizes."""
    given: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "n_features": 3, "loss": Logistic()} | changes
    return FederationFacts.uniform(np.arange(40, 40 + k), **given)


def releases(name: str = "release", **parameters: object) -> Releases:
    algorithm = build_algorithm(name, parameters)
    assert isinstance(algorithm, Releases)
    return algorithm


# ── sites ────────────────────────────────────────────────────────────────────

MIXED: tuple[dict[str, object], ...] = (
    {"party": "party-2", "mechanism": "output", "law": "l2_laplace"},
    {"party": "party-3", "regularization": 0.5},
    {"party": "party-4", "mechanism": "generalized", "calibration": "paper"},
    {"party": "party-5", "mechanism": "output", "calibration": "jain_thakurta", "regularization": 2.0},
)


def each_alone(algorithm: Releases, of: FederationFacts, parts: list[Shard], *, one_stream: bool) -> FloatArray:
    """What each site answers by itself, one after another."""
    noise = SeededNoise(3) if one_stream else NoNoise()
    alone = [
        algorithm.local(QUERY, algorithm.prepare(part, own), own, noise)
        for part, own in zip(parts, map(of.of, range(len(parts))), strict=True)
    ]
    return np.stack(alone)


@pytest.mark.parametrize("name", ["release", "average"])
def test_sites_of_all_kinds_together_answer_as_each_does_alone(name: str) -> None:
    """Sizes, epsilons, lambdas and mechanisms of their own, bit for bit."""
    of = replace(facts(5), epsilon=np.array([1.0, 0.5, 2.0, 1.5, 3.0]))
    algorithm = releases(name, mechanism="objective", regularization=0.05, sites=MIXED)
    parts = [rows(n, seed=n) for n in of.n_examples.tolist()]
    together = algorithm.prepare(Shard.stack(parts), of.everyone)
    found = algorithm.local(QUERY, together, of.everyone, SeededNoise(3))
    assert (found == each_alone(algorithm, of, parts, one_stream=True)).all()


def test_a_release_moves_by_what_output_perturbation_hides() -> None:
    """Inside a minimisation nothing is said of it."""
    of = facts(5)
    algorithm = releases(
        mechanism="output", regularization=0.05, sites=[{"party": "party-2", "mechanism": "objective"}]
    )
    due = [math.inf if index == 1 else output(algorithm.terms(of, index)[1]).reach for index in range(5)]
    assert np.asarray(algorithm.sensitivity(QUERY, of.everyone)).tolist() == due
    for index in range(5):
        own = of.of(index)
        assert float(algorithm.sensitivity(QUERY, own)) == due[index]
        proof = algorithm.proof(QUERY, own)
        assert isinstance(proof, NoiseInside) if index == 1 else proof == Additive()


def test_the_proof_of_noise_inside_is_of_the_sites_own_rows() -> None:
    """Of the one mechanism, from what it prepares."""
    of, algorithm = facts(), releases(regularization=0.05)
    own, shard = of.of(1), rows(41)
    (site,), proof = algorithm.own_sites(own), algorithm.proof(QUERY, own)
    assert isinstance(site, ObjectivePerturbation)
    assert isinstance(proof, NoiseInside)
    answers = np.random.default_rng(2).normal(size=(4, 3))
    slopes = -shard.y / (1 + np.exp(shard.y * (answers @ shard.X.T)))  # of the logistic loss
    tilts = -(site.strength * answers + slopes @ shard.X)
    assert proof.noise_of(algorithm.prepare(shard, own), answers) == pytest.approx(tilts[:, None])
    assert (proof.law, proof.reach) == (GaussianEvent(2.0 / site.tilt), 2.0)
    assert proof.spent == pytest.approx((math.log(1 + 0.25 / site.strength) + 0.01, 1e-7), rel=1e-12)


@pytest.mark.parametrize("mechanism", CALIBRATIONS)
def test_a_stack_of_sites_answers_as_each_does_alone(mechanism: Mechanism) -> None:
    """Lambdas of their own keep them one stack: without noise, bit for bit; with it, each has its own scale."""
    of = replace(facts(4), epsilon=np.array([1.0, 0.5, 2.0, 1.5]))
    sites = [{"party": "party-3", "regularization": 0.5}]
    algorithm = releases(mechanism=mechanism, regularization=0.05, sites=sites, law="l2_laplace")
    parts = [rows(n, seed=n) for n in of.n_examples.tolist()]
    together = algorithm.prepare(Shard.stack(parts), of.everyone)
    assert len(together.parts) == 1
    found = algorithm.local(QUERY, together, of.everyone, NoNoise())
    assert (found == each_alone(algorithm, of, parts, one_stream=False)).all()
    for own, site in zip(algorithm.own_sites(of.everyone), map(of.of, range(4)), strict=True):
        assert (own,) == algorithm.own_sites(site)
        assert own.terms.epsilon == float(site.own_epsilon)


# ── noise once ───────────────────────────────────────────────────────────────

ONCE: dict[str, tuple[dict[str, object], ...]] = {
    "alike": (),
    "one of its own lambda": ({"party": "party-1", "regularization": 1.0},),
    "one of less lambda": ({"party": "party-3", "regularization": 1e-3},),
    "one of its own noise": ({"party": "party-1", "calibration": "paper"},),
    "one of another law": ({"party": "party-2", "law": "l2_laplace"},),
    "one of another mechanism": ({"party": "party-2", "mechanism": "objective"},),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("sites", ONCE.values(), ids=ONCE)
@pytest.mark.parametrize("sizes", [[100, 100, 100], [100, 20, 60]], ids=str)
def test_noise_drawn_once_hides_the_party_that_moves_the_sum_furthest(
    sites: tuple[dict[str, object], ...], law: Law, sizes: list[int]
) -> None:
    """What a site is charged is what the sum's noise, of the least that is sure to be there, makes of its move."""
    of = replace(facts(secure_sum=True, colluders=1), n_examples=np.array(sizes), epsilon=np.array([1.0, 0.5, 2.0]))
    algorithm = releases("average", law=law, regularization=0.01, sites=sites)
    assert isinstance(algorithm, AverageMethod)
    shares = algorithm.in_shares(of)
    for index, site in enumerate(algorithm.own_sites(of.everyone)):
        if not isinstance(site, OutputPerturbation):
            continue
        alone = output(algorithm.terms(of, index)[1])
        scales = [each.scale for each in algorithm.own_sites(of.everyone) if isinstance(each, OutputPerturbation)]
        cost = algorithm.event(1, of.of(index))
        assert algorithm.output_sensitivity(of.of(index)) >= alone.reach
        if isinstance(cost, L2LaplaceEvent):
            assert cost.epsilon == 0.5, "the strictest"
            beta = max(scales) if shares else site.scale
            assert alone.reach * beta <= cost.epsilon * (1 + 1e-12)
        else:
            assert isinstance(cost, GaussianEvent)
            width = min(scales) if shares else site.scale
            assert alone.reach / width <= cost.mu <= gaussian_mu(0.5, 1e-5) * (1 + 1e-9)


def test_in_shares_the_average_has_the_noise_of_the_smallest_site() -> None:
    """As published beta = K n_min lambda epsilon / (2 L) on the average; or Gaussian, for how far a record moves it."""
    of = replace(facts(secure_sum=True), n_examples=np.array([100, 20, 60]))
    smallest = terms(n_examples=20, regularization=1.0)
    reach = output(smallest).reach
    for law, calibration in (("gaussian", "tight"), ("l2_laplace", "tight"), ("l2_laplace", "paper")):
        sites = releases("average", law=law, calibration=calibration, regularization=1.0).own_sites(of.everyone)
        furthest = output(replace(smallest, law=law, calibration=calibration)).reach  # type: ignore[arg-type]
        assert {site.output_sensitivity for site in sites} == {furthest}
        (scale,) = {site.scale for site in sites if isinstance(site, OutputPerturbation)}
        assert scale == pytest.approx(gaussian_sigma(1.0, 1e-5, reach) if law == "gaussian" else 1 / furthest, rel=1e-6)
    assert scale == pytest.approx(20 / 2, rel=1e-4)
    average = releases("average", regularization=1.0)
    assert average.noise_of_model(of) == pytest.approx(gaussian_sigma(1.0, 1e-5, reach) / 3, rel=1e-6)


# ── prices ───────────────────────────────────────────────────────────────────


@EVERY_KIND
@pytest.mark.parametrize("secure_sum", [False, True])
def test_schedule_guarantee_and_price_agree(
    mechanism: Mechanism, law: Law, calibration: SiteCalibration, *, secure_sum: bool
) -> None:
    of, asked = facts(secure_sum=secure_sum, colluders=int(secure_sum)), 0.0 if law == "l2_laplace" else 1e-5
    parameters = {"mechanism": mechanism, "law": law, "calibration": calibration, "regularization": 1.0}
    for name in ("average",) if secure_sum else ("release", "average"):
        algorithm = releases(name, **parameters)
        (promise,) = guarantees(algorithm, of)
        assert promise.delta == asked
        for own in map(of.of, range(3)):
            (step,) = schedule(algorithm, own)
            total = price(algorithm, own).total
            assert step == total == highest_charge(algorithm, own)
            assert total.epsilon <= math.ceil(promise.epsilon * 1e6)
            assert total.delta == delta_units(asked)
        if law == "l2_laplace":
            halved = mechanism == "output" and calibration == "jain_thakurta"
            assert total.units[:4] == (500_000 if halved else 1_000_000, 0, total.gdp, 0)


def test_a_promise_to_all_sites_holds_for_each() -> None:
    """One site spends all of epsilon and no delta, others less than all of epsilon and delta."""
    algorithm = releases(law="gaussian", mechanism="objective", regularization=1.0, sites=MIXED[:1])
    of = replace(facts(), epsilon=np.array([0.9, 1.0, 0.9]))
    (promise,) = guarantees(algorithm, of)
    assert (promise.epsilon, promise.delta) == (1.0, 1e-5)
    for own in map(of.of, range(3)):
        assert set(promise.assumptions) >= set(transcript(algorithm, own).assumptions)


def test_a_guarantee_says_what_jain_and_thakurtas_noise_is_worth() -> None:
    chosen = releases(mechanism="objective", calibration="jain_thakurta", regularization=1.0)
    (promise,) = guarantees(chosen, facts())
    assert promise.epsilon > 1.0
    assert any("said to be (1, 1e-05)-private, is (1." in words for words in promise.assumptions)
    assert price(chosen, facts().of(0)).total.epsilon == math.ceil(promise.epsilon * 1e6 - 1e-3)


@pytest.mark.parametrize("name", ["release", "average"])
def test_no_budget_allows_a_site_without_a_mechanism(name: str) -> None:
    bare = releases(name, mechanism="none")
    some = releases(name, sites=[{"party": "party-2", "mechanism": "none"}], regularization=1.0)
    for algorithm, index in ((bare, 0), (some, 1)):
        with pytest.raises(BudgetExhaustedError, match="without noise"):
            price(algorithm, facts().of(index))
    assert guarantees(some, facts())[-1].epsilon == math.inf, "the worst-off site's"
    assert price(some, facts().of(0)).total.epsilon == 1_000_000


# ── refusals ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mechanism", CALIBRATIONS)
@pytest.mark.parametrize("loss", [Logistic(), Huber(1e-3), Huber(1e-7)], ids=str)
@pytest.mark.parametrize("law", LAWS)
def test_a_lambda_too_small_names_the_site_and_one_that_does(mechanism: Mechanism, loss: Loss, law: Law) -> None:
    of = facts(loss=loss, epsilon=1000.0)  # so large that no ridge is added to what is asked for
    sites = [{"party": "party-2", "regularization": 1e-9, "mechanism": mechanism}]
    algorithm = releases(regularization=1e6, sites=sites, law=law)
    algorithm.own_sites(of.of(0))
    with pytest.raises(InvalidInputError, match=r"^party-2: .* with regularization = .* it would do$") as refusal:
        algorithm.own_sites(of.of(1))
    found = re.search(r"regularization = (\S+) it", str(refusal.value))
    assert found
    enough = float(found[1])
    print(f"{mechanism}, {law}, {loss}: {enough:g} would do")
    again = releases(regularization=1e6, sites=[sites[0] | {"regularization": enough}], law=law)
    assert again.own_sites(of.of(1))
    less = releases(regularization=1e6, sites=[sites[0] | {"regularization": enough * 0.98}], law=law)
    with pytest.raises(InvalidInputError, match="party-2"):
        less.own_sites(of.of(1))


def test_sites_are_named_once_and_take_part() -> None:
    site = {"party": "party-1", "regularization": 1.0}
    with pytest.raises(
        InvalidInputError, match=r"names nobody, which take no part: there are party-1, party-2, party-3$"
    ):
        releases(sites=[{"party": "nobody"}]).questions(facts())
    with pytest.raises(InvalidInputError, match="names a party twice"):
        releases(sites=[site, site]).questions(facts())


def test_of_many_parties_a_name_that_is_none_s_is_refused_with_the_first() -> None:
    with pytest.raises(InvalidInputError, match=r"there are a0, .*, a7 and 19,992 more$"):
        check_take_part("sites", ["nobody"], [f"a{i}" for i in range(20_000)])


@pytest.mark.parametrize("mechanism", CALIBRATIONS)
def test_a_site_of_one_row_releases_and_one_of_none_is_refused(mechanism: Mechanism) -> None:
    algorithm = releases(mechanism=mechanism, regularization=1.0)
    one, none = (replace(facts(1), n_examples=np.array([n])).of(0) for n in (1, 0))
    algorithm.questions(one)
    assert np.isfinite(algorithm.local(QUERY, algorithm.prepare(rows(1), one), one, SeededNoise(1))).all()
    with pytest.raises(InvalidInputError, match=r"^party-1: a site without examples has no model to release$"):
        algorithm.own_sites(none)
    with pytest.raises(InvalidInputError, match="without examples"):
        exact(terms(Hinge(), n_examples=0))


def test_gaussian_noise_needs_a_delta() -> None:
    for mechanism in CALIBRATIONS:
        without = facts(delta=0.0)
        with pytest.raises(InvalidInputError, match=r"needs a delta above 0: take law = l2_laplace$"):
            releases(mechanism=mechanism).own_sites(without.of(0))
        assert releases(mechanism=mechanism, law="l2_laplace", regularization=1.0).own_sites(without.of(0))
