"""What a learner and a party say to each other as JSON."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from common.privacy.guarantee import Adjacency, View
from common.runs.specification import RunSpec
from common.strict import Identifier, Strict


class PartyFacts(Strict):
    """What a party says of itself to a learner it knows: nothing private but the declared size of its shard."""

    name: Identifier
    version: str
    study_digest: str
    n_examples: int
    algorithms: tuple[str, ...]
    views: tuple[View, ...]
    adjacency: Adjacency
    minimum_contributors: int
    require_secure_sum: bool
    max_epsilon_per_run: float
    max_delta_per_run: float


class BudgetReport(Strict):
    """A party's ledger in short: (epsilon, delta) allowed in total, spent, and left, and what they hide."""

    epsilon_limit: float
    delta_limit: float
    epsilon_spent: float
    delta_spent: float
    epsilon_left: float
    delta_left: float
    adjacency: Adjacency


class RunProposal(Strict):
    """What a learner sends a party to approve; ``user`` and ``purpose`` are for the owner's log."""

    run: Identifier
    spec: RunSpec
    user: Annotated[str, Field(max_length=100)] = ""
    purpose: Annotated[str, Field(max_length=500)] = ""


class Approval(Strict):
    """A party's consent: it will answer this run's rounds at this price, once it is ``prepared``."""

    run: Identifier
    spec_digest: str
    rounds: int
    epsilon: float
    delta: float
    adjacency: Adjacency
    prepared: bool
