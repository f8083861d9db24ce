"""The price of a run to a party, round by round, in whole units; what it promises; and its costs in bytes and seconds.

*Charges.* Across runs a filter adds up the cover of each round, and slack; basic composition adds up epsilons and
deltas: see `parley.common.privacy.account`. Covers, and pure epsilons, are charged round by round. If a run has a
delta, all of epsilon and delta is charged with the first answer: within the run events compose tightly, to an (epsilon,
delta) that is proven for all its rounds together and for no part of them. If its epsilon were charged as it grows, a
learner could end the run where the answers reveal much and spend the rest on another: up to 7 times the budget's delta
in 1,000 rounds (`tests/audit/test_stopping.py`).

*Costs to carry*, before a run: bytes on the wire, memory, seconds of noise; from public terms alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, chain
from typing import TYPE_CHECKING

import numpy as np

from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import EXCESS_UNITS, MICRO, SQUARE_UNITS, Cost, Price, cost_of, delta_units
from parley.common.privacy.accountant import added_epsilon, epsilon_after, pure_epsilons
from parley.common.privacy.co_owner import with_part
from parley.common.privacy.composition import releases
from parley.common.privacy.events import ApproximateEvent, Event, L2LaplaceEvent, NoEvent
from parley.common.privacy.filter import cover
from parley.common.privacy.guarantee import NEXT_TO_NOTHING, UNIT_NAMES, Guarantee, View, no_less
from parley.common.privacy.overlap import at_owners
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.secure_sum.packing import DEFAULT_KEY_BITS, MAX_D, Layout

if TYPE_CHECKING:
    from parley.common.protocol.messages import Question
    from parley.common.runs.specification import RunSpec

ALWAYS = (
    "bounds, categories, shares of classes and all other terms of study and run do not follow from the examples",
    "how long an answer takes is not hidden",
    "the promise is for this run: others on the same examples add up to it, as each owner's budget counts them",
)
"""What every promise assumes."""
_SIZES = "the numbers of examples of all parties are public"
_SIZES_OF_PERSONS = (
    "the numbers of persons of all parties are public, and how many rows of a person count at most; the numbers of "
    "rows are not, but for what the time of answers shows"
)
IN_PLACE = (
    "a record keeps its place in its owner's table, which decides whether it is held out, if what it contains changes, "
    "and so do all others"
)
"""What every promise about the rows of a study assumes that holds some out."""
_ONE_RECORD = (
    "the promise is to each record: a person with several, in one shard or in two, is hidden at each, not at all at "
    "once (group privacy)"
)
_ONE_VALUE = (
    "all rows of a person with one owner have one value in the column that says whose a row is: a person with two is "
    "hidden at each, not at both at once"
)
_ONE_PERSON = (
    "the promise is to each person at each owner: a person with several owners is hidden at each, not at all at once"
)
_ROWS_ALONE = (
    "a row without a value in the column that says whose it is counts as a person by itself: somebody who has such "
    "rows beside others is hidden in pieces"
)
"""What a promise about persons assumes whose study takes such rows."""
_PLACES_OF_PERSONS = (
    "a person's place, that of its first row among its owner's persons, decides whether it is held out: it stays when "
    "its rows change, and so do those of all others"
)
"""What every promise about the persons of a study assumes that holds some out."""
_ONE_PARTY = (
    "the promise is to each party: a person with records at several of them is hidden at each, not at all at once"
)
_BOUNDED = (
    "nobody breaks the encryption: under a secure sum the promise is computational, against a bounded adversary "
    "(Mironov, Pandey, Reingold & Vadhan 2009)"
)
_COMPARED = (
    "the owners compared the keys that they pin, of the learner, the key holders and each other, with those whose they "
    "are"
)
_SUMS_HOLD = (_BOUNDED, _COMPARED, "no key holder was set back to an earlier state")
"""What every promise of a run with a secure sum assumes, for all algorithms, beside an assumption that begins so:"""
_APART = "the learner and all key holders do not collude"


def events(algorithm: Algorithm, facts: OwnFacts) -> list[Event]:
    """Return the event of each round of a run for the party whose facts these are, (T,).

    Of a run with an overlap it is that of the answers of all owners of the same person: what is charged.
    """
    return [
        at_owners(event, facts.overlap, in_one_sum=facts.secure_sum and not algorithm.whole_noise(round))
        for round, event in enumerate(_at_one_owner(algorithm, facts), start=1)
    ]


def _at_one_owner(algorithm: Algorithm, facts: OwnFacts) -> list[Event]:
    """Return the event of each round for a person that is with this owner alone, (T,)."""
    return [algorithm.event(round, facts) for round in range(1, len(algorithm.questions(facts)) + 1)]


def transcript(algorithm: Algorithm, facts: OwnFacts) -> Guarantee:
    """Return the guarantee against anyone who sees all that the learner sees, for the party whose facts these are."""
    return _transcript(algorithm, facts).assuming(*_apart(algorithm, [facts]))


def _transcript(algorithm: Algorithm, facts: OwnFacts) -> Guarantee:
    costs = events(algorithm, facts)
    return _promise(algorithm, facts, costs, needed_delta(costs, facts))


def if_all_collude(algorithm: Algorithm, facts: OwnFacts) -> tuple[float, float]:
    """Return ``(epsilon, delta)`` against the learner and all key holders together, who see each answer by itself.

    An answer has 1 / (m_min - t) of the variance if noise is added in shares: a Gaussian release of mu becomes one of
    mu sqrt(m_min - t), and pure noise has no bound without a delta (`with_part`).
    """
    if not facts.secure_sum or facts.share == 1:
        costs = events(algorithm, facts)
        delta = needed_delta(costs, facts)
        return epsilon_after(costs, delta), delta
    weaker = [
        at_owners(
            event if algorithm.whole_noise(round) else with_part(event, facts.share, float(facts.own_delta)),
            facts.overlap,
            in_one_sum=False,
        )
        for round, event in enumerate(_at_one_owner(algorithm, facts), start=1)
    ]
    delta = needed_delta(weaker, facts)
    return epsilon_after(weaker, delta), delta


def _apart(algorithm: Algorithm, parties: Sequence[OwnFacts]) -> tuple[str, ...]:
    """Return what promises to these parties assume under a secure sum, and what the worst-off has without it."""
    if not parties[0].secure_sum:
        return ()
    by_costs = {
        (*events(algorithm, facts), float(facts.own_epsilon), float(facts.own_delta)): facts for facts in parties
    }
    epsilon, delta = max(if_all_collude(algorithm, facts) for facts in by_costs.values())
    figures = f"epsilon {epsilon:.3g} at delta {delta:.1g}"
    consequence = f"{figures} is promised against them"
    if epsilon > NEXT_TO_NOTHING:
        little = f"next to nothing is promised against them ({figures})"
        consequence = little if math.isfinite(epsilon) else "nothing is promised against them"
    return (f"{_APART}: if they do, {consequence}", *_SUMS_HOLD)


def is_of_sums(assumption: str) -> bool:
    """Whether an assumption is one of every run with a secure sum, which earlier versions did not state."""
    return assumption in _SUMS_HOLD or assumption.startswith(_APART)


def against_co_owner(algorithm: Algorithm, facts: OwnFacts) -> Guarantee | None:
    """Return the guarantee if one of the others reveals its share of the noise, and no colluders are allowed for.

    It is None without a secure sum, or if ``colluders`` are allowed for: then `transcript` holds against them. A ledger
    charges the transcript: an owner who fears co-owners says so by its policy's ``colluders``.
    """
    if not facts.secure_sum or facts.colluders or facts.minimum_contributors == 1:
        return None
    costs, part = events(algorithm, facts), 1 - 1 / facts.minimum_contributors
    costs = [
        event if algorithm.whole_noise(round) else with_part(event, part, float(facts.own_delta))
        for round, event in enumerate(costs, start=1)
    ]
    return _promise(algorithm, replace(facts, colluders=1), costs, needed_delta(costs, facts))


def needed_delta(costs: list[Event], facts: OwnFacts) -> float:
    """Return the delta that a run spends: none if pure epsilons add up to no more than the agreed one."""
    epsilon, delta = facts.own_agreed
    return 0.0 if epsilon_after(costs, 0.0) <= epsilon * (1 + 1e-9) else delta


def _promise(
    algorithm: Algorithm, facts: OwnFacts, costs: list[Event], delta: float, n_owners: int | None = None
) -> Guarantee:
    """Return the guarantee of a transcript of these costs, with all that it assumes.

    ``n_owners`` are those that the same person may be with; None for all that the run counts.
    """
    assumed = dict.fromkeys(
        words
        for release in chain.from_iterable(map(releases, costs))
        if isinstance(release, ApproximateEvent | L2LaplaceEvent)
        for words in release.assumptions
    )
    assumed |= dict.fromkeys(algorithm.assumptions(facts))
    hidden, owners = algorithm.adjacency_of(facts.unit), _owners(algorithm, facts, n_owners)
    holds_out = facts.study is not None and facts.study.hold_out is not None
    in_place = (_PLACES_OF_PERSONS if hidden == "person" else IN_PLACE,) if holds_out else ()
    assumed |= dict.fromkeys((_SIZES_OF_PERSONS if facts.unit == "person" else _SIZES, *in_place, *owners, *ALWAYS))
    guarantee = Guarantee(
        epsilon_after(costs, delta),
        delta,
        "transcript",
        "tight",
        hidden,
        assumptions=tuple(assumed),
        owners=facts.overlap if n_owners is None else n_owners,
    )
    if not facts.secure_sum:
        return guarantee
    return replace(guarantee, trust=facts.colluders).assuming(
        f"at least {facts.minimum_contributors} parties contribute to each sum",
        f"at most {facts.colluders} of them collude",
    )


def _owners(algorithm: Algorithm, facts: OwnFacts, n_owners: int | None) -> tuple[str, ...]:
    """Return what a promise says of a person who is with one owner, or several."""
    hidden = algorithm.adjacency_of(facts.unit)
    column = (_ONE_VALUE,) if hidden == "person" else ()
    unit = {"replace_one": _ONE_RECORD, "person": _ONE_PERSON, "whole_party": _ONE_PARTY}[hidden]
    person = facts.study.person if facts.study is not None and hidden == "person" else None
    alone = (_ROWS_ALONE,) if person is not None and person.missing == "alone" else ()
    if facts.overlap == 1:
        return (*column, unit, *alone)
    name = UNIT_NAMES[facts.unit]
    if n_owners == 1:
        return (*(column or (unit,)), *alone, f"the {name} is with one owner alone")
    return (
        *column,
        *alone,
        f"the same {name} is with no more than {facts.overlap} owners, whose answers this promise is about together",
        f"what the other owners answer costs a shared {name} no more than what this owner does",
    )


def with_one_owner(algorithm: Algorithm, facts: OwnFacts) -> Guarantee | None:
    """Return what is promised to a person who is with this owner alone; None if the run counts no others."""
    if facts.overlap == 1:
        return None
    delta = needed_delta(events(algorithm, facts), facts)  # the same, so that the epsilons can be compared
    return _promise(algorithm, facts, _at_one_owner(algorithm, facts), delta, n_owners=1)


def guarantees(algorithm: Algorithm, facts: FederationFacts) -> tuple[Guarantee, ...]:
    """Return a run's promises to every party: the paper's claims, then the transcript's guarantee.

    Each is for the worst-off. If one is worse off by epsilon and another by delta, both count, with the assumptions of
    all. The last is the guarantee against one co-owner, if the transcript's does not hold against any.
    """
    distinct = range(len(facts.parties)) if algorithm.roles else _distinct(facts)
    parties = [facts.of(index) for index in distinct]
    by_party = [
        (
            *(_of_the_paper(claim, view) for claim in algorithm.claims(view)),
            _transcript(algorithm, view),
            *filter(None, [with_one_owner(algorithm, view), against_co_owner(algorithm, view)]),
        )
        for view in parties
    ]
    apart = _apart(algorithm, parties)
    return tuple(_to_all(promises).assuming(*apart) for promises in zip(*by_party, strict=True))


def promised_to_shared(algorithm: Algorithm, facts: FederationFacts) -> str | None:
    """Say what is promised to who is with several owners, and with one alone; None if the run counts on one each.

    It is the guarantee of the transcript, as `guarantees` has it; the last words are about an owner that reveals its
    part of a secure sum's noise.
    """
    if facts.overlap == 1:
        return None
    all_of_them, alone, *revealed = guarantees(algorithm, facts)[len(algorithm.claims(facts.of(0))) :]
    words = (
        f"the same {UNIT_NAMES[facts.unit]} may be with up to {facts.overlap} owners: {_in_figures(all_of_them)} to "
        f"one that is, {_in_figures(alone)} to one that is with one owner alone"
    )
    return words + "".join(f"; {_in_figures(one)} to the first if an owner reveals its noise" for one in revealed)


def _in_figures(promise: Guarantee) -> str:
    """Return what is promised, in figures."""
    if not math.isfinite(promise.epsilon):
        return "nothing is promised"
    return f"epsilon {no_less(promise.epsilon)}, delta {no_less(promise.delta, 2)} is promised"


def _of_the_paper(claim: Guarantee, facts: OwnFacts) -> Guarantee:
    """Return a paper's claim with what it assumes; papers know a record, and here it may be a person."""
    hidden = claim.adjacency if claim.adjacency != "replace_one" else facts.unit
    alone = (f"the {UNIT_NAMES[facts.unit]} is with one owner alone",) if facts.overlap > 1 else ()
    return replace(claim, adjacency=hidden).assuming(*alone, *ALWAYS)


