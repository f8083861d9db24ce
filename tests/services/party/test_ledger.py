"""The ledger as a state machine: proposals, rounds, retries, conflicts and restarts in any order.

The model is a dictionary. In every order, what is charged is what the price says of the last round answered, an
answer once given never changes, and what is refused leaves no trace.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import BudgetExhaustedError, ConflictError, LedgerError, NotFoundError, UnavailableError
from parley.common.privacy.account import Account, Cost, Price
from parley.common.protocol.receipts import Answer
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.ledger.ledger import MOST_REFUSALS, Ask, OneTimeNoise
from parley.party.ledger.records import Ended
from tests.support.ledgers import open_ledger

ROUNDS = 6
LIMIT = Account(epsilon_limit=100, delta_limit=12, composition="basic")
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


def price_of(epsilons: list[int], delta: int) -> Price:
    """A run's price whose rounds cost these epsilons; with a delta, all of both falls due with the first."""
    totals = (sum(epsilons),) * ROUNDS if delta else tuple(np.cumsum(epsilons).tolist())
    return Price(totals, (delta,) * ROUNDS, (0,) * ROUNDS, (0,) * ROUNDS)


PRICE = price_of([1] * ROUNDS, 0)


class Draws:
    """Answers that never repeat, and one-time noise that is drawn when there is none."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
        self.count += 1
        eta = earlier["eta"] if "eta" in earlier else np.array([self.count])
        return b"%d eta=%d" % (self.count, eta[0]), {"eta": eta}


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.store = open_ledger(self.directory, LIMIT)
        self.draws = Draws()
        self.prices: dict[tuple[str, str], Price] = {}
        self.ended: set[tuple[str, str]] = set()
        self.freed: set[tuple[str, str]] = set()
        self.receipts: list[str] = []
        self.answers: dict[tuple[str, str, int], tuple[str, Answer]] = {}

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    def last(self, learner: str, run: str) -> int:
        """The last round that was answered; 0 for none."""
        return max((key[2] for key in self.answers if key[:2] == (learner, run)), default=0)

    @property
    def spent(self) -> Cost:
        """What all rounds answered so far cost."""
        return self.total(lambda price, last: price.step(last, 0) if last else Cost(0, 0))

    @property
    def taken(self) -> Cost:
        """What is spent, and reserved for runs that have neither ended nor been released."""
        return self.total(lambda price, last: price.total, self.freed) + self.total(
            lambda price, last: price.step(last, 0) if last else Cost(0, 0), self.prices.keys() - self.freed
        )

    def total(self, cost: Callable[[Price, int], Cost], without: AbstractSet[tuple[str, str]] = frozenset()) -> Cost:
        """Add up a cost of each run, except those ``without``."""
        costs = [cost(price, self.last(*key)) for key, price in self.prices.items() if key not in without]
        return sum(costs, Cost(0, 0))

    @rule(learner=learners, run=names, epsilons=steps, delta=st.sampled_from([0, 5]))
    def propose(self, learner: str, run: str, epsilons: list[int], delta: int) -> None:
        price, taken = price_of(epsilons, delta), self.taken
        fits = taken.epsilon + sum(epsilons) <= LIMIT.epsilon_limit and taken.delta + delta <= LIMIT.delta_limit
        if (learner, run) not in self.prices and not fits:
            with pytest.raises(BudgetExhaustedError):
                self.store.consents.approve(learner, RunProposal(run=run, spec=SPEC), price)
            return
        consent = self.store.consents.approve(learner, RunProposal(run=run, spec=SPEC), price)
        assert consent.price == self.prices.setdefault((learner, run), price)
        assert consent.spec == SPEC

    @rule(learner=learners, run=names, round=rounds, query=queries)
    def ask(self, learner: str, run: str, round: int, query: str) -> None:
        ask = Ask(learner, run, round, query)
        price = self.prices.get((learner, run), PRICE)
        stored = self.answers.get((learner, run, round))
        if stored and stored[0] == query:
            assert self.store.rounds.answer(ask, self.draws) == stored[1]
            return
        refusal = self.refusal(ask, price, answered=stored is not None)
        before = self.draws.count
        if refusal:
            with pytest.raises(refusal):
                self.store.rounds.answer(ask, self.draws)
            assert self.draws.count == before
            return
        released = self.store.rounds.answer(ask, self.draws)
        assert self.draws.count == before + 1
        self.answers[learner, run, round] = query, released
        self.receipts.append(self.store.chain.receipt(learner, answer=released.bound))
        etas = {body.body.split()[1] for key, (_, body) in self.answers.items() if key[:2] == (learner, run)}
        assert len(etas) == 1

    def refusal(self, ask: Ask, price: Price, *, answered: bool) -> type[Exception] | None:
        """What a new question must be refused with, if anything."""
        key = (ask.learner, ask.run)
        if key not in self.prices:
            return NotFoundError
        if answered or key in self.ended or ask.round <= self.last(*key):
            return ConflictError
        if key not in self.freed:
            return None  # what was reserved can always be charged
        cost = price.step(ask.round, self.last(*key)) + self.taken
        fits = cost.epsilon <= LIMIT.epsilon_limit and cost.delta <= LIMIT.delta_limit
        return None if fits else BudgetExhaustedError

    @rule(learner=learners, run=names)
    def end(self, learner: str, run: str) -> None:
        if (learner, run) in self.prices:
            self.store.consents.end(learner, run)
            self.ended.add((learner, run))
            self.freed.add((learner, run))
        else:
            with pytest.raises(NotFoundError):
                self.store.consents.end(learner, run)

    @rule(learner=learners, run=names)
    def release(self, learner: str, run: str) -> None:
        if (learner, run) in self.prices:
            self.store.consents.release(learner, run)
            self.freed.add((learner, run))

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.store = open_ledger(self.directory, LIMIT)

    @precondition(lambda self: self.answers)
    @rule()
    def present_receipts(self) -> None:
        for receipt in self.receipts:
            self.store.chain.check_receipt(receipt)

    @invariant()
    def adds_up(self) -> None:
        account = self.store.account()
        assert account.spent == self.spent
        assert account.spent + account.reserved == self.taken
        assert account.spent.epsilon + account.reserved.epsilon <= account.epsilon_limit
        assert len(self.store.answers()) == len(self.answers)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=50, stateful_step_count=25)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A ledger with five answers, closed."""
    with open_ledger(tmp_path, LIMIT) as store:
        store.consents.approve("ann", RunProposal(run="r", spec=SPEC), PRICE)
        for round in range(1, ROUNDS):
            store.rounds.answer(Ask("ann", "r", round, "q"), Draws())
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET record = CAST(replace(CAST(record AS TEXT), '1', '2') AS BLOB) WHERE number = 3",
        "UPDATE entries SET record = x'7b7d' WHERE number = 5",
        "UPDATE entries SET link = zeroblob(32) WHERE number = 5",
        "UPDATE entries SET number = 20 WHERE number = 5",
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 8",
        "DELETE FROM entries",
        "DROP TABLE attachments",
    ],
)
def test_a_changed_ledger_is_refused(directory: Path, change: str) -> None:
    with closing(sqlite3.connect(directory / "ledger.db")) as connection, connection:
        connection.execute(change)
    with pytest.raises(LedgerError), open_ledger(directory, LIMIT) as store:
        store.rounds.answer(Ask("ann", "r", 1, "q"), Draws())


