"""A plan is written down once a schedule, however many parties share it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.encoding.canonical_json import canonical_digest
from parley.common.errors import VersionError
from parley.common.privacy.account import MICRO
from parley.common.runs.pricing import guarantees, schedule
from parley.common.runs.specification import Budget, Cohort, Member, PublicRows, RunSpec
from parley.learner.runs.plan import Plan
from parley.learner.runs.run import Pause, RunTerms


def test_a_plan_is_read_as_it_was_written() -> None:
    after = tuple(round / 100 for round in range(1, 101))
    others = {f"party-{index}": after for index in range(1000)}
    plan = Plan(100, {"party-a": after[:50] + after[:50], **others}, ({"view": "transcript"},))
    text = plan.to_json()
    assert Plan.from_json(text) == plan
    assert list(Plan.from_json(text).epsilon_after) == list(plan.epsilon_after)
    assert len(text) < 30_000


STUDY = Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("a", "b")))


def spec(**changes: object) -> RunSpec:
    """A run of two rounds among three parties, two of them alike."""
    sizes = {"ann": 10, "bob": 20, "eve": 10}
    members = tuple(Member(name=name, n_examples=n, budget=Budget(epsilon=1, delta=1e-5)) for name, n in sizes.items())
    fields: dict[str, object] = {
        "study": STUDY,
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": 2},
        "parties": members,
        "minimum_contributors": 2,
        "answer_every": 2,
        "colluders": 1,
    }
    return RunSpec.model_validate(fields | changes).settled()[0]


def test_a_plan_has_what_each_party_will_have_spent_after_each_round() -> None:
    settled = spec(answer_every=1)
    plan = Plan.of(settled, dict.fromkeys(settled.names, "transcript"))
    algorithm, facts = settled.build(), settled.facts()
    assert plan.rounds == 2
    for index, name in enumerate(settled.names):
        costs = [cost.epsilon / MICRO for cost in schedule(algorithm, facts.of(index), "transcript")]
        assert plan.epsilon_after[name] == pytest.approx(np.cumsum(costs))
    assert plan.guarantees == tuple(each.to_json() for each in guarantees(algorithm, facts))


def test_a_plan_of_other_rounds_is_an_earlier_versions() -> None:
    settled = spec()
    plan = Plan.of(settled, dict.fromkeys(settled.names, "transcript"))
    plan.check(settled)
    with pytest.raises(
        VersionError, match=r"an earlier version .* dp_gd asked in 1 round then, and does in 2 now; ask"
    ):
        replace(plan, rounds=1).check(settled)


def test_a_plan_is_kept_as_few_schedules() -> None:
    plan = Plan(2, {"ann": (0.5, 1.0), "bob": (2.0, 4.0), "eve": (0.5, 1.0)}, ({"view": "model"},))
    assert json.loads(plan.to_json()) == {
        "rounds": 2,
        "schedules": [[0.5, 1.0], [2.0, 4.0]],
        "schedule_of": {"ann": 0, "bob": 1, "eve": 0},
        "guarantees": [{"view": "model"}],
    }


def test_terms_are_the_specification_in_short() -> None:
    rows = PublicRows.of(np.zeros((1, 2)))
    settled, cohort = spec(secure_sum="paillier", public=rows), Cohort(least=2)
    terms = RunTerms.of(settled, 5.0, {"step": "why"}, cohort=cohort, absent={"eve": "away"}, cautions=("a caution",))
    assert terms.model_dump(mode="json") == {
        "study": "s",
        "algorithm": "dp_gd",
        "parameters": settled.parameters,
        "parties": ["ann", "bob", "eve"],
        "epsilon": {"ann": 1.0, "bob": 1.0, "eve": 1.0},
        "minimum_contributors": 2,
        "colluders": 1,
        "answer_every": 2,
        "secure_sum": "paillier",
        "adjacency": "replace_one",
        "overlap": 1,
        "public": rows.model_dump(mode="json"),
        "class_weights": None,
        "spec_digest": settled.digest,
        "n_rounds": 2,
        "seconds": 5.0,
        "any_algorithm": False,
        "may_evaluate": False,
        "evaluation": None,
        "chosen": {"step": "why"},
        "cohort": cohort.model_dump(mode="json"),
        "absent": {"eve": "away"},
        "cautions": ["a caution"],
    }
    plain = RunTerms.of(settled, 5.0, {})
    assert (plain.any_algorithm, plain.cohort, plain.absent, plain.cautions) == (False, None, {}, ())


def test_an_open_algorithm_has_no_rounds_yet_and_hides_what_was_asked_for() -> None:
    whole = spec().model_copy(update={"adjacency": "whole_party"})
    terms = RunTerms.of(whole, 5.0, {}, any_algorithm=True)
    assert (terms.any_algorithm, terms.n_rounds, terms.adjacency) == (True, 0, "whole_party")


def test_a_pause_is_read_as_it_was_written() -> None:
    pause = Pause("ann is away", ("ann",), "2026-01-01")
    assert pause.to_json() == {"reason": "ann is away", "who": ["ann"], "since": "2026-01-01"}
    assert Pause.from_json(pause.to_json()) == pause


def test_a_plan_of_the_first_versions_is_read_which_wrote_each_schedule() -> None:
    text = json.dumps({"rounds": 2, "epsilon_after": {"ann": [0.1, 0.2]}, "guarantees": [{"view": "model"}]})
    assert Plan.from_json(text) == Plan(2, {"ann": (0.1, 0.2)}, ({"view": "model"},))


def test_a_specification_has_the_digest_of_its_words_too() -> None:
    """An older version wrote no shares, and so digested none; the first versions listed members."""
    stored = spec()
    assert RunSpec.read(stored.model_dump_json(), stored.digest) == stored
    content = stored.model_dump(mode="json")
    del content["study"]["label"]["shares"]
    text, members = json.dumps(content), canonical_digest(content["parties"])
    assert RunSpec.read(text, canonical_digest(content | {"parties": members})) == stored
    listed = content | {"parties": [member.model_dump(mode="json") for member in stored.parties]}
    assert RunSpec.read(json.dumps(listed), canonical_digest(listed)) == stored
    for other in (json.dumps(content | {"colluders": 1}), text):
        with pytest.raises(ValueError, match="digest"):
            RunSpec.read(other, "0" * 64)
