"""Which rules of its owner's a run would break, as far as a party tells its rules: known before anybody is asked."""

from __future__ import annotations

from collections.abc import Iterator

from common.privacy.account import DELTA_UNITS, MICRO, Cost, limit
from common.protocol.algorithm import Algorithm
from common.runs.members import Member
from common.runs.specification import RunSpec
from common.wire.party_api import PartyFacts


def objections(
    spec: RunSpec, algorithm: Algorithm, member: Member, facts: PartyFacts, cost: Cost | None
) -> Iterator[str]:
    """Each rule that the party would refuse the run by; ``cost`` is what the run would be charged to it at most.

    More may come when the party is asked, for it need not tell all of its rules: of rounds, of pins, of public rows.
    """
    charge = (None, None) if cost is None else (cost.epsilon, cost.delta)
    may, asked = limit(facts.max_epsilon_per_run, facts.max_delta_per_run), member.budget
    if spec.algorithm not in facts.algorithms:
        yield f"it does not allow {spec.algorithm}"
    if facts.adjacency == "whole_party" and algorithm.adjacency != "whole_party":
        yield "it protects all its data at once, and the run one record"
    if spec.minimum_contributors < facts.minimum_contributors:
        yield f"each sum needs at least {facts.minimum_contributors} contributors"
    if facts.require_secure_sum and spec.secure_sum == "none":
        yield "it requires a secure sum"
    for name, wanted, most, charged, units, scale in (
        ("epsilon", asked.epsilon, facts.max_epsilon_per_run, charge[0], may.epsilon_limit, MICRO),
        ("delta", asked.delta, facts.max_delta_per_run, charge[1], may.delta_limit, DELTA_UNITS),
    ):
        if wanted > most:
            yield f"one run may cost at most {name} {most:g}"
        elif charged is not None and charged > units:
            yield f"the run would be charged {name} {charged / scale:.3g}, and one may cost {most:g}"