@pytest.mark.parametrize("content", [b"", b"0", b"x" * 86, b"%020d %064x\n" % (4, 1)])
def test_a_missing_or_damaged_head_file_is_refused(directory: Path, content: bytes) -> None:
    (directory / "ledger.head").write_bytes(content)
    with pytest.raises(LedgerError):
        open_ledger(directory, LIMIT)
    (directory / "ledger.head").unlink()
    with pytest.raises(LedgerError):
        open_ledger(directory, LIMIT)


def test_a_head_file_may_lag_behind(directory: Path) -> None:
    """A crash between commit and head file leaves it so."""
    with open_ledger(directory, LIMIT) as store:
        head = (directory / "ledger.head").read_bytes()
        store.rounds.answer(Ask("ann", "r", ROUNDS, "q"), Draws())
    (directory / "ledger.head").write_bytes(head)
    with open_ledger(directory, LIMIT) as store:
        assert len(store.answers()) == ROUNDS


def test_an_answer_that_fails_leaves_no_trace(directory: Path) -> None:
    def fail(earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
        raise ZeroDivisionError

    def keep_too_much(earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
        return b"", {"name": np.array([object()])}  # cannot be written without pickle

    with open_ledger(directory, LIMIT) as store:
        before = store.account(), store.entries()
        for compute, error in ((fail, ZeroDivisionError), (keep_too_much, ValueError)):
            with pytest.raises(error):
                store.rounds.answer(Ask("ann", "r", ROUNDS, "q"), compute)
        assert (store.account(), store.entries()) == before
        assert store.rounds.answer(Ask("ann", "r", ROUNDS, "q"), Draws()).body


def test_a_limit_may_be_lowered_and_raised(directory: Path) -> None:
    ask = Ask("ann", "r", ROUNDS, "q")
    with open_ledger(directory, Account(3, 1, composition="basic")) as store:
        account = store.account()
        assert account.epsilon_left == 0
        assert account.spent.epsilon == ROUNDS - 1
        with pytest.raises(BudgetExhaustedError):
            store.rounds.answer(ask, Draws())
    with open_ledger(directory, LIMIT) as store:
        store.rounds.answer(ask, Draws())


def test_a_full_disk_is_no_answer_and_no_charge(directory: Path) -> None:
    with open_ledger(directory, LIMIT) as store:
        with store.chain._database.reading() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(UnavailableError, match="the ledger cannot be written: its disk is full"):
            store.rounds.answer(Ask("ann", "r", ROUNDS, "q"), lambda earlier: (b"x" * 10**6, earlier))
        assert len(store.answers()) == ROUNDS - 1
        assert store.account().spent.epsilon == ROUNDS - 1


def test_a_disk_too_full_to_open_a_ledger_is_said_to_be(directory: Path) -> None:
    full = sqlite3.OperationalError("disk I/O error")
    full.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"
    with (
        open_ledger(directory, LIMIT) as store,
        pytest.raises(UnavailableError, match="its disk is full"),
        store.chain._database.reading(),
    ):
        raise full


def test_the_next_of_two_runs_that_do_not_fit_together_is_refused_at_approval(tmp_path: Path) -> None:
    price = price_of([10] * ROUNDS, 0)
    with open_ledger(tmp_path, LIMIT) as store:
        store.consents.approve("ann", RunProposal(run="first", spec=SPEC), price)
        with pytest.raises(BudgetExhaustedError):
            store.consents.approve("bob", RunProposal(run="second", spec=SPEC), price)
        store.rounds.answer(Ask("ann", "first", 1, "q"), Draws())
        store.consents.end("ann", "first", "owner")
        store.consents.approve("bob", RunProposal(run="second", spec=SPEC), price)
        assert store.account().reserved == price.total


def test_what_nobody_asks_about_any_more_frees_its_budget(tmp_path: Path) -> None:
    price = price_of([10] * ROUNDS, 0)
    with open_ledger(tmp_path, LIMIT, reservation_days=1e-9) as store:
        store.consents.approve("ann", RunProposal(run="forgotten", spec=SPEC), price)
        store.chain.expire()
        assert store.account().reserved == Cost(0, 0)
        with pytest.raises(ConflictError, match="has ended"):
            store.rounds.answer(Ask("ann", "forgotten", 1, "q"), Draws())


@pytest.mark.parametrize("rounds", [0, 2])
def test_a_reservation_that_expired_is_not_prolonged_by_asking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    """After any question about the run, by any process: its budget is freed once, and what was answered stays so."""
    clock = [1_000_000]
    monkeypatch.setattr("parley.party.ledger.ledger._now", lambda: clock[0])
    price, draws = price_of([10] * ROUNDS, 0), Draws()
    with open_ledger(tmp_path, LIMIT, reservation_days=1) as store, open_ledger(tmp_path, LIMIT) as other:
        store.consents.approve("ann", RunProposal(run="late", spec=SPEC), price)
        answers = []
        for round in range(1, rounds + 1):
            clock[0] += 86_399
            answers.append(store.rounds.answer(Ask("ann", "late", round, "q"), draws))
        clock[0] += 86_400
        for ledger in (store, other, store):
            with pytest.raises(ConflictError, match="its reservation expired"):
                ledger.rounds.answer(Ask("ann", "late", rounds + 1, "q"), draws)
            with pytest.raises(ConflictError, match="its reservation expired"):
                ledger.rounds.join("ann", "late", b"invitation")
        assert draws.count == rounds
        assert [
            store.rounds.answer(Ask("ann", "late", number, "q"), draws) for number in range(1, rounds + 1)
        ] == answers
        account = store.account()
        assert (account.reserved, account.spent.epsilon) == (Cost(0, 0), 10 * rounds)
        ends = [entry.record for entry in store.entries() if isinstance(entry.record, Ended)]
        assert ends == [Ended("ann", "late", "expired")]


def test_what_expired_is_free_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000_000]
    monkeypatch.setattr("parley.party.ledger.ledger._now", lambda: clock[0])
    price = price_of([10] * ROUNDS, 0)
    with open_ledger(tmp_path, LIMIT, reservation_days=1) as store:
        for run in ("first", "second", "third"):
            store.consents.approve("ann", RunProposal(run=run, spec=SPEC), price)
            clock[0] += 86_400
        assert store.account().reserved == Cost(0, 0)
        assert store.consents.open_runs() == []


def test_one_learner_does_not_fill_the_ledger_with_refusals(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        for number in range(MOST_REFUSALS + 5):
            store.consents.refuse("ann", f"run-{number}", "dp_gd", "algorithms", "not allowed")
        store.consents.refuse("bob", "run", "dp_gd", "algorithms", "not allowed")
        assert len(store.entries()) == 2 + MOST_REFUSALS + 1


def test_the_ledger_is_its_owners_alone(directory: Path) -> None:
    for name in ("ledger.db", "ledger.head"):
        assert (directory / name).stat().st_mode & 0o077 == 0
