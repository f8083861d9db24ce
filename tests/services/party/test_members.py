"""A run's members are listed to a party once; from then on their digest stands for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from parley.common.client.party import PartyClient
from parley.common.encoding.canonical_json import JSON
from parley.common.runs.specification import Budget, Member, MemberColumns
from parley.common.wire.party_api import RunOffer, RunProposal
from parley.party.api.app import create_party_app
from tests.support.cluster import Cluster, running
from tests.support.lines import line_over
from tests.support.rounds import ASKING, run_spec


def test_columns_are_the_members_and_a_common_budget_is_written_once() -> None:
    one, other = Budget(epsilon=1, delta=1e-5), Budget(epsilon=0.5, delta=1e-5)
    equal_members = tuple(Member(name=f"party-{i}", n_examples=i + 1, budget=one) for i in range(4))
    mixed = (*equal_members[:3], equal_members[3].model_copy(update={"budget": other}))
    for members, places in ((equal_members, ()), (mixed, (0, 0, 0, 1))):
        columns = MemberColumns.of(members)
        assert columns.parties == members
        assert columns.budget_of == places
        assert MemberColumns.model_validate_json(columns.model_dump_json()).digest == columns.digest
    assert MemberColumns.of(equal_members).digest != MemberColumns.of(mixed).digest


def test_a_proposal_names_ten_thousand_members_in_the_bytes_of_one(tmp_path: Path) -> None:
    spec = run_spec(Cluster(tmp_path, n_parties=1))
    budget = spec.parties[0].budget
    many = tuple(Member(name=f"party-{i:05}", n_examples=100 + i % 900, budget=budget) for i in range(10_000))
    proposal = RunProposal(run="run", spec=spec.model_copy(update={"parties": many}))
    assert len(proposal.naming) < 2_000
    assert len(proposal.listing) < 200_000
    for body in (proposal.naming, proposal.listing):
        offer = RunOffer.model_validate_json(body)
        assert offer.spec.digest == proposal.spec.digest
        assert offer.spec.listed(proposal.spec.members) == proposal.spec
    print(f"10,000 members: {len(proposal.listing)} bytes listed, {len(proposal.naming)} by their digest")


def party(cluster: Cluster) -> TestClient:
    """The first party, as the learner sees it."""
    return TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING)


def offer(client: httpx.Client, body: bytes) -> httpx.Response:
    """Offer a run."""
    return client.post("/v1/runs", content=body, headers={"Content-Type": JSON})


def test_a_digest_stands_for_members_that_the_party_knows(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=2)
    first = RunProposal(run="first", spec=run_spec(cluster))
    second = RunProposal(run="second", spec=run_spec(cluster, n_rounds=2))
    with party(cluster) as client:
        refused = offer(client, first.naming)
        assert refused.status_code == 409
        assert refused.json()["type"].endswith(":unknown-members")
        approved = offer(client, first.listing).raise_for_status().json()
        assert approved["spec_digest"] == first.spec.digest
        assert offer(client, first.naming).raise_for_status().json() == approved, "the run is known by its digest"
        assert offer(client, second.naming).raise_for_status().json()["spec_digest"] == second.spec.digest
    with party(cluster) as client:  # which has forgotten what was in memory, and knows what it consented to
        assert offer(client, first.naming).raise_for_status().json() == approved


@pytest.mark.parametrize("change", [{"n_examples": [5, 5]}, {"names": ["party-2", "party-3"]}])
def test_what_its_privacy_rests_on_is_checked_in_what_the_digest_stands_for(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    cluster = Cluster(tmp_path, n_parties=2)
    body = json.loads(RunProposal(run="first", spec=run_spec(cluster)).listing)
    body["spec"]["parties"] |= change
    columns = MemberColumns.model_validate(body["spec"]["parties"])
    with party(cluster) as client:
        assert offer(client, json.dumps(body).encode()).status_code in {403, 422}
        body["spec"]["parties"] = columns.digest
        assert offer(client, json.dumps(body).encode()).json()["type"].endswith(":unknown-members"), "it was refused"


async def test_a_learner_lists_the_members_once_and_again_to_who_has_forgotten_them(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n_parties=1)
    entry = cluster.learner_settings().parties[0]
    proposals = [RunProposal(run=f"run-{i}", spec=run_spec(cluster, n_rounds=i)) for i in (1, 2, 3)]
    sent: list[int] = []

    class Counted(httpx.ASGITransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            sent.append(len(request.content))
            return await super().handle_async_request(request)

    async with running(create_party_app(cluster.party_settings("party-1"))) as app:
        peer = PartyClient("party-1", line_over(entry, Counted(app)))
        for proposal in proposals[:2]:
            await peer.approve(proposal)
            await peer.approve(proposal)
    first, second, third = proposals
    assert sent == [len(first.listing), len(first.naming), len(second.naming), len(second.naming)]
    sent.clear()
    fresh = Cluster(tmp_path / "fresh", n_parties=1)  # a party that knows nothing, where another was
    async with running(create_party_app(fresh.party_settings("party-1"))) as app:
        other = PartyClient("party-1", line_over(entry, Counted(app)))
        other._listed = third.spec.members.digest
        await other.approve(third)
    assert sent == [len(third.naming), len(third.listing)]
