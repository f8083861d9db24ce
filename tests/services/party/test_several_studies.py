"""A party with three studies of two tables: what is in memory, what changes while it serves, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from structlog.testing import capture_logs

from parley.common.errors import InvalidInputError, UnavailableError
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party, digest_rows, open_store, pin_of
from parley.party.api import app as party_app
from parley.party.api.app import create_party_app
from parley.party.data import holdings
from parley.party.data.owner_data import load_holding
from parley.party.ledger.ledger import Ledger
from parley.party.settings import PartySettings
from scripts.loopback import wait_until
from tests.support.rounds import ask, propose
from tests.support.several import ASKED_BY, STUDIES, Owner, asking, spec_on

AT_ONCE = {"idle_minutes": 1e-6}
"""Let examples go as soon as nobody asks."""


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


@contextmanager
def serving(settings: PartySettings) -> Iterator[tuple[FastAPI, TestClient]]:
    """The party's service in this process, and a client without a token."""
    app = create_party_app(settings)
    with TestClient(app) as client:
        yield app, client


def learner_of(study: str) -> str:
    """A learner that may ask about a study."""
    return ASKED_BY[study][0]


def begin(client: TestClient, study: str, run: str = "run") -> httpx.Response:
    """Propose a run on a study, as its learner."""
    client.headers = httpx.Headers(asking(learner_of(study)))
    return propose(client, spec_on(study), f"{study}-{run}")


def round_of(client: TestClient, study: str, round: int, run: str = "run") -> httpx.Response:
    """Ask a round of a run on a study, as its learner."""
    client.headers = httpx.Headers(asking(learner_of(study)))
    return ask(client, round, np.full(STUDIES[study].n_features, round / 64), f"{study}-{run}")


def statuses(client: TestClient, round: int) -> dict[str, int]:
    """What a round of the run on each study gets."""
    return {study: round_of(client, study, round).status_code for study in STUDIES}


def spent(settings: PartySettings) -> int:
    """What was charged, in micro-units."""
    with open_store(settings) as store:
        return store.account().spent.epsilon


def change_a_row(path: Path) -> None:
    """Change a value in a table."""
    head, first, *others = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([head, ",".join(["0.123", *first.split(",")[1:]]), *others]) + "\n", encoding="utf-8")


def accept(owner: Owner, study: str) -> None:
    """Have the owner accept a study's data by a command, in another process than the service's."""
    settings = owner.settings()
    with open_store(settings) as store:
        entry = settings.study_named(study)
        assert store.pin(pin_of(entry, load_holding(settings, entry)), accept=True) == ["the rows"]


# ── what is in memory ────────────────────────────────────────────────────────


def test_examples_that_nobody_asks_about_are_let_go_and_loaded_again_to_the_same_digest(owner: Owner) -> None:
    with Party(owner.settings(shards=AT_ONCE)) as party:
        digests = {study: digest_rows(party.holdings.holding(study).shard) for study in STUDIES}
        entries = len(party.store.entries())
        time.sleep(0.001)
        party.tend()
        assert not any(map(party.holdings.is_loaded, STUDIES))
        assert {study: digest_rows(party.holdings.holding(study).shard) for study in STUDIES} == digests
        assert len(party.store.entries()) == entries, "nothing is pinned again"


def test_no_more_examples_are_in_memory_than_the_owner_allows(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdings, "_MEGABYTE", 1000)
    with Party(owner.settings(shards={"megabytes": 2})) as party:
        for study in (*STUDIES, *STUDIES):
            assert party.holdings.holding(study).n_bytes > 1000
            assert list(filter(party.holdings.is_loaded, STUDIES)) == [study]


