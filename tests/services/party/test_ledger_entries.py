"""What a ledger writes down, word for word, and which receipts it stands by."""

from __future__ import annotations

import hashlib
import hmac
import io
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.errors import (
    BudgetExhaustedError,
    ConflictError,
    DataChangedError,
    ForbiddenError,
    InvalidInputError,
    InvalidReceiptError,
    LedgerError,
    NotFoundError,
)
from parley.common.privacy.account import Account, Cost, Price
from parley.common.protocol.receipts import (
    Binding,
    Head,
    Receipt,
    ReceiptKeeper,
    read_receipt,
    verify_receipt,
    write_receipt,
)
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Roster, RosterKeyHolder, RosterParty
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import Chain, next_link
from parley.common.wire.party_api import RunProposal
from parley.party.ledger import ledger as module
from parley.party.ledger.books import OWNER
from parley.party.ledger.ledger import LEDGER, SALT, AnswerRoom, Ask, Ledger, OneTimeNoise, create_ledger
from parley.party.ledger.records import (
    Answered,
    Approved,
    Begun,
    DataPin,
    Ended,
    Joined,
    Limited,
    OwnerAsked,
    OwnerDenied,
    Pinned,
    Refused,
    Released,
    read_price,
)
from parley.party.ledger.sealing import own_ledger
from tests.support.clock import Clock
from tests.support.ledgers import KEY, open_ledger

LIMIT = Account(100, 12, composition="basic")
PRICE = Price((6, 6, 6), (5, 5, 5), (7, 7, 8), (1, 1, 1), "whole_party")
FREE = Price((0,), (0,), (0,), (0,), "whole_party")
STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes")))
OTHER_STUDY = STUDY.model_copy(update={"title": "other"})
IDENTITY = Identity("party", KEY)
SPEC = RunSpec(
    study=STUDY,
    algorithm="dp_gd",
    parameters={},
    parties=(Member(name="party", n_examples=1, budget=Budget(epsilon=1, delta=1e-5)),),
    minimum_contributors=1,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "_now", made)
    return made


def approve(store: Ledger, run: str = "run", learner: str = "ann", price: Price = PRICE) -> None:
    store.consents.approve(learner, RunProposal(run=run, spec=SPEC, user="alice", purpose="why"), price)


def say(body: bytes) -> module.Compute:
    """An answer that draws its one-time noise once."""

    def compute(earlier: OneTimeNoise) -> tuple[bytes, OneTimeNoise]:
        return body + str(sorted(earlier)).encode(), {"eta": np.arange(3.0), **earlier}

    return compute


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_every_word_of_an_entry(tmp_path: Path, clock: Clock) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store)
        clock.now += 5
        store.rounds.answer(Ask("ann", "run", 2, "query", "gradient"), say(b"one"))
        store.rounds.join("ann", "run", b"roster")
        store.rounds.join("ann", "run", b"another")
        store.consents.refuse("bob", "other", "gop", "algorithms", "not allowed")
        store.consents.release("ann", "run")
        store.consents.release("ann", "run")
        store.consents.end("ann", "run")
        store.consents.end("ann", "run", "owner")
        entries = store.entries()
        assert store.answers() == [entries[3].record]
        assert [number for number, _ in store.records()] == list(range(1, 9))
        spec = store.chain.attachment(3, "spec")
    begun = entries[0].record
    assert isinstance(begun, Begun)
    assert begun == Begun("party", IDENTITY.key, begun.nonce, {}, Cost(0, 0), "replace_one")
    assert len(begun.nonce) == 64
    assert [entry.record for entry in entries[1:]] == [
        Limited(100, 12, "replace_one", "basic"),
        Approved(
            "ann", "run", "alice", "why", STUDY.name, "dp_gd", SPEC.digest, "none", 3, PRICE.total, "whole_party",
            30 * 86_400,
        ),
        Answered("ann", "run", 2, "query", "gradient", PRICE.step(2, 0), "whole_party"),
        Joined("ann", "run"),
        Refused("bob", "other", "gop", "algorithms", "not allowed"),
        Released("ann", "run"),
        Ended("ann", "run", "learner"),
    ]  # fmt: skip
    assert [entry.number for entry in entries] == list(range(1, 9))
    assert [entry.at for entry in entries] == [1000] * 3 + [1005] * 5
    assert RunSpec.model_validate_json(spec) == SPEC
    assert entries[2].attached["spec"] == digest(spec)
    assert entries[3].attached["body"] == digest(b"one[]")
    assert sorted(entries[3].attached) == ["body", "once:eta"]
    assert entries[4].attached == {"invitation": digest(b"roster")}


