"""An owner as learner: its own model, from its own examples as they are and from the others' noisy answers.

To the others it is a run like any other: they approve it, add their noise, charge their ledgers and are promised what
any run promises, for all that this owner does with their answers is to compute on them. Its own answers carry no noise
(epsilon is infinite) and never leave this process; they are the last of the run's parties. The *weights* that the
others are asked about do leave, and are computed from them: whoever answers can tell this owner's sums of gradients
from two questions in a row. So the own examples are not protected from the parties that are asked.

There is no log on disk, nor need of one: the program draws no noise, so the same run asks the same questions again,
and parties give the same answers at no cost, as long as the same ones answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from parley.common.algorithms import REGISTRY
from parley.common.client.approval import propose, recruit
from parley.common.client.endpoints import PeerEntry
from parley.common.client.federation import HttpFederation
from parley.common.client.party import PartyClient
from parley.common.client.peer import Line, ask_all
from parley.common.encoding.fixed_point import to_reals
from parley.common.errors import InvalidInputError
from parley.common.privacy.noise import NoNoise
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.driver import Federation, MemoryLog, drive
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply
from parley.common.runs.model_document import model_document
from parley.common.runs.pricing import guarantees
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.strict import faults
from parley.common.wire.party_api import RunProposal

if TYPE_CHECKING:
    from parley.party.data.owner_data import Holding

APPROVAL_SECONDS = 60.0
PREPARATION_SECONDS = 3600.0
OWN = "none: whoever answers sees weights that are computed from these examples without noise"
KEPT = "nothing that is computed from these examples leaves their owner, but in this model"


@dataclass(frozen=True, slots=True)
class Order:
    """What to learn: ``budgets`` are those of the others who are asked, by name, and say who is.

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

    ``facts`` are those of the shard's owner, the last of the parties. The others approved so many ``rounds``; what is
    asked beyond them is the owner's own affair.
    """

    others: Federation
    rounds: int
    algorithm: Algorithm
    prepared: Any
    facts: OwnFacts

    async def answer(self, run: str, query: Query) -> Reply:
        """The others' answers and the own one, or their sum."""
        own = to_reals(self.algorithm.local(query, self.prepared, self.facts, NoNoise()))
        if query.round > self.rounds:
            return Reply(own if query.reveal == "sum" else own[None], (len(self.facts.parties) - 1,))
        reply = await self.others.answer(run, query)
        value = reply.value + own if query.reveal == "sum" else np.concatenate([reply.value, own[None]])
        return Reply(value, (*reply.contributors, len(self.facts.parties) - 1))


async def learn(
    order: Order,
    name: str,
    holding: Holding,
    peers: Sequence[PeerEntry],
    connect: Callable[[PeerEntry], Line] = Line,
) -> dict[str, Any]:
    """The model document of a run on the others' shards and on the own one, which ``name`` holds.

    Raises InvalidInputError, PartyRefusedError and UnavailableError, which name whatever or whoever is wrong. A run
    that failed may be taken up again under its name.
    """
    draft = _draft(order, name, holding)
    _check(draft, name, [peer.name for peer in peers])
    entries = {peer.name: peer for peer in peers}
    parties = [PartyClient(member, connect(entries[member])) for member in draft.names]
    try:
        found = await recruit(order.run, parties, draft, order.deadline)
        spec, _ = found.spec.settled()
        proposal = RunProposal(run=order.run, spec=spec, user=name, purpose="a model of the owner's own")
        await propose(parties, proposal, APPROVAL_SECONDS, PREPARATION_SECONDS)
        document = await _train(order, name, holding, spec, parties)
        await ask_all(parties, lambda party: party.end(order.run), order.deadline)
    finally:
        for party in parties:
            await party.close()
    return document


def protection(order: Order, name: str, holding: Holding) -> str:
    """What of the own examples those will see who are asked, in words; raises InvalidInputError for a wrong order."""
    return protection_of(_draft(order, name, holding))


async def _train(
    order: Order, name: str, holding: Holding, spec: RunSpec, parties: Sequence[PartyClient]
) -> dict[str, Any]:
    """Drive the program to its model."""
    algorithm = spec.build()
    shard = holding.parts[algorithm.rows]
    facts = joined(spec.facts(), name, int(shard.n_examples))
    others = HttpFederation(spec, parties, order.deadline)
    own_facts = facts.of(len(parties))
    federation = OwnShard(others, len(spec.questions()), algorithm, algorithm.prepare(shard, own_facts), own_facts)
    model = await drive(algorithm.program(facts), federation, order.run, MemoryLog())
    contributors = [*(spec.names[index] for index in others.active), name]
    promised = [guarantee.to_json() for guarantee in guarantees(algorithm, spec.facts())]
    own = {"party": name, "n_examples": holding.n_examples, "epsilon": None, "protection": protection_of(spec)}
    return model_document(spec, promised, model, contributors) | {"own": own, "guarantees_cover": list(spec.names)}


def protection_of(spec: RunSpec) -> str:
    """What those who are asked see of the owner's own examples, in words: a question may say nothing."""
    return OWN if any(question.message != (0,) for question in spec.questions()) else KEPT


def joined(facts: FederationFacts, name: str, n_examples: int) -> FederationFacts:
    """The facts of a run among others with one more party, the last; its budget plays no part, for it adds no noise."""
    return replace(
        facts,
        parties=(*facts.parties, name),
        n_examples=np.append(facts.n_examples, n_examples),
        epsilon=np.append(facts.epsilon, facts.epsilon.max()),
        delta=np.append(facts.delta, facts.delta.max()),
        minimum_contributors=facts.minimum_contributors + 1,
    )


def _draft(order: Order, name: str, holding: Holding) -> RunSpec:
    """The specification that the others will be proposed, but for the sizes of their shards."""
    given = order.parameters
    parameters = REGISTRY[order.algorithm].for_owner(name, given) if order.algorithm in REGISTRY else dict(given)
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


def _check(draft: RunSpec, name: str, known: Sequence[str]) -> None:
    """Raise InvalidInputError where the run names parties that are not known or cannot be run by one of the owners.

    What an algorithm claims beyond its transcript is a claim about the model of its parties alone.
    """
    if unknown := sorted(set(draft.names) - set(known)):
        raise InvalidInputError(
            f"unknown parties: {', '.join(unknown)}; the settings name {', '.join(known) or 'none'}"
        )
    if name in draft.names:
        raise InvalidInputError(f"{name} is this party itself: its examples take part without being asked")
    settled, _ = draft.settled()
    algorithm, facts = settled.build(), settled.facts()
    if algorithm.curator or algorithm.claims(facts.everyone):
        raise InvalidInputError(f"{draft.algorithm} promises what holds for its parties alone: take dp_gd or Wu's")
    settled.questions()
