"""A party in a secure sum: what it signs, what it contributes, what it refuses, what it costs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from parley.common.encoding.npy import pack_array
from parley.common.errors import ForbiddenError
from parley.common.privacy.noise import NoNoise
from parley.common.secure_sum import paillier
from parley.common.secure_sum.envelope import Signed, sha256_hex
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.messages import Contribution, SumQuery
from parley.common.service.http.bodies import SIGNED_MEDIA_TYPE
from parley.common.storage import chain
from parley.party.answers.party import NoiseFactory, open_store
from parley.party.api.app import create_party_app
from parley.party.policy import review, rules_of, terms
from tests.support.ledgers import make_ledger
from tests.support.metrics import metrics_of
from tests.support.noises import OnlyOnce
from tests.support.rounds import ASKING, answer_of, ask, propose, run_spec, weights
from tests.support.secure_cluster import SecureCluster, signing_key
from tests.support.stage import Stage

Refused = Callable[[httpx.Response, Reason], None]


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3)


@pytest.fixture
def client(cluster: SecureCluster) -> Iterator[httpx.Client]:
    with party(cluster) as client:
        yield client


@pytest.fixture
def refused() -> Refused:
    """Checks that a response is a problem document with this reason."""

    def check(response: httpx.Response, reason: Reason) -> None:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["reason"] == reason
        assert response.status_code in (403, 409, 422)

    return check


def party(
    cluster: SecureCluster,
    noise: NoiseFactory = lambda _: NoNoise(),
    **changes: Any,  # noqa: ANN401 -- settings
) -> TestClient:
    """The first party of a cluster, without noise unless said otherwise."""
    return TestClient(create_party_app(cluster.party_settings("party-1", **changes), noise), headers=ASKING)


def spent(client: httpx.Client) -> tuple[float, float]:
    """What the party's ledger says was spent."""
    budget = client.get("/v1/budget").json()
    epsilon, delta, *_ = budget["units"]["spent"]
    return epsilon / 1e6, delta / 1e18


# ── rounds ───────────────────────────────────────────────────────────────────


def test_contributions_sum_to_the_plain_answers_at_the_same_cost(client: httpx.Client, cluster: SecureCluster) -> None:
    stage = Stage(cluster)
    stage.begin(client)
    summed, costs = [], []
    for round in (1, 2, 3):
        query = stage.query(round, weights(cluster, round))
        response = stage.ask(client, round, query)
        assert response.headers["content-type"] == SIGNED_MEDIA_TYPE
        assert "Parley-Receipt" in response.headers
        summed.append(stage.total(query, response.raise_for_status().content).tolist())
        costs.append(spent(client))
    propose(client, run_spec(cluster, minimum_contributors=2), "plain").raise_for_status()
    start = spent(client)
    plain = [answer_of(ask(client, round, weights(cluster, round), "plain")).tolist() for round in (1, 2, 3)]
    assert summed == plain
    assert np.subtract(spent(client), start) == pytest.approx(costs[-1])


def test_the_same_query_gets_the_same_bytes_for_nothing_across_restarts(
    cluster: SecureCluster, refused: Refused
) -> None:
    stage = Stage(cluster)
    with party(cluster) as client:
        stage.begin(client)
        first = stage.query(1, weights(cluster, 1))
        answer = stage.ask(client, 1, first).content
        cost = spent(client)
        assert stage.ask(client, 1, first).content == answer
    with party(cluster) as client:
        assert stage.ask(client, 1, first).content == answer
        other = replace(SumQuery.parse(first.body), deadline=7)
        again = other.sign(stage.identities["learner"].signing_key, first.attachments)
        refused(stage.ask(client, 1, again), Reason.ROUND_ANSWERED)
        assert spent(client) == cost
        second = stage.query(2, weights(cluster, 2))
        assert stage.ask(client, 2, second).status_code == 200
        refused(stage.ask(client, 1, first), Reason.ROUND_OLD)