def _to_all(promises: tuple[Guarantee, ...]) -> Guarantee:
    """Return a guarantee that holds for all to whom one of these is promised."""
    worst = max(promises, key=lambda promise: promise.epsilon)
    assumed = dict.fromkeys(chain(worst.assumptions, *(promise.assumptions for promise in promises)))
    return replace(worst, delta=max(promise.delta for promise in promises), assumptions=tuple(assumed))


def price(algorithm: Algorithm, facts: OwnFacts, view: View = "transcript") -> Price:
    """Return a run's price to the party whose facts these are after each of its rounds, (T,).

    It is both by itself and under a filter. A round in which the party has no part adds nothing. For a run with a
    delta, and for a paper's claim, the first round in which it has a part pays all of epsilon; for any other run each
    part adds at least one micro-unit. ``view`` is what the adversary is taken to see: if that is only the final model,
    a party pays the paper's claim. Raises BudgetExhaustedError for a run without noise: no budget allows it.
    """
    costs = events(algorithm, facts)
    delta = needed_delta(costs, facts)
    has_part = [not isinstance(event, NoEvent) for event in costs]
    began = list(accumulate(has_part, operator.or_))
    claimed = _claimed(algorithm, facts, view)
    covered = _covered(costs if claimed is None else _paid_at_first(claimed, has_part))
    if claimed is not None:
        epsilon, delta = max(1, math.ceil(claimed.epsilon * MICRO - 1e-6)), claimed.delta
        totals = [epsilon * part for part in began]
    elif delta > 0:
        all_epsilon = _micro_units(epsilon_after(costs, delta))
        totals = [all_epsilon * part for part in began]
    else:
        totals = _rising([_micro_units(epsilon) for epsilon in pure_epsilons(costs)], has_part)
    added = [Cost(total, delta_units(delta) * part) for total, part in zip(totals, began, strict=True)]
    return Price.of([*map(operator.add, added, covered)], algorithm.adjacency_of(facts.unit))


