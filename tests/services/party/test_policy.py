"""The owner's rules: each refuses by its name, and what is allowed has its price."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.errors import BudgetExhaustedError, ForbiddenError, InvalidInputError
from parley.common.learning.classifiers import DecisionTree
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.guarantee import View
from parley.common.protocol.messages import Query
from parley.common.runs.consent import ReviewedRun, dear
from parley.common.runs.pricing import lengths
from parley.common.runs.specification import PublicRows, RunSpec
from parley.common.secure_sum.party import PartyPolicy
from parley.common.service.settings import Limits
from parley.common.service.tokens import hash_token
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import AgreedRun, Party
from parley.party.api.app import create_party_app
from parley.party.policy import key_cautions, pins_of, review, rules_of, sum_policy, terms
from parley.party.settings import Policy
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
    owner = rules_of(Policy.model_validate(OWNERS | policy))
    return review(spec, owner, "party-1", cluster.study.digest, cluster.n_examples, spec.names)


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
    assert price(cluster, run_spec(cluster), **exact).total.epsilon <= 10**6
    shared = run_spec(cluster, secure_sum="paillier", colluders=1)
    assert price(cluster, shared, colluders=1, require_secure_sum=True)


def test_each_party_that_is_not_pinned_counts_as_one_more_colluder(tmp_path: Path) -> None:
    cluster, policy = Cluster(tmp_path, n_parties=5), rules_of(Policy.model_validate(OWNERS))
    for n_compared, least in ((5, 0), (4, 1), (3, 2), (2, 3)):
        for colluders in range(5):
            spec = run_spec(cluster, secure_sum="paillier", colluders=colluders, minimum_contributors=5)
            terms = spec, policy, "party-1", cluster.study.digest, cluster.n_examples, spec.names[:n_compared]
            if colluders >= least:
                assert review(*terms)
                continue
            with pytest.raises(ForbiddenError, match=f"{5 - n_compared} of its parties are not pinned") as refused:
                review(*terms)
            assert refused.value.facts == {"rule": "colluders"}
    for n_compared, fewest in ((5, 2), (4, 3), (2, 5), (1, 6)):
        spec = run_spec(cluster, secure_sum="paillier", colluders=3, minimum_contributors=5)
        fewer = spec.model_copy(update={"minimum_contributors": min(fewest, 6) - 1, "colluders": 0})
        with pytest.raises(ForbiddenError, match=f"at least {fewest} contributors") as refused:
            review(fewer, policy, "party-1", cluster.study.digest, cluster.n_examples, spec.names[:n_compared])
        assert refused.value.facts == {"rule": "minimum_contributors"}
    plain = run_spec(cluster, minimum_contributors=2)
    assert review(plain, policy, "party-1", cluster.study.digest, cluster.n_examples, ()), (
        "each answer has its whole noise"
    )


def test_each_rule_holds_by_the_letter_and_not_one_beyond(cluster: Cluster) -> None:
    """What is allowed to the last unit, and the rule that refuses one more."""
    sums: dict[str, Any] = {"secure_sum": "paillier", "colluders": 1}
    cases: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]] = [
        ({}, {"max_epsilon_per_run": 1.0}, {"max_epsilon_per_run": 0.999999}, "max_epsilon_per_run"),
        ({}, {"max_delta_per_run": 1e-5}, {"max_delta_per_run": 9.9e-6}, "max_delta_per_run"),
        ({}, {"max_rounds": 10}, {"max_rounds": 9}, "max_rounds"),
        ({}, {"minimum_contributors": 2}, {"minimum_contributors": 3}, "minimum_contributors"),
        (sums, {"colluders": 1}, {"colluders": 2}, "colluders"),
        (sums, {"require_secure_sum": True}, {"algorithms": ("psgd",)}, "algorithms"),
        ({}, {"colluders": 5}, {"require_secure_sum": True}, "require_secure_sum"),
    ]
    for change, allowed, broken, rule in cases:
        spec = run_spec(cluster, **change)
        assert price(cluster, spec, **allowed).total.epsilon == 10**6
        with pytest.raises(ForbiddenError) as refused:
            price(cluster, spec, **broken)
        assert refused.value.facts == {"rule": rule}
        assert "pinned" not in refused.value.detail
    assert refused.value.detail == "the owner requires a secure sum"


def test_a_weak_term_is_told_without_more_words(cluster: Cluster) -> None:
    with pytest.raises(ForbiddenError, match=r"each sum needs at least 3 contributors$"):
        price(cluster, run_spec(cluster), minimum_contributors=3)
    with pytest.raises(ForbiddenError, match=r"at least 2 colluders$"):
        price(cluster, run_spec(cluster, secure_sum="paillier", colluders=1), colluders=2)


def test_a_price_past_one_runs_limit_is_refused_by_what_it_costs(cluster: Cluster) -> None:
    """PSGD's members agree on epsilon 1; its transcript costs more, and its claim for the model has a delta."""
    spec = run_spec(cluster, algorithm="psgd", parameters={"n_rounds": 50})
    cost = price(cluster, spec, max_epsilon_per_run=1000, epsilon=1000).total
    assert price(cluster, spec, max_epsilon_per_run=cost.epsilon / 1e6, epsilon=1000).total == cost
    with pytest.raises(ForbiddenError, match=r"the run costs epsilon .* in the owner's transcript view") as refused:
        price(cluster, spec, max_epsilon_per_run=(cost.epsilon - 1) / 1e6, epsilon=1000)
    assert refused.value.facts == {"rule": "max_epsilon_per_run"}
    assert refused.value.detail.endswith(f"one may cost {(cost.epsilon - 1) / 1e6:g}")


