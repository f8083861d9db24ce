"""Prices and promises of runs whose rounds cost what a test says, to the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from parley.common.algorithms import build_algorithm
from parley.common.algorithms.dp_gd import DpGd
from parley.common.errors import BudgetExhaustedError
from parley.common.learning.losses import Logistic
from parley.common.privacy.account import MICRO, SQUARE_UNITS, Cost, Price, cost_of
from parley.common.privacy.accountant import epsilon_after
from parley.common.privacy.calibration import gaussian_epsilon, pure_mu
from parley.common.privacy.company import of_l2_laplace
from parley.common.privacy.events import (
    ApproximateEvent,
    Event,
    GaussianEvent,
    L2LaplaceEvent,
    LaplaceEvent,
    NoEvent,
    NonPrivateEvent,
    ParallelEvent,
    SequentialEvent,
)
from parley.common.privacy.guarantee import Adjacency, Guarantee, View
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.runs import pricing
from parley.common.runs.pricing import (
    ALWAYS,
    RunCosts,
    against_co_owner,
    costs_of,
    guarantees,
    highest_charge,
    if_all_collude,
    longest_body,
    needed_delta,
    price,
    price_at_once,
    schedule,
    transcript,
)
from tests.support.cluster import Cluster
from tests.support.rounds import run_spec


@dataclass(frozen=True)
class Given(DpGd):
    """Descent whose rounds cost what a test says; the paper may claim something about it."""

    costs: tuple[Event, ...] = ()
    claimed: tuple[Guarantee, ...] = ()

    def event(self, round: int, facts: OwnFacts) -> Event:
        """As given."""
        return self.costs[round - 1]

    def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
        """As given."""
        return self.claimed

    def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
        """Words that show that the facts are told."""
        return (f"there are {len(facts.parties)} parties",)


def given(*costs: Event, claimed: tuple[Guarantee, ...] = ()) -> Given:
    """A run of these rounds."""
    return Given(n_rounds=max(1, len(costs)), costs=costs, claimed=claimed)


def terms(epsilon: float = 1.0, delta: float = 1e-5, parties: int = 2, **more: object) -> FederationFacts:
    """What as many parties agree on."""
    return FederationFacts.uniform(
        np.full(parties, 100), epsilon=epsilon, delta=delta, n_features=3, loss=Logistic(), **more
    )


OWN = terms().of(0)
CLAIM = Guarantee(0.3, 1e-6, "model", "paper")
SIZES = "the numbers of examples of all parties are public"


# ── promises ─────────────────────────────────────────────────────────────────


def test_a_promise_says_all_that_it_leans_on() -> None:
    lemma, other = ApproximateEvent(0.1, 1e-7, ("a lemma",)), ApproximateEvent(0.1, 0.0, ("another", "a lemma"))
    promise = transcript(given(lemma, SequentialEvent((NoEvent(), other)), LaplaceEvent(0.1)), OWN)
    record = promise.assumptions[4]
    assert "the promise is to each record" in record
    assert promise.assumptions == ("a lemma", "another", "there are 2 parties", SIZES, record, *ALWAYS)
    assert (promise.view, promise.calibration, promise.adjacency) == ("transcript", "tight", "replace_one")
    assert (promise.delta, promise.trust) == (1e-5, 0)
    assert promise.epsilon == epsilon_after([lemma, other, LaplaceEvent(0.1)], 1e-5)


def test_a_promise_to_a_party_says_so() -> None:
    class Whole(Given):
        adjacency: ClassVar[Adjacency] = "whole_party"

    promise = transcript(Whole(n_rounds=1, costs=(LaplaceEvent(0.1),)), OWN)
    assert promise.adjacency == "whole_party"
    assert promise.assumptions[-4].startswith("the promise is to each party")
    assert price(Whole(n_rounds=1, costs=(LaplaceEvent(0.1),)), OWN).adjacency == "whole_party"


def test_where_roles_differ_each_partys_promise_counts() -> None:
    """Budgets and sizes are equal, so that but for the roles one party would stand for all."""

    class Roles(Given):
        roles: ClassVar[bool] = True

        def event(self, round: int, facts: OwnFacts) -> Event:
            """More for each party than for the one before."""
            assert isinstance(facts.index, int)
            return LaplaceEvent(0.1 * (1 + facts.index))

    (promise,) = guarantees(Roles(n_rounds=1), terms(parties=3))
    assert promise.epsilon == pytest.approx(0.3)


def test_parties_that_are_promised_more_and_less_are_not_compared() -> None:
    """Else what only one is promised would be dropped in silence."""

    class Partial(Given):
        roles: ClassVar[bool] = True

        def claims(self, facts: OwnFacts) -> tuple[Guarantee, ...]:
            """Of the first party alone."""
            return (CLAIM,) if facts.index == 0 else ()

    with pytest.raises(ValueError, match="zip"):
        guarantees(Partial(n_rounds=1, costs=(LaplaceEvent(0.1),)), terms())


def test_the_worst_off_by_budget_or_size_counts() -> None:
    class Sized(Given):
        def event(self, round: int, facts: OwnFacts) -> Event:
            """By size."""
            return LaplaceEvent(float(facts.own_examples) / 1000)

    sizes = replace(terms(parties=3), n_examples=np.array([100, 300, 200]))
    (promise,) = guarantees(Sized(n_rounds=1), sizes)
    assert promise.epsilon == pytest.approx(0.3)


@pytest.mark.parametrize(("secure_sum", "colluders", "least"), [(False, 0, 2), (True, 1, 2), (True, 0, 1)])
def test_a_co_owner_is_promised_nothing_apart_where_the_transcripts_promise_holds_or_nothing_can(
    *, secure_sum: bool, colluders: int, least: int
) -> None:
    facts = terms(secure_sum=secure_sum, colluders=colluders, minimum_contributors=least)
    assert against_co_owner(given(GaussianEvent(0.1)), facts.of(0)) is None
    assert against_co_owner(given(GaussianEvent(0.1)), terms(secure_sum=True).of(0)) is not None


@pytest.mark.parametrize("parties", [2, 3, 10])
def test_a_co_owner_knows_one_share_of_the_noise_of_all_that_are_sure_to_add_theirs(parties: int) -> None:
    facts = terms(parties=parties + 3, secure_sum=True, minimum_contributors=parties)
    promise = against_co_owner(given(GaussianEvent(0.1), GaussianEvent(0.1)), facts.of(0))
    assert promise is not None
    left = 1 - 1 / parties
    assert promise.epsilon == pytest.approx(gaussian_epsilon(0.1 * math.sqrt(2 / left), 1e-5))
    assert (promise.delta, promise.trust, promise.view) == (1e-5, 1, "transcript")
    assert promise.assumptions[-2:] == (
        f"at least {parties} parties contribute to each sum",
        "at most 1 of them collude",
    )


@pytest.mark.parametrize("colluders", [0, 1, 3])
def test_if_learner_and_key_holders_collude_each_answers_own_share_of_the_noise_is_left(colluders: int) -> None:
    facts = terms(parties=7, secure_sum=True, minimum_contributors=5, colluders=colluders)
    algorithm = given(GaussianEvent(0.1), GaussianEvent(0.1))
    epsilon, delta = if_all_collude(algorithm, facts.of(0))
    assert epsilon == pytest.approx(gaussian_epsilon(0.1 * math.sqrt(2 * (5 - colluders)), 1e-5))
    assert delta == 1e-5
    words = f"if they do, epsilon {epsilon:.3g} at delta 1e-05 is promised against them"
    for promise in (*guarantees(algorithm, facts), transcript(algorithm, facts.of(0))):
        assert any(words in assumption for assumption in promise.assumptions)


def test_of_pure_noise_in_shares_nothing_is_left_and_of_whole_noise_all() -> None:
    class Whole(Given):
        def whole_noise(self, round: int) -> bool:
            """Each party's own."""
            return True

    facts = terms(parties=4, secure_sum=True)
    assert if_all_collude(given(ApproximateEvent(0.5)), facts.of(0))[0] == math.inf
    (*_, last) = guarantees(given(ApproximateEvent(0.5)), facts)
    assert any("nothing is promised against them" in assumption for assumption in last.assumptions)
    whole = Whole(n_rounds=1, costs=(ApproximateEvent(0.5),))
    assert if_all_collude(whole, facts.of(0)) == (0.5, 0.0)
    pure = L2LaplaceEvent(0.5, 3)
    left = if_all_collude(given(pure), facts.of(0))[0]
    assert left > 100
    (*_, last) = guarantees(given(pure), facts)
    assert any("next to nothing is promised against them (epsilon" in assumption for assumption in last.assumptions)


