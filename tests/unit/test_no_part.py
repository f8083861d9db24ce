"""A party that has no part in some rounds pays nothing for them; one that has no part in any has nothing to approve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from parley.common.algorithms.dp_gd import DpGd
from parley.common.errors import InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.privacy.account import Cost, limit
from parley.common.privacy.events import Event, NoEvent
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.runs.pricing import guarantees, highest_charge, price, schedule
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.ledger import Ask
from parley.party.policy import review, rules_of
from tests.support.cluster import Cluster
from tests.support.ledgers import open_ledger
from tests.support.rounds import run_spec


@dataclass(frozen=True)
class Turns(DpGd):
    """Parties take turns: the first has a part in odd rounds, the second in even ones, a third in none."""

    roles: ClassVar[bool] = True

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Nothing, or what descent costs."""
        return super().event(round, facts) if facts.index == (round + 1) % 2 else NoEvent()


ALGORITHM = Turns(n_rounds=5)
FACTS = FederationFacts.uniform(np.array([40, 40, 40]), epsilon=1.0, delta=1e-5, n_features=4, loss=Logistic())


def test_the_rounds_of_others_are_free() -> None:
    first, second, third = (schedule(ALGORITHM, FACTS.of(i)) for i in range(3))
    assert [cost.gdp > 0 for cost in first] == [True, False, True, False, True]
    assert [cost.gdp > 0 for cost in second] == [False, True, False, True, False]
    assert [cost.epsilon > 0 for cost in first] == [True, False, False, False, False]
    assert [cost.epsilon > 0 for cost in second] == [False, True, False, False, False]
    assert [cost.delta for cost in first] == [10**13, 0, 0, 0, 0]
    assert [cost.delta for cost in second] == [0, 10**13, 0, 0, 0]
    assert third == (Cost(0, 0),) * 5
    due = price(ALGORITHM, FACTS.of(1))
    assert due.epsilon[0] == due.delta[0] == 0
    assert due.step(1, 0) == Cost(0, 0)
    assert due.step(3, 0) == due.step(2, 0), "what was skipped is paid, and what is free is not"
    assert (
        due.total.epsilon == sum(cost.epsilon for cost in second) < price(DpGd(n_rounds=5), FACTS.of(1)).total.epsilon
    )
    for index in range(3):
        most = highest_charge(ALGORITHM, FACTS.of(index))
        assert most.epsilon == pytest.approx(price(ALGORITHM, FACTS.of(index)).total.epsilon, abs=1)
    (promise,) = guarantees(ALGORITHM, FACTS)
    assert promise.epsilon == pytest.approx(price(ALGORITHM, FACTS.of(0)).total.epsilon / 1e6, abs=1e-5)


@pytest.mark.parametrize("adjacency", ["replace_one", "whole_party"])
def test_a_ledger_takes_an_answer_that_costs_nothing(tmp_path: Path, adjacency: Adjacency) -> None:
    spec = run_spec(Cluster(tmp_path / "cluster", n_parties=2))
    due = price(ALGORITHM, FACTS.of(1))
    with open_ledger(tmp_path / "ledger", limit(1.0, 1e-4, adjacency)) as ledger:
        ledger.consents.approve("learner", RunProposal(run="run", spec=spec), due)
        asks = [Ask("learner", "run", round, "0" * 64) for round in (1, 2)]
        for ask in asks:
            ledger.rounds.answer(ask, lambda kept: (b"answer", kept))
        assert [answer.cost for answer in ledger.answers()] == [Cost(0, 0), due.step(2, 0)]
        assert ledger.account().spent == due.step(2, 0)
    with open_ledger(tmp_path / "ledger", limit(1.0, 1e-4)) as ledger:
        assert len(ledger.answers()) == 2, "the chain holds"


def test_a_run_without_any_part_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(tmp_path, n_parties=3)
    spec = run_spec(cluster, n_rounds=5)
    monkeypatch.setattr(RunSpec, "build", lambda _: ALGORITHM)
    policy = rules_of(cluster.party_settings("party-1").policy)
    assert review(spec, policy, "party-1", cluster.study.digest, 40).total.epsilon > 0
    with pytest.raises(InvalidInputError, match="this party has no part in any round of the run"):
        review(spec, policy, "party-3", cluster.study.digest, 42)