def test_a_changed_file_refuses_its_own_study_until_the_owner_accepts_it(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Examples that are in memory stay those that were pinned; what is loaded again must be equal to them."""
    monkeypatch.setattr(party_app, "_TEND_SECONDS", 0.05)
    settings = owner.settings(shards=AT_ONCE)
    with serving(settings) as (_, client):
        for study in STUDIES:
            begin(client, study).raise_for_status()
        assert statuses(client, 1) == {"first": 200, "second": 200, "third": 200}
        change_a_row(owner.table("two"))
        time.sleep(0.2)  # until examples were let go; sooner, the round below is answered from those in memory
        charged = spent(settings)
        refused = round_of(client, "third", 2)
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:parley:problem:data-changed")
        assert "accept-data" in refused.json()["detail"]
        assert spent(settings) == charged
        assert {study: round_of(client, study, 2).status_code for study in ("first", "second")} == {
            "first": 200,
            "second": 200,
        }
        accept(owner, "third")
        wait_until(lambda: begin(client, "third", "new").is_success, seconds=10, pause=0.05)
        assert round_of(client, "third", 1, "new").status_code == 200
        assert round_of(client, "third", 2).status_code == 409, "runs about the earlier rows have ended"
        assert statuses(client, 3) == {"first": 200, "second": 200, "third": 409}


def test_studies_that_are_taken_up_together_are_not_mistaken_for_each_other_while_they_load(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service looks after its studies every few seconds, also while new ones are loading."""
    with Party(owner.settings(owner.entry("first"))) as party:
        load, looks = load_holding, []

        def load_slowly(*args: Any, **terms: Any) -> Any:  # noqa: ANN401 -- as it is
            looks.append(Thread(target=party.tend))
            looks[-1].start()
            looks[-1].join(timeout=0.2)
            return load(*args, **terms)

        monkeypatch.setattr(holdings, "load_holding", load_slowly)
        party.take_up(owner.settings(owner.entry("first"), owner.entry("second"), owner.entry("third")))
        for look in looks:
            look.join()
        assert ([*party.holdings.studies], party.holdings.unusable) == (["first", "second", "third"], {})


def test_a_study_that_could_not_be_used_at_start_is_taken_up_once_it_can_be(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because the owner accepts its changed data, or its table is there again; the order is that of the settings."""
    Party(owner.settings()).close()
    change_a_row(owner.table("one"))
    kept = owner.table("two").read_bytes()
    with Party(owner.settings(owner.entry("third"), owner.entry("first"), owner.entry("second"))) as party:
        assert [*party.holdings.studies] == ["third"]
        owner.table("two").unlink()
        party.take_up(owner.settings(owner.entry("first"), owner.entry("second"), owner.entry("third")))
        assert [*party.holdings.studies] == ["third"], "its examples are in memory"
        party.tend()
        assert party.holdings.unusable.keys() == {"first", "second"}
        accept(owner, "second")
        party.tend()
        assert [*party.holdings.studies] == ["second", "third"]
        assert [about.study_digest for about in party.facts("bob").studies] == [
            STUDIES["second"].digest,
            STUDIES["third"].digest,
        ]
    accept(owner, "first")
    with Party(owner.settings()) as party:
        assert party.holdings.unusable.keys() == {"third"}
        owner.table("two").write_bytes(kept)
        monkeypatch.setattr(holdings, "monotonic", lambda: time.monotonic() + 100)
        party.tend()
        assert [*party.holdings.studies] == [*STUDIES]
        assert not party.holdings.unusable


def test_a_table_that_is_gone_costs_nothing_and_stops_no_other_study(owner: Owner) -> None:
    with Party(owner.settings(shards=AT_ONCE)) as party:
        for study in STUDIES:
            party.approve(learner_of(study), RunProposal(run=study, spec=spec_on(study)))
        kept = owner.table("two").read_bytes()
        owner.table("two").unlink()
        time.sleep(0.001)
        party.tend()
        with capture_logs() as lines, pytest.raises(UnavailableError, match="the data of third cannot be used as they"):
            party.make_ready("ann", "third")
        assert "two.csv" in lines[-1]["reason"]
        party.make_ready("ann", "first")
        assert party.store.account().spent.epsilon == 0
        owner.table("two").write_bytes(kept)
        party.make_ready("ann", "third")


# ── what changes while it serves ─────────────────────────────────────────────


def test_a_study_withdrawn_in_mid_run_ends_its_runs_and_no_others(owner: Owner) -> None:
    with serving(owner.settings()) as (app, client):
        for study in STUDIES:
            begin(client, study).raise_for_status()
        assert statuses(client, 1) == dict.fromkeys(STUDIES, 200)
        ledger: Ledger = app.state.ledger
        charged = ledger.account().spent
        app.state.take_up(owner.settings(owner.entry("first"), owner.entry("second")))
        assert ledger.books.runs["ann", "third-run"].ended == "owner"
        assert statuses(client, 2) == {"first": 200, "second": 200, "third": 403}
        assert round_of(client, "third", 1).status_code == 200, "what was answered is told again"
        refused = begin(client, "third", "later")
        assert (refused.status_code, refused.json()["rule"]) == (403, "study")
        listed = client.get("/v1/party", headers=asking("ann")).json()["studies"]
        assert [about["study_digest"] for about in listed] == [STUDIES["first"].digest]
        assert ledger.account().spent.gdp > charged.gdp, "what was charged stays charged"
        app.state.take_up(owner.settings())
        assert begin(client, "third", "later").is_success
        assert round_of(client, "third", 2).status_code == 409, "a run that has ended stays ended"


def test_the_same_table_under_another_path_has_no_second_account(owner: Owner) -> None:
    owner.table("copied").write_bytes(owner.table("one").read_bytes())
    copied = owner.entry("second", data={"source": str(owner.table("copied"))}, people="ward-7")
    settings = owner.settings(owner.entry("first"), copied, owner.entry("third"))
    words = r"second: people: this table is first's too, which the account of all pays for"
    with Party(settings) as party:
        assert party.holdings.studies.keys() == {"first", "third"}
        assert words.split(":", maxsplit=1)[0] in party.holdings.unusable
        assert words in party.holdings.unusable["second"]
    with serving(owner.settings(owner.entry("first"))) as (app, client):
        begin(client, "first").raise_for_status()
        assert round_of(client, "first", 1).status_code == 200
        app.state.take_up(settings)
        assert begin(client, "third").is_success
        assert begin(client, "second").status_code == 403
        app.state.take_up(owner.settings(copied, owner.entry("third")))
        assert begin(client, "second").status_code == 403, "the account of all has paid for these people"
        assert begin(client, "third", "later").is_success


def test_people_stay_those_of_the_account_that_has_paid_for_them(owner: Owner) -> None:
    ward = owner.settings(owner.entry("first"), owner.entry("third", people="ward-7"))
    with serving(owner.settings(owner.entry("first"), owner.entry("third"))) as (app, client):
        app.state.take_up(ward)  # nothing was charged: the owner may still say it
        begin(client, "third").raise_for_status()
        assert round_of(client, "third", 1).status_code == 200
        ledger: Ledger = app.state.ledger
        assert ledger.books.accounts["ward-7"].spent.epsilon > 0 == ledger.account().spent.epsilon
        for changed in (owner.entry("third"), owner.entry("third", people="ward-8")):
            app.state.take_up(owner.settings(owner.entry("first"), changed))
            assert begin(client, "third", "later").status_code == 403
            assert begin(client, "first", changed.get("people", "all")).is_success
        app.state.take_up(ward)
        assert begin(client, "third", "later").is_success
    with Party(owner.settings(owner.entry("first"), owner.entry("third"))) as party:
        assert "the account of the people 'ward-7' pays for" in party.holdings.unusable["third"]


def test_shares_of_more_than_the_account_are_refused_and_change_nothing(tmp_path: Path) -> None:
    owner = Owner(tmp_path, policy={"epsilon": 4.0, "delta": 1e-4, "composition": "basic"})

    def sharing(**shares: float) -> PartySettings:
        return owner.settings(*(owner.entry(study, policy={"share": share}) for study, share in shares.items()))

    with pytest.raises(ValueError, match=r"the shares add up to 1\.1, and an account has but 1 to set aside"):
        sharing(first=0.6, third=0.5)
    with serving(sharing(first=0.5, third=0.5)) as (app, client):
        begin(client, "first").raise_for_status()
        assert round_of(client, "first", 1).status_code == 200
        for shares, words in (
            ({"first": 0.1, "third": 0.5}, r"first: a share of 0\.1 of the account is less than its runs have cost"),
            ({"third": 0.9}, r"third: the shares set aside more of the account than the 0\.75\d? of it that is left"),
        ):
            with pytest.raises(InvalidInputError, match=words):
                app.state.take_up(sharing(**shares))
            assert round_of(client, "first", 1).status_code == 200
            assert begin(client, "third", str(len(shares))).is_success


def test_two_studies_of_one_name_are_refused_and_change_nothing(owner: Owner) -> None:
    with pytest.raises(ValueError, match="studies: two are called first"):
        owner.settings(owner.entry("first"), owner.entry("first"))
    short = {"study": owner.root / "studies" / "first.json", "data": {"source": str(owner.table("two"))}}
    twice = owner.settings(owner.entry("first"), **short)
    with pytest.raises(InvalidInputError, match="studies: two are called first"):
        Party(twice)
    with open_store(owner.settings()) as store:
        assert not store.books.pins, "nothing is pinned for either"
    with serving(owner.settings()) as (app, client):
        begin(client, "first").raise_for_status()
        with pytest.raises(InvalidInputError, match="studies: two are called first"):
            app.state.take_up(twice)
        assert round_of(client, "first", 1).status_code == 200