def price_at_once(event: Event, epsilon: float, delta: float) -> Price:
    """Return the price of a run whose first round pays for all: one event, within an agreed epsilon and delta."""
    spent_delta = 0.0 if epsilon_after([event], 0.0) <= epsilon * (1 + 1e-9) else delta
    units = _micro_units(epsilon_after([event], spent_delta)), delta_units(spent_delta)
    return Price.at_once(cost_of(*units, cover(event)))


def schedule(algorithm: Algorithm, facts: OwnFacts, view: View = "transcript") -> tuple[Cost, ...]:
    """Return the cost of each round to the party whose facts these are, (T,): the steps of `price`.

    Raises BudgetExhaustedError as `price` does.
    """
    run_price = price(algorithm, facts, view)
    return tuple(run_price.step(round, round - 1) for round in range(1, len(run_price.epsilon) + 1))


def highest_charge(algorithm: Algorithm, facts: OwnFacts, view: View = "transcript") -> Cost:
    """Return the most that a run costs by `price`, to the micro-unit of epsilon.

    Raises BudgetExhaustedError as it does.

    It is fast, unless the rounds' epsilons add up to more than the agreed budget, and no closed form is known: then
    composing them takes up to seconds. If they do not, the price, which composes them too, may be less.
    """
    costs = events(algorithm, facts)
    delta = needed_delta(costs, facts)
    if _claimed(algorithm, facts, view) is not None:
        return price(algorithm, facts, view).total
    covered = _covered(costs)[-1]
    added = added_epsilon(costs, delta)
    epsilon = added if added <= facts.own_agreed[0] * (1 + 1e-9) else epsilon_after(costs, delta)
    parts = sum(not isinstance(event, NoEvent) for event in costs)
    units = max(_micro_units(epsilon), 1 if delta > 0 else parts) if parts else 0
    return Cost(units, delta_units(delta)) + covered


