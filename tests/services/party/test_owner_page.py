"""The owner's page: who is let in, what is shown, and what a word does."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.errors import AwaitingOwnerError, ConflictError, InvalidInputError
from parley.common.privacy.account import Price
from parley.common.runs.specification import RunSpec
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import Party, open_store
from parley.party.ledger.books import OwnerBook
from parley.party.ledger.ledger import Ledger, OwnerQuestions
from parley.party.owner.page import create_owner_app, owner_address, owner_token
from parley.party.owner.questions import WaitingRuns, question_of, terms_in_words
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster, asgi_cluster, submit
from tests.support.rounds import run_spec

PORT = 8765


@pytest.fixture
async def run(tmp_path: Path) -> AsyncIterator[tuple[Cluster, str]]:
    """A run of two parties, which waits for its owners."""
    cluster = Cluster(tmp_path, n_parties=2, epsilon=1.5, policy={"approval": "manual"})
    async with asgi_cluster(cluster) as client:
        name = await submit(client, parameters={"n_rounds": 3}, purpose="<b>cures</b>")
        with open_store(cluster.party_settings("party-1")) as store:
            async with asyncio.timeout(60):
                while not store.questions.pending():  # noqa: ASYNC110 -- written by another ledger
                    await asyncio.sleep(0.02)
        yield cluster, name


@pytest.fixture
def settings(run: tuple[Cluster, str]) -> PartySettings:
    return run[0].party_settings("party-1", owner={"port": PORT})


@pytest.fixture
def store(settings: PartySettings) -> Iterator[Ledger]:
    with open_store(settings) as store:
        yield store


@pytest.fixture
def page(settings: PartySettings, store: Ledger) -> httpx.Client:
    """The owner's browser."""
    headers = {"Authorization": f"Bearer {owner_token(settings)}"}
    return TestClient(create_owner_app(lambda: settings, store), base_url=f"http://127.0.0.1:{PORT}", headers=headers)


def say(page: httpx.Client, run: str, word: str, **more: str) -> httpx.Response:
    return page.post("/word", json={"learner": "learner", "run": run, "word": word, **more})


def test_a_yes_reserves_and_a_no_withdraws(run: tuple[Cluster, str], page: httpx.Client, store: Ledger) -> None:
    state = page.get("/pending").json()
    (question,) = state["waiting"]
    assert (question["run"], question["epsilon"], question["purpose"]) == (run[1], 1.0, "<b>cures</b>")
    assert 0 < question["epsilon_left_after_it"] < state["accounts"][0]["budget"]["epsilon_left"]
    assert question["contributors"] == ["party-1", "party-2"]
    assert question["guarantee"]
    for _ in range(2):
        state = say(page, run[1], "approve").json()
        assert (state["waiting"], [run_shown["run"] for run_shown in state["approved"]]) == ([], [run[1]])
        assert store.account().reserved.epsilon == 1_000_000
    assert say(page, run[1], "deny").json()["approved"] == []
    assert store.account().reserved.epsilon == 0
    assert say(page, run[1], "approve").status_code == 409


def test_a_no_is_final(run: tuple[Cluster, str], page: httpx.Client, store: Ledger) -> None:
    assert say(page, run[1], "deny", reason="not for this").json()["waiting"] == []
    refused = say(page, run[1], "approve")
    assert refused.status_code == 409
    assert "was denied" in refused.json()["detail"]
    assert store.account().reserved.epsilon == 0


def test_strangers_are_refused(run: tuple[Cluster, str], page: httpx.Client, store: Ledger) -> None:
    word = {"learner": "learner", "run": run[1], "word": "approve"}
    for headers in ({"Authorization": ""}, {"Authorization": "Bearer x"}, {"Authorization": "Basic x"}):
        assert page.get("/pending", headers=headers).status_code == 401
        assert page.post("/word", json=word, headers=headers).status_code == 401
    for host in ("evil.example", f"evil.example:{PORT}", "127.0.0.1", ""):
        for path in ("/", "/pending"):
            assert page.get(path, headers={"Host": host}).status_code == 403
        assert page.post("/word", json=word, headers={"Host": host}).status_code == 403
    assert page.get(f"/word?run={run[1]}").status_code == 405
    assert store.account().reserved.epsilon == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"run": 1}', b'{"learner": "a", "run": "b", "word": "maybe"}'])
def test_bad_words_are_refused(page: httpx.Client, body: bytes) -> None:
    assert page.post("/word", content=body).status_code == 422
    assert page.post("/word", content=b"x" * 5000).status_code == 413
    assert say(page, "another", "approve").status_code == 404


