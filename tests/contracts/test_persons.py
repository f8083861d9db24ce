"""Every algorithm of the registry hides a person of many rows as it hides a record, or refuses studies with persons.

A person of up to 40 rows, with opposite labels too, is exchanged for any other, or for nothing but zeros. That noise is
as events say is proven in `tests.contracts.test_proofs`, for records, whose events a run about persons has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest

from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.weighing import Weighing
from parley.common.errors import BudgetExhaustedError, InvalidInputError
from parley.common.learning.losses import Logistic
from parley.common.privacy.events import DrawEvent
from parley.common.privacy.proofs import Additive
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.pricing import events, guarantees, price
from tests.contracts.algorithms import ADDITIVE, CASES, Case, D, ball, beyond, conversation, each_of, exact, federation
from tests.contracts.proving import HeardDraws, queries

MOST_ROWS = 40
N_PAIRS = 400
OTHERS = 2
"""The persons beside the one who is exchanged."""
HIDING = {label: case for label, case in CASES.items() if case.algorithm.persons}
ADDING = {label: case for label, case in ADDITIVE.items() if label in HIDING}
DRAWING = {
    label: case
    for label, case in HIDING.items()
    if isinstance(case.algorithm.event(1, case.equal_facts(2, 10).of(0)), DrawEvent)
}
Rows = tuple[FloatArray, FloatArray]


def by_person(facts: FederationFacts) -> FederationFacts:
    """The same facts of examples that are persons."""
    return replace(facts, unit="person", most_rows=MOST_ROWS)


def persons(rng: np.random.Generator) -> Iterator[Rows]:
    """Rows and labels of persons: alike or at right angles, of one label or opposite ones, few or many."""
    while True:
        r = int(rng.choice([1, 2, 6, MOST_ROWS]))
        row, orthogonal = ball(rng, D), np.eye(D)[np.arange(r) % D]
        X = [np.tile(row, (r, 1)), orthogonal, ball(rng, r, D), np.zeros((r, D))][rng.choice(4, p=[0.4, 0.2, 0.3, 0.1])]
        y = [np.ones(r), -np.ones(r), np.resize([1.0, -1.0], r), rng.choice([-1.0, 1.0], r)][rng.integers(4)]
        yield X, y


def holding(people: list[Rows], norm: str = "euclidean") -> Shard:
    """One party's shard of these persons."""
    begins = np.concatenate([np.arange(len(y)) == 0 for _, y in people])
    X, y = (np.concatenate(parts) for parts in zip(*people, strict=True))
    return Shard(X, y, norm=norm, begins=begins)  # type: ignore[arg-type]


def exchanged(rng: np.random.Generator) -> tuple[Shard, Shard]:
    """Two stacks of parties; each party has one person in the place of another."""
    source = persons(rng)
    others = [[next(source) for _ in range(OTHERS)] for _ in range(N_PAIRS)]
    one, other = ([holding([next(source), *beside]) for beside in others] for _ in range(2))
    return Shard.stack(one), Shard.stack(other)


@each_of(ADDING)
def test_no_person_moves_an_answer_past_its_sensitivity(case: Case) -> None:
    rng = np.random.default_rng(5)
    pair, largest, violations = exchanged(rng), 0.0, 0
    weights = (1.0, 0.25) if case.algorithm.weighs_classes else ()
    facts = by_person(case.equal_facts(N_PAIRS, OTHERS + 1, loss=Logistic(class_weights=weights)))
    facts_alone = by_person(case.equal_facts(3, 5))
    asked = {query.step: query for query in reversed(conversation(case, facts_alone, seed=3)[0])}
    for query in chain.from_iterable(queries(question, rng) for question in asked.values()):
        n_beyond, farthest = beyond(case, query, pair, facts)
        violations, largest = violations + n_beyond, max(largest, farthest)
    print(f"{case.name}: the largest move of a person is {largest:.4f} of the bound")
    assert violations == 0
    assert largest > 0.05


