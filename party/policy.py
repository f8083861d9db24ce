"""The owner's consent: review a run's specification against the policy, and say what the run will cost.

These functions are pure: the same specification, policy and holding give the same decision. They trust nothing that a
learner says. The price follows from this party's own code, and so does what may be asked: the algorithm declares its
questions round by round, so no round can be asked a question that its price was not made for. No program is run and
nothing is trained.

The last section has the first policy of an owner who joins by an invitation, and the cautions about policies and keys.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np

from parley.common.algorithms import REGISTRY
from parley.common.data.study import Study
from parley.common.errors import ForbiddenError, InvalidInputError
from parley.common.files.studies import read_study
from parley.common.learning.classifiers import LocalClassifier
from parley.common.privacy.account import Cost, Price
from parley.common.privacy.guarantee import UNIT_NAMES, Adjacency, delta_caution, hides
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import OwnFacts
from parley.common.protocol.messages import Query, Question
from parley.common.runs.consent import Objection, OwnerRules, ReviewedRun, dear, refuses_study
from parley.common.runs.pricing import price
from parley.common.runs.specification import PublicRows, RunSpec, digest_of_rows
from parley.common.secure_sum.party import PartyPolicy
from parley.common.service.settings import Limits
from parley.common.wire.party_api import PinnedKeys
from parley.party.settings import PartySettings, Policy, StudySettings


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What a party needs to answer a run that it approved; ``facts`` are its own, ``public`` names the public rows.

    ``digest`` is the specification's. ``shift`` sets the unit of an answer, 2^(shift - 32).
    """

    algorithm: Algorithm
    facts: OwnFacts
    questions: tuple[Question, ...]
    public: PublicRows | None
    digest: str
    shift: int

    def check(self, query: Query) -> None:
        """Raise InvalidInputError unless this round may ask this query, with valid numbers or the approved rows."""
        if not 1 <= query.round <= len(self.questions):
            raise InvalidInputError(f"round must lie between 1 and {len(self.questions)}")
        question = self.questions[query.round - 1]
        question.check(query)
        if question.public and self.public:
            rows = np.atleast_2d(query.message)[: self.public.rows]  # one row may be asked about as a vector
            if digest_of_rows(rows) != self.public.digest:
                raise InvalidInputError(f"round {query.round} must ask about the public rows that were approved")


def rules_of(policy: Policy, limits: Limits | None = None, person: str | None = None) -> OwnerRules:
    """Return what the owner allows one run, by its policy and its service's limits (the defaults if None).

    ``person`` is the column of the table that the owner pins as saying whose a row is.
    """
    values = {name: getattr(policy, name) for name in OwnerRules.model_fields.keys() & Policy.model_fields.keys()}
    limits = limits or Limits()
    return OwnerRules(**values, round_bytes=limits.round_bytes, body_bytes=limits.body_bytes, person=person)


def named_studies(settings: PartySettings) -> dict[str, StudySettings]:
    """Return the studies of settings by their names, in order. Raises InvalidInputError for two of one name."""
    named: dict[str, StudySettings] = {}
    for entry in settings.held:
        name = entry.name or read_study(entry.study).name
        if name in named:
            raise InvalidInputError(f"studies: two are called {name}")
        named[name] = entry
    return named


def only_study(settings: PartySettings) -> str:
    """Return the name of the only study of the settings; "" if there are several."""
    if len(settings.held) > 1:
        return ""
    (name,) = named_studies(settings)
    return name


def own_policy(settings: PartySettings, study: str) -> Policy:
    """Return the owner's policy for runs of its own about a study, or, without a name, about no study in particular.

    Raises InvalidInputError for a study that the settings do not name, and without a name where some of them are about
    people with an account of their own: whose account pays has to be said.
    """
    if not study and any(entry.people for entry in settings.studies):
        names = ", ".join(entry.label for entry in settings.held)
        raise InvalidInputError(f"study: say whose account pays, by the name of the study: {names}")
    if not study:
        return settings.policy
    entries = named_studies(settings)
    if study not in entries:
        raise InvalidInputError(f"there is no study {study}; the settings name {', '.join(sorted(entries))}")
    return entries[study].policy.over(settings.policy)


