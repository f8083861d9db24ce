"""Processes that race for one budget do not overspend it together."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import Account, Price
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.ledger import Ask
from tests.support.cluster import Cluster
from tests.support.ledgers import open_ledger
from tests.support.rounds import run_spec

PROCESSES, BUDGET, ROUNDS = 16, 100, 20
LIMIT = Account(BUDGET, 1, composition="basic")
NOTHING = (0,) * ROUNDS
PRICE = Price(tuple(range(1, ROUNDS + 1)), NOTHING, NOTHING, NOTHING)


def spend(directory: Path, learner: str) -> int:
    """Ask round after round until the budget is exhausted: how many were granted."""
    with open_ledger(directory, LIMIT) as store:
        for round in range(1, ROUNDS + 1):
            try:
                store.rounds.answer(Ask(learner, "run", round, "query"), lambda earlier: (b"answer", earlier))
            except BudgetExhaustedError:
                return round - 1
    return ROUNDS


def test_16_processes_share_a_budget_for_100(tmp_path: Path) -> None:
    learners = [f"learner-{index}" for index in range(PROCESSES)]
    proposal = RunProposal(run="run", spec=run_spec(Cluster(tmp_path, n_parties=1)))
    with open_ledger(tmp_path / "state", LIMIT) as store:
        for learner in learners:
            store.consents.approve(learner, proposal, PRICE)
            store.consents.release(learner, "run")  # so that all race for what is left
    with multiprocessing.get_context("forkserver").Pool(PROCESSES) as pool:
        granted = pool.starmap(spend, [(tmp_path / "state", learner) for learner in learners], chunksize=1)
    with open_ledger(tmp_path / "state", LIMIT) as store:
        assert store.account().spent.epsilon == len(store.answers()) == BUDGET
    print(f"{PROCESSES} processes, budget for {BUDGET}: exactly {sum(granted)} granted")
    assert sum(granted) == BUDGET
    assert sum(granted) < PROCESSES * ROUNDS