def test_noise_is_whole_or_in_shares_round_by_round() -> None:
    """All of the first round's, pure, is left; of the second's a share."""

    class First(Given):
        def whole_noise(self, round: int) -> bool:
            """Of the first round."""
            return round == 1

    facts = terms(parties=5, secure_sum=True)
    run = First(n_rounds=2, costs=(GaussianEvent(0.3), GaussianEvent(0.1)))
    promise = against_co_owner(run, facts.of(0))
    assert promise is not None
    assert promise.epsilon == pytest.approx(gaussian_epsilon(math.sqrt(0.3**2 + 0.1**2 * 5 / 4), 1e-5))
    assert if_all_collude(run, facts.of(0))[0] == pytest.approx(gaussian_epsilon(math.sqrt(0.3**2 + 0.1**2 * 5), 1e-5))


def test_a_promise_to_all_assumes_what_each_partys_does_the_worst_offs_first() -> None:
    class Apart(Given):
        roles: ClassVar[bool] = True

        def event(self, round: int, facts: OwnFacts) -> Event:
            """More for each party than for the one before."""
            return LaplaceEvent(0.1 * (1 + int(str(facts.index))))

        def assumptions(self, facts: OwnFacts) -> tuple[str, ...]:
            """Of each party its own."""
            return (f"party {facts.index}",)

    (promise,) = guarantees(Apart(n_rounds=1), replace(terms(parties=3), delta=np.array([1e-5, 1e-3, 1e-7])))
    assert [words for words in promise.assumptions if words.startswith("party")] == ["party 2", "party 0", "party 1"]
    assert promise.epsilon == pytest.approx(0.3)
    assert promise.delta == 0.0


