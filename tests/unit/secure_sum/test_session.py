"""Sessions as they should go: sums, dropouts, retries, restarts, ends."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum

import numpy as np
import pytest
from phe import PaillierPrivateKey

from parley.common.arrays import IntArray
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.keyholder import KEY_HOLDER_TRANSITIONS, KeyHolderRole, KeyHolderState
from parley.common.secure_sum.learner import LEARNER_TRANSITIONS, LearnerRole, LearnerState
from parley.common.secure_sum.messages import Contribution, Opened, SumQuery
from parley.common.secure_sum.packing import OFFSET
from parley.common.secure_sum.paillier import decrypt_blocks
from parley.common.secure_sum.party import PARTY_TRANSITIONS, PartyPolicy, PartyRole, PartyState
from parley.common.secure_sum.session import End, Role, Transitions

Refused = Callable[[Reason], AbstractContextManager[object]]
Start = Callable[..., LocalSession]


def answers(d: int, *names: str) -> dict[str, IntArray]:
    rng = np.random.default_rng(len(names))
    return {name: rng.integers(-OFFSET + 1, OFFSET, d) for name in names}


def total(given: Mapping[str, IntArray]) -> list[int]:
    return [sum(column) for column in zip(*(values.tolist() for values in given.values()), strict=True)]


def rejoin(session: LocalSession, name: str) -> PartyRole:
    """The party after a restart: it joins the same roster again."""
    policy = PartyPolicy(
        session.roster.learner,
        {holder.name: holder.key for holder in session.roster.key_holders},
        {party.name: session.identities[party.name].key for party in session.roster.parties},
        minimum_contributors=2,
        minimum_key_bits=2048,
    )
    restarted = PartyRole(session.identities[name], policy)
    proposal = session.learner.propose()
    signatures = tuple(holder.accept(proposal) for holder in session.key_holders)
    restarted.join(Signed(proposal.body, proposal.signature, signatures))
    return restarted


@pytest.mark.parametrize("key_holders", [1, 2])
@pytest.mark.parametrize(
    "d", [1, 30, pytest.param(31, marks=pytest.mark.slow), pytest.param(70, marks=pytest.mark.slow)]
)
def test_the_learner_gets_the_exact_sum(key_holders: int, d: int, start: Start) -> None:
    session = start(d=d, key_holders=key_holders)
    for number in (1, 2):
        given = answers(d, "party-1", "party-2", "party-3")
        out = session.sum(number, given)
        assert out.values.tolist() == total(given)
        assert out.contributors == ("party-1", "party-2", "party-3")
        assert out.round == number
        assert len(out.receipts) == key_holders


@pytest.mark.parametrize("key_holders", [1, 2])
def test_a_dropout_costs_nothing(key_holders: int, start: Start) -> None:
    session = start(key_holders=key_holders)
    given = answers(5, "party-1", "party-3")
    assert session.sum(1, given).values.tolist() == total(given)


def test_the_set_may_leave_out_a_contributor(start: Start) -> None:
    session = start()
    given = answers(5, "party-1", "party-2", "party-3")
    asked = session.ask(1)
    for name, values in given.items():
        session.learner.receive(session.contribute(name, asked, values))
    assert session.learner.contributors == ("party-1", "party-2", "party-3")
    given.pop("party-1")
    assert session.open(given).values.tolist() == total(given)


def test_a_round_below_the_minimum_is_given_up_and_the_next_goes_on(start: Start, refused: Refused) -> None:
    session = start()
    session.learner.receive(session.contribute("party-1", session.ask(1), answers(5, "x")["x"]))
    with refused(Reason.TOO_FEW):
        session.learner.open(["party-1"])
    given = answers(5, "party-1", "party-2")
    assert session.sum(2, given).values.tolist() == total(given)


def test_the_same_query_gets_the_same_contribution(start: Start) -> None:
    session = start()
    asked = session.ask(1)
    first = session.contribute("party-1", asked, np.arange(5))
    assert session.contribute("party-1", asked, np.arange(5) + 1) == first
    query = session.parties["party-1"].receive(asked)
    assert session.parties["party-1"].recall(query) == first
    assert session.parties["party-2"].recall(query) is None


def test_an_answer_that_could_not_be_packed_leaves_the_round_open(start: Start, refused: Refused) -> None:
    session = start()
    asked = session.ask(1)
    with refused(Reason.VALUE_TOO_LARGE):
        session.contribute("party-1", asked, np.full(5, OFFSET))
    session.contribute("party-1", asked, np.arange(5))


def test_a_restarted_party_gives_what_it_gave(start: Start, refused: Refused) -> None:
    session = start()
    asked = session.ask(1)
    given = session.contribute("party-1", asked, np.arange(5))
    restarted = rejoin(session, "party-1")
    restarted.restore(Signed.from_bytes(given.to_bytes()))
    query = restarted.receive(asked)
    assert restarted.answer(query, np.zeros(5, np.int64), session.random_bytes, session.obfuscators) == given
    with refused(Reason.ROUND_ANSWERED):
        restarted.receive(
            SumQuery(query.session, query.roster, 1, "votes", query.message, 1, "1", 0).sign(
                session.identities["learner"].signing_key, [b"weights"]
            )
        )


@pytest.mark.parametrize("key_holders", [1, 2])
def test_the_same_set_gets_the_same_answer_also_after_a_restart(
    key_holders: int, start: Start, keys: list[PaillierPrivateKey]
) -> None:
    session = start(key_holders=key_holders)
    given = answers(5, "party-1", "party-2")
    asked = session.ask(1)
    for name, values in given.items():
        session.learner.receive(session.contribute(name, asked, values))
    requests = session.learner.open(given)
    for holder, request, key, entry in zip(
        session.key_holders, requests, keys[:key_holders], session.roster.key_holders, strict=True
    ):
        journal = holder.open(request)
        assert holder.open(request) == journal
        restarted = KeyHolderRole(
            session.identities[entry.name], key, session.roster.learner, random_bytes=os.urandom, minimum_key_bits=2048
        )
        restarted.accept(session.learner.propose())
        restarted.restore(Signed.from_bytes(journal.to_bytes()))
        assert restarted.open(request) == journal


def test_a_restarted_learner_takes_the_same_steps(start: Start) -> None:
    session = start()
    given = answers(5, "party-1", "party-2")
    asked = session.ask(1)
    stored = [session.contribute(name, asked, values) for name, values in given.items()]
    for contribution in stored:
        session.learner.receive(contribution)
    (request,) = session.learner.open(given)
    opened = session.key_holders[0].open(request)

    restarted = LearnerRole(session.roster, session.identities["learner"].signing_key)
    proposal = restarted.propose()
    invitation = restarted.invite({"key-holder-1": session.key_holders[0].accept(proposal)})
    restarted.begin({name: member.join(invitation) for name, member in session.parties.items()})
    assert restarted.ask(round=1, step="gradient", message=b"weights", clip=1, noise="1", deadline=0) == asked
    for contribution in stored:
        restarted.receive(contribution)
        restarted.receive(contribution)
    assert restarted.open(given) == restarted.open(given) == (request,)
    assert restarted.close([opened]).values.tolist() == total(given)


def test_receipts_travel_with_the_next_query(start: Start) -> None:
    session = start(key_holders=2)
    out = session.sum(1, answers(5, "party-1", "party-2"))
    asked = session.ask(2)
    assert [Signed.from_bytes(data) for data in asked.attachments[1:]] == list(out.receipts)
    assert Opened.parse(out.receipts[0].body).round == 1
    session.parties["party-3"].receive(asked)


def test_key_holders_cut_the_carries_off(start: Start) -> None:
    session = start(parties=6, d=1, minimum_contributors=6)
    (holder,) = session.key_holders
    seen: list[int] = []

    def spy(key: PaillierPrivateKey, blocks: Sequence[int]) -> list[int]:
        seen.extend(decrypt_blocks(key, blocks))
        return seen

    holder._decrypt = spy
    asked = session.ask(1)
    for name in session.parties:
        session.learner.receive(session.contribute(name, asked, np.array([1])))
    (request,) = session.learner.open(list(session.parties))
    opened = holder.open(request)
    assert seen[0] >= session.roster.layout.modulus
    assert int.from_bytes(opened.attachments[0]) == seen[0] % session.roster.layout.modulus
    assert session.learner.close([opened]).values.tolist() == [6]


def test_decryption_may_be_handed_elsewhere(start: Start) -> None:
    session = start(d=70)
    chunks: list[int] = []

    def in_chunks(key: PaillierPrivateKey, blocks: Sequence[int]) -> list[int]:
        chunks.append(len(blocks))
        return [plain for block in blocks for plain in decrypt_blocks(key, [block])]

    session.key_holders[0]._decrypt = in_chunks
    given = answers(70, "party-1", "party-2")
    assert session.sum(1, given).values.tolist() == total(given)
    assert chunks == [3]


def test_the_end_destroys_the_key_and_nothing_follows(start: Start, refused: Refused) -> None:
    session = start()
    given = answers(5, "party-1", "party-2")
    asked = session.ask(1)
    for name, values in given.items():
        session.learner.receive(session.contribute(name, asked, values))
    (request,) = session.learner.open(given)
    (holder,) = session.key_holders
    for role in (holder, session.parties["party-1"], session.learner):
        role.end()
        role.end()
    assert not [value for value in vars(holder).values() if isinstance(value, PaillierPrivateKey)]
    with refused(Reason.OUT_OF_TURN):
        holder.open(request)
    with refused(Reason.OUT_OF_TURN):
        session.parties["party-1"].receive(asked)
    with refused(Reason.OUT_OF_TURN):
        session.ask(2)
    with refused(Reason.OUT_OF_TURN):
        holder.roster  # noqa: B018


@pytest.mark.parametrize(
    ("table", "states"),
    [
        (PARTY_TRANSITIONS, PartyState),
        (KEY_HOLDER_TRANSITIONS, KeyHolderState),
        (LEARNER_TRANSITIONS, LearnerState),
    ],
)
def test_tables_are_closed_and_lead_everywhere_to_the_end(table: Transitions, states: type[Enum]) -> None:
    assert set(table) == set(states)
    assert {state for moves in table.values() for state in moves.values()} <= set(states)
    assert all(End in moves for moves in table.values())


def test_steps_out_of_turn_are_refused(start: Start, refused: Refused, keys: list[PaillierPrivateKey]) -> None:
    session = start()
    drafted = LearnerRole(session.roster, session.identities["learner"].signing_key)
    fresh = LocalSession.unsigned(session.roster, session.identities, keys[:1], random.Random(0).randbytes)
    contribution = Signed(b"", b"")
    for step in (
        lambda: drafted.receive(contribution),
        lambda: drafted.open(["party-1"]),
        lambda: drafted.close([]),
        lambda: fresh.ask(1),
        lambda: fresh.parties["party-1"].receive(contribution),
        lambda: fresh.parties["party-1"].restore(contribution),
        lambda: fresh.key_holders[0].open(contribution),
        lambda: fresh.key_holders[0].restore(contribution),
        lambda: session.learner.receive(contribution),
        lambda: session.learner.begin({}),
    ):
        with refused(Reason.OUT_OF_TURN):
            step()


def test_a_refused_step_changes_nothing(start: Start, refused: Refused) -> None:
    session = start()
    roles: list[Role] = [session.learner, session.parties["party-1"], session.key_holders[0]]
    before = [role.state for role in roles]
    with refused(Reason.BAD_SIGNATURE):
        session.parties["party-1"].receive(Signed(b"{}", bytes(64)))
    with refused(Reason.BAD_SIGNATURE):
        session.key_holders[0].open(Signed(b"{}", bytes(64)))
    assert [role.state for role in roles] == before


def test_contributions_name_what_they_answer(start: Start) -> None:
    session = start(key_holders=2)
    asked = session.ask(1)
    claimed = Contribution.parse(session.contribute("party-1", asked, np.arange(5)).body)
    query = SumQuery.parse(asked.body)
    assert (claimed.session, claimed.roster, claimed.round) == (query.session, query.roster, query.round)
    assert claimed.query == query.digest
    assert len(claimed.blobs) == 2


def test_a_side_that_has_ended_remembers_nothing(start: Start, refused: Refused) -> None:
    session = start()
    session.sum(1, answers(5, "party-1", "party-2"))
    session.learner.end()
    assert session.learner.contributors == ()
    for role in (session.parties["party-1"], session.key_holders[0]):
        role.end()
        assert role._last is None
        with refused(Reason.OUT_OF_TURN):
            _ = role.roster


def test_a_journal_entry_may_be_given_twice(start: Start) -> None:
    session = start()
    given = answers(5, "party-1", "party-2")
    (receipt,) = session.sum(1, given).receipts
    holder = session.key_holders[0]
    for _ in range(2):
        holder.restore(receipt)
    assert holder._last is not None
    assert holder._last[1] == receipt
