"""What the drafts of PSGD lack is shown; they have no price, and the one that is private keeps within its budget."""

from __future__ import annotations

import math
from types import ModuleType

import numpy as np
import pytest

from parley.common.algorithms import REGISTRY
from parley.common.algorithms.average import LocalAverage
from parley.common.algorithms.psgd import Psgd
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import to_reals
from parley.common.learning.losses import Logistic
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Query
from parley.common.runs.pricing import transcript
from scripts.demonstrations import attempts, averaging, differences, halving, laws
from scripts.demonstrations.attempts import Composed, Draft, Finding, FreshNoise, Neighbours, OneTimeNoise, report
from tests.support.nightly import nightly

DRAFTS = (FreshNoise, OneTimeNoise, attempts.RedrawnNoise, Composed)


def test_no_party_knows_a_draft() -> None:
    assert not any(str(place).startswith("scripts.") for place in REGISTRY._entries.values())
    assert all(draft.__module__ == attempts.__name__ for draft in DRAFTS)


@pytest.mark.parametrize("draft", DRAFTS[:3], ids=lambda draft: draft.__name__)
def test_a_broken_draft_has_no_price(draft: type[Draft]) -> None:
    facts = Neighbours.drawn(1.0).facts.of(0)
    assert math.isinf(transcript(draft(n_rounds=3), facts).epsilon)
    assert not draft().is_private(facts)
    assert draft().claims(facts) == ()


@pytest.mark.parametrize("halving", [True, False])
def test_composed_budgets_are_kept(*, halving: bool) -> None:
    promise = transcript(Composed(n_rounds=8, halving=halving), Neighbours.drawn(0.5, delta=1e-12).facts.of(0))
    assert 0.4 < promise.epsilon <= 0.5 + 1e-9


def test_the_coordinates_law_is_as_private_as_the_2_norms() -> None:
    facts = Neighbours.drawn(0.5).facts.of(0)
    for kind in (LocalAverage, laws.LocalAverageByCoordinates):
        promise = transcript(kind(regularization=1.0), facts)
        assert promise.epsilon <= 0.5 + 1e-9
        assert promise.epsilon > 0.3


def test_eta_by_own_data_adds_up_to_the_same_variance() -> None:
    """Over 20,000 coordinates, each variance to six of its standard errors: a false alarm in 1e8."""
    d, sizes = 20_000, np.array([1, 2, 7])
    facts = FederationFacts.uniform(sizes, epsilon=1.0, delta=0.05, n_features=d, loss=Logistic(), secure_sum=True)
    empty = Shard(np.zeros((3, 1, d)), np.ones((3, 1)), np.zeros((3, 1), dtype=np.bool_))
    for kind, shares in ((Psgd, np.full(3, 1 / 3)), (laws.PsgdByOwnData, sizes / 10)):
        psgd, noise = kind(regularization=10.0), SeededNoise(1)
        psgd.local(Query(1, "gradient", np.zeros(d)), empty, facts.everyone, noise)
        eta, (sigma, _) = to_reals(noise.one_time["eta"]), psgd.scales(facts)
        assert eta.var(axis=-1) == pytest.approx(sigma**2 * shares, rel=6 * math.sqrt(2 / d))
        assert eta.sum(axis=0).var() == pytest.approx(sigma**2, rel=6 * math.sqrt(2 / d))


@pytest.mark.slow
@pytest.mark.parametrize(
    "demonstration",
    [pytest.param(averaging, marks=nightly), differences, halving, laws],
    ids=lambda module: module.__name__,
)
def test_each_finding_holds(demonstration: ModuleType) -> None:
    for finding in demonstration.findings():
        print(finding)
        assert finding.holds, finding


def test_what_does_not_hold_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert report("it", [Finding("so", holds=True, evidence="1"), Finding("thus", holds=False, evidence="2")]) == 1
    assert capsys.readouterr().out == "it: so: holds (1)\nit: thus: DOES NOT HOLD (2)\n"
    assert report("it", [Finding("so", holds=True, evidence="1")]) == 0
