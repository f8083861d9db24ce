"""An owner as learner: its own model, from its own examples as they are and from the others' noisy answers.

For the others it is a run like any other: they approve it, add their noise, charge their ledgers, and have the
guarantees of any run, because this owner only computes on their answers. Its own answers carry no noise (epsilon is
infinite) and never leave this process; its shard is the last of the run's parties. But the *weights* that the others
are asked about do leave, and are computed from those answers: a party that answers can compute this owner's sums of
gradients from two consecutive questions. So the owner's examples are not protected from the parties that it asks.

No log on disk is needed: the program draws no noise, so the same run asks the same questions again, and parties give
the same answers at no cost, as long as the same ones answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from parley.common.algorithms import REGISTRY
from parley.common.client.affordable import Candidate, charged, chosen_among
from parley.common.client.approval import Recruited, propose, recruit
from parley.common.client.endpoints import PeerEntry
from parley.common.client.federation import HttpFederation
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line, ask_all
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.learning.model import Model
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.driver import Federation, MemoryLog, drive
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.model_document import model_document
from parley.common.runs.pricing import guarantees
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.strict import faults
from parley.common.wire.party_api import RunProposal, assumptions_of

if TYPE_CHECKING:
    from parley.party.data.owner_data import Holding

APPROVAL_SECONDS = 60.0
PREPARATION_SECONDS = 3600.0
UNPROTECTED = "none: every party that answers sees weights that are computed from these examples without noise"
PROTECTED = "nothing that is computed from these examples leaves their owner, but in this model"


@dataclass(frozen=True, slots=True)
class Order:
    """What to learn; ``budgets`` are (epsilon, delta) by the names of the parties that are asked.

    ``minimum_contributors`` is the least number of them in a round, all if None; ``deadline`` is in seconds.
    """

    run: str
    algorithm: str
    parameters: Mapping[str, Any]
    budgets: Mapping[str, tuple[float, float]]
    minimum_contributors: int | None = None
    deadline: float = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class OwnShard:
    """A federation of ``others`` and of one shard in this process, whose answers are exact.

    ``facts`` are those of the shard's owner, the last of the parties. The others approved ``rounds`` rounds; later
    ones are answered from the shard alone.
    """

    others: Federation
    rounds: int
    algorithm: Algorithm
    prepared: Any
    facts: OwnFacts

    async def answer(self, run: str, query: Query) -> Reply:
        """Return the others' answers and this shard's, or their sum."""
        own_answer = to_reals(self.algorithm.local(query, self.prepared, self.facts, NoNoise()))
        if query.round > self.rounds:
            return Reply(own_answer if query.reveal == "sum" else own_answer[None], (len(self.facts.parties) - 1,))
        reply = await self.others.answer(run, query)
        value = reply.value + own_answer if query.reveal == "sum" else np.concatenate([reply.value, own_answer[None]])
        return Reply(value, (*reply.contributors, len(self.facts.parties) - 1))


async def learn(
    order: Order,
    name: str,
    holding: Holding,
    peers: Sequence[PeerEntry],
    connect: Callable[[PeerEntry], Line] = Line,
) -> dict[str, Any]:
    """Train a model on the others' shards and on the one that ``name`` holds; return the model document.

    Raises InvalidInputError, PartyRefusedError and UnavailableError, which name the setting or the party that is wrong.
    A run that failed may be continued under its name.
    """
    draft = _draft(order, name, holding)
    _check(draft, name, [peer.name for peer in peers])
    entries = {peer.name: peer for peer in peers}
    parties = [PartyClient(member, connect(entries[member])) for member in draft.names]
    try:
        recruited = await recruit(order.run, parties, draft, order.deadline)
        spec = await _settled(recruited, parties, order.deadline)
        proposal = RunProposal(run=order.run, spec=spec, user=name, purpose="a model of the owner's own")
        consents, _ = await propose(parties, proposal, APPROVAL_SECONDS, PREPARATION_SECONDS)
        model, contributors = await _train(order, name, holding, spec, parties)
        await ask_all(parties, lambda party: party.end(order.run), order.deadline)
    finally:
        for party in parties:
            await party.close()
    promised = [guarantee.to_json() for guarantee in guarantees(spec.build(), spec.facts())]
    assumed = assumptions_of({party: signed for party, (_, signed) in consents.items()})
    own_part = {"party": name, "n_examples": holding.n_examples, "epsilon": None, "protection": protection_of(spec)}
    document = model_document(spec, promised, model, [*contributors, name], assumed)
    return document | {"own": own_part, "guarantees_cover": list(spec.names)}


async def _settled(recruited: Recruited, parties: Sequence[PartyClient], deadline: float) -> RunSpec:
    """Return the run with all chosen that it leaves open, among what the accounts of the parties pay for."""
    ways = (Candidate.of(spec, choices) for spec, choices in recruited.spec.candidates())
    price = partial(charged, facts=recruited.facts)
    return (await chosen_among(ways, price, parties, deadline)).spec


def protection(order: Order, name: str, holding: Holding) -> str:
    """Say what the parties that are asked will see of the owner's examples. Raises InvalidInputError."""
    return protection_of(_draft(order, name, holding))


