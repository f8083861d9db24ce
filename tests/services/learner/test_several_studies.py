"""A party with several studies, and people who have an account of their own: what its learner is told, and repeats."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from parley.common.privacy.account import MICRO
from parley.common.wire.party_api import is_of_people
from parley.learner.cli.display import promises
from parley.learner.models.card import model_card
from parley.learner.models.verification import verification_of, verify_document
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster, asgi_cluster, made_up, train

WARD = (
    "nobody among ward-7, of party-1, is in its owner's tables of other people, as the owner says: what all runs "
    "together promise a person rests on it"
)
FORGED = WARD.replace("ward-7", "ward-8")
STATED = "the guarantees state what owners signed about the people in their rows"
FAULT = "guarantees: not what owners signed about the people in their rows"


WARDS = made_up(3).model_copy(update={"name": "wards"})


class Wards(Cluster):
    """The first party has a second study, of people who, as it says, are in no other of its tables."""

    def __post_init__(self) -> None:
        (self.root / "wards.json").write_text(WARDS.model_dump_json())
        super().__post_init__()
        (self.root / "studies" / "wards.json").write_text(WARDS.model_dump_json())

    def party_settings(self, name: str, **changes: object) -> PartySettings:
        """Settings that name the second study at the first party."""
        second = {
            "name": "wards",
            "study": self.root / "wards.json",
            "data": {"source": str(self.root / "party-2.csv")},
            "people": "ward-7",
        }
        return super().party_settings(name, **{"studies": [second] if name == "party-1" else []} | changes)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with asgi_cluster(Wards(tmp_path, n_parties=2)) as client:
        yield client


async def test_each_study_of_a_party_is_listed_with_the_account_that_pays_for_it(client: httpx.AsyncClient) -> None:
    await train(client, study="wards", parties=["party-1"], epsilon=2.0)
    first, second = (await client.get("/v1/parties")).json()
    facts = {about["study_digest"]: (about["n_examples"], about["people"]) for about in first["facts"]["studies"]}
    assert facts == {made_up(3).digest: (40, None), WARDS.digest: (41, "ward-7")}
    spent = {digest: report["units"]["spent"][0] for digest, report in first["budgets"].items()}
    assert spent == {made_up(3).digest: 0, WARDS.digest: pytest.approx(2 * MICRO, abs=2)}
    assert second["budgets"].keys() == {made_up(3).digest}
    order = {"study": "wards", "epsilon": 1.0, "delta": 1e-5}
    (owner,) = (await client.post("/v1/forecasts", json=order | {"parties": ["party-1"]})).json()["owners"]
    assert (owner["n_examples"], owner["fits"], owner["epsilon_now"] < 100) == (41, True, True)
    refused = (await client.post("/v1/forecasts", json=order)).json()
    assert refused["detail"] == (
        "party-2 cannot take part: it has no study 'wards' for this learner (it has made-up): "
        "a run names its parties where not all hold its study"
    )
    assert (refused["party"], refused["reason"]) == ("party-2", "wrong-study")


async def test_what_an_owner_says_of_its_people_is_repeated_wherever_a_model_states_what_it_promises(
    client: httpx.AsyncClient,
) -> None:
    terms = {"algorithm": "psgd", "parameters": {"n_rounds": 2}, "parties": ["party-1"]}
    document = await train(client, study="wards", **terms)
    stated = [promise["assumptions"].count(WARD) for promise in document["guarantees"]]
    assert stated == [1] * len(stated)
    assert len(stated) > 1
    verdict = verify_document(document)
    assert verdict.faults == ()
    assert STATED in verdict.holds
    card = model_card(document, verification_of(document))
    assert f"- {WARD}\n" in card
    assert f"- {STATED}\n" in card
    assert f"  - {WARD[0].upper()}{WARD[1:]}." in list(promises(document["guarantees"]))
    plain = await train(client, **terms)
    assert verify_document(plain).faults == ()
    assert not any(is_of_people(words) for promise in plain["guarantees"] for words in promise["assumptions"])
    assert STATED not in verify_document(plain).holds


async def test_a_document_that_states_other_people_than_owners_signed_is_at_fault(client: httpx.AsyncClient) -> None:
    document = await train(client, study="wards", parties=["party-1"])
    promise = document["guarantees"][0]
    others = [words for words in promise["assumptions"] if not is_of_people(words)]
    for stated in ([], [FORGED], [WARD, FORGED]):
        promise["assumptions"] = others + stated
        assert verify_document(document).faults == ("guarantees: not what the learner signed", FAULT)
