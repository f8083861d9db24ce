"""What releases choose where it is left open, by which terms a site's mechanism is set, and what is said of both."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import settle
from parley.common.algorithms._regularization import choose_regularization
from parley.common.algorithms.release import DRIFTS, MECHANISMS, Mechanism, set_site, solvable_choice
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.forecast.forecast import NoForecast, forecast
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax
from parley.common.privacy.events import FLOATS
from parley.common.privacy.mechanisms.output import output
from parley.common.privacy.mechanisms.site import SiteTerms
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.algorithm import Choice
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.pricing import transcript
from tests.support.noises import StackedNoise
from tests.unit.test_mechanisms import LAWS, rows
from tests.unit.test_releases import QUERY, facts, releases

SIZES = np.array([40, 200, 1000])


def unlike(**changes: Any) -> FederationFacts:  # noqa: ANN401 -- fields of facts
    """Three sites of other sizes and budgets."""
    of = replace(facts(**changes), n_examples=SIZES)
    return replace(of, epsilon=of.epsilon * np.array([1.0, 2.0, 0.5]))


def chosen(of: FederationFacts, given: dict[str, Any]) -> dict[str, Choice]:
    """What is chosen for releases that all sites make alike."""
    return type(releases()).choose(of, given, 10)


def median_deviation(of: FederationFacts, **parameters: Any) -> float:  # noqa: ANN401 -- parameters
    """Of the noise on each weight, of the site in the middle, at lambda = 1."""
    one = releases(**parameters, regularization=1.0)
    return float(np.median([one.own_sites(of.of(index))[0].deviation for index in range(3)]))


# ── choices ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("loss", "mechanism", "why"),
    [
        (Logistic(), "objective", "noise inside the minimisation moves"),
        (Huber(0.1), "objective", "noise inside the minimisation moves"),
        (Hinge(), "output", "noise on the minimiser: of such a loss"),
        (Softmax(2), "centroids", "so much noise leaves more of the sums of classes"),
        (Softmax(5), "centroids", "so much noise leaves more of the sums of classes"),
    ],
)
def test_the_mechanism_is_that_of_a_proof_for_the_loss(loss: Loss, mechanism: str, why: str) -> None:
    choice = type(releases()).mechanism_for(facts(loss=loss), {})
    assert choice.value == mechanism
    assert choice.why.startswith(why)
    assert chosen(facts(loss=loss), {})["mechanism"] == choice
    assert "mechanism" not in chosen(facts(loss=loss), {"mechanism": "output"})


@pytest.mark.parametrize(("law", "delta"), [("gaussian", 1e-6), ("l2_laplace", 0.0)])
def test_lambda_is_enough_that_many_examples_are_not_blurred(law: str, delta: float) -> None:
    """What a solver may leave of n examples is hidden by noise on the answer, which a little more lambda takes away."""
    of = replace(facts(n_features=6, epsilon=1.0, delta=delta), n_examples=np.array([200_000] * 3))
    choice = chosen(of, {"mechanism": "objective", "law": law})["regularization"]
    least = choose_regularization({}, median_deviation(of, mechanism="objective", law=law), DRIFTS["objective"])
    assert choice.why.startswith("the least with which a solver surely finds the minimiser, near enough")
    assert float(choice.value) > float(least["regularization"].value)
    one = releases(mechanism="objective", law=law, regularization=choice.value)
    (site,) = one.own_sites(of.of(0))
    print(f"{law}: lambda = {choice.value:.3g}, blur {site.blur_deviation:.3g}, tilt {site.deviation:.3g}")
    assert 0.09 < site.blur_deviation <= 0.1


def test_an_epsilon_that_no_lambda_keeps_from_blurring_is_given_one_that_can_be_set() -> None:
    of = facts(n_features=100, epsilon=1e-6, delta=0.0)
    given = {"mechanism": "objective", "law": "l2_laplace"}
    one = releases(**given, regularization=chosen(of, given)["regularization"].value)
    assert one.own_sites(of.of(0))[0].blur_deviation > 0.1


@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize(("d", "epsilon"), [(1, 20.0), (3, 1.0), (200, 0.5)])
def test_the_law_is_that_whose_noise_moves_weights_less(mechanism: Mechanism, d: int, epsilon: float) -> None:
    of = unlike(n_features=d, epsilon=epsilon)
    moved = {law: median_deviation(of, mechanism=mechanism, law=law) for law in LAWS}
    best, other = sorted(LAWS, key=lambda law: moved[law])
    choice = chosen(of, {"mechanism": mechanism})["law"]
    assert choice.value == best
    words = f"moves weights by {moved[best]:.2g} where {other} does by {moved[other]:.2g}, in {d} dimensions"
    assert choice.why == words


def test_without_a_delta_the_law_needs_none() -> None:
    """One party that spends none is enough."""
    of = unlike()
    for delta in (np.zeros(3), np.array([1e-5, 0.0, 1e-5])):
        found = chosen(replace(of, delta=delta), {})
        assert (found["law"].value, found["law"].why) == ("l2_laplace", "no delta is spent")
        assert isinstance(found["regularization"].value, float)


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=str)
@pytest.mark.parametrize("given", [{}, {"law": "gaussian"}, {"law": "l2_laplace"}, {"mechanism": "output"}])
def test_lambda_follows_the_rule_for_what_was_chosen(loss: Loss, given: dict[str, Any]) -> None:
    """And nothing that is given is chosen."""
    of = unlike(loss=loss)
    found = chosen(of, given)
    parameters = {name: choice.value for name, choice in found.items() if name != "regularization"} | given
    drift, strength = DRIFTS[parameters["mechanism"]], found["regularization"]
    if parameters["mechanism"] == "output":  # its noise is no more than the drift at lambda itself
        at_strength = releases(**parameters, regularization=strength.value).noise_of_model(of)
        assert at_strength == pytest.approx(drift, rel=3e-3)
    else:
        assert strength == choose_regularization({}, median_deviation(of, **parameters), drift)["regularization"]
    assert set(found) == {"mechanism", "law", "regularization"} - set(given)
    assert set(chosen(of, given | {"regularization": 0.3})) == {"mechanism", "law"} - set(given)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_a_lambda_with_which_a_site_could_not_be_set_is_raised_to_the_least_that_will_do(mechanism: Mechanism) -> None:
    """For each of them: the site whose mechanism needs most."""
    of = unlike(loss=Huber(1e-4), epsilon=1e4)
    given = {"mechanism": mechanism, "law": "gaussian"}
    choice = chosen(of, given)["regularization"]
    assert choice.why.startswith("the least with which a solver surely finds the minimiser")
    assert isinstance(choice.value, float)
    by_rule = choose_regularization({}, median_deviation(of, **given), DRIFTS[mechanism])["regularization"].value
    assert by_rule != choice.value
    releases(**given, regularization=choice.value).own_sites(of.everyone)
    with pytest.raises(InvalidInputError, match="no solver surely finds"):
        releases(**given, regularization=0.97 * choice.value).own_sites(of.everyone)


def test_where_no_lambda_helps_the_choice_by_the_rule_stays() -> None:
    hopeless = SiteTerms(Huber(1e-4), 40, 100, 1e-9, 1e-10, 0.0, "l2_laplace")
    choice = Choice(0.5, "by the rule")
    assert solvable_choice(choice, [("objective", hopeless)]) == choice
    solvable = replace(hopeless, epsilon=1.0, regularization=1e-7)
    least = solvable_choice(choice, [("objective", hopeless), ("output", solvable)])
    assert least.why.startswith("the least with which a solver surely finds")
    assert MECHANISMS["output"](replace(solvable, regularization=float(least.value)))


# ── terms ────────────────────────────────────────────────────────────────────


def test_a_site_is_told_all_that_is_public_of_it_and_does_otherwise_what_is_said_of_it() -> None:
    own = {
        "party": "party-2",
        "mechanism": "output",
        "regularization": 0.5,
        "law": "l2_laplace",
        "calibration": "paper",
    }
    of = unlike(row_entries=2)
    algorithm = releases(mechanism="generalized", regularization=0.05, calibration="thesis", sites=[own])
    site_terms = SiteTerms(Logistic(), 40, 3, 0.05, 1.0, 1e-5, "gaussian", "thesis", 2)
    assert algorithm.terms(of, 0) == ("generalized", site_terms)
    assert algorithm.terms(of, 2) == ("generalized", replace(site_terms, n_examples=1000, epsilon=0.5))
    otherwise = replace(
        site_terms, n_examples=200, epsilon=2.0, regularization=0.5, law="l2_laplace", calibration="paper"
    )
    assert algorithm.terms(of, 1) == ("output", otherwise)
    assert algorithm.roles
    assert not releases().roles
    assert releases().whole_noise(1)


def test_how_far_sites_move_is_shaped_like_their_view() -> None:
    of = unlike()
    algorithm = releases(mechanism="output", regularization=0.5, sites=[{"party": "party-2", "mechanism": "objective"}])
    reaches = [output(algorithm.terms(of, index)[1]).reach for index in (0, 2)]
    assert algorithm.output_sensitivity(of.everyone).tolist() == [reaches[0], np.inf, reaches[1]]
    assert algorithm.output_sensitivity(of.of(2)).shape == ()
    assert algorithm.output_sensitivity(of.of(slice(1, 3))).tolist() == [np.inf, reaches[1]]


def test_each_site_of_a_mixed_stack_draws_from_its_own_source() -> None:
    of = unlike()
    algorithm = releases(regularization=0.5, sites=[{"party": "party-2", "mechanism": "output"}])
    parts = [rows(n, seed=n) for n in SIZES.tolist()]
    together = algorithm.prepare(Shard.stack(parts), of.everyone)
    found = algorithm.local(QUERY, together, of.everyone, StackedNoise([SeededNoise(i) for i in range(3)]))
    for index, part in enumerate(parts):
        own = of.of(index)
        assert (found[index] == algorithm.local(QUERY, algorithm.prepare(part, own), own, SeededNoise(index))).all()


# ── words ────────────────────────────────────────────────────────────────────


def test_floating_point_is_an_assumption_where_such_noise_is_on_an_answer() -> None:
    of, own = unlike(), {"party": "party-2", "mechanism": "output", "law": "l2_laplace"}
    mixed = releases(mechanism="output", regularization=0.5, sites=[own])
    assert FLOATS in transcript(mixed, of.of(1)).assumptions
    assert FLOATS not in transcript(mixed, of.of(0)).assumptions
    assert FLOATS not in transcript(releases(mechanism="output"), of.of(0)).assumptions


def test_what_cannot_be_released_is_refused_before_a_run_and_names_the_site() -> None:
    """Of noise on a minimiser for every budget; of the others once there are facts of the noise."""
    of = unlike(loss=Huber(1e-6), epsilon=1e4)
    site = {"party": "party-2", "regularization": 1e-6}
    with pytest.raises(InvalidInputError, match=r"^party-2: no solver surely"):
        releases(mechanism="output", regularization=1e3, sites=[site]).questions(of)
    inside = releases(mechanism="objective", regularization=1e3, sites=[site])
    inside.questions(of)
    with pytest.raises(InvalidInputError, match=r"^party-2: no solver surely"):
        inside.check_noise(of.everyone)
    noisy = releases(mechanism="output", regularization=1e-3)
    noisy.check_noise(unlike().everyone)
    with pytest.raises(InvalidInputError, match="epsilon is too small"):
        noisy.check_noise(unlike(epsilon=1e-6).everyone)


@pytest.mark.parametrize("mechanism", ["output", "objective"])
@pytest.mark.parametrize("part", [0.999, 0.9, 0.7, 0.3, 0.01])
def test_the_lambda_that_is_named_is_the_least_however_near_it_the_one_asked_for_was(
    mechanism: Mechanism, part: float
) -> None:
    site_terms = SiteTerms(Huber(1e-4), 100, 3, 1.0, 1e4, 1e-5)
    low, high = 1e-6, 1e3
    while high / low > 1.0001:
        middle = (low * high) ** 0.5
        try:
            MECHANISMS[mechanism](replace(site_terms, regularization=middle))
            high = middle
        except InvalidInputError:
            low = middle
    with pytest.raises(InvalidInputError, match="it would do") as refused:
        set_site(mechanism, replace(site_terms, regularization=part * low), "one")
    named = re.search(r"regularization = (\S+) it", str(refused.value))
    assert named
    assert high * 0.999 <= float(named[1]) <= high * 1.012


def test_no_lambda_is_named_where_it_is_not_why_or_would_be_too_large() -> None:
    with pytest.raises(InvalidInputError, match=r"proof is for a loss of one score|a loss of one score") as refused:
        set_site("objective", SiteTerms(Softmax(3), 100, 3, 1.0, 1.0, 1e-5), "one")
    assert "it would do" not in str(refused.value)


@pytest.mark.parametrize("algorithm", ["release", "average"])
@pytest.mark.parametrize("own", [1e-6, 1e-4, 1e-2, 1.0])
def test_what_one_site_says_of_its_own_lambda_chooses_no_lambda_or_law_for_the_others(
    algorithm: str, own: float
) -> None:
    of = replace(facts(n_features=8, epsilon=1.0, delta=1e-5), n_examples=np.array([50_000] * 3))
    sites = [{"party": "party-1", "regularization": own}]
    assert settle(algorithm, {"sites": sites}, of)[1] == settle(algorithm, {}, of)[1]
    enough = {"sites": sites, "regularization": 0.001}
    assert not any("regularization = 0.001" in caution for caution in settle(algorithm, enough, of)[0].cautions(of))


# ── cautions ─────────────────────────────────────────────────────────────────


def test_a_lambda_is_cautioned_against_that_is_far_less_than_the_noise_needs() -> None:
    of, mechanism = replace(facts(n_features=8, epsilon=1.0, delta=0.0), n_examples=np.array([50_000] * 3)), "output"
    algorithm, choices = settle("release", {"mechanism": mechanism}, of)
    enough = float(choices["regularization"].value)
    assert algorithm.cautions(of) == ()
    assert settle("release", {"mechanism": mechanism, "regularization": enough / 3}, of)[0].cautions(of) == ()
    (caution,) = settle("release", {"mechanism": mechanism, "regularization": enough / 8}, of)[0].cautions(of)
    assert caution.startswith(f"regularization = {enough / 8:g} is far less than the noise needs")
    assert caution.endswith(f"{enough:.3g} would be chosen")


def test_a_lambda_is_not_cautioned_against_where_its_proof_asks_for_a_ridge_that_covers_the_noise() -> None:
    """Of few columns; with many, noise that has no delta moves scores by more, however large the ridge is."""
    for columns, told in ((8, False), (3000, True)):
        of = replace(facts(n_features=columns, epsilon=1.0, delta=0.0), n_examples=np.array([50_000] * 3))
        given = {"mechanism": "objective", "regularization": 1e-5}
        assert bool(settle("release", given, of)[0].cautions(of)) == told


@pytest.mark.parametrize("algorithm", ["release", "average"])
def test_a_site_s_own_lambda_is_cautioned_against_as_its_own_size_and_budget_need_it(algorithm: str) -> None:
    of = replace(facts(n_features=8, epsilon=1.0, delta=1e-5), n_examples=np.array([500, 50_000, 50_000]))

    def told(party: str, own: float) -> tuple[str, ...]:
        given = {"mechanism": "output", "regularization": 1.0, "sites": [{"party": party, "regularization": own}]}
        return settle(algorithm, given, of)[0].cautions(of)

    assert told("party-2", 1e-3) == ()  # as many examples need no more
    (caution,) = told("party-1", 1e-3)
    assert caution.startswith("party-1's regularization = 0.001 is far less than the noise needs")
    enough = float(caution.rsplit(": ", 1)[1].split()[0])
    assert told("party-1", enough) == ()


def test_gop_s_lambda_is_cautioned_against_that_is_far_less_than_the_noise_needs() -> None:
    of = replace(facts(n_features=8, epsilon=1.0, delta=1e-5), n_examples=np.array([50_000] * 3))
    algorithm, choices = settle("gop", {}, of)
    enough = float(choices["regularization"].value)
    assert algorithm.cautions(of) == settle("gop", {"regularization": enough / 3}, of)[0].cautions(of) == ()
    (caution,) = settle("gop", {"regularization": enough / 8}, of)[0].cautions(of)
    assert caution.startswith(f"regularization = {enough / 8:g} is far less than the noise needs")


@pytest.mark.parametrize("name", ["release", "average", "gop"])
def test_a_forecast_warns_of_a_lambda_that_is_too_small(name: str) -> None:
    delta = 1e-5 if name == "gop" else 0.0
    of = replace(facts(n_features=8, epsilon=1.0, delta=delta), n_examples=np.array([50_000] * 3))
    small = {"regularization": 1e-7} if name == "gop" else {"mechanism": "output", "regularization": 1e-5}
    for given, told in (({}, False), (small, True)):
        answer = forecast(settle(name, given, of)[0], of)
        words = answer.reason if isinstance(answer, NoForecast) else answer.warning or ""
        assert isinstance(answer, NoForecast) == (name == "release")
        but = "; but " if name == "release" else ""
        assert (f"{but}regularization = {small['regularization']:g} is far less than the noise needs" in words) == told