def test_what_is_asked_of_a_ledger_is_what_it_holds(tmp_path: Path, clock: Clock) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        for run in ("one", "two", "three"):
            approve(store, run, price=Price((1,), (1,), (0,), (0,)))
        store.rounds.answer(Ask("ann", "two", 1, "query"), say(b"two"))
        store.rounds.join("ann", "two", b"roster")
        assert store.consents.open_runs() == [("ann", "one"), ("ann", "two"), ("ann", "three")]
        assert store.rounds.joined() == [("ann", "two")]
        assert [store.rounds.invitation("ann", run) for run in ("two", "one", "no")] == [b"roster", None, None]
        assert [store.rounds.last_answer("ann", run) for run in ("two", "one", "no")] == [b"two[]", None, None]
        assert [store.consents.find("ann", "no"), store.consents.find("bob", "one")] == [None, None]
        assert store.rounds.recall(Ask("bob", "one", 1, "")) is None
        assert store.rounds.recall(Ask("ann", "two", 2, "query")) is None
        recalled = store.rounds.recall(Ask("ann", "two", 1, "query"))
        assert recalled == store.rounds.answer(Ask("ann", "two", 1, "query"), say(b"another"))
        with pytest.raises(ConflictError, match=r"^round 1 of run two was asked another question before$"):
            store.rounds.recall(Ask("ann", "two", 1, "other"))
        assert [store.consents.approved_today(learner) for learner in ("ann", "bob")] == [3, 0]
        for missing in (
            store.consents.end,
            store.consents.release,
            lambda learner, run: store.rounds.join(learner, run, b""),
        ):
            for key in (("ann", "no"), ("bob", "one")):
                with pytest.raises(NotFoundError):
                    missing(*key)
        store.consents.end("ann", "two")
        assert (store.rounds.joined(), store.consents.open_runs()) == ([], [("ann", "one"), ("ann", "three")])
        store.probe(0)


def test_runs_of_one_study_have_it_in_memory_once(tmp_path: Path) -> None:
    """It is nearly all of a specification, and hundreds of these are in memory."""
    other = SPEC.model_copy(update={"study": STUDY.model_copy(update={"name": "another"})})
    specs = {"one": SPEC, "two": SPEC, "three": other, "four": SPEC}
    with open_ledger(tmp_path, LIMIT) as store:
        for run, spec in specs.items():
            store.consents.approve(
                "ann", RunProposal(run=run, spec=spec, user="alice", purpose="why"), Price((1,), (1,), (0,), (0,))
            )
        consents = [store.consents.find("ann", run) for run in specs]
        one, two, three, _ = [consent.spec for consent in consents if consent is not None]
        assert [consent and consent.spec.digest for consent in consents] == [spec.digest for spec in specs.values()]
    assert one.study is two.study
    assert three.study == other.study


def test_a_ledger_that_opens_again_knows_the_same_and_writes_nothing(tmp_path: Path, clock: Clock) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store)
        before, origin = store.entries(), read_receipt(store.chain.receipt()).ledger
    with Ledger(tmp_path, IDENTITY, LIMIT) as store:
        assert store.entries() == before
        assert read_receipt(store.chain.receipt()).ledger == origin
        consent = store.consents.find("ann", "run")
        assert consent is not None
        assert (consent.price, consent.spec) == (PRICE, SPEC)
        approve(store, "next", price=Price((1,), (1,), (0,), (0,)))
        assert store.books.runs["ann", "next"].expires == 1000 + 30 * 86_400
        before = store.entries()
    for limit in (
        Account(101, 12, composition="basic"),
        Account(101, 13, composition="basic"),
        Account(101, 13),
        Account(101, 13, adjacency="whole_party"),
    ):
        with Ledger(tmp_path, IDENTITY, limit) as store:
            terms = store.entries()[-1].record
            assert terms == Limited(limit.epsilon_limit, limit.delta_limit, limit.adjacency, limit.composition)
            assert len(store.entries()) == (len(before) + 1)
            before = store.entries()


