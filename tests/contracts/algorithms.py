"""Every algorithm of the registry, with the federations and shards that its contract is tested on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from parley.common.algorithms import REGISTRY, build_algorithm, parameter_schema
from parley.common.algorithms.release import Releases
from parley.common.arrays import FloatArray, IntArray
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.encoding.fixed_point import UNIT
from parley.common.learning.losses import Logistic
from parley.common.learning.model import Model
from parley.common.privacy.events import LaplaceEvent
from parley.common.privacy.noise import Noise, NoNoise
from parley.common.privacy.proofs import Additive
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Reply

D = 4
"""The number of features."""
PUBLIC = np.random.default_rng(8).uniform(-0.5, 0.5, (6, D))
"""Public rows, for algorithms that ask about some; the first is a model's weights, for those that ask about a model."""
ALIASES = {"batch", "individual"}
"""Names of what has another one."""
BESIDE: dict[str, dict[str, object]] = {
    "thesis": {"mechanism": "generalized"},
    "full": {"aggregator": "party-1"},
    "own": {"aggregator": "party-1"},
}
"""What goes with a value of a parameter, which means nothing by itself."""
SIZES = np.array([7, 20, 13, 1])
"""The parties' numbers of examples."""
STUDY = Study(
    name="design",
    features=(
        Feature(name="a", lower=-1, upper=1),
        Feature(name="b", lower=0, upper=10),
        Category(name="c", values=("red", "green")),
    ),
    label=Label(name="y", values=("no", "yes")),
    intercept=False,
    missing="drop",
    row_norm="largest",
)
"""What the columns are, for algorithms that ask about a study's."""


def seen(facts: FederationFacts) -> OwnFacts:
    """Facts as a party sees them: those of one, or of all stacked."""
    return facts if isinstance(facts, OwnFacts) else facts.everyone


@dataclass(frozen=True, slots=True)
class Case:
    """An algorithm under test, and whether the learner sees nothing but sums."""

    name: str
    algorithm: Algorithm
    secure_sum: bool

    @property
    def public(self) -> dict[str, Any]:
        """The terms about public rows."""
        rows = PUBLIC if self.algorithm.rows == "training" else PUBLIC[:1]
        if self.algorithm.public_rows == "labelled":
            rows = np.column_stack([PUBLIC, np.resize([1.0, -1.0], len(PUBLIC))])
        return {"public": rows, "public_shape": rows.shape, "study": STUDY}

    def facts(self, n_examples: IntArray, **terms: object) -> FederationFacts:
        """Facts of parties of these sizes, with budgets of their own; a curator's if the algorithm wants one."""
        k = len(n_examples)
        facts = FederationFacts(
            parties=tuple(f"party-{i}" for i in range(k)),
            n_examples=n_examples,
            epsilon=np.resize([1.0, 0.5, 2.0, 0.8], k),
            delta=np.resize([1e-5, 1e-4, 0.01], k),
            n_features=D,
            loss=Logistic(),
            secure_sum=self.secure_sum,
            **(self.public | {"minimum_contributors": k} | terms),
        )
        return facts.curated() if self.algorithm.curator else facts

    def equal_facts(self, k: int, n: int, **terms: object) -> FederationFacts:
        """Facts of k parties of n examples with equal budgets."""
        budgets = {"epsilon": 1.0, "delta": 1e-4, "n_features": D, "loss": Logistic(), "secure_sum": self.secure_sum}
        return FederationFacts.uniform(np.full(k, n), **(self.public | budgets | terms))

    def first_query(self, facts: FederationFacts) -> Query:
        return next(self.algorithm.program(facts))

    def answer(self, query: Query, shard: Shard, facts: FederationFacts, noise: Noise) -> IntArray:
        """What a party answers, or all of a stack, from a shard prepared for this answer."""
        party_facts = seen(facts)
        return self.algorithm.local(query, self.algorithm.prepare(shard, party_facts), party_facts, noise)

    @property
    def additive(self) -> bool:
        """Whether a private answer is an exact one plus noise, no matter who gives it."""
        if self.algorithm.roles:  # some have no part in some rounds
            return False
        facts = self.equal_facts(1 if self.algorithm.curator else 2, 10)
        return isinstance(self.algorithm.proof(self.first_query(facts), facts.of(0)), Additive)


def variants(name: str) -> Iterator[dict[str, object]]:
    """Parameters worth a test of their own: few rounds, and each value of each enumerated parameter."""
    properties = parameter_schema(name)["properties"]
    short: dict[str, object] = {"n_rounds": 3} if "n_rounds" in properties else {}
    if name == "parameter_average":  # whose bound by the paper is far beyond any minimiser for a small lambda
        short["regularization"] = 0.1
    yield short
    for parameter, schema in properties.items():
        for value in schema.get("enum", ()):
            if value in BESIDE:
                yield short | {parameter: value} | BESIDE[value]
            elif value != schema["default"]:
                yield short | {parameter: value}


def label_of(name: str, chosen: Mapping[str, object], *, secure: bool) -> str:
    """What a case is called: by the values that are not every case's."""
    values = [
        f"second_{value}" if parameter.startswith("second_") else str(value)
        for parameter, value in chosen.items()
        if value not in {3, 0.1}
    ]
    return "-".join([name, *values, "sum" if secure else "each"])