def _claimed(algorithm: Algorithm, facts: OwnFacts, view: View) -> Guarantee | None:
    """Return the paper's claim for a view, or None; none is about a person with several owners."""
    if facts.overlap > 1:
        return None
    claims = (claim for claim in algorithm.claims(facts) if claim.adjacency == algorithm.adjacency)
    return next((claim for claim in claims if claim.view == view), None)


def _paid_at_first(claim: Guarantee, has_part: list[bool]) -> list[Event]:
    """Return a claim as an approximate release in the first round with a part."""
    first = has_part.index(True) if any(has_part) else None
    release = ApproximateEvent(claim.epsilon, claim.delta)
    return [release if round == first else NoEvent() for round in range(len(has_part))]


def _covered(costs: Sequence[Event]) -> list[Cost]:
    """Return what a filter counts of the rounds so far, in whole units, rounded up, (T,).

    All slack is charged with the first round that costs anything, because an account must know it at its first charge.
    Raises BudgetExhaustedError as `cover` does.
    """
    covers = [cover(event) for event in costs]
    columns = ([Fraction(getattr(one, name)) for one in covers] for name in ("alone", "variance", "excess"))
    units = SQUARE_UNITS, SQUARE_UNITS, EXCESS_UNITS
    rising = [
        [math.ceil(total * unit) for total in accumulate(column)] for column, unit in zip(columns, units, strict=True)
    ]
    slack = sum(delta_units(one.slack) for one in covers)
    began = accumulate((not isinstance(event, NoEvent) for event in costs), operator.or_)
    return [
        Cost(0, 0, gdp, slack * part, variance, excess)
        for gdp, variance, excess, part in zip(*rising, began, strict=True)
    ]


