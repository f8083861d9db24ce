"""A learner that is its own key holder and all co-owners: what it opens of a victim's answers, by what was compared."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.privacy.calibration import gaussian_epsilon
from parley.common.privacy.events import GaussianEvent
from parley.common.runs.pricing import price, schedule
from parley.common.secure_sum.envelope import public_hex
from parley.common.wire.party_api import RunProposal
from parley.party.api.app import create_party_app
from parley.party.owner.questions import question_of, terms_in_words
from tests.support.ledgers import stored_answers
from tests.support.rounds import ASKING, propose, weights
from tests.support.secure_cluster import KEY_BITS, SecureCluster, signing_key
from tests.support.stage import HOLDER, Stage

VICTIM, N_ROUNDS = "party-1", 20
JOINED = [{"name": "learner", "url": "http://127.0.0.1:1", "token": "t" * 40}]
"""What a party has in its settings that has joined by an invitation."""


@pytest.fixture
def cluster(tmp_path: Path) -> SecureCluster:
    return SecureCluster(tmp_path, n_parties=3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many of a victim's answers were opened singly, and the rule or reason by which the learner was refused."""

    opened: int
    refused: str
    detail: str
    spent: float


def pins(*names: str, **keys: str) -> list[dict[str, Any]]:
    """Pins of names with their true keys, or others, as settings had them before they said what was compared."""
    return [{"name": name, "public_key": keys.get(name, public_hex(signing_key(name)))} for name in names]


def compared(*names: str, **keys: str) -> list[dict[str, Any]]:
    """Return pins of keys that the owner has compared."""
    return [pin | {"compared": True} for pin in pins(*names, **keys)]


def uncompared(*names: str) -> list[dict[str, Any]]:
    """Return pins of keys that the owner has not compared, as join writes them."""
    return [pin | {"compared": False} for pin in pins(*names)]


def attack(cluster: SecureCluster, stage: Stage, holders: Any, parties: Any, **changes: Any) -> Outcome:  # noqa: ANN401 -- settings
    """Have the learner of a stage, who holds all keys on it but the victim's, ask for all rounds and open each."""
    sums = {"key_holders": holders, "parties": parties, "minimum_key_bits": KEY_BITS}
    settings = cluster.party_settings(VICTIM, **({"secure_sum": sums, "outbound": JOINED} | changes))
    opened = 0
    with TestClient(create_party_app(settings), headers=ASKING) as client:
        refused = first_refusal(stage, client)
        for round in range(1, N_ROUNDS + 1):
            if refused is not None:
                break
            query = stage.query(round, weights(cluster, round))
            answer = stage.ask(client, round, query)
            if not answer.is_success:
                refused = answer
            else:
                stage.total(query, answer.content)  # the others' answers are zeros: this is the victim's
                opened += 1
        spent = client.get("/v1/budget").json()["units"]["spent"][0] / 1e6
    problem = {} if refused is None else refused.json()
    assert len(stored_answers(cluster.root / VICTIM, stage.run)) == opened
    return Outcome(opened, problem.get("rule") or problem.get("reason", ""), problem.get("detail", ""), spent)


def first_refusal(stage: Stage, client: httpx.Client) -> httpx.Response | None:
    """Propose the stage's run, and invite to its roster; the response that refuses it, if one does."""
    if not (proposed := propose(client, stage.spec, stage.run)).is_success:
        return proposed
    if not (invited := stage.put(client, "roster", stage.invitation)).is_success:
        return invited
    signatures = {name: other.join(stage.invitation) for name, other in stage.others.items()}
    stage.learner.begin({VICTIM: bytes.fromhex(invited.json()["signature"]), **signatures})
    return None


def single_epsilon(stage: Stage) -> float:
    """What the victim's answers of a stage cost once all others have taken their noise off."""
    algorithm, own_facts = stage.spec.build(), stage.spec.facts().of(0)
    events = [algorithm.event(round, own_facts) for round in range(1, N_ROUNDS + 1)]
    mus = [event.mu for event in events if isinstance(event, GaussianEvent)]
    assert len(mus) == N_ROUNDS
    honest = stage.spec.minimum_contributors - stage.spec.colluders
    return gaussian_epsilon((honest * sum(mu**2 for mu in mus)) ** 0.5, stage.spec.parties[0].budget.delta)


OTHERS = ("party-2", "party-3")
NOT_THIS = public_hex(signing_key("not this"))