def test_every_promise_of_a_secure_sum_says_what_it_leans_on() -> None:
    facts = terms(parties=4, secure_sum=True)
    for name in ("dp_gd", "psgd", "parameter_average"):
        for promise in guarantees(build_algorithm(name), facts):
            said = "; ".join(promise.assumptions)
            for words in ("computational", "compared the keys", "set back", "do not collude"):
                assert words in said, (name, promise.view)
        for promise in guarantees(build_algorithm(name), replace(facts, secure_sum=False)):
            assert "computational" not in "; ".join(promise.assumptions)


def test_each_partys_own_delta_is_what_is_left_to_a_co_owner() -> None:
    facts = replace(terms(secure_sum=True), delta=np.array([1e-3, 1e-7]))
    promise = against_co_owner(given(L2LaplaceEvent(0.1, 3)), facts.of(0))
    assert promise is not None
    assert promise.delta == float(facts.of(0).own_delta)
    assert 0 < promise.epsilon < math.inf


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_co_owner_of_few_weights_is_promised_little_rather_than_nothing(d: int) -> None:
    """So much is known of half the noise, where there is so little, that e to the epsilon is no number."""
    facts = replace(terms(secure_sum=True), n_features=d)
    outsider, co_owner = guarantees(build_algorithm("local_average"), facts)
    assert outsider.epsilon == pytest.approx(1.0)
    assert (co_owner.delta, co_owner.trust) == (1e-5, 1)
    assert 700 < co_owner.epsilon < math.inf