async def _train(
    order: Order, name: str, holding: Holding, spec: RunSpec, parties: Sequence[PartyClient]
) -> tuple[Model, list[str]]:
    """Run the algorithm's program to its model; also return the names of the parties that answered the last round."""
    algorithm = spec.build()
    shard = holding.parts[algorithm.rows]
    facts = joined(spec.facts(), name, int(shard.n_examples))
    others = HttpFederation(spec, parties, order.deadline)
    own_facts = facts.of(len(parties))
    federation = OwnShard(others, len(spec.questions()), algorithm, algorithm.prepare(shard, own_facts), own_facts)
    model = await drive(algorithm.program(facts), federation, order.run, MemoryLog())
    return model, [spec.names[index] for index in others.active]


def protection_of(spec: RunSpec) -> str:
    """Say what the parties that are asked see of the owner's examples: nothing if all questions are empty."""
    return UNPROTECTED if any(question.message != (0,) for question in spec.questions()) else PROTECTED


def joined(facts: FederationFacts, name: str, n_examples: int) -> FederationFacts:
    """Return the facts of a run with one more party, the last; its budget has no effect, because it adds no noise."""
    return replace(
        facts,
        parties=(*facts.parties, name),
        n_examples=np.append(facts.n_examples, n_examples),
        epsilon=np.append(facts.epsilon, facts.epsilon.max()),
        delta=np.append(facts.delta, facts.delta.max()),
        minimum_contributors=facts.minimum_contributors + 1,
    )


def _draft(order: Order, name: str, holding: Holding) -> RunSpec:
    """Return the specification that will be proposed to the others, with 1 in place of the sizes of their shards."""
    values = order.parameters
    parameters = REGISTRY[order.algorithm].for_owner(name, values) if order.algorithm in REGISTRY else dict(values)
    try:
        members = tuple(
            Member(name=member, n_examples=1, budget=Budget(epsilon=epsilon, delta=delta))
            for member, (epsilon, delta) in order.budgets.items()
        )
        return RunSpec(
            study=holding.study,
            algorithm=order.algorithm,
            parameters=parameters,
            parties=members,
            minimum_contributors=len(members) if order.minimum_contributors is None else order.minimum_contributors,
        )
    except ValidationError as error:
        raise InvalidInputError(faults(error)) from None


def _check(draft: RunSpec, name: str, peers: Sequence[str]) -> None:
    """Raise InvalidInputError if the run names unknown parties, or is one that an owner cannot run.

    An algorithm's claims beyond its transcript are about a model of the run's parties alone, without this owner.
    """
    if unknown := sorted(set(draft.names) - set(peers)):
        raise InvalidInputError(
            f"unknown parties: {', '.join(unknown)}; the settings name {', '.join(peers) or 'none'}"
        )
    if name in draft.names:
        raise InvalidInputError(f"{name} is this party itself: its examples take part without being asked")
    settled, _ = draft.settled()
    algorithm, facts = settled.build(), settled.facts()
    if algorithm.curator or algorithm.claims(facts.everyone):
        raise InvalidInputError(
            f"{draft.algorithm} has guarantees for its parties alone: use dp_gd or one of Wu's algorithms"
        )
    settled.questions()
