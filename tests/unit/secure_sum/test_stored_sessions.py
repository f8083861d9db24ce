"""What the learner stores of a secure sum, and how it begins, foresees and ends one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from phe import PaillierPrivateKey
from structlog.testing import capture_logs

from parley.common.client.federation import RoundReport
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import from_wire
from parley.common.errors import (
    DamagedError,
    ForbiddenError,
    InvalidInputError,
    KeyHolderRefusedError,
    NotFoundError,
    PartyRefusedError,
    SecureSumError,
    UnavailableError,
)
from parley.common.protocol.messages import Query, Reply
from parley.common.protocol.receipts import Head, read_receipt, write_receipt
from parley.common.runs.certificate import SignedSum, SignedSums
from parley.common.runs.secure_terms import round_terms
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.envelope import Signed, public_hex
from parley.common.secure_sum.errors import PackingError, Reason, SignatureError
from parley.common.secure_sum.learner import Sum
from parley.common.secure_sum.messages import Roster, RosterKeyHolder, RosterParty
from parley.common.wire.key_holder_api import KeyHolderFacts
from parley.common.wire.party_api import PinnedKeys
from parley.learner.runs.run import Run
from parley.learner.secure_sum import federation
from parley.learner.secure_sum.coordinator import ForeseenSum, SecureSumCoordinator
from parley.learner.storage.run_store import RunStore
from parley.learner.storage.session_store import Opening, Round, SessionStore
from tests.support.lines import line_to

SPEC = RunSpec(
    study=Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("a", "b"))),
    algorithm="dp_gd",
    parameters={},
    parties=tuple(Member(name=name, n_examples=5, budget=Budget(epsilon=1, delta=1e-5)) for name in ("ann", "bob")),
    minimum_contributors=2,
    secure_sum="paillier",
    colluders=1,
)
LEARNER = Ed25519PrivateKey.from_private_bytes(bytes(32))
SIGNED = {name: Signed(name.encode(), bytes([n]) * 64, (b"x",)) for n, name in enumerate(("ann", "bob", "kim", "lee"))}


@pytest.fixture
def roster(keys: list[PaillierPrivateKey]) -> Roster:
    """A roster of two parties and two key holders."""
    return Roster(
        session="0" * 32,
        d=2,
        key_bits=2048,
        minimum_contributors=2,
        colluders=0,
        learner="00" * 32,
        parties=tuple(RosterParty(name, f"{n:02x}" * 32, 1.0) for n, name in enumerate(("ann", "bob"), 1)),
        key_holders=tuple(
            RosterKeyHolder(name, f"{n:02x}" * 32, f"{key.public_key.n:x}")
            for n, (name, key) in enumerate(zip(("kim", "lee"), keys, strict=True), 3)
        ),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RunStore]:
    with closing(RunStore(tmp_path / "learner.sqlite")) as store:
        yield store


@pytest.fixture
def run(store: RunStore) -> Run:
    return store.add(SPEC, "alice")


@pytest.fixture
def sessions(store: RunStore) -> SessionStore:
    return store.sessions


def test_a_session_is_found_as_it_was_drafted_and_signed(
    store: RunStore, sessions: SessionStore, run: Run, roster: Roster
) -> None:
    assert sessions.find(run.id) is None
    assert sessions.session(run.id) is None
    for name in ("a-session", "another"):
        sessions.begin(run.id, name)
        assert sessions.session(run.id) == "a-session", "the first counts"
    assert sessions.find(run.id) is None
    sessions.draft(run.id, roster)
    found = sessions.find(run.id)
    assert found is not None
    assert (found.roster, found.signatures) == (roster, {})
    assert store.run(run.id).key_holders == ("kim", "lee")
    sessions.sign(run.id, {"ann": b"\x01\xff", "kim": b""})
    signed = sessions.find(run.id)
    assert signed is not None
    assert signed.signatures == {"ann": b"\x01\xff", "kim": b""}
    assert sessions.signed(run.id) is None, "nothing was opened"


def test_a_session_has_ended_once_key_holders_know(store: RunStore, sessions: SessionStore, run: Run) -> None:
    sessions.begin(run.id, "a-session")
    assert sessions.unended() == []
    store.enter(run.id, "cancelled")
    assert sessions.unended() == [run.id]
    sessions.end(run.id)
    assert (sessions.unended(), sessions.session(run.id)) == ([], None)


def test_a_round_is_asked_again_as_it_began(sessions: SessionStore, run: Run, roster: Roster) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    assert sessions.ask(run.id, 1, 100) == Round(100, {}, {}, is_new=True)
    assert sessions.ask(run.id, 1, 200) == Round(100, {}, {}, is_new=False)
    sessions.choose(run.id, {name: SIGNED[name] for name in ("bob", "ann")}, {"eve": "it is away"})
    begun = sessions.ask(run.id, 1, 300)
    assert begun == Round(100, {"ann": SIGNED["ann"], "bob": SIGNED["bob"]}, {"eve": "it is away"}, is_new=False)
    with pytest.raises(DamagedError, match=f"the row of run '{run.id}' in the table 'rounds'"):
        sessions.ask(run.id, 2, 400)
    sessions.forget(run.id)
    assert sessions.ask(run.id, 2, 400) == Round(400, {}, {})


def opened(store: RunStore, run: Run, roster: Roster) -> None:
    """Have two rounds of a run opened by both key holders."""
    store.sessions.begin(run.id, "a-session")
    store.sessions.draft(run.id, roster)
    store.sessions.sign(run.id, {"ann": b"\x01" * 64})
    for round in (1, 2):
        store.sessions.ask(run.id, round, 100)
        store.sessions.choose(run.id, {name: SIGNED[name] for name in ("ann", "bob")}, {})
        reply = Reply(np.zeros(1), (0,) if round == 1 else (0, 1))
        names = ("lee", "kim") if round == 1 else ("kim",)
        query = Query(round, "gradient", np.zeros(1))
        store.append(run.id, query, reply, [], [], opened={name: SIGNED[name] for name in names})


def test_openings_are_told_in_order_with_their_receipts(
    store: RunStore, sessions: SessionStore, run: Run, roster: Roster
) -> None:
    opened(store, run, roster)
    assert sessions.openings(run.id) == [
        Opening(1, (0,), {"kim": SIGNED["kim"], "lee": SIGNED["lee"]}),
        Opening(2, (0, 1), {"kim": SIGNED["kim"]}),
    ]
    assert list(sessions.openings(run.id)[0].receipts) == ["kim", "lee"]
    assert sessions.ask(run.id, 3, 7) == Round(7, {}, {}), "what was opened is forgotten"
    assert sessions.signed(run.id) == SignedSums(
        roster=roster.body.decode(),
        signatures={"ann": "01" * 64},
        opened={"kim": SignedSum(statement="kim", signature="02" * 64)},
    )


@pytest.mark.parametrize(
    ("table", "column", "value", "read"),
    [
        ("sessions", "roster", b"{", SessionStore.find),
        ("sessions", "signatures", '{"ann": "x"}', SessionStore.find),
        ("openings", "receipt", b"torn", SessionStore.openings),
        ("openings", "key_holder", b"\xff", SessionStore.openings),
        ("openings", "receipt", Signed(b"\xff", b"").to_bytes(), SessionStore.signed),
    ],
)
def test_damage_is_named_by_its_table(  # noqa: PLR0913, PLR0917 -- where, what and how it is read
    store: RunStore,
    run: Run,
    roster: Roster,
    table: str,
    column: str,
    value: str | bytes,
    read: Any,  # noqa: ANN401
) -> None:
    opened(store, run, roster)
    kind = "BLOB" if column in {"roster", "receipt"} else "TEXT"
    with store._database.transaction() as connection:
        if column == "key_holder":
            connection.execute("DELETE FROM openings WHERE round = 2 OR key_holder = 'lee'")
        connection.execute(f"UPDATE {table} SET {column} = CAST(? AS {kind}) WHERE run = ?", (value, run.id))  # noqa: S608
    with pytest.raises(DamagedError, match=f"the row of run '{run.id}' in the table '{table}' of the learner's"):
        read(store.sessions, run.id)


def test_damage_of_a_contribution_is_named(store: RunStore, sessions: SessionStore, run: Run, roster: Roster) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    sessions.ask(run.id, 1, 100)
    sessions.choose(run.id, {"ann": SIGNED["ann"]}, {})
    with store._database.transaction() as connection:
        connection.execute("UPDATE contributions SET contribution = x'00'")
    with pytest.raises(DamagedError, match=f"the row of run '{run.id}' in the table 'contributions'"):
        sessions.ask(run.id, 1, 100)


class Holder:
    """A key holder that answers so."""

    role = "key_holder"

    def __init__(self, name: str, answer: object = None, n: int = 3) -> None:
        self.name, self.public_key, self.answer, self.n = name, "0c" * 32, answer, n
        self.asked: list[tuple[object, ...]] = []

    async def end(self, session: str) -> None:
        self.asked.append(("end", session))
        if isinstance(self.answer, Exception):
            raise self.answer

    async def close(self) -> None:
        self.asked.append(("close",))


def coordinator(store: SessionStore, *holders: Holder, **settings: object) -> SecureSumCoordinator:
    """A coordinator of these key holders."""
    known = {"deadline_seconds": 5.0, "key_holder_seconds": 5.0} | settings
    return SecureSumCoordinator(
        cast("Any", SimpleNamespace(**known)),
        LEARNER,
        cast("Any", {holder.name: holder for holder in holders}),
        {"ann": "0a" * 32},
        store,
    )


async def test_key_holders_hear_that_a_session_has_ended_until_all_know(
    store: RunStore, sessions: SessionStore, run: Run, roster: Roster
) -> None:
    kim, lee = Holder("kim"), Holder("lee", UnavailableError("lee cannot be reached"))
    sums = coordinator(sessions, kim, lee, deadline_seconds=0.01)
    await sums.end(run.id)
    assert kim.asked == [], "there is no session"
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    sessions.ask(run.id, 1, 100)
    with capture_logs() as lines:
        await sums.end(run.id)
    assert lines == [
        {
            "event": "session not ended",
            "run": run.id,
            "session": "a-session",
            "missed": ["lee cannot be reached"],
            "log_level": "warning",
        }
    ]
    assert sessions.session(run.id) == "a-session"
    assert sessions.ask(run.id, 2, 200) == Round(200, {}, {}), "its seeds are forgotten all the same"
    lee.answer = None
    await sums.end(run.id)
    assert sessions.session(run.id) is None
    assert kim.asked == lee.asked == [("end", "a-session")] * 2
    await sums.close()
    assert kim.asked[-1] == lee.asked[-1] == ("close",)


def test_a_sum_needs_key_holders_and_keys_of_all_parties(sessions: SessionStore) -> None:
    coordinator(sessions).check(SPEC.model_copy(update={"secure_sum": "none"}))
    with pytest.raises(InvalidInputError, match=r"^secure_sum: this learner has no key holders: name them"):
        coordinator(sessions).check(SPEC)
    sums = coordinator(sessions, Holder("kim"))
    with pytest.raises(InvalidInputError, match=r"^secure_sum: the settings give no public_key of bob$"):
        sums.check(SPEC)
    sums.party_keys["bob"] = "0b" * 32
    sums.check(SPEC)
    many = tuple(SPEC.parties[0].model_copy(update={"name": name}) for name in "abcdefg")
    with pytest.raises(InvalidInputError, match=r"no public_key of a, b, c, d, e$"):
        sums.check(SPEC.model_copy(update={"parties": many}))


def test_a_run_without_its_session_or_key_holder_is_not_taken_up(
    sessions: SessionStore, run: Run, roster: Roster
) -> None:
    sums = coordinator(sessions, Holder("kim"))
    with pytest.raises(NotFoundError, match=f"run {run.id} has no session"):
        sums.federation(run, [], [])
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    with pytest.raises(NotFoundError, match=r"^the settings do not have the key holder kim, lee with the run's key$"):
        sums.federation(run, [], [])


class Facts(Holder):
    """A key holder, asked for its facts."""

    async def facts(self) -> object:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


async def test_hindrances_are_foreseen(sessions: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def facts(name: str, bits: int, most: int) -> KeyHolderFacts:
        return KeyHolderFacts(name=name, public_key="0c" * 32, key_bits=bits, body_bytes=most, version="0")

    monkeypatch.setattr("parley.learner.secure_sum.coordinator.KeyHolderClient.facts", Facts.facts)
    kim, lee = Facts("kim", facts("kim", 3072, 100)), Facts("lee", facts("lee", 2048, 10**9))
    foreseen = await coordinator(sessions, kim, lee).foresee([], 5.0)
    unlike = "the key holders' keys differ in size: kim 3072 bits, lee 2048 bits"
    assert foreseen == ForeseenSum(
        public_hex(LEARNER), {"kim": "0c" * 32, "lee": "0c" * 32}, {}, {}, 2048, {"kim": 100, "lee": 10**9}, (unlike,)
    )
    first, second = foreseen.hindrances_of(100, 3)
    assert first == unlike
    assert second.startswith("kim: 3 contributions of")
    lee.answer, kim.answer = UnavailableError("lee is away"), KeyHolderRefusedError("kim refuses")
    none = await coordinator(sessions, kim, lee).foresee([], 0.01)
    assert (none.bits, none.longest) == (None, {})
    assert none.hindrances == none.hindrances_of(100, 3) == ("kim refuses", "lee is away; the run would wait for it")
    assert (await coordinator(sessions).foresee([], 5.0)).hindrances == ()


async def test_keys_and_pins_of_parties_are_foreseen(sessions: SessionStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parley.learner.secure_sum.coordinator.PartyClient.pins", Facts.facts)
    pinned = PinnedKeys(learner=None, key_holders={}, parties={}, minimum_key_bits=0)
    parties = cast("Any", [Facts("ann", pinned), Facts("bob", KeyHolderRefusedError("no")), Facts("eve", pinned)])
    foreseen = await coordinator(sessions).foresee(parties, 5.0)
    assert (foreseen.parties, foreseen.pins) == ({"ann": "0a" * 32}, {"ann": pinned, "eve": pinned})
    assert (foreseen.learner, foreseen.bits, foreseen.longest) == (public_hex(LEARNER), None, {})


def test_a_sum_that_is_none_names_some_who_may_have_sent_a_wrong_share() -> None:
    few = federation._no_sum(7, ["bob", "ann"], "a fault", "beyond_bound")
    assert few.detail == (
        "the sum of round 7 is no sum of answers: a fault. One of ann, bob, or a key holder, sent a wrong share; "
        "a secure sum hides which. Nothing of this round was used"
    )
    assert few.reason is Reason.BEYOND_BOUND
    names = [f"p{number:02}" for number in range(22)]
    assert f"One of {', '.join(names[:20])}, or" in federation._no_sum(7, names[:20], "", "beyond_bound").detail
    one_more = federation._no_sum(7, names[:21], "", "beyond_bound").detail
    assert f"One of {', '.join(names[:20])} and 1 more, or" in one_more
    assert f"One of {', '.join(names[:20])} and 2 more, or" in federation._no_sum(7, names, "", "beyond_bound").detail


def test_the_names_of_key_holders_are_json(store: RunStore, sessions: SessionStore, run: Run, roster: Roster) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    with store._database.reading() as connection:
        row = connection.execute("SELECT * FROM sessions").fetchone()
    assert json.loads(row["key_holders"]) == ["kim", "lee"]
    assert row["roster"] == roster.body


class Contributing:
    """A party that contributes."""

    role = "party"

    def __init__(self, name: str) -> None:
        self.name, self.error = name, cast("Exception | None", None)
        self.asked: list[tuple[object, ...]] = []

    async def contribute(self, *asked: object) -> Signed:
        self.asked.append(asked)
        if self.error:
            raise self.error
        return SIGNED[self.name]

    def refuse(self, reason: str, detail: str) -> PartyRefusedError:
        return PartyRefusedError(detail, party=self.name, reason=reason)


class Opens(Holder):
    """A key holder that opens sums, and signs a roster again while its session goes on."""

    async def sign(self, *asked: object) -> bytes:
        self.asked.append(("sign", *asked))
        if isinstance(self.answer, Exception):
            raise self.answer
        return b""

    async def open(self, *asked: object) -> Signed:
        self.asked.append(asked)
        return SIGNED[self.name]


class Role:
    """The arithmetic of a session, which notes what it is told."""

    roster = SimpleNamespace(session="a-session")

    def __init__(self, values: list[int]) -> None:
        self.values, self.told, self.as_others = np.array(values), list[tuple[object, ...]](), dict[str, str]()
        self.fault: SecureSumError | None = None

    def propose(self) -> Signed:
        self.told.append(("propose",))
        return Signed(b"the roster", b"")

    def ask(self, **terms: object) -> Signed:
        self.told.append(("ask", terms))
        return Signed(b"a query", b"")

    def receive(self, contribution: Signed) -> str:
        if isinstance(self.fault, SignatureError):
            raise self.fault
        name = contribution.body.decode()
        self.told.append(("receive", name))
        return self.as_others.get(name, name)

    def open(self, names: Iterable[str]) -> list[Signed]:
        self.told.append(("open", sorted(names)))
        return [Signed(b"to kim", b""), Signed(b"to lee", b"")]

    def close(self, opened: list[Signed]) -> Sum:
        self.told.append(("close", [each.body.decode() for each in opened]))
        if self.fault:
            raise self.fault
        return Sum(1, self.values, ("ann", "bob"), (SIGNED["kim"], SIGNED["lee"]))

    def end(self) -> None:
        self.told.append(("end",))


@contextmanager
def summing(
    sessions: SessionStore, values: list[int]
) -> Iterator[tuple[federation.SecureSumFederation, Role, list[Contributing], list[Opens]]]:
    """The federation of a session, its role, parties and key holders."""
    role, parties, holders = Role(values), [Contributing(name) for name in ("ann", "bob")], [Opens("kim"), Opens("lee")]
    spec = SPEC.model_copy(update={"parameters": {"n_rounds": 2}}).settled()[0]
    pool = federation.SecureSumFederation(
        spec,
        cast("Any", parties),
        0.25,
        [],
        role=cast("Any", role),
        key_holders=cast("Any", holders),
        key_holder_seconds=5.0,
        store=sessions,
    )
    try:
        yield pool, role, parties, holders
    finally:
        with suppress(RuntimeError):  # where a test has ended it
            pool.end()
        pool._thread.shutdown()
        assert role.told[-1] == ("end",)


QUERY = Query(1, "gradient", np.array([0.5, 0.25]))


async def test_a_round_is_asked_contributed_to_opened_and_decoded(
    sessions: SessionStore, run: Run, roster: Roster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(federation, "time", SimpleNamespace(time=lambda: 1000.8, monotonic=iter([7.0, 7.5]).__next__))
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    with summing(sessions, [2**20, -(2**20), 7, 7]) as (pool, role, parties, holders):
        reply = await pool.answer(run.id, QUERY)
        shift = pool._facts.wire_shift
        assert reply.value.tolist() == from_wire(np.array([2**20, -(2**20)]), shift).tolist(), "without the padding"
        assert reply.contributors == (0, 1)
        terms = round_terms(pool._algorithm, pool._facts, 1)
        assert role.told == [
            (
                "ask",
                {
                    "round": 1,
                    "step": "gradient",
                    "message": QUERY.body,
                    "clip": terms.clip,
                    "noise": terms.noise,
                    "deadline": 1002,
                },
            ),
            ("receive", "ann"),
            ("receive", "bob"),
            ("open", ["ann", "bob"]),
            ("close", ["kim", "lee"]),
        ]
        assert [party.asked for party in parties] == [[(run.id, 1, Signed(b"a query", b""))]] * 2
        assert holders[0].asked == [("a-session", 1, Signed(b"to kim", b""))]
        assert holders[1].asked == [("a-session", 1, Signed(b"to lee", b""))]
        assert pool.report == RoundReport(0.5, (), {}, {}, {"kim": SIGNED["kim"], "lee": SIGNED["lee"]})
        chosen = {name: SIGNED[name] for name in ("ann", "bob")}
        assert sessions.ask(run.id, 1, 7) == Round(1002, chosen, {}, is_new=False)


def test_the_end_of_a_session_waits_for_no_work(sessions: SessionStore) -> None:
    with summing(sessions, []) as (pool, _, _, _):
        assert (pool._thread._max_workers, pool._thread._thread_name_prefix) == (1, "secure-sum")
        goes_on = threading.Event()
        work = pool._thread.submit(goes_on.wait, 10)
        pool.end()
        assert not work.done()
        goes_on.set()


async def test_a_round_that_was_begun_opens_the_set_that_was_chosen(
    sessions: SessionStore, run: Run, roster: Roster
) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    sessions.ask(run.id, 1, 100)
    sessions.choose(run.id, {"bob": SIGNED["bob"]}, {"ann": "it is away"})
    with summing(sessions, [1, 2]) as (pool, role, parties, holders):
        reply = await pool.answer(run.id, QUERY)
        assert reply.contributors == (1,)
        proposed, asked, *rest = role.told
        assert (proposed, cast("Any", asked[1])["deadline"]) == (("propose",), 100)
        assert rest == [("receive", "bob"), ("open", ["bob"]), ("close", ["kim", "lee"])]
        assert [holder.asked[0] for holder in holders] == [("sign", "a-session", Signed(b"the roster", b""))] * 2
        assert [party.asked for party in parties] == [[], []]
        assert (pool.report.dropped, pool.report.missed) == ({"ann": "it is away"}, {})


async def test_a_round_that_was_begun_asks_no_party_where_the_session_has_ended(
    sessions: SessionStore, run: Run, roster: Roster
) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    sessions.ask(run.id, 1, 100)
    with summing(sessions, [1, 2]) as (pool, role, parties, holders):
        holders[1].answer = KeyHolderRefusedError("the session has ended", key_holder="lee", reason="out_of_turn")
        with pytest.raises(KeyHolderRefusedError, match=r"^the session has ended$"):
            await pool.answer(run.id, QUERY)
        assert role.told == [("propose",)]
        assert [party.asked for party in parties] == [[], []]
        assert [len(holder.asked) for holder in holders] == [1, 1]


async def test_a_contribution_that_is_none_of_its_sender_is_refused_by_name(
    sessions: SessionStore, run: Run, roster: Roster
) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    with summing(sessions, [1, 2]) as (pool, role, _, _):
        role.as_others = {"ann": "bob"}
        with pytest.raises(PartyRefusedError, match=r"^it contributes as bob$") as refused:
            await pool.answer(run.id, QUERY)
        assert refused.value.facts == {"party": "ann", "reason": "unknown_party"}
        role.as_others, role.fault = {}, SignatureError("forged", reason=Reason.BAD_SIGNATURE)
        with pytest.raises(PartyRefusedError, match=r"^its contribution cannot be used: forged$") as refused:
            await pool.answer(run.id, QUERY)
        assert refused.value.facts["reason"] == "bad_signature"


async def test_a_result_that_is_no_sum_is_refused(sessions: SessionStore, run: Run, roster: Roster) -> None:
    sessions.begin(run.id, "a-session")
    sessions.draft(run.id, roster)
    with summing(sessions, [2**60, 1]) as (pool, role, _, _):
        with pytest.raises(InvalidInputError, match="round 1 asks for each party's answer, which a secure sum never"):
            await pool.answer(run.id, Query(1, "gradient", QUERY.message, "each"))
        with pytest.raises(PackingError) as refused:
            await pool.answer(run.id, QUERY)
        assert refused.value.detail.startswith(
            "the sum of round 1 is no sum of answers: 1 of 2 numbers are larger than their answers and noise can make "
            "them. One of ann, bob, or a key holder,"
        )
        assert refused.value.reason is Reason.BEYOND_BOUND
        role.fault = PackingError("a lane overflows", reason=Reason.COUNT_MISMATCH)
        with pytest.raises(
            PackingError, match=r"round 1 is no sum of answers: a lane overflows. One of ann, bob"
        ) as torn:
            await pool.answer(run.id, QUERY)
        assert torn.value.reason is Reason.COUNT_MISMATCH


def test_a_coordinator_has_what_the_settings_name(sessions: SessionStore) -> None:
    newest = read_receipt(write_receipt(LEARNER, signer="kim", ledger="0" * 64, head=Head(3, "0" * 64)).text)
    lines = {name: line_to(name, httpx.MockTransport(lambda _: httpx.Response(503))) for name in ("kim", "lee")}
    entries = [SimpleNamespace(name="kim", public_key="0a" * 32), SimpleNamespace(name="lee", public_key="0b" * 32)]
    parties = [SimpleNamespace(name="ann", public_key="0c" * 32), SimpleNamespace(name="bob", public_key=None)]
    settings = cast("Any", SimpleNamespace(key_holders=entries, parties=parties, signing_key=lambda: LEARNER))
    sums = SecureSumCoordinator.build(settings, lambda entry: lines[entry.name], sessions, {"kim": newest})
    assert (sums.settings, sums.key, sums.store) == (settings, LEARNER, sessions)
    assert sums.party_keys == {"ann": "0c" * 32}
    assert [(holder.name, holder.public_key) for holder in sums.key_holders] == [("kim", "0a" * 32), ("lee", "0b" * 32)]
    assert [holder.receipts.newest for holder in sums.key_holders] == [newest, None]
    assert [holder._line for holder in sums.key_holders] == list(lines.values())


def test_objections_are_those_of_the_partys_own_policy() -> None:
    asked: list[tuple[object, ...]] = []

    class Policy:
        def wrong_pins(self, *keys: object) -> list[str]:
            asked.append(keys)
            return ["a wrong pin"]

        def small_keys(self, bits: int) -> list[str]:
            return [f"{bits} are few"]

    def refuse(_: object) -> Policy:
        raise ForbiddenError("no sums")

    rules = cast("Any", object())
    pins = cast("Any", {"ann": SimpleNamespace(policy=lambda of: Policy() if of is rules else None)})
    foreseen = ForeseenSum("key", {"kim": "k"}, {"bob": "b"}, pins, 2048, {}, ())
    raised = [("secure_sum", "a wrong pin"), ("minimum_key_bits", "2048 are few")]
    assert list(foreseen.objections("ann", rules)) == raised
    assert asked == [("key", {"kim": "k"}, {"bob": "b"})]
    unknown = ForeseenSum("key", {}, {}, pins, None, {}, ())
    assert list(unknown.objections("ann", rules)) == [("secure_sum", "a wrong pin")]
    refusing = ForeseenSum("key", {}, {}, cast("Any", {"ann": SimpleNamespace(policy=refuse)}), 2048, {}, ())
    assert list(refusing.objections("ann", rules)) == [("secure_sum", "no sums")]
    assert list(refusing.objections("bob", rules)) == []