# ── what is charged ──────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("costs", "delta"),
    [
        ((LaplaceEvent(0.5), LaplaceEvent(0.5)), 0.0),
        ((LaplaceEvent(1.0 + 1e-10),), 0.0),  # but for rounding
        ((LaplaceEvent(1.0 + 1e-9),), 0.0),
        ((LaplaceEvent(1.0 + 1e-8),), 1e-5),
        ((LaplaceEvent(0.5), LaplaceEvent(0.75)), 1e-5),
        ((LaplaceEvent(0.5), ApproximateEvent(0.1, 1e-9)), 1e-5),
        ((GaussianEvent(0.01),), 1e-5),
        ((NoEvent(),), 0.0),
    ],
)
def test_a_delta_is_spent_where_epsilons_do_not_add_up_to_the_budgets(costs: tuple[Event, ...], delta: float) -> None:
    assert needed_delta(list(costs), OWN) == delta
    assert transcript(given(*costs), OWN).delta == delta
    total = price(given(*costs), OWN).total
    assert total.delta == highest_charge(given(*costs), OWN).delta == round(delta * 1e18)


def test_no_part_costs_nothing() -> None:
    run = given(NoEvent(), SequentialEvent(()), NoEvent())
    nothing = given(NoEvent(), NoEvent())
    assert highest_charge(nothing, OWN) == price(nothing, OWN).total == Cost(0, 0)
    assert price(run, OWN).epsilon == (0, 1, 1), "an answer in which there is a part is never free"
    assert price(given(NoEvent(), NoEvent(), claimed=(CLAIM,)), OWN, "model") == Price((0, 0), (0, 0), (0, 0), (0, 0))


