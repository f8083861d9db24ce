"""The owner's rules: each refuses by its name, and what is allowed has its price."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from common.algorithms import REGISTRY
from common.errors import BudgetExhaustedError, ForbiddenError, InvalidInputError
from common.privacy.account import Price
from common.privacy.guarantee import View
from common.protocol.messages import Query
from common.runs.specification import RunSpec
from common.wire.party_api import RunProposal
from party.answering.party import Party
from party.api.app import create_party_app
from party.policy.approval import review, terms
from party.settings import Policy
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, completed, propose, run_spec

OWNERS: dict[str, Any] = {
    "epsilon": 10,
    "delta": 1e-3,
    "max_epsilon_per_run": 2,
    "max_delta_per_run": 1e-4,
    "algorithms": tuple(REGISTRY),
}


def price(cluster: Cluster, spec: RunSpec, **policy: object) -> Price:
    """The first party's price of a run, whose owner pins all other parties."""
    owner = Policy.model_validate(OWNERS | policy)
    return review(spec, owner, "party-1", cluster.study, cluster.n_examples, spec.names)


@pytest.mark.parametrize(
    ("rule", "policy", "change"),
    [
        ("algorithms", {"algorithms": ("psgd",)}, {}),
        ("algorithms", {}, {"algorithm": "gop", "parameters": {}}),
        ("minimum_contributors", {"minimum_contributors": 3}, {}),
        ("minimum_contributors", {}, {"minimum_contributors": 1}),
        ("require_secure_sum", {"require_secure_sum": True}, {}),
        ("colluders", {"colluders": 1}, {"secure_sum": "paillier"}),
        ("max_rounds", {"max_rounds": 9}, {}),
        ("max_epsilon_per_run", {"max_epsilon_per_run": 0.5}, {}),
        ("max_delta_per_run", {"max_delta_per_run": 1e-6}, {}),
        ("max_epsilon_per_run", {}, {"algorithm": "psgd", "parameters": {"n_rounds": 100}}),
        ("study", {}, {"study": {"name": "another"}}),
    ],
)
def test_each_rule_refuses_by_its_name(
    cluster: Cluster, rule: str, policy: dict[str, object], change: dict[str, Any]
) -> None:
    if "study" in change:
        change = {"study": cluster.study.model_copy(update=change["study"])}
    with pytest.raises(ForbiddenError) as refused:
        price(cluster, run_spec(cluster, **change), **policy)
    assert refused.value.facts == {"rule": rule}


def test_a_rule_kept_to_the_letter_is_kept(cluster: Cluster) -> None:
    exact: dict[str, Any] = {"max_epsilon_per_run": 1.0, "max_delta_per_run": 1e-5, "max_rounds": 10}
    assert price(cluster, run_spec(cluster), **exact).whole.epsilon <= 10**6
    shared = run_spec(cluster, secure_sum="paillier", colluders=1)
    assert price(cluster, shared, colluders=1, require_secure_sum=True)


def test_each_party_that_is_not_pinned_counts_as_one_more_colluder(tmp_path: Path) -> None:
    cluster, policy = Cluster(tmp_path, n_parties=5), Policy.model_validate(OWNERS)
    for known, least in ((5, 0), (4, 1), (3, 2), (2, 3)):
        for colluders in range(5):
            spec = run_spec(cluster, secure_sum="paillier", colluders=colluders, minimum_contributors=5)
            terms = spec, policy, "party-1", cluster.study, cluster.n_examples, spec.names[:known]
            if colluders >= least:
                assert review(*terms)
                continue
            with pytest.raises(ForbiddenError, match=f"{5 - known} of its parties are not pinned") as refused:
                review(*terms)
            assert refused.value.facts == {"rule": "colluders"}
    for known, fewest in ((5, 2), (4, 3), (2, 5), (1, 6)):
        spec = run_spec(cluster, secure_sum="paillier", colluders=3, minimum_contributors=5)
        fewer = spec.model_copy(update={"minimum_contributors": min(fewest, 6) - 1, "colluders": 0})
        with pytest.raises(ForbiddenError, match=f"at least {fewest} contributors") as refused:
            review(fewer, policy, "party-1", cluster.study, cluster.n_examples, spec.names[:known])
        assert refused.value.facts == {"rule": "minimum_contributors"}
    plain = run_spec(cluster, minimum_contributors=2)
    assert review(plain, policy, "party-1", cluster.study, cluster.n_examples, ()), "each answer bears its whole noise"


def test_a_run_without_noise_is_borne_by_no_budget(cluster: Cluster) -> None:
    with pytest.raises(BudgetExhaustedError):
        price(cluster, run_spec(cluster, algorithm="local", parameters={}))


