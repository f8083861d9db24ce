"""A delta above 1/n, by which some records may be published whole, is cautioned wherever one is said."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from parley.common.algorithms import build_algorithm, settle
from parley.common.forecast.forecast import Forecast, NoForecast, forecast
from parley.common.learning.losses import Logistic
from parley.common.privacy.guarantee import delta_caution
from parley.common.protocol.cautions import cautions
from parley.common.protocol.facts import FederationFacts
from parley.learner.cli.main import learner_app
from parley.learner.estimators.budget import PrivacyBudget
from parley.learner.estimators.private import PrivateClassifier
from parley.learner.estimators.regressions import PrivateLinearRegression
from parley.party.policy import policy_cautions
from parley.party.settings import Policy
from tests.support.studies import numbers_study

WORDS = "published whole"


def facts(*sizes: int, delta: float | list[float]) -> FederationFacts:
    deltas = np.broadcast_to(np.asarray(delta, np.float64), len(sizes))
    of: dict[str, Any] = {"public_shape": (4, 2), "study": numbers_study(2)}
    uniform = FederationFacts.uniform(np.array(sizes), epsilon=1.0, delta=0.1, n_features=2, loss=Logistic(), **of)
    return FederationFacts(**{**{f: getattr(uniform, f) for f in uniform.__dataclass_fields__}, "delta": deltas})


def test_the_bound_is_one_over_the_count() -> None:
    assert delta_caution(1e-3, 1000) == delta_caution(0.0, 10**9) == delta_caution(0.5, 2) == ()
    (words,) = delta_caution(1.01e-3, 1000)
    assert "above 1/1,000" in words
    assert "about 1 of them" in words
    assert "about 500 of them" in delta_caution(0.5, 1000)[0]


@pytest.mark.parametrize(
    ("sizes", "delta", "cautioned"),
    [
        ((500, 500), 1e-3, False),
        ((500, 500), 1.1e-3, True),
        ((10, 990), 2e-3, True),
        ((10, 990), [0.05, 1e-9], False),
        ((10, 990), [1e-9, 0.05], True),
        ((1000,), 0.9, True),
    ],
)
def test_a_run_counts_the_records_of_all_by_their_own_delta(
    sizes: tuple[int, ...],
    delta: float | list[float],
    cautioned: bool,  # noqa: FBT001 -- a case
) -> None:
    of = facts(*sizes, delta=delta)
    assert (WORDS in " ".join(cautions(build_algorithm("dp_gd"), of))) == cautioned
    assert (WORDS in " ".join(cautions(build_algorithm("gop"), of))) == (float(np.min(delta)) * sum(sizes) > 1)


def test_what_hides_a_party_counts_parties_and_what_spends_no_delta_says_nothing() -> None:
    of = facts(*[50] * 8, delta=0.1)
    vote = build_algorithm("ensemble_vote")
    assert WORDS not in " ".join(cautions(vote, of)), "of 8 parties, to whom the promise is"
    assert "to 20 parties" in " ".join(cautions(vote, facts(*[50] * 20, delta=0.1)))
    for name in ("pooled", "wu_subgradient", "local_average"):
        assert WORDS not in " ".join(cautions(build_algorithm(name), of)), name


def test_forecasts_say_it_and_where_there_is_none_too() -> None:
    given, of = {"n_rounds": 3}, facts(500, 500, delta=0.5)
    told = forecast(settle("dp_gd", given, of)[0], of)
    assert isinstance(told, Forecast)
    assert WORDS in (told.warning or "")
    for name in ("describe", "simplex"):
        none = forecast(build_algorithm(name), of)
        assert isinstance(none, NoForecast)
        assert WORDS in none.reason, name


@pytest.mark.parametrize("delta", [0.5, 0.9])
def test_estimators_and_their_budgets_warn(delta: float) -> None:
    rng = np.random.default_rng(1)
    X, bounds = rng.uniform(-1, 1, (1000, 3)), (-1, 1)
    for kind, y in ((PrivateClassifier, X[:, 0] > 0), (PrivateLinearRegression, np.clip(X[:, 0], -1, 1))):
        more: dict[str, Any] = {} if kind is PrivateClassifier else {"target_bounds": (-1, 1)}
        with pytest.warns(UserWarning, match=WORDS):
            kind(bounds=bounds, epsilon=1.0, delta=delta, **more).fit(X, y)
        with pytest.warns(UserWarning, match=WORDS):
            kind(bounds=bounds, epsilon=0.5, delta=1e-6, budget=PrivacyBudget(1.0, delta), **more).fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            kind(bounds=bounds, epsilon=0.5, delta=1e-6, budget=PrivacyBudget(1.0, 1e-5), **more).fit(X, y)


@pytest.mark.parametrize(("delta", "cautioned"), [("0.5", True), ("1e-5", False)])
def test_a_simulation_says_it(delta: str, *, cautioned: bool) -> None:
    words = ["--epsilon", "1", "--delta", delta, "--repeat", "1", "-p", "n_rounds=2", "--no-baselines"]
    result = CliRunner().invoke(learner_app, ["simulate", *words])
    assert result.exit_code == 0, result.output
    assert (WORDS in " ".join(result.stderr.split())) == cautioned
    as_json = CliRunner().invoke(learner_app, ["simulate", *words, "--format", "json"])
    assert (WORDS in " ".join(json.loads(as_json.stdout)["warnings"])) == cautioned


def test_an_owners_policy_counts_its_own_records() -> None:
    def policy(**terms: object) -> Policy:
        given = {"epsilon": 1.0, "delta": 1e-4, "max_epsilon_per_run": 1.0, "max_delta_per_run": 1e-5}
        return Policy.model_validate(given | terms)

    assert policy_cautions(policy(), 10_000) == ()
    assert WORDS in policy_cautions(policy(), 10_001)[0]
    (words,) = policy_cautions(policy(max_delta_per_run=0.5), 100)
    assert words == (
        "policy: a delta of 0.5 is above 1/100, and the promise is to 100 records: it allows that about 50 of them are "
        "published whole; take one far below 0.01"
    )
    assert policy_cautions(policy(delta=0.9, adjacency="whole_party"), 10**6) == ()