def review(  # noqa: PLR0913, PLR0917 -- a run, and all that it is checked against
    spec: RunSpec, rules: OwnerRules, party: str, study: str, n_examples: int, compared: Collection[str] | None = None
) -> Price:
    """Return the price of a run that the owner allows; ``study`` is the digest of the study that it agreed to.

    ``compared`` are the parties whose keys the owner has compared, itself among them; None where it has no secure sums.

    Raises ForbiddenError, whose ``rule`` says which rule refuses the run, BudgetExhaustedError where no budget could
    pay for it, and InvalidInputError where the specification contradicts itself.
    """
    run, index = ReviewedRun.of(spec), spec.index(party)
    own_facts = spec.facts().of(index)
    if spec.study.digest != study:
        raise ForbiddenError("the study is not the one that the owner agreed to", rule="study")
    if spec.parties[index].n_examples != n_examples:
        raise ForbiddenError(
            "the run misstates the size of this party's shard; its rows have changed since, perhaps: ask for a new run",
            rule="n_examples",
        )
    spec.check_hold_out()
    _refuse_by(run.objections(spec.parties[index], rules, compared))
    run.algorithm.check_noise(own_facts)
    run_price = price(run.algorithm, own_facts, rules.view)
    if run_price.total == Cost(0, 0):
        raise InvalidInputError("this party has no part in any round of the run")
    check_cost(run_price, rules)
    return run_price


def check_cost(run_price: Price, rules: OwnerRules) -> None:
    """Raise ForbiddenError unless the owner's rules for one run allow this price, also for a run of the owner's own."""
    _refuse_by(dear(run_price.total, run_price.adjacency, rules))


def _refuse_by(objections: Iterable[Objection]) -> None:
    """Raise ForbiddenError for the first rule that the run breaks, if there is one."""
    for rule, reason in objections:
        raise ForbiddenError(reason, rule=rule)


def terms(spec: RunSpec, party: str, classifier: LocalClassifier | None = None) -> Terms:
    """Return what the party needs to answer a run, with the owner's ``classifier`` where the run leaves that open."""
    index, digest = spec.index(party), spec.digest
    chosen = tuple(classifier if other == index else None for other in range(len(spec.parties))) if classifier else ()
    facts = replace(spec.facts(), run=digest, classifiers=chosen)
    return Terms(spec.build(), facts.of(index), spec.questions(), spec.public, digest, facts.wire_shift)


def pins_of(settings: PartySettings, learner: str) -> PinnedKeys:
    """Return the keys that count for secure sums with this learner: those that the owner has compared, no others'."""
    pin = next((entry.public_key for entry in settings.learners if entry.name == learner), None)
    key_holders, parties = settings.pins_for(learner)
    return PinnedKeys(
        learner=pin,
        key_holders=key_holders,
        parties=parties,
        minimum_key_bits=settings.secure_sum.minimum_key_bits if settings.secure_sum else 0,
    )


def sum_policy(settings: PartySettings, learner: str) -> PartyPolicy:
    """Return what the owner requires of this learner's secure sums. Raises ForbiddenError, see `PinnedKeys.policy`."""
    return pins_of(settings, learner).policy(rules_of(settings.policy, settings.limits))


# ── the policy of an owner who joins ─────────────────────────────────────────

_GRADIENTS = ("dp_gd", "psgd", "wu_subgradient", "wu_strongly_convex")
_VOTES = ("ensemble_vote", "ensemble_soft")
_USUAL = (*_GRADIENTS, "release", "average", *_VOTES, "evaluate", "describe")
_BY_LARGEST = ("simplex", "evaluate", "describe")
"""The algorithms for studies whose rows are bounded in their largest coordinate."""
_EACH = frozenset({"release", "simplex"})
"""The algorithms that show the learner each answer."""


