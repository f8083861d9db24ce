"""The same people have one account, also when settings, data and processes change beside a party that serves."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from parley.common.errors import AwaitingOwnerError, ForbiddenError, InvalidInputError, UnavailableError
from parley.common.privacy.account import Cost, Price
from parley.common.protocol.messages import Query
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party, open_store, pin_of
from parley.party.data import holdings
from parley.party.data.owner_data import load_holding
from tests.support.several import STUDIES, Owner, spec_on

FIT = Price.at_once(Cost(500_000, 10**13, 10**9))
PREPARES = spec_on("third", algorithm="release", parameters={})


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path, policy={"algorithms": ("dp_gd", "release")})


def approve(party: Party, run: str, spec: RunSpec | None = None, learner: str = "ann") -> bool:
    return party.approve(learner, RunProposal(run=run, spec=spec or spec_on("third"))).prepared


def answer(party: Party, run: str, round: int = 1) -> None:
    question = spec_on("third").questions()[round - 1]
    message = np.full(STUDIES["third"].n_features, round / 64)
    party.answer("ann", run, Query(round, question.step, message, question.reveal))


def add_a_row(path: Path) -> None:
    text = path.read_text().rstrip("\n")
    path.write_text(f"{text}\n{text.rsplit(chr(10), 1)[1]}\n")


def test_a_run_that_has_not_ended_holds_its_people(owner: Owner) -> None:
    """Also one whose reservation was freed, and that has cost nothing yet."""
    with Party(owner.settings(owner.entry("third"), owner.entry("first"))) as party:
        approve(party, "run")
        party.store.consents.release("ann", "run")
        party.take_up(owner.settings(owner.entry("third", people="ward-7"), owner.entry("first")))
        assert "third" in party.holdings.unusable
        assert list(party.holdings.studies) == ["first"]


def test_nobody_pays_from_a_second_account_where_settings_name_other_people(owner: Owner) -> None:
    as_they_were, others = (owner.settings(owner.entry("third", people=people)) for people in ("ward-7", "ward-8"))
    with Party(as_they_were) as party:
        approve(party, "run")
        answer(party, "run")
        with open_store(others) as store:
            with pytest.raises(ForbiddenError, match="other people for this study than its account has paid for"):
                store.consents.charge_fit("fit", "dp_gd", b"{}", FIT, "third")
            proposal = RunProposal(run="later", spec=spec_on("third"))
            with pytest.raises(ForbiddenError, match="other people for this study"):
                store.consents.approve("ann", proposal, FIT)
            assert store.books.accounts["ward-8"].spent == Cost(0, 0)


def test_a_fit_before_the_first_run_counts_for_its_study(owner: Owner) -> None:
    with open_store(owner.settings(owner.entry("third"))) as store:
        store.consents.charge_fit("fit", "dp_gd", b"{}", FIT, "third")
    with (
        Party(owner.settings(owner.entry("third", people="ward-7"))) as party,
        pytest.raises(ForbiddenError, match="other people for this study"),
    ):
        approve(party, "run")


def test_a_table_with_a_new_row_is_the_same_table(owner: Owner) -> None:
    with Party(owner.settings(owner.entry("third"), owner.entry("first"))) as party:
        approve(party, "run")
        answer(party, "run")
    add_a_row(owner.table("two"))
    again = owner.entry("second", people="ward-7", data={"source": str(owner.table("two"))})
    with Party(owner.settings(again, owner.entry("first"))) as party:
        assert "second" in party.holdings.unusable


def test_a_budget_for_all_data_is_not_taken_up_beside_charges_for_records(owner: Owner) -> None:
    with Party(owner.settings()) as party:
        approve(party, "run")
        answer(party, "run")
        limits = party.store.account()
        with pytest.raises(InvalidInputError, match=r"policy\.adjacency is whole_party, and 1 answers"):
            party.take_up(owner.settings(policy=dict(party.settings.policy) | {"adjacency": "whole_party"}))
        assert party.store.account() == limits


def test_what_was_prepared_from_earlier_data_answers_no_later_run(owner: Owner) -> None:
    with Party(owner.settings()) as party:
        assert not approve(party, "one", PREPARES)
        party.make_ready("ann", "one")
        assert approve(party, "one", PREPARES)
        assert not approve(party, "one", PREPARES, "bob"), "what another learner's run has prepared is not told"
        add_a_row(owner.table("two"))
        changed = owner.settings()
        entry = changed.study_named("third")
        with open_store(changed) as store:
            assert store.pin(pin_of(entry, load_holding(changed, entry)), accept=True) == ["the rows"]
        party.tend()
        (member,) = PREPARES.parties
        later = PREPARES.model_copy(update={"parties": (member.model_copy(update={"n_examples": 42}),)})
        assert not approve(party, "two", later)
        assert party.holdings.studies["third"].n_examples == 42


def test_that_data_cannot_be_loaded_costs_nothing(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "no process left")

    with Party(owner.settings(shards={"idle_minutes": 1e-6})) as party:
        approve(party, "run", PREPARES)
        time.sleep(0.01)
        party.tend()
        assert not party.holdings.is_loaded("third")
        with monkeypatch.context() as broken:
            broken.setattr(holdings, "load_holding", fails)
            with pytest.raises(UnavailableError, match="the data of third cannot be used as they are now"):
                party.make_ready("ann", "run")
        assert party.store.account().spent == Cost(0, 0)
        party.make_ready("ann", "run")


def test_a_question_about_a_study_that_was_withdrawn_reserves_nothing_for_long(tmp_path: Path) -> None:
    owner = Owner(tmp_path, policy={"approval": "manual"})
    with Party(owner.settings()) as party:
        with pytest.raises(AwaitingOwnerError):
            approve(party, "run")
        fewer = owner.settings(owner.entry("first"))
        party.take_up(fewer)
        with open_store(fewer) as store:
            store.questions.allow("ann", "run")
        party.tend()
        assert party.store.books.runs["ann", "run"].ended == "owner"
        assert party.store.account().reserved == Cost(0, 0)


def test_a_limit_that_was_lowered_stays_beside_a_command_with_older_settings(owner: Owner) -> None:
    before = owner.settings()
    lower = owner.settings(policy=dict(before.policy) | {"epsilon": 5.0})
    with Party(before) as party:
        party.take_up(lower)
        open_store(before).close()
        party.tend()
        assert party.store.account().epsilon_limit == 5 * 10**6