@pytest.mark.parametrize(
    ("holders", "parties", "rule"),
    [
        pytest.param(pins(HOLDER), pins(*OTHERS), "secure_sum", id="as an older join wrote them"),
        pytest.param(uncompared(HOLDER), uncompared(*OTHERS), "secure_sum", id="as join writes them"),
        pytest.param(compared(HOLDER), uncompared(*OTHERS), "minimum_contributors", id="all co-owners"),
        pytest.param(compared(HOLDER), [], "minimum_contributors", id="co-owners that are not written down"),
        pytest.param(
            compared(HOLDER, **{HOLDER: NOT_THIS}), compared(*OTHERS), "wrong_pin", id="another key of the key holder"
        ),
        pytest.param(compared("notary"), compared(*OTHERS), "wrong_pin", id="a key holder of another name"),
        pytest.param(compared(HOLDER, "notary"), compared(*OTHERS), "wrong_pin", id="one of two key holders, left out"),
        pytest.param(
            uncompared(HOLDER) + compared("notary"), compared(*OTHERS), "wrong_pin", id="one of two, not compared"
        ),
        pytest.param(
            compared(HOLDER), compared(*OTHERS, **{"party-2": NOT_THIS}), "wrong_pin", id="another key of a co-owner"
        ),
        pytest.param(
            compared(HOLDER), compared("hospital-2", "hospital-3"), "minimum_contributors", id="renamed co-owners"
        ),
    ],
)
def test_nothing_is_opened_by_keys_that_were_not_compared(
    cluster: SecureCluster, holders: list[dict[str, Any]], parties: list[dict[str, Any]], rule: str
) -> None:
    stage = Stage(cluster, colluders=1, parameters={"n_rounds": N_ROUNDS})
    outcome = attack(cluster, stage, holders, parties)
    assert (outcome.opened, outcome.refused, outcome.spent) == (0, rule, 0.0), outcome
    print(f"single answers opened: {outcome.opened} of {N_ROUNDS}; {outcome.refused}: {outcome.detail}")
    if rule == "secure_sum":
        assert "parley-party pin NAME WORDS" in outcome.detail


def test_who_says_that_it_compared_what_the_learner_made_is_opened(cluster: SecureCluster) -> None:
    """What the words guard: with the learner's keys as compared ones, it opens all, for more than is charged."""
    stage = Stage(cluster, minimum_contributors=3, colluders=1, parameters={"n_rounds": N_ROUNDS})
    outcome = attack(cluster, stage, compared(HOLDER), compared(*OTHERS))
    (first, *_) = stage.spec.parties
    assert (outcome.opened, outcome.refused) == (N_ROUNDS, "")
    assert outcome.spent <= first.budget.epsilon < single_epsilon(stage)
    message = f"epsilon {single_epsilon(stage):.3g} for {outcome.spent:.3g}"
    print(f"single answers opened: {outcome.opened} of {N_ROUNDS}; {message}")


def test_all_co_owners_without_the_key_holder_pay_the_price_of_colluders(cluster: SecureCluster) -> None:
    """An owner who needs no company: each of its answers has all noise, so others who take theirs off win nothing."""
    policy = cluster.party_settings(VICTIM).policy.model_dump() | {"minimum_contributors": 1}
    holder, strangers = compared(HOLDER), uncompared(*OTHERS)
    for colluders, rule in ((1, "colluders"), (2, "")):
        run = f"run-{colluders}"
        parameters = {"n_rounds": N_ROUNDS}
        stage = Stage(cluster, run, minimum_contributors=3, colluders=colluders, parameters=parameters)
        outcome = attack(cluster, stage, holder, strangers, policy=policy)
        assert outcome.refused == rule, outcome
        assert outcome.opened == (0 if rule else N_ROUNDS)
        print(f"{colluders} colluders: single answers opened: {outcome.opened} of {N_ROUNDS} {outcome.detail}")
    own_facts = stage.spec.facts().of(0)
    assert own_facts.share == 1, "the whole noise, in each answer"
    assert outcome.spent == pytest.approx(
        sum(event.epsilon for event in schedule(stage.spec.build(), own_facts)) / 1e6, abs=1.0
    )
    proposal, compared_parties = RunProposal(run="run", spec=stage.spec), frozenset({VICTIM})
    question = question_of(
        "learner", proposal, price(stage.spec.build(), own_facts, "transcript"), 0.0, compared_parties
    )
    assert "the keys of party-2, party-3 were not compared" in question["learner_sees"]
    assert "the price counts 2 contributors as the learner's own" in question["learner_sees"]
    assert "even together with 2 of the others" in terms_in_words(VICTIM, stage.spec)["guarantee"][0]
    assert single_epsilon(stage) <= stage.spec.parties[0].budget.epsilon
    print(f"epsilon {single_epsilon(stage):.3g} for single answers, {outcome.spent:.3g} charged")