def test_a_run_that_names_another_party_or_size_is_not_this_partys(cluster: Cluster) -> None:
    spec = run_spec(cluster)
    with pytest.raises(InvalidInputError, match="does not name the party"):
        review(spec, Policy.model_validate(OWNERS), "party-3", cluster.study, cluster.n_examples)
    with pytest.raises(ForbiddenError, match="misstates the size"):
        review(spec, Policy.model_validate(OWNERS), "party-1", cluster.study, cluster.n_examples + 1)


@pytest.mark.parametrize(("view", "epsilon"), [("model", 1.0), ("transcript", 4.0)])
def test_the_price_is_of_what_the_owner_fears_is_seen(cluster: Cluster, view: View, epsilon: float) -> None:
    """Paper PSGD claims epsilon for the model alone; the transcript costs several times that."""
    spec = run_spec(cluster, algorithm="psgd", parameters={"n_rounds": 50})
    spent = price(cluster, spec, view=view, max_epsilon_per_run=1000, epsilon=1000).whole.epsilon / 1e6
    assert spent == 1.0 if view == "model" else spent > epsilon


def test_a_price_charges_for_what_was_skipped() -> None:
    run = Price((3, 5, 9), (2, 2, 2), (0, 0, 0), (0, 0, 0))
    assert [run.step(round, round - 1).epsilon for round in (1, 2, 3)] == [3, 2, 4]
    assert run.step(1, 0).delta == run.step(3, 0).delta == 2
    assert run.step(3, 0).epsilon == 9
    assert run.step(3, 1).epsilon == 6
    assert run.step(2, 1).delta == 0


@pytest.mark.parametrize("name", [name for name, algorithm in REGISTRY.items() if not algorithm.curator])
def test_a_party_knows_what_each_algorithm_asks(cluster: Cluster, name: str) -> None:
    agreed = terms(completed(run_spec(cluster, algorithm=name, parameters={})), "party-1")
    assert len(agreed.questions) == len(agreed.algorithm.questions(agreed.facts))
    first = agreed.questions[0]
    agreed.check(Query(1, first.step, np.zeros(first.message), first.reveal))
    for query in (
        Query(0, first.step, np.zeros(first.message), first.reveal),
        Query(len(agreed.questions) + 1, first.step, np.zeros(first.message), first.reveal),
        Query(1, "other", np.zeros(first.message), first.reveal),
        Query(1, first.step, np.zeros((7, 7)), first.reveal),
    ):
        with pytest.raises(InvalidInputError):
            agreed.check(query)


BAD = (np.nan, np.inf, -np.inf, 1e308, 65_537.0)


@pytest.mark.parametrize("name", [name for name, algorithm in REGISTRY.items() if not algorithm.curator])
def test_weights_that_are_not_numbers_are_refused_by_the_terms_themselves(cluster: Cluster, name: str) -> None:
    """Wherever they stand, and before the algorithm's own check, which would notice them too."""
    agreed = terms(completed(run_spec(cluster, algorithm=name, parameters={})), "party-1")
    tried = 0
    for round, question in enumerate(agreed.questions[:2], start=1):
        for bad, place in product(BAD, range(int(np.prod(question.message)))):
            message = np.zeros(question.message)
            message.flat[place] = bad
            with pytest.raises(InvalidInputError, match="must be finite and of norm at most"):
                agreed.check(Query(round, question.step, message, question.reveal))
            tried += 1
    print(f"{name}: {tried} queries refused")


def test_weights_that_are_not_numbers_touch_no_data(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []
    with Party(cluster.party_settings("party-1")) as owner:
        owner.approve("learner", RunProposal(run="run", spec=run_spec(cluster)))
        prepare = owner.preparation

        def noted(learner: str, run: str) -> Callable[[], Any]:
            touched.append("data")
            return prepare(learner, run)

        monkeypatch.setattr(owner, "preparation", noted)
        d = cluster.study.n_features
        for bad in BAD:
            with pytest.raises(InvalidInputError, match="must be finite"):
                owner.answer("learner", "run", Query(1, "gradient", np.full(d, bad)))
        assert (touched, owner.budget().epsilon_spent) == ([], 0.0)
        owner.answer("learner", "run", Query(1, "gradient", np.zeros(d)))
        assert touched == ["data"]


def test_a_refusal_says_over_http_which_rule(cluster: Cluster) -> None:
    settings = cluster.party_settings("party-1", policy=OWNERS | {"minimum_contributors": 3})
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        refused = propose(client, run_spec(cluster))
    assert refused.status_code == 403
    assert refused.json()["rule"] == "minimum_contributors"
    assert "at least 3 contributors" in refused.json()["detail"]