def test_a_price_by_the_unit() -> None:
    """Two Laplace rounds about one of the others, each mu^2 a pure release's at most, and all of the slack at first."""
    due = price(given(NoEvent(), LaplaceEvent(0.25), NoEvent(), LaplaceEvent(0.125)), OWN)
    assert due.epsilon == (0, 250_000, 250_000, 375_000)
    assert due.delta == due.slack == (0, 0, 0, 0)
    slack = given(NoEvent(), GaussianEvent(0.5), ParallelEvent((ApproximateEvent(0.1, 1e-7), ApproximateEvent(0.2))))
    due = price(slack, OWN)
    assert due.delta == (0, 10**13, 10**13)
    assert due.slack == (0, 10**11, 10**11)
    assert due.gdp == (0, SQUARE_UNITS // 4, math.ceil((0.25 + pure_mu(0.2) ** 2) * SQUARE_UNITS))


@pytest.mark.parametrize(
    ("epsilon", "costs", "due"),
    [
        (0.3, (LaplaceEvent(0.5),) * 3, (300_000,) * 3),
        (0.3, (NoEvent(), LaplaceEvent(0.5), NoEvent(), LaplaceEvent(0.5)), (0, *(300_000,) * 3)),
        (4e-6, (LaplaceEvent(0.5),) * 3, (4, 4, 4)),
        (1e-6, (LaplaceEvent(0.5),) * 3, (1, 1, 1)),
        (1.5e-6, (LaplaceEvent(0.5),), (2,)),
    ],
)
def test_the_first_part_pays_all_of_a_claim(epsilon: float, costs: tuple[Event, ...], due: tuple[int, ...]) -> None:
    run = given(*costs, claimed=(replace(CLAIM, view="transcript", epsilon=9.0), replace(CLAIM, epsilon=epsilon)))
    paid = price(run, OWN, "model")
    assert paid.epsilon == due
    began = [int(each > 0) for each in due]
    assert paid.delta == paid.slack == tuple(10**12 * each for each in began)
    assert paid.gdp == tuple(math.ceil(pure_mu(epsilon) ** 2 * SQUARE_UNITS) * each for each in began)
    assert highest_charge(run, OWN, "model") == paid.total


@pytest.mark.parametrize("view", ["transcript", None])
def test_a_claim_of_the_transcript_is_what_is_paid_for_it(view: View | None) -> None:
    """So it is where nobody says what the adversary sees."""
    run = given(LaplaceEvent(0.5), claimed=(replace(CLAIM, view="transcript"),))
    seen = () if view is None else (view,)
    assert price(run, OWN, *seen).total.epsilon == highest_charge(run, OWN, *seen).epsilon == 300_000
    assert schedule(run, OWN, *seen)[0].epsilon == 300_000


def test_the_highest_charge_is_what_adds_up_where_that_is_within_the_budget() -> None:
    """At once then, though less is due once all is composed; where it is beyond the budget, what is due."""
    cheap, dear = (given(*[ApproximateEvent(epsilon, 1e-7)] * 20) for epsilon in (0.04, 0.08))
    assert highest_charge(cheap, OWN).epsilon == 800_000 > price(cheap, OWN).total.epsilon
    assert highest_charge(dear, OWN).epsilon == pytest.approx(price(dear, OWN).total.epsilon, abs=20)
    assert MICRO < highest_charge(dear, OWN).epsilon < 1_600_000
    at_the_bound = given(*[ApproximateEvent((1 + 1e-9) / 2, 1e-7)] * 2)
    assert highest_charge(at_the_bound, OWN).epsilon in {MICRO, MICRO + 1}
    assert price(at_the_bound, OWN).total.epsilon < MICRO


@pytest.mark.parametrize(("epsilon", "units"), [(1e-6, 1), (1.0005e-6, 1), (1.002e-6, 2), (1.999e-6, 2), (2e-6, 2)])
def test_a_micro_unit_is_rounded_up_but_for_a_thousandth(epsilon: float, units: int) -> None:
    run = given(LaplaceEvent(epsilon))
    assert price(run, OWN).total.epsilon == highest_charge(run, OWN).epsilon == units


def test_each_part_costs_a_unit_at_least() -> None:
    run = given(*[LaplaceEvent(1e-8)] * 5, NoEvent())
    assert price(run, OWN).epsilon == (1, 2, 3, 4, 5, 5)
    assert highest_charge(run, OWN).epsilon == 5


def test_a_budget_allows_no_answer_without_noise_even_beside_others() -> None:
    for run in (given(LaplaceEvent(0.1), NonPrivateEvent()), given(ParallelEvent((NoEvent(), NonPrivateEvent())))):
        for charge in (price, schedule, highest_charge):
            with pytest.raises(BudgetExhaustedError, match="without noise"):
                charge(run, OWN)


GAUSSIAN_UNITS = math.ceil(gaussian_epsilon(0.125, 1e-5) * MICRO - 1e-3)


@pytest.mark.parametrize(
    ("event", "due"),
    [
        (LaplaceEvent(0.25), Price.at_once(cost_of(250_000, 0, of_l2_laplace(0.25, 1)))),
        (GaussianEvent(0.125), Price.at_once(Cost(GAUSSIAN_UNITS, 10**13, SQUARE_UNITS // 64))),
        (NoEvent(), Price.at_once(Cost(1, 0))),
    ],
)
def test_a_run_that_pays_for_all_at_once(event: Event, due: Price) -> None:
    assert price_at_once(event, 1.0, 1e-5) == replace(due, adjacency=price_at_once(event, 1.0, 1e-5).adjacency)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.999, 0), (1 + 1e-9, 0), (1 + 1e-8, 10**13)])
def test_it_spends_a_delta_where_its_pure_epsilon_is_more_than_was_agreed(epsilon: float, delta: int) -> None:
    assert price_at_once(LaplaceEvent(epsilon), 1.0, 1e-5).delta == (delta,)


def test_a_delta_that_is_spent_buys_a_little_epsilon() -> None:
    """Of (epsilon, delta) noise e^epsilon falls by (1 + e^epsilon) for each unit of delta more than it has."""
    slack = price_at_once(ApproximateEvent(0.25, 1e-7), 1.0, 1e-5)
    less = math.exp(0.25) - (1e-5 - 1e-7) * (1 + math.exp(0.25)) / (1 - 1e-7)
    assert slack.epsilon == (math.ceil(math.log(less) * MICRO),)
    assert (slack.delta, slack.slack) == ((10**13,), (10**11,))
    assert slack.gdp == (math.ceil(pure_mu(0.25) ** 2 * SQUARE_UNITS),)


def test_a_long_run_is_composed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    composed = []

    def counting(costs: Sequence[Event], delta: float) -> float:
        composed.append(len(costs))
        return epsilon_after(costs, delta)

    spec = run_spec(Cluster(tmp_path, n_parties=2), 3000)
    monkeypatch.setattr(pricing, "epsilon_after", counting)
    due = pricing.price(spec.build(), spec.facts().of(0))
    assert len(set(due.epsilon)) == 1
    assert len(composed) <= 2  # without a delta, to see if it needs one, and with it


# ── what a run costs to carry ────────────────────────────────────────────────

WEIGHED = {"algorithm": "feature", "parameters": {"second": "full", "aggregator": "party-2"}}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("three"), n_parties=3)