def first_algorithms(study: Study) -> tuple[str, ...]:
    """Return the algorithms to allow for a study: those that take such rows, and persons if it names them."""
    names = _USUAL if study.norm == "euclidean" else _BY_LARGEST
    taking = (name for name in names if REGISTRY[name].takes(study.norm, sparse=study.sparse is not None))
    return tuple(name for name in taking if study.person is None or REGISTRY[name].persons)


def refused_for_sums(study: Study) -> tuple[str, ...]:
    """Return those of a study's first algorithms that are refused where a secure sum is required."""
    return tuple(name for name in first_algorithms(study) if name in _EACH)


def trained_by_sums(study: Study) -> tuple[str, ...]:
    """Return those of a study's first algorithms that train a model by secure sums."""
    return tuple(name for name in first_algorithms(study) if REGISTRY[name].trains and name not in _EACH)


def policy_cautions(policy: Policy, n_examples: int, unit: Adjacency = "replace_one") -> tuple[str, ...]:
    """Return cautions about a policy whose delta is above 1/n; none if it hides all that the owner holds.

    n counts what the runs of a study hide: by its ``unit`` records, or persons.
    """
    if policy.adjacency == "whole_party":
        return ()  # the promise is to one, and a delta is below 1
    largest_delta = max(policy.delta, policy.max_delta_per_run)
    words = delta_caution(largest_delta, n_examples, f"{UNIT_NAMES[unit]}s")
    return tuple(f"policy: {caution}" for caution in words)


def study_cautions(policy: Policy, study: Study, person: str | None, n_examples: int) -> tuple[str, ...]:
    """Return what an owner should know of a study beside its own policy: its delta, and that no run may come of it.

    ``person`` is the column of the table that the owner pins as saying whose a row is.
    """
    reason = refuses_study(study, rules_of(policy, person=person))
    refused = () if reason is None else (f"runs about {study.name} will be refused: {reason}",)
    return (*refused, *policy_cautions(policy, n_examples, study.unit))


def person_cautions(settings: PartySettings, charged: Adjacency) -> tuple[str, ...]:
    """Return what an owner should know if it says whose its rows are, and its account is not for persons.

    Such an account takes runs that hide one row each, and after the first of them it can promise no more. All that its
    ledger has answered hides ``charged`` at least.
    """
    entries = named_studies(settings)
    persons = [name for name, entry in entries.items() if entry.data.person is not None]
    if not persons or settings.policy.adjacency != "replace_one":
        return ()
    never = f"it can never promise to persons, also of {', '.join(persons)}"
    if not hides(charged, "person"):
        advice = "parley-party budget says how little of its promise holds for one with several rows"
        return (f"your account has answered runs that hide single rows: {never}; {advice}",)
    rows = ", ".join(name for name in entries if name not in persons)
    mixed = f", since {rows} {'hides' if len(entries) == len(persons) + 1 else 'hide'} one row each" if rows else ""
    refused = f": it then refuses runs about {rows}, until the learner names the person in a new study" if rows else ""
    caution = (
        f"your account hides single rows only{mixed}: after the first run that hides one row, {never}. If it should, "
        f'write adjacency = "person" into [policy] of {settings.source} now, before any run{refused}'
    )
    return (caution,)


def key_cautions(settings: PartySettings, invited: Iterable[str] = ()) -> list[str]:
    """Return what the owner has to know about keys that it has not compared, and what to do.

    ``invited`` are key holders that an invitation names and the settings do not.
    """
    sums, uncompared = settings.secure_sum, settings.uncompared
    holders = [holder.name for holder in (sums.key_holders if sums else ()) if holder.name in uncompared]
    holders += sorted(invited)
    strangers = [party.name for party in (sums.parties if sums else ()) if party.name in uncompared]
    cautions = [
        f"the key of the key holder {name} was not compared, so it opens no sum of yours: ask its operator, not the "
        f"learner's, for its six words, by telephone: parley-party pin {name} WORDS"
        for name in holders
    ]
    if strangers:
        cautions.append(
            f"the keys of {', '.join(strangers)} were not compared, so a sum counts them as the learner's own: ask "
            "each owner for the six words, by telephone: parley-party pin NAME WORDS"
        )
    return cautions