def _micro_units(epsilon: float) -> int:
    """Convert an epsilon to micro-units, rounded up except for a thousandth, at least one.

    Raises BudgetExhaustedError for an infinite epsilon.
    """
    if not math.isfinite(epsilon):
        raise BudgetExhaustedError("the run releases answers without noise; no budget allows that")
    return max(1, math.ceil(epsilon * MICRO - 1e-3))


def _rising(totals: list[int], has_part: list[bool]) -> list[int]:
    """Make totals rise in each round with a part, and in no other, so that each part costs something."""
    risen = [0]
    for total, part in zip(totals, has_part, strict=True):
        risen.append(max(total, risen[-1] + 1) if part else risen[-1])
    return risen[1:]


def _distinct(facts: FederationFacts) -> list[int]:
    """Return one party's index for each distinct budget and size."""
    rows = np.stack([facts.epsilon, facts.delta, facts.n_examples.astype(np.float64)])
    return [int(index) for index in np.unique(rows, axis=1, return_index=True)[1]]


# ── what a run costs to carry ────────────────────────────────────────────────

NUMBER = 8
"""Bytes of a number on the wire."""

NOISE_SECONDS = 4e-7
"""About how long an exact integer of noise takes.

3,231,961 discrete Gaussians took 1.25 s, as many discrete Laplaces 1.20 s, on one core of a server (2026).
"""

