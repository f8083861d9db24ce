"""What an owner is shown of its accounts: on its page, by its commands, and beside each run that waits for its word."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from typer.testing import CliRunner

from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.calibration import gaussian_mu
from parley.common.runs.specification import RunSpec
from parley.common.service.tokens import hash_token
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import open_store, pin_of
from parley.party.cli.main import party_app
from parley.party.data.owner_data import load_holding
from parley.party.ledger.ledger import Ask, Ledger
from parley.party.owner.page import create_owner_app, owner_token
from parley.party.owner.questions import WaitingRuns
from parley.party.settings import PartySettings
from tests.support import toml
from tests.support.browser import Site, Visitor, chromium
from tests.support.cluster import Cluster, made_up
from tests.support.processes import free_port, serving
from tests.support.rounds import run_spec

STUDIES = ("biopsies", "stays", "wards")
WARD = "nobody among 'ward-7' is in another table of yours, as you said"


class Owner:
    """An owner of several studies, whose ledger has the runs that a test writes into it."""

    def __init__(self, root: Path, **studies: dict[str, Any]) -> None:
        policy = {"epsilon": 5.0, "delta": 1e-5, "max_epsilon_per_run": 2.0, "max_delta_per_run": 1e-5}
        self._cluster = Cluster(root, n_parties=1)
        held = [
            {"name": name, "study": str(self._described(name)), "data": {"source": str(root / "party-1.csv")}} | terms
            for name, terms in studies.items()
        ]
        self.config = root / "party.toml"
        learners = [{"name": name, "token_hash": hash_token(name)} for name in ("north", "south")]
        own = {"name": "party-1", "state": str(root / "party-1"), "owner": {"port": free_port()}}
        toml.write(self.config, own | {"policy": policy, "studies": held, "learners": learners})
        self.settings = PartySettings.load(self.config)

    def _described(self, name: str) -> Path:
        path = self._cluster.root / f"{name}.json"
        path.write_text(made_up(3).model_copy(update={"name": name}).model_dump_json())
        return path

    def run(self, study: str, epsilon: float, name: str) -> tuple[RunProposal, Price]:
        """A run of dp_gd in a study at this epsilon, and its price."""
        described = made_up(3).model_copy(update={"name": study})
        spec: RunSpec = run_spec(self._cluster, n_rounds=2, epsilon=epsilon, delta=1e-6, study=described)
        square = round(gaussian_mu(epsilon, 1e-6) ** 2 * 1e12)
        cost = Cost(round(epsilon * 1e6), 10**12, square)
        return RunProposal(run=name, spec=spec, user="alice", purpose="find what helps"), Price.at_once(cost)

    def approved(self, store: Ledger, learner: str, study: str, epsilon: float, *, answered: bool = True) -> None:
        """Approve a run of a learner, and answer it."""
        proposal, price = self.run(study, epsilon, f"{study}-{epsilon:g}-{answered}")
        store.consents.approve(learner, proposal, price)
        if answered:
            store.rounds.answer(Ask(learner, proposal.run, 1, "query", "gradient"), lambda _: (b"", {}))

    def asked(self, store: Ledger, learner: str, study: str, epsilon: float) -> None:
        """Ask the owner about a run."""
        store.questions.ask(learner, *self.run(study, epsilon, f"asked-{study}"), 3600)


def open_to_all(root: Path) -> Owner:
    """An owner of three studies: a part is set aside for the second, the third is of people of their own."""
    return Owner(root, biopsies={}, stays={"policy": {"share": 0.25}}, wards={"people": "ward-7"})


def used(owner: Owner, store: Ledger) -> None:
    """Have two learners use all of an owner's studies."""
    owner.approved(store, "north", "biopsies", 1.0)
    owner.approved(store, "south", "biopsies", 0.8)
    owner.approved(store, "south", "biopsies", 0.6, answered=False)
    owner.approved(store, "north", "stays", 0.7)
    owner.approved(store, "north", "wards", 1.2)


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return open_to_all(tmp_path)


@pytest.fixture
def store(owner: Owner) -> Iterator[Ledger]:
    with open_store(owner.settings) as store:
        used(owner, store)
        yield store