def test_the_page_holds_no_data_and_runs_its_own_script_alone(page: httpx.Client, run: tuple[Cluster, str]) -> None:
    response = page.get("/", headers={"Authorization": ""})
    policy = response.headers["Content-Security-Policy"]
    assert response.status_code == 200
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert run[1] not in response.text
    assert "Access-Control-Allow-Origin" not in response.headers


def test_the_token_is_the_owners_alone(settings: PartySettings, run: tuple[Cluster, str]) -> None:
    assert owner_address(settings) == f"http://127.0.0.1:{PORT}/#{owner_token(settings)}"
    assert stat.S_IMODE((settings.state / "owner.token").stat().st_mode) == 0o600
    with pytest.raises(InvalidInputError, match="no owner's page"):
        owner_address(run[0].party_settings("party-1"))


def test_polling_is_cheap(run: tuple[Cluster, str], page: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[str]()

    def counted(learner: str, proposal: RunProposal, *terms: object) -> dict[str, Any]:
        made.append(proposal.run)
        return question_of(learner, proposal, *terms)  # type: ignore[arg-type]

    monkeypatch.setattr("parley.party.owner.questions.question_of", counted)
    seconds = list[float]()
    for _ in range(20):
        began = perf_counter()
        ((question,),) = (page.get("/pending").json()["waiting"],)
        seconds.append(perf_counter() - began)
        assert question["run"] == run[1]
    print(f"the first look at one question {1e3 * seconds[0]:.1f} ms, a later one {1e3 * median(seconds[1:]):.1f} ms")
    assert made == [run[1]]


def test_a_question_stays_what_the_owner_reads(run: tuple[Cluster, str], page: httpx.Client, store: Ledger) -> None:
    """A learner that asks about the run with other terms is refused: a yes would be to what nobody has read."""
    (question,) = page.get("/pending").json()["waiting"]
    ((learner, book),) = store.questions.pending()
    proposal, price = store.questions.read(book)
    entries = store.chain.head.count
    other = proposal.model_copy(
        update={"spec": proposal.spec.model_copy(update={"minimum_contributors": 1}), "purpose": "more"}
    )
    with pytest.raises(ConflictError, match="with another specification"):
        store.questions.ask(learner, other, price, 3600)
    same = proposal.model_copy(update={"purpose": "more"})
    assert store.questions.ask(learner, same, price, 3600).number == book.number
    assert store.chain.head.count == entries
    (again,) = page.get("/pending").json()["waiting"]
    assert again == question
    consent = store.questions.allow(learner, proposal.run)
    assert consent.spec.digest == proposal.spec.digest


@pytest.mark.parametrize("different", [1, 100])
def test_a_hundred_waiting_runs_are_shown_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, different: int
) -> None:
    """Each is read once, and each look works out the terms of one specification at least, of none twice."""
    worked_out, read = list[str](), list[int]()

    def counted(own: str, spec: RunSpec) -> dict[str, Any]:
        worked_out.append(spec.digest)
        return terms_in_words(own, spec)

    def counted_read(questions: OwnerQuestions, book: OwnerBook) -> tuple[RunProposal, Price]:
        read.append(book.number)
        return OwnerQuestions.read(questions, book)

    cluster = Cluster(tmp_path, n_parties=2, epsilon=1000.0, policy={"approval": "manual"})
    with Party(cluster.party_settings("party-1")) as party:
        for number in range(100):
            proposal = RunProposal(run=f"run-{number}", spec=run_spec(cluster, 1 + number % different))
            with pytest.raises(AwaitingOwnerError):
                party.consent("learner", proposal, party.price("learner", proposal))
        monkeypatch.setattr("parley.party.owner.questions.terms_in_words", counted)
        monkeypatch.setattr(party.store.questions, "read", partial(counted_read, party.store.questions))
        waiting, began = WaitingRuns(party.store), perf_counter()
        on_page = waiting.questions(seconds=0)
        print(f"100 runs, {different} different: the first look takes {perf_counter() - began:.2f} s")
        assert [question["run"] for question in on_page] == [f"run-{number}" for number in range(100)]
        assert sum(question["guarantee"] is not None for question in on_page) == 100 // different
        for _ in range(different):
            assert len(worked_out) <= different
            on_page = waiting.questions(seconds=0)
        assert all(question["guarantee"] and question["you_gain"] for question in on_page)
        assert (len(worked_out), len(read)) == (different, 100)