_HEAD = 128  # bytes before an array's: `parley.common.encoding.npy` writes no more
_ANSWER_AT_LEARNER = 4 * NUMBER  # bytes of a number of each answer: in pieces, joined, checked, and as a real
_QUESTION_AT_LEARNER = 14 * NUMBER  # bytes of a number of a question: `dp_gd`'s steps and messages; measured (2026)
_ROUND_IN_MEMORY = 5 * NUMBER  # bytes of a number: as computed, as noise, as sent, as stored, and in stock for the next


@dataclass(frozen=True, slots=True)
class RunCosts:
    """Numbers, bytes and seconds of a run, of one party unless said otherwise.

    ``asked`` and ``answered`` are the numbers of the longest question and answer; ``round_bytes`` is the most that a
    round's question and answer have together, ``bytes`` what all rounds have, ``all_bytes`` at all parties.
    ``memory_bytes`` is the memory of a round's arrays at a party, beside its rows, ``learner_bytes`` about that of all
    parties' arrays at the learner. ``noise_seconds`` is about how long all noise takes to draw. ``limit`` is the
    setting that a party's limits must allow, ``longest`` how many bytes of it the run needs, and ``fits`` says whether
    the parties' allow it, and the secure sum its width.
    """

    asked: int
    answered: int
    round_bytes: int
    bytes: int
    all_bytes: int
    memory_bytes: int
    learner_bytes: int
    noise_seconds: float
    limit: str
    longest: int
    fits: bool


def longest_body(shapes: Iterable[tuple[int, ...]]) -> int:
    """Return the bytes of the longest ``.npy`` body of arrays of these shapes."""
    return max((math.prod(shape) * NUMBER + _HEAD for shape in shapes), default=0)


def lengths(questions: Sequence[Question]) -> tuple[int, int]:
    """Return the bytes of the longest of a run's questions, and of its longest answer."""
    return (
        longest_body(question.message for question in questions),
        longest_body((question.answer,) for question in questions),
    )


def limit_of(spec: RunSpec) -> str:
    """Return the name of the party's limit that a run's questions and answers must fit.

    A secure sum's messages hold more than the numbers, and are bounded as all others are.
    """
    return "round_bytes" if spec.secure_sum == "none" else "body_bytes"


def costs_of(spec: RunSpec, most: int) -> RunCosts:
    """Return a run's costs to carry, at parties whose `limit_of` it is ``most``.

    A secure sum's answers are counted as ciphertexts for one key holder, of keys of the default size. Raises
    InvalidInputError if the run's terms contradict each other.
    """
    questions, limit = spec.questions(), limit_of(spec)
    longest = max(lengths(questions))
    question_sizes = [math.prod(question.message) for question in questions]
    answered = [question.answer for question in questions]
    plain = spec.secure_sum == "none"
    sent = [size * NUMBER if plain else Layout(max(size, 1), DEFAULT_KEY_BITS).blob_bytes for size in answered]
    rounds = [one * NUMBER + other + 2 * _HEAD for one, other in zip(question_sizes, sent, strict=True)]
    fits = longest <= most and (plain or max(answered) <= MAX_D)
    return RunCosts(
        asked=max(question_sizes),
        answered=max(answered),
        round_bytes=max(rounds),
        bytes=sum(rounds),
        all_bytes=sum(rounds) * len(spec.parties),
        memory_bytes=max(question_sizes) * NUMBER + max(answered) * _ROUND_IN_MEMORY,
        learner_bytes=max(answered) * len(spec.parties) * _ANSWER_AT_LEARNER
        + max(question_sizes) * _QUESTION_AT_LEARNER,
        noise_seconds=sum(answered) * NOISE_SECONDS,
        limit=f"limits.{limit}",
        longest=longest,
        fits=fits,
    )