@each_of(DRAWING)
def test_no_person_moves_chances_past_their_spread(case: Case) -> None:
    rng, facts, widest = np.random.default_rng(6), by_person(case.equal_facts(2, OTHERS + 1)).of(0), 0.0
    asked, _ = conversation(case, by_person(case.equal_facts(2, OTHERS + 1)), seed=3)
    event = case.algorithm.event(1, facts)
    assert isinstance(event, DrawEvent)
    source = persons(rng)
    for _ in range(60):
        beside, heard = [next(source) for _ in range(OTHERS)], [HeardDraws(1), HeardDraws(1)]
        for noise in heard:
            prepared = case.algorithm.prepare(holding([next(source), *beside]), facts)
            for query in asked:
                case.algorithm.local(query, prepared, facts, noise)
        for (mine, _), (its, _) in zip(heard[0].asked, heard[1].asked, strict=True):
            widest = max(widest, float(np.ptp(mine - its)))
    assert event.spread / 20 < widest <= event.spread


@each_of({label: case for label, case in HIDING.items() if case.name != "describe"})  # whose squares are rounded first
def test_a_person_of_one_row_is_answered_about_as_a_record(case: Case) -> None:
    shard, facts = federation(case)
    alone = Shard(shard.X, shard.y, shard.mask, begins=np.ones(shard.y.shape, dtype=np.bool_))
    query = case.first_query(facts)
    if isinstance(case.algorithm.proof(query, facts.of(0)), Additive):
        assert (exact(case, query, alone, facts) == exact(case, query, shard, facts)).all()


@each_of(HIDING)
def test_promises_and_prices_name_the_person(case: Case) -> None:
    _, facts = federation(case)
    facts = by_person(facts)
    hidden = case.algorithm.adjacency_of("person")
    assert {promise.adjacency for promise in guarantees(case.algorithm, facts)} == {hidden}
    with suppress(BudgetExhaustedError):  # it is not private
        assert price(case.algorithm, facts.of(0)).adjacency == hidden


@each_of({label: case for label, case in CASES.items() if case.algorithm.persons or case.algorithm.adjacency})
def test_an_algorithm_says_why_it_takes_no_persons(case: Case) -> None:
    facts = by_person(case.facts(np.array([7, 20, 13, 5])))
    if case.algorithm.persons:
        case.algorithm.check_rows(facts)
        return
    with pytest.raises(InvalidInputError, match="person"):
        case.algorithm.check_rows(facts)


def test_the_suite_would_notice_persons_that_fall_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """An algorithm that lost the weights would count a person 40 times."""
    case = next((case for label, case in ADDING.items() if label.startswith("dp_gd")), None)
    assert case is not None
    monkeypatch.setattr(Weighing, "of", lambda *_: None)
    with pytest.raises(AssertionError, match="== 0"):
        test_no_person_moves_an_answer_past_its_sensitivity(case)


def test_several_owners_are_charged_for_together() -> None:
    """Two owners of a person cost twice the move in one sum, and the root of two apart; both lines are stated."""
    for label, case in CASES.items():
        if case.algorithm.curator or case.algorithm.claims(case.equal_facts(4, 30).of(0)):
            continue
        facts = case.equal_facts(4, 30).with_overlap(2, is_gaussian=case.algorithm.noise_is_gaussian)
        try:
            case.algorithm.questions(facts)
            promises = guarantees(case.algorithm, facts)
        except InvalidInputError:
            continue
        together = next(g for g in promises if any("no more than 2 owners" in words for words in g.assumptions))
        alone = next(g for g in promises if any("one owner alone" in words for words in g.assumptions))
        is_short = any("no less is proven" in words for words in together.assumptions)
        if np.isfinite(together.epsilon) and not is_short:
            assert alone.epsilon < together.epsilon <= 1.0 + 1e-9, label
            assert len(events(case.algorithm, facts.of(0))) == len(case.algorithm.questions(facts))