def test_a_ledger_is_one_partys_with_one_key(tmp_path: Path) -> None:
    open_ledger(tmp_path, LIMIT).close()
    other = Identity("party", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    for identity in (Identity("other", KEY), other):
        with pytest.raises(LedgerError, match="the ledger is one of party with another key"):
            Ledger(tmp_path, identity, LIMIT)
    Chain(tmp_path / "empty" / "ledger", LEDGER, lambda *_: None).close()
    with pytest.raises(LedgerError, match="the ledger is empty"):
        Ledger(tmp_path / "empty", IDENTITY, LIMIT)
    with pytest.raises(LedgerError, match="already, or a part of one"):
        create_ledger(tmp_path, IDENTITY, "replace_one")
    for end, remaining in (("db", "head"), ("head", "db")):
        half = tmp_path / end
        create_ledger(half, IDENTITY, "replace_one")
        (half / f"ledger.{end}").unlink()
        with pytest.raises(LedgerError, match=f"only ledger.{remaining} is left"):
            Ledger(half, IDENTITY, LIMIT)
        with pytest.raises(LedgerError, match="already, or a part of one"):
            create_ledger(half, IDENTITY, "replace_one")
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger(tmp_path / "nowhere", IDENTITY, LIMIT)


def test_what_hides_a_record_never_counts_as_hiding_all(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store, price=Price((1,), (1,), (0,), (0,)))
        store.rounds.answer(Ask("ann", "run", 1, "query"), say(b""))
    with pytest.raises(InvalidInputError, match="1 answers in the ledger protect one record each"):
        Ledger(tmp_path, IDENTITY, Account(100, 12, adjacency="whole_party"))


def test_rounds_go_forward_and_an_answer_stays(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store)
        first = store.rounds.answer(Ask("ann", "run", 1, "query"), say(b"one"))
        assert first.body == b"one[]"
        assert first.bound == Binding("run", 1, "query", digest(b"one[]"))
        assert store.rounds.answer(Ask("ann", "run", 1, "query"), say(b"two")) == first
        with pytest.raises(ConflictError, match="was asked another question before"):
            store.rounds.answer(Ask("ann", "run", 1, "other"), say(b"two"))
        third = store.rounds.answer(Ask("ann", "run", 3, "query"), say(b"three"))
        assert third.body == b"three['eta']", "one-time noise is handed back"
        assert store.entries()[-1].attached == {"body": digest(third.body)}, "and not written twice"
        with pytest.raises(ConflictError, match="round 2 of run run is over; round 3 was answered"):
            store.rounds.answer(Ask("ann", "run", 2, "query"), say(b"two"))
        assert store.account().spent == PRICE.total


def test_one_time_noise_is_read_without_unpickling() -> None:
    packed = io.BytesIO()
    np.save(packed, np.array([object()]), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        module._array(packed.getvalue())


def test_a_run_ends_when_its_time_is_up_and_not_a_second_before(tmp_path: Path, clock: Clock) -> None:
    with open_ledger(tmp_path, LIMIT, reservation_days=2) as store:
        approve(store)
        clock.now += 2 * 86_400 - 1
        store.chain.expire()
        assert store.consents.open_runs() == [("ann", "run")]
        store.rounds.answer(Ask("ann", "run", 1, "query"), say(b""))
        clock.now += 1
        store.chain.expire()
        assert store.consents.open_runs() == [("ann", "run")], "an answer gives it as long again"
        clock.now += 2 * 86_400 - 1
        store.chain.expire()
        assert store.entries()[-1].record == Ended("ann", "run", "expired")
        with pytest.raises(ConflictError, match="run run has ended"):
            store.rounds.answer(Ask("ann", "run", 2, "query"), say(b""))


def test_budget_is_reserved_for_thirty_days_unless_the_owner_says_otherwise(tmp_path: Path, clock: Clock) -> None:
    create_ledger(tmp_path, IDENTITY, "replace_one")
    with Ledger(tmp_path, IDENTITY, LIMIT) as store:
        approve(store)
        assert store.books.runs["ann", "run"].expires == clock.now + 30 * 86_400


def test_so_many_refusals_of_a_learner_and_day_are_noted(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_REFUSALS", 2)
    with open_ledger(tmp_path, LIMIT) as store:
        for learner, at in (
            ("ann", 5),
            ("ann", 6),
            ("ann", 7),
            ("bob", 7),
            ("ann", 86_400),
            ("ann", 86_401),
            ("ann", 86_402),
        ):
            clock.now = at
            store.consents.refuse(learner, "run", "dp_gd", "rule", "reason")
        noted = [(entry.record.learner, entry.at) for entry in store.entries() if isinstance(entry.record, Refused)]
        assert noted == [("ann", 5), ("ann", 6), ("bob", 7), ("ann", 86_400), ("ann", 86_401)]
        monkeypatch.setattr(module, "MOST_REFUSALS", 1)
        store.consents.refuse("carl", "run", "dp_gd", "rule", "reason")
        assert store.entries()[-1].record == Refused("carl", "run", "dp_gd", "rule", "reason")


def test_a_price_is_read_as_it_was_written_or_not_at_all() -> None:
    assert read_price(b'{"epsilon": [1], "delta": [2], "gdp": [3], "slack": [4]}') == Price((1,), (2,), (3,), (4,))
    for content in (b"", b"[]", b"{}", b'{"epsilon": [1]}', b'"text"', b"\xff"):
        with pytest.raises(LedgerError, match="the price list cannot be read"):
            read_price(content)


# ── the owner's own runs, its word, and its data ─────────────────────────────

TERMS = b'{"epsilon": 1, "model": "tree"}'


def test_a_run_of_the_owners_own_is_begun_once_and_keeps_its_terms(tmp_path: Path, clock: Clock) -> None:
    """It never expires, takes the room of what has expired, and has a salt of its own."""
    with open_ledger(tmp_path, LIMIT, reservation_days=1) as store:
        approve(store, price=Price((95,), (1,), (0,), (0,)))
        clock.now += 86_400
        book = store.consents.begin_own("mine", "leader", TERMS, 9, PRICE)
        assert store.consents.begin_own("mine", "leader", TERMS, 9, PRICE) is book
        entries = store.entries()
        assert [entry.record for entry in entries[3:]] == [
            Ended("ann", "run", "expired"),
            Approved(OWNER, "mine", "", "", "", "leader", digest(TERMS), "none", 9, PRICE.total, "whole_party", 10**11),
        ]
        assert (book.number, store.consents.record(book)) == (5, entries[4].record)
        assert store.chain.attachment(5, "spec") == TERMS
        assert read_price(store.chain.attachment(5, "price")) == PRICE
        salt = store.chain.attachment(5, SALT)
        assert len(salt) == 32
        assert store.consents.open_runs() == []
        with pytest.raises(ConflictError, match=r"^mine was begun with other terms, epsilon 1, not 2: say the same"):
            store.consents.begin_own("mine", "leader", b'{"epsilon": 2, "model": "tree"}', 9, PRICE)
        with pytest.raises(
            ConflictError, match="terms, epsilon 1, not None, model tree, not bush, depth None, not 3: "
        ):
            store.consents.begin_own("mine", "leader", b'{"model": "bush", "depth": 3}', 9, PRICE)
        store.consents.begin_own("second", "leader", TERMS, 9, FREE)
        assert store.chain.attachment(6, SALT) != salt
        with pytest.raises(BudgetExhaustedError):
            store.consents.begin_own("third", "leader", TERMS, 9, Price((95,), (1,), (0,), (0,)))
        assert len(store.entries()) == 6
        store.consents.end(OWNER, "mine", "owner")
        with pytest.raises(ConflictError, match=r"^mine has ended$"):
            store.consents.begin_own("mine", "leader", TERMS, 9, PRICE)


def test_a_failure_charges_what_is_left_of_a_run_once_even_after_its_end(tmp_path: Path, clock: Clock) -> None:
    dear = Price((3, 5, 9), (2, 2, 2), (1, 1, 2), (0, 0, 0), "whole_party")
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store, price=dear)
        store.rounds.answer(Ask("ann", "run", 1, "query"), say(b"one"))
        store.consents.end("ann", "run")
        assert not store.consents.has_failed("ann", "run")
        for _ in range(2):
            store.consents.fail("ann", "run")
        assert store.consents.has_failed("ann", "run")
        assert [entry.record for entry in store.entries()[4:]] == [
            Ended("ann", "run", "learner"),
            Ended("ann", "run", "failed", Cost(6, 0, 1, 0), "whole_party"),
        ]
        assert store.account().spent == dear.total
        approve(store, "second", price=dear)
        store.consents.fail("ann", "second")
        assert store.account().spent == dear.total + dear.total
        assert store.account().reserved == Cost(0, 0)
        for key in (("ann", "no"), ("bob", "run")):
            with pytest.raises(NotFoundError, match=f"run {key[1]} is not known here"):
                store.consents.fail(*key)


def wish(run: str = "run", purpose: str = "why") -> RunProposal:
    return RunProposal(run=run, spec=SPEC, user="alice", purpose=purpose)


def test_the_owner_is_asked_once_and_its_yes_is_an_ordinary_consent(tmp_path: Path, clock: Clock) -> None:
    with open_ledger(tmp_path, LIMIT) as store, open_ledger(tmp_path, LIMIT) as other:
        book = store.questions.ask("ann", wish(), PRICE, 100.9)
        assert store.questions.ask("ann", wish(purpose="another"), PRICE, 5) is book
        assert store.entries()[-1].record == OwnerAsked("ann", "run", SPEC.digest, PRICE.total, 100)
        assert (book.number, book.expires, book.denied) == (3, 1100, None)
        assert store.questions.read(book) == (wish(), PRICE)
        changed = wish().model_copy(update={"spec": SPEC.model_copy(update={"parameters": {"n_rounds": 3}})})
        with pytest.raises(ConflictError, match=r"^the owner was asked about run run with another specification: ask"):
            store.questions.ask("ann", changed, PRICE, 5)
        assert [(learner, each.number) for learner, each in other.questions.pending()] == [("ann", 3)]
        assert store.account().reserved == Cost(0, 0)
        consent = other.questions.allow("ann", "run")
        assert (consent.spec, consent.price) == (SPEC, PRICE)
        assert store.questions.allow("ann", "run").price == PRICE, "said twice"
        approved = store.entries()[-1].record
        assert isinstance(approved, Approved)
        assert (approved.learner, approved.user, approved.purpose, approved.spec) == (
            "ann",
            "alice",
            "why",
            SPEC.digest,
        )
        assert len(store.entries()) == 4
        assert (store.questions.pending(), store.account().reserved) == ([], PRICE.total)
        for _ in range(2):
            assert store.questions.deny("ann", "run", "unread")
        assert [entry.record for entry in store.entries()[4:]] == [Ended("ann", "run", "owner")]
        with pytest.raises(ConflictError, match=r"^run run has ended \(owner\)$"):
            other.questions.allow("ann", "run")


def test_the_owners_no_stays_and_a_question_waits_to_the_second(tmp_path: Path, clock: Clock) -> None:
    with open_ledger(tmp_path, LIMIT) as store, open_ledger(tmp_path, LIMIT) as other:
        store.questions.ask("ann", wish("one"), PRICE, 100)
        store.questions.ask("ann", wish("two"), PRICE, 100)
        for reason in ("not for marketing", "twice"):
            assert not other.questions.deny("ann", "one", reason)
        assert store.entries()[-1].record == OwnerDenied("ann", "one", "not for marketing")
        assert len(store.entries()) == 5
        assert store.questions.ask("ann", wish("one"), PRICE, 100).denied == "not for marketing"
        with pytest.raises(ConflictError, match=r"^run one was denied, and its learner has been told$"):
            store.questions.allow("ann", "one")
        clock.now += 99
        assert [each.question.run for _, each in store.questions.pending()] == ["two"]
        clock.now += 1
        assert store.questions.pending() == []
        with pytest.raises(ConflictError, match=r"^run two waited too long for an answer: its question has expired$"):
            store.questions.allow("ann", "two")
        assert not store.questions.deny("ann", "two")
        assert store.entries()[-1].record == OwnerDenied("ann", "two", "")
        for ask in (store.questions.allow, store.questions.deny):
            for key in (("ann", "three"), ("bob", "one")):
                with pytest.raises(NotFoundError, match=f"^the owner was not asked about run {key[1]}$"):
                    ask(*key)


def test_so_many_questions_of_a_learner_wait_at_a_time(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 2)
    with open_ledger(tmp_path, LIMIT) as store:
        for learner, run in (("ann", "one"), ("bob", "one"), ("ann", "two")):
            store.questions.ask(learner, wish(run), PRICE, 100)
        with pytest.raises(ForbiddenError, match=r"^2 runs of ann wait for the owner already$") as refused:
            store.questions.ask("ann", wish("three"), PRICE, 100)
        assert refused.value.facts == {"rule": "owner"}
        store.questions.ask("bob", wish("two"), PRICE, 100)
        clock.now += 100
        store.questions.ask("ann", wish("three"), PRICE, 100)
        assert [(learner, each.question.run) for learner, each in store.questions.pending()] == [("ann", "three")]


def data_pin(study: Study = STUDY, source: str = "rows.csv", people: str = "", content: bytes = b"file") -> DataPin:
    return DataPin(source, {"t": "rows"}, study, people, 9, b"rows", (content,))


def test_data_are_pinned_once_and_others_by_the_owners_word(tmp_path: Path, clock: Clock) -> None:
    """The learners' runs end then, not the owner's; no entry has a digest of rows that anyone can confirm."""
    data = data_pin()
    with open_ledger(tmp_path, LIMIT) as store, open_ledger(tmp_path, LIMIT) as other:
        assert store.pin(data) == []
        entry = store.entries()[-1]
        salt = store.chain.attachment(entry.number, SALT)
        assert len(salt) == 32
        assert entry.record == data.pinned(salt)
        assert isinstance(entry.record, Pinned)
        assert (entry.record.study, entry.record.name) == (data.study.digest, "s")
        assert entry.record.rows == hmac.new(salt, b"rows", "sha256").hexdigest()
        approve(store, price=FREE)
        assert (other.pin(data, accept=True), store.pin(data)) == ([], [])
        assert (len(store.entries()), store.consents.open_runs()) == (4, [("ann", "run")])
        for changed, parts in (
            (replace(data, rows=b"others"), ["the rows"]),
            (replace(data, study=OTHER_STUDY), ["the study"]),
            (replace(data, source="rows.db"), ["where they come from"]),
            (replace(data, tables={"t": "others"}), ["where they come from"]),
            (
                replace(data, source="", tables={}, study=OTHER_STUDY, rows=b""),
                ["the rows", "the study", "where they come from"],
            ),
        ):
            assert store.pin(changed) == parts
        assert store.consents.open_runs() == [("ann", "run")]
        store.consents.begin_own("mine", "leader", TERMS, 9, FREE)
        later = replace(data, rows=b"others")
        assert other.pin(later, accept=True) == ["the rows"]
        ended, pinned = other.entries()[5:]
        assert ended.record == Ended("ann", "run", "owner")
        assert isinstance(pinned.record, Pinned)
        assert pinned.record == later.pinned(other.chain.attachment(pinned.number, SALT))
        assert other.books.runs[OWNER, "mine"].ended is None


def test_a_process_answers_about_the_data_that_it_has_loaded_alone(tmp_path: Path, clock: Clock) -> None:
    data = data_pin()
    with open_ledger(tmp_path, LIMIT) as store, open_ledger(tmp_path, LIMIT) as other:
        assert store.pin(data) == []
        assert other.pin(replace(data, rows=b"others"), accept=True) == ["the rows"]
        approve(other, "next", price=FREE)
        with pytest.raises(DataChangedError, match="the owner has accepted other data since this service loaded"):
            approve(store, "last", price=FREE)
        with pytest.raises(DataChangedError):
            store.rounds.answer(Ask("ann", "next", 1, "query"), say(b"one"))
    with open_ledger(tmp_path, LIMIT) as without:
        approve(without, "last", price=FREE)  # as an owner's command does, which loads none


# ── receipts ─────────────────────────────────────────────────────────────────


def test_a_receipt_says_what_the_ledger_holds_and_was_shown(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store)
        answer = store.rounds.answer(Ask("ann", "run", 1, "query"), say(b"one"))
        empty = read_receipt(store.chain.receipt())
        assert (empty.to, empty.shown, empty.answer) == ("", None, None)
        charged, at = PRICE.step(1, 0), store.books.at
        remaining = PRICE.total - charged
        assert (empty.head, empty.ledger, empty.sealed) == (store.chain.head, store.chain.origin, "")
        assert empty.totals == {
            "spent": list(charged.units),
            "reserved": list(remaining.units),
            "adjacency": "whole_party",
            "at": at,
        }
        receipt = verify_receipt(store.chain.receipt("ann", empty, answer.bound), "party", IDENTITY.key)
        assert (receipt.to, receipt.shown, receipt.answer) == ("ann", empty.head, answer.bound)
        own = bytes.fromhex(own_ledger(store.chain.origin, "ann"))
        for _, record in [(number, record) for number, record in store.records() if number > 2]:
            own = next_link(own, record)
        assert (receipt.ledger, receipt.head) == (own_ledger(store.chain.origin, "ann"), Head(2, own.hex()))
        assert receipt.totals == {}, "it does not say what others have had"
        whole = store.chain.whole(receipt)
        assert (whole.ledger, whole.head) == (empty.ledger, empty.head)
        assert whole.totals == {
            "spent": list((charged + remaining).units),
            "reserved": [0] * 6,
            "adjacency": "whole_party",
            "at": at,
        }


def test_what_a_learner_sees_does_not_say_whether_another_asks(tmp_path: Path, clock: Clock) -> None:
    """Nor whether somebody's question had an expired run of its own ended."""

    def seen(name: str, *, is_busy: bool) -> list[tuple[int, Head | None, dict[str, Any], int]]:
        clock.now, receipts = 1000, list[Receipt]()
        with open_ledger(tmp_path / name, LIMIT, reservation_days=1) as store:
            for run in ("one", "two"):
                if is_busy:
                    approve(store, run, "bob", price=Price((1,), (1,), (0,), (0,)))
                    store.rounds.answer(Ask("bob", run, 1, "query"), say(b"one"))
                approve(store, run, price=Price((1,), (1,), (0,), (0,)))
                receipts.append(read_receipt(store.chain.receipt("ann")))
            clock.now += 86_400
            if is_busy:
                store.account()
            receipts.append(read_receipt(store.chain.receipt("ann")))
            assert [store.chain.check_receipt(receipt.text) for receipt in receipts] == receipts
            assert (len(store.books.runs.unended()) == 0) == is_busy
        return [(each.head.count, each.shown, each.totals, len(each.text)) for each in receipts]

    assert seen("alone", is_busy=False) == seen("busy", is_busy=True)


def test_a_receipt_of_an_older_version_stands_and_the_next_is_of_the_learners_own_chain(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        approve(store)
        whole = store.chain.statement("")
        old = write_receipt(KEY, signer="party", to="ann", **whole)
        keeper = ReceiptKeeper("party", IDENTITY.key, old)
        _, text = store.chain.witnessed("ann", old.text, lambda: None)
        receipt = keeper.take(text, old)
        assert (keeper.newest, receipt.shown) == (receipt, old.head)
        assert receipt.ledger == own_ledger(old.ledger, "ann")


def test_a_copy_that_lacks_another_learners_entries_alone_is_refused(tmp_path: Path) -> None:
    with open_ledger(tmp_path / "now", LIMIT) as store:
        approve(store, price=Price((1,), (1,), (0,), (0,)))
        before = read_receipt(store.chain.receipt("ann"))
    shutil.copytree(tmp_path / "now", tmp_path / "old")
    with open_ledger(tmp_path / "now", LIMIT) as store:
        approve(store, "theirs", "bob", price=Price((1,), (1,), (0,), (0,)))
        text = store.chain.receipt("ann")
        assert read_receipt(text).head == before.head
        assert store.chain.check_receipt(text) == read_receipt(text)
    with open_ledger(tmp_path / "old", LIMIT) as store:
        with pytest.raises(LedgerError, match="old copy"):
            store.chain.check_receipt(text)
        with pytest.raises(LedgerError, match="older than the one last written"):
            store.account()


def test_a_sealed_part_is_read_in_its_own_receipt_alone(tmp_path: Path) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        receipt = read_receipt(store.chain.receipt("ann"))
        for other in (
            {"to": "bob"},
            {"ledger": "ab" * 32},
            {"head": Head(1, receipt.head.link)},
            {"sealed": receipt.sealed[:-8] + "AAAAAAA="},
            {"sealed": "junk"},
            {"sealed": "AAAA"},
        ):
            parts: dict[str, Any] = {
                "ledger": receipt.ledger, "head": receipt.head, "to": "ann", "sealed": receipt.sealed,
            }  # fmt: skip
            text = write_receipt(KEY, signer="party", **(parts | other)).text
            with pytest.raises(InvalidReceiptError, match="did not seal"):
                store.chain.check_receipt(text)
        assert store.chain.check_receipt(receipt.text) == receipt


@pytest.mark.parametrize(("late", "at"), [(6, 10), (5, 11)])  # more entries; or a copy that was written on later
def test_receipts_of_another_process_and_of_a_ledger_that_was_replaced_stand(
    tmp_path: Path, late: int, at: int
) -> None:
    create_ledger(tmp_path, IDENTITY, "replace_one", recovered={"ab" * 32: (5, 10)})
    with open_ledger(tmp_path, LIMIT) as one, open_ledger(tmp_path, LIMIT) as other:
        approve(other)
        receipt = read_receipt(other.chain.receipt())
        assert one.chain.check_receipt(receipt.text) == receipt

        def replaced(count: int, at: int = 10, ledger: str = "ab" * 32) -> str:
            totals = {"at": at}
            return write_receipt(KEY, signer="party", ledger=ledger, head=Head(count, "cd" * 32), totals=totals).text

        for count in (0, 5):
            assert one.chain.check_receipt(replaced(count)).head.count == count
        with pytest.raises(LedgerError, match="had entries that it does not hold: it is an old copy"):
            one.chain.check_receipt(replaced(late, at))
    with pytest.raises(LedgerError, match="older than the one last written"):
        open_ledger(tmp_path, LIMIT)


@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_a_receipt_of_a_ledger_that_is_not_this_one_forbids_it(tmp_path: Path, count: int) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        text = write_receipt(KEY, signer="party", ledger="ab" * 32, head=Head(count, "00" * 32)).text
        with pytest.raises(LedgerError, match="had entries that it does not hold"):
            store.chain.check_receipt(text)
        with pytest.raises(LedgerError, match="older than the one last written"):
            store.account()


def test_a_receipt_that_others_signed_forbids_nothing(tmp_path: Path) -> None:
    stranger = Ed25519PrivateKey.from_private_bytes(bytes(32))
    with open_ledger(tmp_path, LIMIT) as store:
        origin = read_receipt(store.chain.receipt()).ledger
        for key, signer in ((stranger, "party"), (KEY, "other")):
            text = write_receipt(key, signer=signer, ledger=origin, head=Head(9, "cd" * 32)).text
            with pytest.raises(LedgerError, match=r"not signed with the key|not of party"):
                store.chain.check_receipt(text)
        approve(store)
        with pytest.raises(BudgetExhaustedError):
            approve(store, "more", price=Price((100,), (0,), (0,), (0,)))
        with pytest.raises(LedgerError, match="had entries that it does not hold"):
            store.chain.check_receipt(write_receipt(KEY, signer="party", ledger=origin, head=Head(9, "cd" * 32)).text)


def invitation(*key_holders: str, d: int) -> bytes:
    """A secure sum's roster of two parties, with keys of 2048 bits, as a learner sends it."""
    keys = (f"{number:064x}" for number in range(9))
    parties = tuple(RosterParty(name, next(keys), 1.0) for name in ("ann", "bob"))
    holders = tuple(RosterKeyHolder(name, next(keys), f"{2**2047 + 1:x}") for name in key_holders)
    return Signed(Roster("0" * 32, d, 2048, 2, 0, next(keys), parties, holders).body, b"signature").to_bytes()


def test_room_is_for_twice_the_longest_answer_of_a_run_that_is_open(tmp_path: Path) -> None:
    """Two integers are an NPY file of 144 bytes; 31 of a secure sum, two ciphertexts of 512 for each key holder."""
    with open_ledger(tmp_path, LIMIT) as store:
        room = AnswerRoom(store)
        assert room.needed() == 0
        approve(store, "plain")
        assert room.needed() == 2 * 144
        approve(store, "summed", price=FREE)
        store.rounds.join("ann", "summed", invitation("carol", "dave", d=31))
        assert room.needed() == 2 * 2 * 2 * 512
        store.consents.end("ann", "summed")
        assert room.needed() == 2 * 144
        store.consents.end("ann", "plain")
        assert room.needed() == 0


def test_a_run_that_cannot_be_read_needs_no_room_and_none_is_read_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_ledger(tmp_path, LIMIT) as store:
        room, read, stored = AnswerRoom(store), [], store.chain.attachment
        approve(store, "of-another-version", price=FREE)

        def attachment(entry: int, name: str) -> bytes:
            read.append((entry, name))
            return b"{}" if entry == 3 else stored(entry, name)

        monkeypatch.setattr(store.chain, "attachment", attachment)
        approve(store)
        store.rounds.join("ann", "run", b"no roster")
        read.clear()
        assert room.needed() == 0
        assert read == [(3, "spec"), (5, "invitation")]
        approve(store, "other", price=FREE)
        read.clear()
        assert room.needed() == room.needed() > 0
        assert read == [(6, "spec")]
