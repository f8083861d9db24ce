"""The ledger as a state machine: proposals, rounds, retries, conflicts and restarts in any order.

The model is a dictionary. Whatever the order, what is charged is what the price says of the last round answered, an
answer once given never changes, and what is refused leaves no trace.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from common.data.columns import Feature, Label
from common.data.study import Study
from common.errors import BudgetExhaustedError, ConflictError, LedgerError, NotFoundError, UnavailableError
from common.privacy.account import Account, Price
from common.runs.specification import Budget, Member, RunSpec
from common.wire.party_api import RunProposal
from party.ledger.hash_chain import Ask, Entry, Head, check_chain
from party.ledger.ledger import Kept, Ledger, Released

ROUNDS = 6
LIMIT = Account(epsilon_limit=100, delta_limit=12)
SPEC = RunSpec(
    study=Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes"))),
    algorithm="dp_gd",
    parameters={},
    parties=(Member(name="party", n_examples=1, budget=Budget(epsilon=1, delta=1e-5)),),
    minimum_contributors=1,
)
learners = st.sampled_from(["ann", "bob"])
names = st.sampled_from(["r1", "r2"])
rounds = st.integers(1, ROUNDS)
queries = st.sampled_from(["this", "that"])
steps = st.lists(st.integers(1, 25), min_size=ROUNDS, max_size=ROUNDS)


def price_of(epsilons: list[int], delta: int = 5) -> Price:
    """A run's price whose rounds cost these epsilons; delta falls due with the first."""
    return Price(tuple(np.cumsum(epsilons).tolist()), (delta,) * ROUNDS)


PRICE = price_of([1] * ROUNDS)


class Draws:
    """Answers that never repeat, and one-time noise that is drawn when there is none."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, kept: Kept) -> tuple[bytes, Kept]:
        self.count += 1
        eta = kept["eta"] if "eta" in kept else np.array([self.count])
        return b"%d eta=%d" % (self.count, eta[0]), {"eta": eta}


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.store = Ledger(self.directory, "party", LIMIT)
        self.draws = Draws()
        self.prices: dict[tuple[str, str], Price] = {}
        self.ended: set[tuple[str, str]] = set()
        self.answers: dict[tuple[str, str, int], tuple[str, Released]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    def last(self, learner: str, run: str) -> int:
        """The last round that was answered; 0 for none."""
        return max((key[2] for key in self.answers if key[:2] == (learner, run)), default=0)

    @property
    def spent(self) -> tuple[int, int]:
        """What all rounds answered so far cost."""
        totals = [
            (price.epsilon[last - 1], price.delta[last - 1])
            for key, price in self.prices.items()
            if (last := self.last(*key))
        ]
        return sum(epsilon for epsilon, _ in totals), sum(delta for _, delta in totals)

    @rule(learner=learners, run=names, epsilons=steps)
    def propose(self, learner: str, run: str, epsilons: list[int]) -> None:
        price = price_of(epsilons)
        epsilon, delta = self.spent
        fits = epsilon + sum(epsilons) <= LIMIT.epsilon_limit and delta + 5 <= LIMIT.delta_limit
        if (learner, run) not in self.prices and not fits:
            with pytest.raises(BudgetExhaustedError):
                self.store.approve(learner, RunProposal(run=run, spec=SPEC), price)
            return
        consent = self.store.approve(learner, RunProposal(run=run, spec=SPEC), price)
        assert consent.price == self.prices.setdefault((learner, run), price)
        assert consent.spec == SPEC

    @rule(learner=learners, run=names, round=rounds, query=queries)
    def ask(self, learner: str, run: str, round: int, query: str) -> None:
        ask = Ask(learner, run, round, query)
        price = self.prices.get((learner, run), PRICE)
        stored = self.answers.get((learner, run, round))
        if stored and stored[0] == query:
            assert self.store.answer(ask, price, self.draws) == stored[1]
            return
        refusal = self.refusal(ask, price, answered=stored is not None)
        before = self.draws.count
        if refusal:
            with pytest.raises(refusal):
                self.store.answer(ask, price, self.draws)
            assert self.draws.count == before
            return
        released = self.store.answer(ask, price, self.draws)
        assert self.draws.count == before + 1
        self.answers[learner, run, round] = query, released
        etas = {body.body.split()[1] for key, (_, body) in self.answers.items() if key[:2] == (learner, run)}
        assert len(etas) == 1

    def refusal(self, ask: Ask, price: Price, *, answered: bool) -> type[Exception] | None:
        """What a new question must be refused with, if anything."""
        key = (ask.learner, ask.run)
        if key not in self.prices:
            return NotFoundError
        if answered or key in self.ended or ask.round <= self.last(*key):
            return ConflictError
        cost = price.step(ask.round, self.last(*key))
        epsilon, delta = self.spent
        fits = epsilon + cost.epsilon <= LIMIT.epsilon_limit and delta + cost.delta <= LIMIT.delta_limit
        return None if fits else BudgetExhaustedError

    @rule(learner=learners, run=names)
    def end(self, learner: str, run: str) -> None:
        if (learner, run) in self.prices:
            self.store.end(learner, run)
            self.ended.add((learner, run))
        else:
            with pytest.raises(NotFoundError):
                self.store.end(learner, run)

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = Ledger(self.directory, "party", LIMIT)

    @precondition(lambda self: self.answers)
    @rule()
    def present_receipts(self) -> None:
        for _, released in self.answers.values():
            self.store.check_receipt(released.receipt)

    @invariant()
    def adds_up(self) -> None:
        account = self.store.account()
        assert (account.epsilon_spent, account.delta_spent) == self.spent
        assert account.epsilon_spent <= account.epsilon_limit
        assert len(self.store.entries()) == len(self.answers)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=50, stateful_step_count=25)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A ledger with five answers, closed."""
    with Ledger(tmp_path, "party", LIMIT) as store:
        store.approve("ann", RunProposal(run="r", spec=SPEC), PRICE)
        for round in range(1, ROUNDS):
            store.answer(Ask("ann", "r", round, "q"), PRICE, Draws())
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET epsilon = 2 WHERE number = 3",
        "UPDATE entries SET query = 'x' WHERE number = 5",
        "UPDATE entries SET link = 'x' WHERE number = 5",
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 5",
        "DELETE FROM entries",
        "UPDATE account SET epsilon_spent = 0",
        "UPDATE account SET genesis = 'x'",
    ],
)
def test_a_changed_ledger_is_refused(directory: Path, change: str) -> None:
    with closing(sqlite3.connect(directory / "ledger.db")) as connection, connection:
        connection.execute(change)
    with pytest.raises(LedgerError):
        Ledger(directory, "party", LIMIT)