def all_cases() -> dict[str, Case]:
    """Each variant of each algorithm; raises ValueError for two of one label: one would never be tried."""
    cases: dict[str, Case] = {}
    for name in (name for name in REGISTRY if name not in ALIASES):
        for chosen in variants(name):
            for secure in (False,) if REGISTRY[name].curator else (False, True):
                label = label_of(name, chosen, secure=secure)
                if label in cases:
                    raise ValueError(f"two cases are called {label}")
                cases[label] = Case(name, build_algorithm(name, chosen), secure)
    return cases


def pairwise(cases: Mapping[str, Case]) -> dict[str, Case]:
    """All cases but half of the similar ones: each value of each algorithm with or without a secure sum, in turn.

    Every pair of an algorithm, a parameter's value and a way of summing is in some case, as algorithms share values.
    """
    algorithms = sorted({cases[label].name for label in SIMILAR})
    values = sorted({value_of(label) for label in SIMILAR})
    return {
        label: case
        for label, case in cases.items()
        if label not in SIMILAR
        or case.secure_sum is bool((algorithms.index(case.name) + values.index(value_of(label))) % 2)
    }


def value_of(label: str) -> str:
    """The parameter's value in the label of a variant."""
    return label.partition("-")[2].rpartition("-")[0]


RECORDABLE = all_cases()
SHOWN = {"release-output-each", "average-objective-each", "feature-full-party-1-each", "feature-all-sum"}
SIMILAR = {
    label
    for label, case in RECORDABLE.items()
    if isinstance(case.algorithm, Releases) and label.count("-") > 1 and label not in SHOWN
}
"""Variants of the algorithms that share sites' mechanisms: quick tests look at the defaults and at those shown."""
CASES = pairwise(RECORDABLE)
ADDITIVE = {label: case for label, case in CASES.items() if case.additive}


def each_of(cases: Mapping[str, Case], slow: Collection[str] = ()) -> pytest.MarkDecorator:
    """A test of each case; those are slow that are similar to others, or in ``slow``."""
    marks = {
        label: [pytest.mark.slow] if case.name == "probe" or label in SIMILAR | set(slow) else []
        for label, case in cases.items()
    }
    return pytest.mark.parametrize(
        "case", [pytest.param(cases[label], id=label, marks=marks[label]) for label in cases]
    )


def ball(rng: np.random.Generator, *shape: int) -> FloatArray:
    """Rows (..., d) uniform on the unit sphere."""
    X = rng.normal(size=shape)
    return np.asarray(X / np.linalg.norm(X, axis=-1, keepdims=True))


def labels(rng: np.random.Generator, *shape: int) -> FloatArray:
    return np.where(rng.random(shape) < 0.5, -1.0, 1.0)


def stack(rng: np.random.Generator, sizes: IntArray) -> Shard:
    """Stack shards of these sizes."""
    return Shard.stack([Shard(ball(rng, n, D), labels(rng, n)) for n in sizes.tolist()])


def federation(case: Case, seed: int = 1) -> tuple[Shard, FederationFacts]:
    """A stack of shards of different sizes and budgets, or a curator's pooled shard as a stack of one."""
    shard = stack(np.random.default_rng(seed), SIZES)
    if case.algorithm.curator:
        shard = Shard.stack([shard.pooled()])
    return shard, case.facts(SIZES)


def exact(case: Case, query: Query, shard: Shard, facts: FederationFacts) -> IntArray:
    """Return the answer without its noise."""
    return case.answer(query, shard, facts, NoNoise())


def beyond(case: Case, query: Query, pair: tuple[Shard, Shard], facts: FederationFacts) -> tuple[int, float]:
    """How many parties of a stack move answers past the sensitivity, exactly, and the largest move in parts of it.

    Each party has a neighbour in the other stack. The norm is that of the noise.
    """
    event, proof = case.algorithm.event(query.round, facts.of(0)), case.algorithm.proof(query, facts.of(0))
    assert isinstance(proof, Additive)
    p = 1 if isinstance(proof.law or event, LaplaceEvent) else 2
    moved = exact(case, query, pair[0], facts) - exact(case, query, pair[1], facts)
    bounds = np.resize(case.algorithm.sensitivity(query, seen(facts)), len(moved)).tolist()
    moves = [sum(abs(v) ** p for v in row) for row in moved.tolist()]  # Python's integers: exact
    violations = sum(move > (Fraction(bound) * UNIT) ** p for move, bound in zip(moves, bounds, strict=True))
    return violations, max(move ** (1 / p) / UNIT / bound for move, bound in zip(moves, bounds, strict=True))


def conversation(case: Case, facts: FederationFacts, seed: int) -> tuple[list[Query], Model]:
    """What a program asks, and the model it comes to, when told replies that somebody might have given."""
    rng, everybody = np.random.default_rng(seed), tuple(range(len(facts.parties)))
    program = case.algorithm.program(facts)
    queries = [next(program)]
    for question in case.algorithm.questions(facts):
        width = (question.answer,) if question.reveal == "sum" else (len(everybody), question.answer)
        try:
            queries.append(program.send(Reply(rng.normal(size=width), everybody)))
        except StopIteration as stop:
            return queries, stop.value
    raise AssertionError(f"{case.name} asks more than it declares")