def test_a_waiting_run_is_judged_by_what_is_left_for_its_study(owner: Owner, store: Ledger) -> None:
    for study, epsilon in (("biopsies", 1.0), ("stays", 2.4), ("wards", 1.9)):
        owner.asked(store, "south", study, epsilon)
    biopsies, stays, wards = WaitingRuns(store).questions()
    assert [question["study"] for question in (biopsies, stays, wards)] == [*STUDIES]
    assert biopsies["paid_by"] == "what no study has set aside of the account of all"
    assert stays["paid_by"] == "the 0.25 of the account of all that is set aside for stays"
    assert wards["paid_by"] == "the account of the people 'ward-7'"
    assert store.account("stays").fits(owner.run("stays", 2.4, "any")[1].total), "but not its part"
    assert stays["epsilon_left_after_it"] is None
    assert "are asked for" in stays["cannot_be_approved"]
    assert wards["epsilon_left_after_it"] > biopsies["epsilon_left_after_it"] > 0
    assert wards["guarantee"][-1] == f"The limit of all runs together holds for a person only if {WARD}."
    assert not any("ward-7" in words for words in [*biopsies["guarantee"], *stays["guarantee"]])
    store.questions.allow("south", "asked-wards")
    with pytest.raises(BudgetExhaustedError):
        store.questions.allow("south", "asked-stays")
    left = store.accounts.part(store.books.runs["south", "asked-wards"].use).epsilon_left
    assert wards["epsilon_left_after_it"] == left


