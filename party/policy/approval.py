"""The owner's consent: review a run's specification against the policy, and say what the run will cost.

Pure: the same specification, policy and holding give the same decision. Nothing here believes a learner. The price
follows from this party's own code, and so does what may be asked: the questions that the algorithm declares, round by
round, so that no round can be asked a question that its price was not made for. No program is run, nothing is trained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from common.data.study import Study
from common.encoding.spelling import so_many
from common.errors import ForbiddenError, InvalidInputError
from common.learning.classifiers import LocalClassifier
from common.privacy.account import DELTA_UNITS, MICRO, Cost, Price, limit
from common.protocol.algorithm import Algorithm
from common.protocol.facts import OwnFacts
from common.protocol.messages import Query, Question
from common.runs.costs import lengths, limit_of
from common.runs.pricing import price
from common.runs.specification import PublicRows, RunSpec, digest_of_rows
from common.secure_sum.party import PartyPolicy
from common.service.settings import Limits
from party.settings import PartySettings, Policy

_NO_SUMS = "the owner pins no public key of {}, so there is no secure sum"


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a party needs to answer a run that it approved; ``facts`` are its own, ``public`` names the public rows.

    ``digest`` is the specification's, by which what was prepared for it is kept.
    """

    algorithm: Algorithm
    facts: OwnFacts
    questions: tuple[Question, ...]
    public: PublicRows | None
    digest: str

    def check(self, query: Query) -> None:
        """Raise InvalidInputError unless this round may ask this, of sane numbers, or of the rows that are approved."""
        if not 1 <= query.round <= len(self.questions):
            raise InvalidInputError(f"round must lie between 1 and {len(self.questions)}")
        question = self.questions[query.round - 1]
        question.check(query)
        if question.public and self.public and digest_of_rows(query.message) != self.public.digest:
            raise InvalidInputError(f"round {query.round} must ask about the public rows that were approved")


def review(  # noqa: PLR0913, PLR0917 -- a run, and all that it is held against
    spec: RunSpec, policy: Policy, party: str, study: Study, n_examples: int, known: Collection[str] | None = None
) -> Price:
    """The price of a run that the owner allows.

    ``known`` are the parties whose keys the owner pins, itself among them; None where it has no secure sums.

    Raises ForbiddenError, whose ``rule`` says which rule refuses it, BudgetExhaustedError where no budget bears it, and
    InvalidInputError where the specification contradicts itself.
    """
    algorithm, own = spec.build(), spec.facts().of(spec.index(party))
    if spec.study.digest != study.digest:
        raise ForbiddenError("the study is not the one that the owner agreed to", rule="study")
    if spec.parties[spec.index(party)].n_examples != n_examples:
        raise ForbiddenError(
            "the run misstates the size of this party's shard; its rows have changed since, perhaps: ask for a new run",
            rule="n_examples",
        )
    spec.check_hold_out()
    if own.secure_sum and known is None:
        raise ForbiddenError(_NO_SUMS.format("key holders"), rule="secure_sum")
    unknown = len(set(spec.names) - {party, *(known or ())}) if own.secure_sum else 0
    for rule, reason in _violations(spec, policy, algorithm, own, unknown):
        raise ForbiddenError(reason, rule=rule)
    algorithm.check_noise(own)
    due = price(algorithm, own, policy.view)
    if due.whole == Cost(0, 0):
        raise InvalidInputError("this party has no part in any round of the run")
    _check_affordable(due, policy)
    return due


def _violations(
    spec: RunSpec, policy: Policy, algorithm: Algorithm, own: OwnFacts, unknown: int
) -> Iterator[tuple[str, str]]:
    """The owner's rules that a run breaks, each with the reason in words; ``unknown`` of its parties are not pinned."""
    if spec.algorithm not in policy.algorithms:
        yield "algorithms", f"the owner does not allow {spec.algorithm}"
    if algorithm.curator and len(spec.parties) > 1:
        yield "algorithms", f"{spec.algorithm} needs a curator who holds all data"
    if policy.adjacency == "whole_party" and algorithm.adjacency != "whole_party":
        yield "adjacency", f"the owner protects all its data at once, and {spec.algorithm} protects one record"
    if spec.public and policy.public_rows is not None and spec.public.digest not in policy.public_rows:
        yield "public_rows", "the owner does not allow these public rows"
    questions = spec.questions()
    if len(questions) > policy.max_rounds:
        yield "max_rounds", f"a run may have at most {so_many(policy.max_rounds, 'round')}"
    if own.secure_sum and any(question.reveal != "sum" for question in questions):
        yield "secure_sum", f"{spec.algorithm} reveals each answer, so it has no secure sum"
    yield from _weak_terms(spec, policy, own, unknown)