def test_an_answer_that_failed_to_be_stored_is_not_remembered(
    cluster: SecureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its one-time noise is forgotten with it: rounds answered later carry one and the same."""
    stage = Stage(cluster, algorithm="psgd", parameters={"n_rounds": 4})
    with party(cluster, OnlyOnce) as client:
        stage.begin(client)
        first = stage.query(1, weights(cluster, 1))
        with monkeypatch.context() as patch:
            patch.setattr(chain, "_ADD", "INSERT INTO nowhere VALUES (1)")
            assert stage.ask(client, 1, first).status_code == 503
        assert spent(client) == (0.0, 0.0)
        totals = [stage.total(first, stage.ask(client, 1, first).raise_for_status().content).tolist()]
        second = stage.query(2, weights(cluster, 1))
        totals.append(stage.total(second, stage.ask(client, 2, second).content).tolist())
    with party(cluster, OnlyOnce) as client:
        third = stage.query(3, weights(cluster, 1))
        totals.append(stage.total(third, stage.ask(client, 3, third).content).tolist())
    assert totals[0] == totals[1] == totals[2] != [0] * stage.roster.d


def test_a_round_beyond_the_budget_is_refused_and_leaves_nothing(cluster: SecureCluster) -> None:
    cluster.epsilon, cluster.policy = 1.0, cluster.policy | {"composition": "basic"}
    first, second = Stage(cluster, run="first"), Stage(cluster, run="second")
    with party(cluster) as client:
        first.begin(client)
        refused = propose(client, second.spec, "second")
        assert (refused.status_code, refused.json()["type"]) == (403, "urn:parley:problem:budget-exhausted")
        with open_store(cluster.party_settings("party-1")) as ledger:
            ledger.consents.release("learner", "first")  # the owner thinks better of it
        propose(client, second.spec, "second").raise_for_status()
        cost = spent(client)
        response = first.ask(client, 1, first.query(1, weights(cluster, 1)))
        assert (response.status_code, response.json()["type"]) == (403, "urn:parley:problem:budget-exhausted")
        assert spent(client) == cost


def test_no_round_is_answered_in_the_other_way(client: httpx.Client, cluster: SecureCluster, refused: Refused) -> None:
    stage = Stage(cluster)
    propose(client, run_spec(cluster), "plain").raise_for_status()
    stage.begin(client)
    assert ask(client, 1, weights(cluster, 1)).status_code == 409
    query = stage.query(1, weights(cluster, 1))
    stage.run = "plain"
    assert stage.ask(client, 1, query).status_code == 409
    assert stage.invite(client).status_code == 409
    stage.run = "unknown"
    assert stage.ask(client, 1, query).status_code == 404
    assert stage.invite(client).status_code == 404
    assert spent(client) == (0.0, 0.0)
    late = Stage(cluster, run="late")
    late.begin_without(client)
    refused(late.ask(client, 1, late.query(1, weights(cluster, 1))), Reason.OUT_OF_TURN)


def test_ended_runs_answer_no_more(client: httpx.Client, cluster: SecureCluster) -> None:
    stage = Stage(cluster)
    stage.begin(client)
    first = stage.query(1, weights(cluster, 1))
    answer = stage.ask(client, 1, first).content
    assert client.delete("/v1/runs/run").status_code == 204
    assert stage.ask(client, 1, first).content == answer
    assert stage.ask(client, 2, stage.query(2, weights(cluster, 1))).status_code == 409


# ── hostile queries ──────────────────────────────────────────────────────────


def test_queries_that_are_not_what_was_agreed_are_refused_for_nothing(
    client: httpx.Client, cluster: SecureCluster, refused: Refused
) -> None:
    stage = Stage(cluster)
    stage.begin(client)
    honest = stage.query(1, weights(cluster, 1))
    query = SumQuery.parse(honest.body)
    learner = stage.identities["learner"].signing_key

    def claim(**claims: object) -> Signed:
        return replace(query, **claims).sign(learner, honest.attachments)  # type: ignore[arg-type]

    hostile = {
        Reason.WRONG_SESSION: claim(session="00" * 16),
        Reason.WRONG_ROSTER: claim(roster="00" * 32),
        Reason.WRONG_ROUND: claim(round=2),
        Reason.WRONG_TERMS: claim(noise="GaussianEvent(mu=9)"),
        Reason.WRONG_HASH: replace(honest, attachments=(pack_array(weights(cluster, 2)),)),
        Reason.BAD_SIGNATURE: query.sign(signing_key("party-2"), honest.attachments),
        Reason.WRONG_FRAME: replace(honest, attachments=(*honest.attachments, b"no receipt")),
    }
    for reason, message in hostile.items():
        refused(stage.ask(client, 1, message), reason)
    refused(stage.ask(client, 1, claim(clip=0.25)), Reason.WRONG_TERMS)
    huge = pack_array(np.full(stage.roster.d, 1e300))
    for message in (
        claim(step="minimise"),
        claim(message=sha256_hex(b"")),
        replace(claim(message=sha256_hex(b"")), attachments=()),
        replace(query, message=sha256_hex(huge)).sign(learner, [huge]),
        replace(query, message=sha256_hex(b"{}")).sign(learner, [b"{}"]),
    ):
        assert stage.ask(client, 1, message).status_code == 422
    assert spent(client) == (0.0, 0.0)
    assert stage.ask(client, 1, honest).status_code == 200


# ── rosters ──────────────────────────────────────────────────────────────────


def test_only_the_roster_of_the_approved_run_is_signed(
    client: httpx.Client, cluster: SecureCluster, refused: Refused
) -> None:
    stage, other = Stage(cluster), Stage(cluster, run="other")
    for joining in (stage, other):
        propose(client, joining.spec, joining.run).raise_for_status()
    first, second, third = stage.roster.parties
    for claims in (
        {"session": "00" * 16},
        {"d": 9},
        {"minimum_contributors": 3},
        {"colluders": 1},
        {"parties": (first, second)},
        {"parties": (second, first, third)},
        {"parties": (replace(first, noise="GaussianEvent(mu=0.001)"), second, third)},
    ):
        refused(stage.invite(client, **claims), Reason.WRONG_TERMS)
    refused(stage.invite(client, other.roster), Reason.WRONG_TERMS)
    refused(stage.invite(client, parties=(replace(first, key="cd" * 32), second, third)), Reason.NOT_ON_ROSTER)
    refused(stage.put(client, "roster", stage.learner.propose()), Reason.WRONG_FRAME)
    unsigned = replace(stage.invitation, attachments=(bytes(64),))
    refused(stage.put(client, "roster", unsigned), Reason.BAD_SIGNATURE)
    joined = stage.put(client, "roster", stage.invitation)
    assert joined.json() == stage.put(client, "roster", stage.invitation).json()
    Signed(stage.roster.body, bytes.fromhex(joined.json()["signature"])).verify(stage.roster.TAG, first.key)
    refused(stage.invite(client, minimum_contributors=3), Reason.ROSTER_CHANGED)
    changed = replace(third, key="cd" * 32)
    refused(stage.invite(client, parties=(first, second, changed)), Reason.WRONG_PIN)


def test_pins_that_do_not_match_are_refused(cluster: SecureCluster, refused: Refused) -> None:
    stage = Stage(cluster)
    honest = cluster.party_settings("party-1").model_dump()
    (learner,), sums, policy = honest["learners"], honest["secure_sum"], honest["policy"]
    (holder,), (first, *others) = sums["key_holders"], sums["parties"]
    other_key = sums | {"key_holders": [holder | {"public_key": "ab" * 32}]}
    with party(cluster) as client:
        propose(client, stage.spec, "run").raise_for_status()
    wrong: list[tuple[dict[str, Any], Reason]] = [
        ({"learners": [learner | {"public_key": "ab" * 32}]}, Reason.BAD_SIGNATURE),
        ({"secure_sum": other_key}, Reason.WRONG_PIN),
        ({"secure_sum": sums | {"key_holders": [holder | {"name": "another"}]}}, Reason.WRONG_PIN),
        ({"secure_sum": sums | {"minimum_key_bits": 3072}}, Reason.WRONG_KEY_SIZE),
        ({"secure_sum": sums | {"parties": [first | {"public_key": "ab" * 32}, *others]}}, Reason.WRONG_PIN),
    ]
    for changes, reason in wrong:
        with party(cluster, **changes) as client:
            refused(stage.put(client, "roster", stage.invitation), reason)
    forbidden: list[tuple[dict[str, Any], str]] = [
        ({"secure_sum": sums | {"parties": others}}, "colluders"),
        ({"policy": policy | {"minimum_contributors": 3}}, "minimum_contributors"),
    ]
    for changes, rule in forbidden:  # of what was approved: policy is looked at again
        with party(cluster, **changes) as client:
            response = stage.put(client, "roster", stage.invitation)
            assert (response.status_code, response.json()["rule"]) == (403, rule)
    with party(cluster) as client:
        stage.begin(client)
        query = stage.query(1, weights(cluster, 1))
    with party(cluster, secure_sum=other_key) as client:  # pinned again between rounds
        refused(stage.ask(client, 1, query), Reason.WRONG_PIN)
        assert spent(client) == (0.0, 0.0)
        assert client.delete("/v1/runs/run").status_code == 204


# ── consent ──────────────────────────────────────────────────────────────────


def rule(response: httpx.Response) -> str:
    """The owner's rule that a refusal names."""
    assert response.status_code == 403
    broken: str = response.json()["rule"]
    return broken


def test_a_secure_sum_needs_pinned_keys(cluster: SecureCluster) -> None:
    stage = Stage(cluster)
    (learner,) = cluster.party_settings("party-1").model_dump()["learners"]
    for changes in ({"secure_sum": None}, {"learners": [learner | {"public_key": None}]}):
        with party(cluster, **changes) as client:
            assert rule(propose(client, stage.spec)) == "secure_sum"


def test_the_owner_may_require_secure_sums(cluster: SecureCluster) -> None:
    cluster.policy = {"require_secure_sum": True, "colluders": 1, "minimum_contributors": 3}
    with party(cluster) as client:
        assert rule(propose(client, run_spec(cluster))) == "require_secure_sum"
        assert rule(propose(client, Stage(cluster).spec)) == "minimum_contributors"
        assert rule(propose(client, Stage(cluster, minimum_contributors=3).spec)) == "colluders"
        assert propose(client, Stage(cluster, minimum_contributors=3, colluders=1).spec).status_code == 200
    with pytest.raises(ValueError, match="require_secure_sum"):
        cluster.party_settings("party-1", secure_sum=None)


def test_an_algorithm_that_reveals_each_answer_has_no_secure_sum(cluster: SecureCluster) -> None:
    plain = run_spec(cluster, algorithm="local", parameters={}, minimum_contributors=2)
    assert [question.reveal for question in terms(plain, "party-1").questions] == ["each"]
    policy = cluster.party_settings("party-1").policy.model_copy(update={"algorithms": ("local",)})
    summed = plain.model_copy(update={"secure_sum": "paillier"})
    with pytest.raises(ForbiddenError, match="reveals each answer"):
        review(summed, rules_of(policy), "party-1", cluster.study.digest, plain.parties[0].n_examples, plain.names)


def test_a_sum_over_one_party_is_no_run(client: httpx.Client, cluster: SecureCluster) -> None:
    body = Stage(cluster).spec.model_dump(mode="json") | {"minimum_contributors": 1}
    response = client.post("/v1/runs", json={"run": "run", "spec": body})
    assert response.status_code == 422


def test_a_learner_with_keys_of_its_own_behind_four_real_names_opens_no_fifth_answer(tmp_path: Path) -> None:
    """The attack through the service: refused with pins at the roster, and without them at the run's approval."""
    cluster = SecureCluster(tmp_path, n_parties=5)
    stage = Stage(cluster, minimum_contributors=5)
    sybils = [replace(member, key=f"{index:064x}") for index, member in enumerate(stage.roster.parties)][1:]
    with party(cluster) as client:
        propose(client, stage.spec, "run").raise_for_status()
        answer = stage.invite(client, parties=(stage.roster.parties[0], *sybils))
        assert (answer.status_code, answer.json()["reason"]) == (403, Reason.WRONG_PIN)
    sums = cluster.party_settings("party-1").model_dump()["secure_sum"]
    with party(cluster, secure_sum=sums | {"parties": []}) as client:
        response = propose(client, Stage(cluster, minimum_contributors=5, colluders=3).spec, "another")
        assert rule(response) == "colluders"
        assert "the keys of 4 of its parties are not pinned" in response.json()["detail"]
        print(f"four keys of the learner's: {answer.json()['reason']}; nobody pinned: {response.json()['detail']}")


# ── keys and obfuscators ─────────────────────────────────────────────────────


def test_obfuscators_are_drawn_ahead_and_used_once(cluster: SecureCluster) -> None:
    stage, used = Stage(cluster), []
    for rounds in ((1, 2, 3), (4, 5)):
        with party(cluster) as client:
            stage.begin(client) if rounds[0] == 1 else None
            for round in rounds:
                content = stage.ask(client, round, stage.query(round, weights(cluster, 1))).raise_for_status().content
                used += stage.obfuscators(content)
            metrics = metrics_of(client)
            assert f'parley_obfuscators{{session="{stage.roster.session}"}}' in metrics
    assert len(set(used)) == len(used) == 5 * stage.roster.layout.blocks
    with party(cluster) as client:
        client.delete("/v1/runs/run")
        assert stage.roster.session not in metrics_of(client)


def test_contributions_hide_what_they_hold(client: httpx.Client, cluster: SecureCluster) -> None:
    """Neither the pad nor the shares a key holder decrypts repeat, though the answer does."""
    stage = Stage(cluster)
    stage.begin(client)
    seen = []
    for round in (1, 2):
        contribution = Signed.from_bytes(stage.ask(client, round, stage.query(round, weights(cluster, 1))).content)
        assert Contribution.parse(contribution.body).d == stage.roster.d
        seed, blob = contribution.attachments
        seen += [seed, stage.key.raw_decrypt(int.from_bytes(blob))]
    assert len(set(seen)) == 4


def test_missing_gmpy2_is_refused_by_name(cluster: SecureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paillier, "gmpy2", None)
    with pytest.raises(Exception, match="install gmpy2"):
        party(cluster)
    with party(cluster, secure_sum=None) as client:
        assert client.get("/readyz").status_code == 200


def test_identity_keys_that_others_may_read_are_refused(cluster: SecureCluster) -> None:
    shutil.rmtree(cluster.root / "party-1")
    make_ledger(cluster.party_settings("party-1", identity_key=None))
    with party(cluster, identity_key=None):
        pass
    (cluster.root / "party-1" / "identity.key").chmod(0o640)
    with pytest.raises(Exception, match="mode 0640, not 0600"):
        party(cluster, identity_key=None)