def test_a_question_says_which_keys_are_compared_now(
    owner: Owner, store: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = hear_compared(monkeypatch)["south"]
    owner.asked(store, "south", "biopsies", 1.0)
    compared = [None, frozenset({"party-1", "party-2"}), frozenset({"party-1", "party-2"})]
    waiting = WaitingRuns(store, lambda _: compared.pop(0))
    for _ in range(3):
        waiting.questions(seconds=0)
    assert heard == [{"party-1"}, {"party-1", "party-2"}], "read again only after another key was compared"


def test_a_question_counts_the_keys_that_are_compared_for_its_own_learner(
    owner: Owner, store: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = hear_compared(monkeypatch)
    owner.asked(store, "north", "biopsies", 1.0)
    owner.asked(store, "south", "biopsies", 1.0)
    compared = {"north": frozenset({"party-1", "party-2"}), "south": None}
    waiting = WaitingRuns(store, compared.get)
    waiting.questions(seconds=0)
    assert heard == {"north": [{"party-1", "party-2"}], "south": [{"party-1"}]}
    compared["south"] = frozenset({"party-1", "party-3"})
    waiting.questions(seconds=0)
    assert heard == {"north": [{"party-1", "party-2"}], "south": [{"party-1"}, {"party-1", "party-3"}]}


def hear_compared(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Collection[str]]]:
    """Have each question that is read say, by its learner, whose keys count as compared."""
    heard = defaultdict[str, list[Collection[str]]](list)

    def question(learner: str, *arguments: Any) -> dict[str, Any]:  # noqa: ANN401 -- as `question_of`
        heard[learner].append(arguments[-1])
        return {"learner": learner}

    monkeypatch.setattr("parley.party.owner.questions.question_of", question)
    return heard


def test_the_commands_show_accounts_whose_parts_add_up(owner: Owner, store: Ledger) -> None:
    owner.asked(store, "south", "wards", 0.5)

    def run(*words: str) -> str:
        return CliRunner().invoke(party_app, [*words, "--config", str(owner.config)], catch_exceptions=False).stdout

    text = run("budget")
    print(text)
    assert text.startswith("The account of all:\n")
    spent, nonadaptive = store.account().epsilon_spent, store.account().epsilon_nonadaptive
    assert f"have cost epsilon {spent:.3g} (nonadaptive {nonadaptive:.3g}), of 5, counted by a filter" in text
    assert re.search(rf"^spent +{spent:g} .*\nnonadaptive +{nonadaptive:g} +1e-05$", text, re.MULTILINE)
    assert f"The limit holds for a person only if {WARD}." in text
    assert re.search(
        r"^A part of 0\.25 of the account is set aside for stays: one more run for it may cost epsilon 2\.\d+\.\n"
        r"One more run for any other study may cost epsilon 3\.\d+\.$",
        text,
        re.MULTILINE,
    )
    table = [line.split() for line in text.splitlines() if line.startswith(("biopsies", "stays", "together"))]
    figures = [sum(float(word[:-1]) for word in line if word.endswith("%")) for line in table]
    assert sum(figures[:-1]) + float(table[-1][-1][:-1]) == pytest.approx(100)
    assert figures[-1] == pytest.approx(100)
    accounts = json.loads(run("budget", "--format", "json"))["accounts"]
    assert [account["people"] for account in accounts] == ["", "ward-7"]
    assert [account["assumes"] for account in accounts] == [None, WARD]
    assert [sum(part["percent"] for part in account["parts"]) for account in accounts] == pytest.approx([100, 100])
    assert "paid by" in run("pending")
    assert "is approved; the account of the people 'ward-7' pays for it;" in run("approve", "asked-wards")
    assert "stays" in run("log", "--by-run")


@pytest.fixture
def visit(tmp_path: Path) -> Iterator[Callable[[PartySettings, Ledger, str], Visitor]]:
    """Open an owner's page in a browser, and take pictures of it."""
    pictures = Path(os.environ.get("PARLEY_PICTURES") or tmp_path)
    pictures.mkdir(parents=True, exist_ok=True)
    with chromium() as browser:

        def visit(settings: PartySettings, store: Ledger, name: str) -> Visitor:
            visitor = Visitor(browser, Site("", FastAPI()), pictures)
            with serving(create_owner_app(lambda: settings, store), settings.owner.port or 0) as url:
                browser.get(f"{url}/#{owner_token(settings)}")
                visitor.until_it_says("Approved, and not ended")
                visitor.photograph(name)
            return visitor

        yield visit


def test_the_page_shows_accounts_in_parts_that_add_up(
    owner: Owner, store: Ledger, visit: Callable[[PartySettings, Ledger, str], Visitor]
) -> None:
    owner.asked(store, "south", "wards", 0.5)
    page = visit(owner.settings, store, "owner-several")
    shown = page.text("#accounts")
    assert "The account of the people 'ward-7'" in shown
    assert f"The limit holds for a person only if {WARD}." in shown
    rows = [row.text.rsplit(" ", 1) for row in page.all("#accounts tr") if "%" in row.text]
    percent = [float(percent.rstrip("%")) for words, percent in rows if words != "together"]
    assert sum(percent) == pytest.approx(100)
    (pays,) = [cell.text for cell in page.all("dd") if cell.text.startswith("the account")]
    assert pays == "the account of the people 'ward-7'"
    assert page.find("button.yes").is_enabled()
    assert page.log() == []


def test_the_page_of_one_study_is_a_sentence(
    tmp_path: Path, visit: Callable[[PartySettings, Ledger, str], Visitor]
) -> None:
    owner = Owner(tmp_path, biopsies={})
    with open_store(owner.settings) as store:
        owner.approved(store, "north", "biopsies", 1.0)
        page = visit(owner.settings, store, "owner-one")
        spent, nonadaptive = store.account().epsilon_spent, store.account().epsilon_nonadaptive
    assert spent > nonadaptive
    words = f"Of epsilon 5, {spent:.4g} is spent (nonadaptive {nonadaptive:.4g}) and 0 reserved; one more run"
    assert page.text("#accounts").startswith(words)
    assert page.all("#accounts > *")[1:] == []


def test_the_page_says_what_each_period_has_lost(
    tmp_path: Path, visit: Callable[[PartySettings, Ledger, str], Visitor]
) -> None:
    owner = Owner(tmp_path, biopsies={})
    with open_store(owner.settings) as store:
        held = owner.settings.held[0]
        data = pin_of(held, load_holding(owner.settings, held))
        store.pin(data)
        owner.approved(store, "north", "biopsies", 1.0)
        store.pin(replace(data, rows=b"new", n_examples=9, first=40, digest_at=lambda *_: data.rows), accept=True)
        page = visit(owner.settings, store, "owner-periods")
    sentence, periods = page.all("#accounts > *")
    assert "one more run about any other rows may cost 4." in sentence.text
    assert re.search(
        r"rows from 1 to 40 of biopsies \d\.\d\d% spent, 0\.00% reserved, one more run about them may cost 4\.\d+; "
        r"rows from 41 on of biopsies 0\.00% spent, 0\.00% reserved, one more run about them may cost 5\.$",
        periods.text,
    )