def test_a_claim_whose_delta_is_past_one_runs_limit_is_refused(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_price = Price((10**6,), (10**13 + 1,), (1,), (0,))
    monkeypatch.setattr("parley.party.policy.price", lambda *_: run_price)
    assert price(cluster, run_spec(cluster), max_delta_per_run=1.0000000000001e-5) == run_price
    with pytest.raises(
        ForbiddenError, match=r"costs delta 1e-05 in the owner's transcript view; one may cost 1e-05$"
    ) as no:
        price(cluster, run_spec(cluster), max_delta_per_run=1e-5)
    assert no.value.facts == {"rule": "max_delta_per_run"}
    monkeypatch.setattr("parley.party.policy.price", lambda *_: Price((0,), (0,), (0,), (0,)))
    with pytest.raises(InvalidInputError, match="no part in any round"):
        price(cluster, run_spec(cluster))


@pytest.mark.parametrize(("kind", "limit"), [("none", "round_bytes"), ("paillier", "body_bytes")])
def test_a_run_fits_the_limits_of_its_party_to_the_byte(cluster: Cluster, kind: str, limit: str) -> None:
    """Of a secure sum, whose messages hold more, another limit counts."""
    spec = run_spec(cluster, secure_sum=kind)
    most_bytes, answered = lengths(spec.questions())
    for most in (max(most_bytes, answered), max(most_bytes, answered) - 1):
        limits = Limits.model_construct(**(Limits().model_dump() | {limit: most}))
        rules = rules_of(Policy.model_validate(OWNERS), limits)
        terms = spec, rules, "party-1", cluster.study.digest, cluster.n_examples, spec.names
        if most == max(most_bytes, answered):
            assert review(*terms)
            continue
        with pytest.raises(ForbiddenError) as refused:
            review(*terms)
        assert refused.value.facts == {"rule": f"limits.{limit}"}
        assert refused.value.detail == (
            f"the run's questions have up to {most_bytes} bytes and its answers {answered}, "
            f"and this party's limits.{limit} is {most}"
        )


def test_a_curators_run_is_one_partys_alone(cluster: Cluster) -> None:
    spec = run_spec(cluster, algorithm="gop", parameters={})
    alone = spec.model_copy(update={"parties": spec.parties[:1], "minimum_contributors": 1})
    assert price(cluster, alone, minimum_contributors=1, algorithms=("gop",))
    with pytest.raises(ForbiddenError, match="gop needs a curator who holds all data"):
        price(cluster, spec, algorithms=("gop",))


def test_where_the_owner_pins_nobody_there_are_no_sums(cluster: Cluster) -> None:
    policy, spec = rules_of(Policy.model_validate(OWNERS)), run_spec(cluster, secure_sum="paillier", colluders=1)
    with pytest.raises(ForbiddenError, match="pins no public key of key holders") as refused:
        review(spec, policy, "party-1", cluster.study.digest, cluster.n_examples)
    assert refused.value.facts == {"rule": "secure_sum"}
    assert review(spec, policy, "party-1", cluster.study.digest, cluster.n_examples, ["party-2"]), "itself it knows"
    by_answers = run_spec(cluster, secure_sum="paillier", algorithm="local", parameters={})
    with pytest.raises(ForbiddenError, match="local reveals each answer, so it has no secure sum") as refused:
        price(cluster, by_answers)
    assert refused.value.facts == {"rule": "secure_sum"}


def test_what_is_agreed_is_what_rounds_are_held_against(cluster: Cluster) -> None:
    rows = np.eye(cluster.study.n_features)
    spec = run_spec(cluster)
    agreed = terms(spec, "party-2")
    assert (agreed.digest, agreed.public, agreed.questions) == (spec.digest, None, spec.questions())
    assert (int(agreed.facts.own_examples), agreed.algorithm) == (cluster.n_examples + 1, spec.build())
    message = np.zeros(cluster.study.n_features)
    for round in (1, 10):
        agreed.check(Query(round, "gradient", message))
    for round in (0, 11, -1):
        with pytest.raises(InvalidInputError, match="round must lie between 1 and 10"):
            agreed.check(Query(round, "gradient", message))
    learning = [name for name, kind in REGISTRY.items() if kind.rows == "training"]
    asking = next(name for name in learning if build_algorithm(name).public_rows == "rows")
    public = run_spec(cluster, algorithm=asking, parameters={}, public=PublicRows.of(rows))
    public_terms = terms(public, "party-1")
    question = next(declared for declared in public_terms.questions if declared.public)
    round = public_terms.questions.index(question) + 1
    public_terms.check(Query(round, question.step, rows, question.reveal))
    with pytest.raises(InvalidInputError, match=f"round {round} must ask about the public rows that were approved"):
        public_terms.check(Query(round, question.step, rows[::-1], question.reveal))


def test_what_an_owner_insists_on_in_a_sum_is_what_the_settings_say(cluster: Cluster) -> None:
    keys = [f"{number:02x}" * 32 for number in range(1, 5)]
    sums = {
        "key_holders": [{"name": "holder", "public_key": keys[0]}],
        "parties": [{"name": "party-2", "public_key": keys[1]}],
        "minimum_key_bits": 4096,
    }
    learners = [
        {"name": "other", "token_hash": hash_token("other"), "public_key": keys[2]},
        {"name": "learner", "token_hash": hash_token("learner"), "public_key": keys[3]},
        {"name": "unpinned", "token_hash": hash_token("unpinned")},
    ]
    policy = OWNERS | {"minimum_contributors": 3, "colluders": 1}
    settings = cluster.party_settings("party-1", secure_sum=sums, learners=learners, policy=policy)
    assert sum_policy(settings, "learner") == PartyPolicy(
        keys[3], {"holder": keys[0]}, {"party-2": keys[1]}, minimum_contributors=3, colluders=1, minimum_key_bits=4096
    )
    assert sum_policy(settings, "other").learner == keys[2]
    without = cluster.party_settings("party-1", learners=learners, policy=policy)
    for owner, learner, whose in (
        (settings, "unpinned", "the learner"),
        (without, "learner", "key holders"),
        (without, "unpinned", "key holders"),
    ):
        with pytest.raises(
            ForbiddenError, match=f"pins no public key of {whose}, so there is no secure sum"
        ) as refused:
            sum_policy(owner, learner)
        assert refused.value.facts == {"rule": "secure_sum"}


def test_an_owner_is_told_which_keys_count_for_nothing_and_whom_to_ask(cluster: Cluster) -> None:
    def pins(*names: str, compared: bool) -> list[dict[str, Any]]:
        keys = (f"{sum(map(ord, name)):064x}" for name in names)
        return [{"name": name, "public_key": next(keys), "compared": compared} for name in names]

    sums = {
        "key_holders": pins("holder", compared=True) + pins("bob", "ann", compared=False),
        "parties": pins("party-3", "party-2", compared=False) + pins("party-4", compared=True),
    }

    def of_holder(name: str) -> str:
        return (
            f"the key of the key holder {name} was not compared, so it opens no sum of yours: ask its operator, not "
            f"the learner's, for its six words, by telephone: parley-party pin {name} WORDS"
        )

    of_parties = (
        "the keys of party-3, party-2 were not compared, so a sum counts them as the learner's own: ask each owner "
        "for the six words, by telephone: parley-party pin NAME WORDS"
    )
    settings = cluster.party_settings("party-1", secure_sum=sums)
    assert key_cautions(settings) == [of_holder("bob"), of_holder("ann"), of_parties]
    assert key_cautions(settings, ["y", "x"])[2:] == [of_holder("x"), of_holder("y"), of_parties]
    without = cluster.party_settings("party-1")
    assert key_cautions(without) == []
    assert key_cautions(without, ["x"]) == [of_holder("x")]
    assert pins_of(settings, "learner").model_dump() == {
        "learner": None,
        "key_holders": {"holder": sums["key_holders"][0]["public_key"]},
        "parties": {"party-4": sums["parties"][2]["public_key"]},
        "minimum_key_bits": 3072,
    }
    assert pins_of(without, "learner").model_dump() == {
        "learner": None,
        "key_holders": {},
        "parties": {},
        "minimum_key_bits": 0,
    }


def test_only_a_partys_own_classifier_is_in_its_terms(cluster: Cluster) -> None:
    spec = run_spec(cluster)
    assert terms(spec, "party-2").facts.classifiers == ()
    assert terms(spec, "party-2", DecisionTree(kind="tree")).facts.classifiers == (None, DecisionTree(kind="tree"))
    assert terms(spec, "party-1", DecisionTree(kind="tree")).facts.classifiers == (DecisionTree(kind="tree"), None)
    assert terms(spec, "party-1").facts.run == spec.digest
    assert terms(spec, "party-1").shift == 0


BOUND = "one run may cost at most"


def objections(spec: RunSpec, compared: list[str] | None, **policy: object) -> list[tuple[str, str]]:
    """What the first party's owner has against a run, by a policy that allows little."""
    strict: dict[str, Any] = {"max_epsilon_per_run": 0.5, "max_delta_per_run": 1e-6, "max_rounds": 1}
    rules = rules_of(Policy.model_validate(OWNERS | strict | policy), Limits(round_bytes=1024, body_bytes=1024))
    return list(ReviewedRun.of(spec).objections(spec.parties[0], rules, compared))


def test_every_rule_that_a_run_breaks_is_told_in_order_and_in_words(cluster: Cluster) -> None:
    """A party refuses by the first; a learner foresees them all."""
    spec = run_spec(cluster, algorithm="gop", parameters={})
    run = ReviewedRun.of(spec)
    assert (run.n_rounds, run.reveals_each, run.longest) == (1, False, lengths(spec.questions()))
    policy = {"algorithms": ("psgd",), "adjacency": "whole_party", "minimum_contributors": 3}
    due = [
        ("algorithms", "the owner does not allow gop"),
        ("algorithms", "gop needs a curator who holds all data"),
        ("adjacency", "the owner protects all its data at once, and gop protects one record"),
        ("max_epsilon_per_run", f"{BOUND} epsilon 0.5"),
        ("max_delta_per_run", f"{BOUND} delta 1e-06"),
        ("minimum_contributors", "each sum needs at least 3 contributors"),
    ]
    assert objections(spec, None, **policy) == due
    assert objections(spec, [], **policy) == due, "without a secure sum nobody hides anybody"
    long = run_spec(cluster, n_rounds=2)
    assert objections(long, None, require_secure_sum=True) == [
        ("max_rounds", "a run may have at most 1 round"),
        ("max_epsilon_per_run", f"{BOUND} epsilon 0.5"),
        ("max_delta_per_run", f"{BOUND} delta 1e-06"),
        ("require_secure_sum", "the owner requires a secure sum"),
    ]


def test_all_that_is_wrong_with_a_secure_sum_is_told(cluster: Cluster) -> None:
    spec = run_spec(cluster, secure_sum="paillier", algorithm="local", parameters={})
    policy = {"max_epsilon_per_run": 2.0, "max_delta_per_run": 1e-4, "minimum_contributors": 3, "colluders": 1}
    unpinned = ": the keys of 1 of its parties are not pinned, so each may be the learner's (parley-party pin)"
    each = ("secure_sum", "local reveals each answer, so it has no secure sum")
    assert objections(spec, ["party-1"], **policy) == [
        each,
        ("minimum_contributors", f"each sum needs at least 4 contributors{unpinned}"),
        ("colluders", f"shared noise must tolerate at least 2 colluders{unpinned}"),
    ]
    no_key_holder = (
        "the owner pins no public key of key holders, so there is no secure sum: ask a key holder's operator for its "
        "six words, by telephone, and say parley-party pin NAME WORDS"
    )
    assert objections(spec, None, **policy) == [
        ("secure_sum", no_key_holder),
        each,
        ("minimum_contributors", "each sum needs at least 3 contributors"),
        ("colluders", "shared noise must tolerate at least 1 colluders"),
    ]


def test_a_cost_is_told_beside_what_one_run_may_cost(cluster: Cluster) -> None:
    rules = rules_of(Policy.model_validate(OWNERS | {"adjacency": "whole_party", "view": "model"}))
    exact = Cost(2 * 10**6, 10**14)
    assert list(dear(exact, "whole_party", rules)) == []
    assert list(dear(Cost(2_500_000, 2 * 10**14), "replace_one", rules)) == [
        ("adjacency", "the owner protects all its data at once, and the run protects one record"),
        ("max_epsilon_per_run", "the run costs epsilon 2.5 in the owner's model view; one may cost 2"),
        ("max_delta_per_run", "the run costs delta 0.0002 in the owner's model view; one may cost 0.0001"),
    ]
    record = rules_of(Policy.model_validate(OWNERS))
    for adjacency in ("replace_one", "whole_party"):
        assert list(dear(exact, adjacency, record)) == []


def test_no_budget_allows_a_run_without_noise(cluster: Cluster) -> None:
    with pytest.raises(BudgetExhaustedError):
        price(cluster, run_spec(cluster, algorithm="local", parameters={}))


def test_a_run_that_names_another_party_or_size_is_not_this_partys(cluster: Cluster) -> None:
    spec = run_spec(cluster)
    with pytest.raises(InvalidInputError, match="does not name the party"):
        review(spec, rules_of(Policy.model_validate(OWNERS)), "party-3", cluster.study.digest, cluster.n_examples)
    with pytest.raises(ForbiddenError, match=r"misstates the size of .* ask for a new run"):
        review(spec, rules_of(Policy.model_validate(OWNERS)), "party-1", cluster.study.digest, cluster.n_examples + 1)


@pytest.mark.parametrize(("view", "epsilon"), [("model", 1.0), ("transcript", 4.0)])
def test_the_price_is_of_what_the_owner_fears_is_seen(cluster: Cluster, view: View, epsilon: float) -> None:
    """Paper PSGD claims epsilon for the model alone; the transcript costs several times that."""
    spec = run_spec(cluster, algorithm="psgd", parameters={"n_rounds": 50})
    spent = price(cluster, spec, view=view, max_epsilon_per_run=1000, epsilon=1000).total.epsilon / 1e6
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
        prepare = owner.prepare

        def noted(agreed: AgreedRun) -> object:
            touched.append("data")
            return prepare(agreed)

        monkeypatch.setattr(owner, "prepare", noted)
        d = cluster.study.n_features
        for bad in BAD:
            with pytest.raises(InvalidInputError, match="must be finite"):
                owner.answer("learner", "run", Query(1, "gradient", np.full(d, bad)))
        assert (touched, owner.budget("learner").epsilon_spent) == ([], 0.0)
        owner.answer("learner", "run", Query(1, "gradient", np.zeros(d)))
        assert touched == ["data"]


def test_a_refusal_says_over_http_which_rule(cluster: Cluster) -> None:
    settings = cluster.party_settings("party-1", policy=OWNERS | {"minimum_contributors": 3})
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        refused = propose(client, run_spec(cluster))
    assert refused.status_code == 403
    assert refused.json()["rule"] == "minimum_contributors"
    assert "at least 3 contributors" in refused.json()["detail"]