@pytest.mark.parametrize("content", [b"", b"0", b"x" * 86, b"%020d %064x\n" % (4, 1)])
def test_a_missing_or_damaged_head_file_is_refused(directory: Path, content: bytes) -> None:
    (directory / "ledger.head").write_bytes(content)
    with pytest.raises(LedgerError):
        Ledger(directory, "party", LIMIT)
    (directory / "ledger.head").unlink()
    with pytest.raises(LedgerError):
        Ledger(directory, "party", LIMIT)


def test_a_head_file_may_lag_behind(directory: Path) -> None:
    """A crash between commit and head file leaves it so."""
    with Ledger(directory, "party", LIMIT) as store:
        head = (directory / "ledger.head").read_bytes()
        store.answer(Ask("ann", "r", ROUNDS, "q"), PRICE, Draws())
    (directory / "ledger.head").write_bytes(head)
    with Ledger(directory, "party", LIMIT) as store:
        assert len(store.entries()) == ROUNDS


def test_an_answer_that_fails_leaves_no_trace(directory: Path) -> None:
    def fail(kept: Kept) -> tuple[bytes, Kept]:
        raise ZeroDivisionError

    def keep_too_much(kept: Kept) -> tuple[bytes, Kept]:
        return b"", {"name": np.array([object()])}  # cannot be written without pickle

    with Ledger(directory, "party", LIMIT) as store:
        before = store.account(), store.entries()
        for compute, error in ((fail, ZeroDivisionError), (keep_too_much, ValueError)):
            with pytest.raises(error):
                store.answer(Ask("ann", "r", ROUNDS, "q"), PRICE, compute)
        assert (store.account(), store.entries()) == before
        assert store.answer(Ask("ann", "r", ROUNDS, "q"), PRICE, Draws()).body


def test_a_limit_may_be_lowered_and_raised(directory: Path) -> None:
    ask = Ask("ann", "r", ROUNDS, "q")
    with Ledger(directory, "party", Account(3, 1)) as store:
        account = store.account()
        assert (account.epsilon_left, account.delta_left) == (0, 0)
        assert account.epsilon_spent == ROUNDS - 1
        with pytest.raises(BudgetExhaustedError):
            store.answer(ask, PRICE, Draws())
    with Ledger(directory, "party", LIMIT) as store:
        store.answer(ask, PRICE, Draws())


def test_a_full_disk_is_no_answer_and_no_charge(directory: Path) -> None:
    with Ledger(directory, "party", LIMIT) as store:
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UnavailableError):
            store.answer(Ask("ann", "r", ROUNDS, "q"), PRICE, lambda kept: (b"x" * 10**6, kept))
        assert len(store.entries()) == ROUNDS - 1
        assert store.account().epsilon_spent == ROUNDS - 1


def test_the_chain_covers_every_field(directory: Path) -> None:
    with Ledger(directory, "party", LIMIT) as store:
        genesis, (first, second, *_) = store._genesis, store.entries()
    link = genesis.follow(first).link
    for name in Entry.__slots__:
        value = getattr(first, name)
        changed: dict[str, Any] = {name: value + 1 if isinstance(value, int) else f"{value}x"}
        other = replace(first, **changed)
        assert genesis.follow(other).link != link
    with pytest.raises(LedgerError):
        check_chain(genesis, [(second, Head(1, link).follow(second).link)])


def test_the_ledger_is_its_owners_alone(directory: Path) -> None:
    for name in ("ledger.db", "ledger.head"):
        assert (directory / name).stat().st_mode & 0o077 == 0
