"""The owner's consent: review a run's specification against the policy, and say what the run will cost.

Pure: the same specification, policy and holding give the same decision. Nothing here believes a learner. The price
follows from this party's own code; what may be asked follows from rehearsing the algorithm's own program on a shard of
zeros, round by round, so that no round can be asked a question that its price was not made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from common.arrays import IntArray
from common.data.shard import Shard
from common.data.study import Study
from common.encoding.fixed_point import MAX_NORM, to_reals
from common.errors import ForbiddenError, InvalidInputError
from common.privacy.account import DELTA_UNITS, MICRO, Price, limit
from common.privacy.noise import NoNoise
from common.protocol.algorithm import Algorithm
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query, Reply
from common.runs.pricing import schedule
from common.runs.specification import RunSpec
from common.secure_sum.party import PartyPolicy
from party.settings import PartySettings, Policy


@dataclass(frozen=True, slots=True)
class Question:
    """What a round of a run may ask: the step, what is revealed, and the message's shape."""

    step: str
    reveal: Literal["sum", "each"]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a party needs to answer a run that it approved; ``facts`` are its own."""

    algorithm: Algorithm
    facts: FederationFacts
    questions: tuple[Question, ...]

    def check(self, query: Query) -> None:
        """Raise InvalidInputError unless the run's own program would ask this in this round, of sane numbers."""
        if not 1 <= query.round <= len(self.questions):
            raise InvalidInputError(f"round must lie between 1 and {len(self.questions)}")
        due = self.questions[query.round - 1]
        if (query.step, query.reveal) != (due.step, due.reveal):
            raise InvalidInputError(f"round {query.round} asks for step={due.step}, reveal={due.reveal}")
        if query.message.shape != due.shape:
            raise InvalidInputError(f"the message must have shape {due.shape}, not {query.message.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            sane = float(np.linalg.norm(query.message)) <= MAX_NORM
        if not sane:
            raise InvalidInputError(f"the message must be finite and of norm at most {MAX_NORM:g}")


def review(spec: RunSpec, policy: Policy, party: str, study: Study, n_examples: int) -> Price:
    """The price of a run that the owner allows.

    Raises ForbiddenError, whose ``rule`` says which rule refuses it, BudgetExhaustedError where no budget bears it, and
    InvalidInputError where the specification contradicts itself.
    """
    algorithm, facts = spec.build(), spec.facts()
    own = facts.of(spec.index(party))
    if spec.study.digest != study.digest:
        raise ForbiddenError("the study is not the one that the owner agreed to", rule="study")
    if int(own.own_examples) != n_examples:
        raise ForbiddenError("the run misstates the size of this party's shard", rule="n_examples")
    for rule, reason in _violations(spec, policy, algorithm, own):
        raise ForbiddenError(reason, rule=rule)
    costs = schedule(algorithm, own, policy.view)
    price = Price(tuple(accumulate(cost.epsilon for cost in costs)), tuple(accumulate(cost.delta for cost in costs)))
    _check_affordable(price, policy)
    return price


def _violations(spec: RunSpec, policy: Policy, algorithm: Algorithm, own: FederationFacts) -> Iterator[tuple[str, str]]:
    """The owner's rules that a run breaks, each with the reason in words."""
    if spec.algorithm not in policy.algorithms:
        yield "algorithms", f"the owner does not allow {spec.algorithm}"
    if algorithm.curator and len(spec.parties) > 1:
        yield "algorithms", f"{spec.algorithm} needs a curator who holds all data"
    if own.own_epsilon > policy.max_epsilon_per_run:
        yield "max_epsilon_per_run", f"one run may cost at most epsilon {policy.max_epsilon_per_run:g}"
    if own.own_delta > policy.max_delta_per_run:
        yield "max_delta_per_run", f"one run may cost at most delta {policy.max_delta_per_run:g}"
    if spec.minimum_contributors < policy.minimum_contributors:
        yield "minimum_contributors", f"each sum needs at least {policy.minimum_contributors} contributors"
    if policy.require_secure_sum and not own.secure_sum:
        yield "require_secure_sum", "the owner requires a secure sum"
    if own.secure_sum and spec.colluders < policy.colluders:
        yield "colluders", f"shared noise must tolerate at least {policy.colluders} colluders"
    if algorithm.rounds(own) > policy.max_rounds:
        yield "max_rounds", f"a run may have at most {policy.max_rounds} rounds"


def _check_affordable(price: Price, policy: Policy) -> None:
    """Raise ForbiddenError if the owner does not let one run cost that much."""
    most = limit(policy.max_epsilon_per_run, policy.max_delta_per_run)
    for name, cost, may, unit in (
        ("epsilon", price.whole.epsilon, most.epsilon_limit, MICRO),
        ("delta", price.whole.delta, most.delta_limit, DELTA_UNITS),
    ):
        if cost > may:
            raise ForbiddenError(
                f"the run costs {name} {cost / unit:g} in the owner's {policy.view} view; one may cost {may / unit:g}",
                rule=f"max_{name}_per_run",
            )


def terms(spec: RunSpec, party: str) -> Terms:
    """What the party needs to answer a run; rehearses the program, so takes about a millisecond a round.

    Raises ForbiddenError where a run with a secure sum would have each answer revealed.
    """
    algorithm, facts = spec.build(), spec.facts()
    own = facts.of(spec.index(party))
    shape = (1, spec.study.n_features)
    zeros = Shard(np.zeros(shape), np.ones(1))
    questions = rehearse(algorithm, facts, lambda query: algorithm.local(query, zeros, own, NoNoise()))
    if own.secure_sum and any(question.reveal != "sum" for question in questions):
        raise ForbiddenError(f"{spec.algorithm} reveals each answer, so it has no secure sum", rule="secure_sum")
    return Terms(algorithm, own, questions)


def sum_policy(settings: PartySettings, learner: str) -> PartyPolicy:
    """What the owner insists on in a secure sum of this learner.

    Raises ForbiddenError where the settings pin no key of the learner, or name no key holders.
    """
    pin = next(known.public_key for known in settings.learners if known.name == learner)
    if settings.secure_sum is None or pin is None:
        whose = "key holders" if settings.secure_sum is None else "the learner"
        raise ForbiddenError(f"the owner pins no public key of {whose}, so there is no secure sum", rule="secure_sum")
    return PartyPolicy(
        learner=pin,
        key_holders=settings.secure_sum.pins,
        minimum_contributors=settings.policy.minimum_contributors,
        minimum_key_bits=settings.secure_sum.minimum_key_bits,
    )


def rehearse(algorithm: Algorithm, facts: FederationFacts, local: Callable[[Query], IntArray]) -> tuple[Question, ...]:
    """What the program asks in each round when every party answers as ``local`` does."""
    everyone = tuple(range(len(facts.parties)))
    questions: list[Question] = []
    program = algorithm.program(facts)
    try:
        query = next(program)
        while True:
            questions.append(Question(query.step, query.reveal, query.message.shape))
            answer = to_reals(local(query))
            value = answer * len(everyone) if query.reveal == "sum" else np.stack([answer] * len(everyone))
            query = program.send(Reply(value, everyone))
    except StopIteration:
        return tuple(questions)