def _weak_terms(spec: RunSpec, policy: Policy, own: OwnFacts, unknown: int) -> Iterator[tuple[str, str]]:
    """The rules by which a run promises too little, or hides too few among too few: the learner may be all unknown."""
    why = (
        f": the keys of {unknown} of its parties are not pinned, so each may be the learner's (parley-party pin)"
        if unknown
        else ""
    )
    fewest, colluders = policy.minimum_contributors + unknown, policy.colluders + unknown
    if own.own_epsilon > policy.max_epsilon_per_run:
        yield "max_epsilon_per_run", f"one run may cost at most epsilon {policy.max_epsilon_per_run:g}"
    if own.own_delta > policy.max_delta_per_run:
        yield "max_delta_per_run", f"one run may cost at most delta {policy.max_delta_per_run:g}"
    if spec.minimum_contributors < fewest:
        yield "minimum_contributors", f"each sum needs at least {fewest} contributors{why}"
    if policy.require_secure_sum and not own.secure_sum:
        yield "require_secure_sum", "the owner requires a secure sum"
    if own.secure_sum and spec.colluders < colluders:
        yield "colluders", f"shared noise must tolerate at least {colluders} colluders{why}"


def check_own(due: Price, policy: Policy) -> None:
    """Raise ForbiddenError unless the owner's rules for one run allow a run of its own at this price."""
    if policy.adjacency == "whole_party" and due.adjacency != "whole_party":
        raise ForbiddenError("the owner protects all its data at once, and the run one record", rule="adjacency")
    _check_affordable(due, policy)


def _check_affordable(due: Price, policy: Policy) -> None:
    """Raise ForbiddenError if the owner does not let one run cost that much."""
    most = limit(policy.max_epsilon_per_run, policy.max_delta_per_run)
    for name, cost, may, unit in (
        ("epsilon", due.whole.epsilon, most.epsilon_limit, MICRO),
        ("delta", due.whole.delta, most.delta_limit, DELTA_UNITS),
    ):
        if cost > may:
            raise ForbiddenError(
                f"the run costs {name} {cost / unit:g} in the owner's {policy.view} view; one may cost {may / unit:g}",
                rule=f"max_{name}_per_run",
            )


def check_lengths(spec: RunSpec, limits: Limits) -> None:
    """Raise ForbiddenError, naming the setting, for a run whose questions or answers are longer than a party allows."""
    name = limit_of(spec)
    needed, most = lengths(spec), getattr(limits, name)
    if max(needed) > most:
        raise ForbiddenError(
            f"the run's questions have up to {needed[0]} bytes and its answers {needed[1]}, and this party's "
            f"limits.{name} is {most}",
            rule=f"limits.{name}",
        )


def terms(spec: RunSpec, party: str, classifier: LocalClassifier | None = None) -> Terms:
    """What the party needs to answer a run, and what its owner has chosen to train where a run leaves that to it."""
    index, digest = spec.index(party), spec.digest
    chosen = tuple(classifier if other == index else None for other in range(len(spec.parties))) if classifier else ()
    facts = replace(spec.facts(), run=digest, classifiers=chosen)
    return Terms(spec.build(), facts.of(index), spec.questions(), spec.public, digest)


def sum_policy(settings: PartySettings, learner: str) -> PartyPolicy:
    """What the owner insists on in a secure sum of this learner.

    Raises ForbiddenError where the settings pin no key of the learner, or name no key holders.
    """
    pin = next(known.public_key for known in settings.learners if known.name == learner)
    if settings.secure_sum is None or pin is None:
        whose = "key holders" if settings.secure_sum is None else "the learner"
        raise ForbiddenError(_NO_SUMS.format(whose), rule="secure_sum")
    return PartyPolicy(
        learner=pin,
        key_holders=settings.secure_sum.pins,
        parties=settings.secure_sum.party_pins,
        minimum_contributors=settings.policy.minimum_contributors,
        colluders=settings.policy.colluders,
        minimum_key_bits=settings.secure_sum.minimum_key_bits,
    )