def test_what_a_run_costs_to_carry_by_the_byte(three: Cluster) -> None:
    """One round asks for d numbers, and the next asks about 2 d and for 2; each array has 128 bytes before it."""
    spec, d = run_spec(three, **WEIGHED), three.study.n_features  # type: ignore[arg-type]
    due = RunCosts(
        asked=2 * d,
        answered=d,
        round_bytes=8 * (2 * d + 2) + 256,
        bytes=8 * d + 256 + 8 * (2 * d + 2) + 256,
        all_bytes=3 * (8 * d + 256 + 8 * (2 * d + 2) + 256),
        memory_bytes=8 * 2 * d + 40 * d,
        learner_bytes=3 * 32 * d + 112 * 2 * d,
        noise_seconds=(d + 2) * 4e-7,
        limit="limits.round_bytes",
        longest=8 * 2 * d + 128,
        fits=True,
    )
    assert d > 2
    assert costs_of(spec, 8 * 2 * d + 128) == due
    assert costs_of(spec, 8 * 2 * d + 127) == replace(due, fits=False)


def test_a_secure_sums_answers_are_ciphertexts_of_so_many_integers_at_most(
    three: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 46 integers each, 768 bytes; the first round's answer is a stack of all three parties' models."""
    spec, d = run_spec(three, secure_sum="paillier", **WEIGHED), three.study.n_features  # type: ignore[arg-type]
    rounds = -(-3 * d // 46) * 768 + 256, 8 * 2 * d + 768 + 256
    costs = costs_of(spec, 10**6)
    assert (costs.asked, costs.answered, costs.limit, costs.fits) == (2 * d, 3 * d, "limits.body_bytes", True)
    assert (costs.round_bytes, costs.bytes, costs.all_bytes) == (max(rounds), sum(rounds), 3 * sum(rounds))
    assert costs.longest == 8 * 3 * d + 128
    monkeypatch.setattr(pricing, "MAX_D", 3 * d)
    assert costs_of(spec, 10**6) == costs
    monkeypatch.setattr(pricing, "MAX_D", 3 * d - 1)
    assert costs_of(spec, 10**6) == replace(costs, fits=False)
    assert costs_of(run_spec(three, **WEIGHED), 10**6).fits  # type: ignore[arg-type]


def test_a_run_that_asks_nothing_has_no_longest_question() -> None:
    assert longest_body([]) == 0
    assert longest_body([(0,), (3, 5), (4,)]) == 8 * 15 + 128
