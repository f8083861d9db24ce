"""A run that hides persons says so: in its model's document, its promises, its forecast and its owners' questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from parley.common.data.study import Person
from parley.common.learning.model import Model
from parley.common.privacy.account import Cost
from parley.common.runs.consent import ReviewedRun
from parley.common.runs.model_document import model_document
from parley.common.runs.pricing import guarantees, price, promised_to_shared
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.wire.party_api import RunProposal
from parley.learner.cli.display import promises as promises_shown
from parley.learner.forecasting.report import objections
from parley.learner.runs.run import RunTerms
from parley.party.owner.questions import question_of, terms_in_words
from parley.party.policy import rules_of
from parley.party.settings import Policy
from tests.support.cluster import made_up

STUDY = made_up(3).model_copy(update={"person": Person(column="patient_nbr", most_rows=40)})
OWNERS = tuple(Member(name=name, n_examples=2000, budget=Budget(epsilon=1, delta=1e-5)) for name in ("a", "b", "c"))

POLICY = {"epsilon": 5, "delta": 1e-4, "max_epsilon_per_run": 2, "max_delta_per_run": 1e-4, "algorithms": ["dp_gd"]}


def run(**terms: Any) -> RunSpec:  # noqa: ANN401 -- terms of a run
    """Three owners' run, by secure sums, of persons who may be with two of them."""
    fields: dict[str, Any] = {"study": STUDY, "algorithm": "dp_gd", "parties": OWNERS, "minimum_contributors": 3}
    return RunSpec.model_validate(fields | {"secure_sum": "paillier", "overlap": 2} | terms).settled()[0]


def test_a_document_and_a_list_of_runs_state_that_persons_are_hidden() -> None:
    spec = run()
    promises = [promise.to_json() for promise in guarantees(spec.build(), spec.facts())]
    document = model_document(spec, promises, Model(np.zeros(spec.facts().shape)), spec.names)
    assert (document["adjacency"], {each["adjacency"] for each in document["guarantees"]}) == ("person", {"person"})
    terms = RunTerms.of(spec, 60.0, {})
    assert (terms.adjacency, terms.overlap) == ("person", 2)
    assert [each.get("owners", 1) for each in document["guarantees"]] == [2, 1, 2]
    shown = "\n".join(promises_shown(document["guarantees"]))
    assert shown.count("for all rows of one person, with up to 2 owners, replaced,") == 2
    assert shown.count("for all rows of one person, with one owner, replaced,") == 1
    first = document["guarantees"][0]["assumptions"]
    assert "the same person is with no more than 2 owners, whose answers this promise is about together" in first
    assert any(words.startswith("the numbers of persons of all parties are public") for words in first)
    with_one = [promise.to_json() for promise in guarantees(run(overlap=1).build(), run(overlap=1).facts())]
    for assumed in (each["assumptions"] for each in (*promises, *with_one)):
        assert sum(words.startswith("all rows of a person with one owner have one value") for words in assumed) == 1


def test_what_is_promised_to_who_is_with_several_owners_is_said_beside_what_is_to_one() -> None:
    assert promised_to_shared(run(overlap=1).build(), run(overlap=1).facts()) is None
    words = promised_to_shared(run().build(), run().facts())
    assert words is not None
    assert words.startswith(
        "the same person may be with up to 2 owners: epsilon 1, delta 1e-05 is promised to one that"
    )
    alone = float(words.split("epsilon ")[2].partition(",")[0])
    assert 0.4 < alone < 0.6, "half of the move, and little more than half of the epsilon"
    assert words.endswith("to the first if an owner reveals its noise")


@pytest.mark.parametrize("person", [None, STUDY.person])
def test_an_owner_reads_whose_rows_are_hidden_together(person: Person | None) -> None:
    spec = run(study=STUDY.model_copy(update={"person": person}), overlap=1 if person is None else 2)
    cost = price(spec.build(), spec.facts().of(0))
    question = question_of("learner", RunProposal(run="r", user="u", purpose="", spec=spec), cost, 0.0)
    promise = " ".join(terms_in_words("a", spec)["guarantee"])
    if person is None:
        assert "hides" not in question
        assert "telling one record of yours from another" in promise
        return
    assert "all rows of a person at once: rows with the same patient_nbr are one person's" in question["hides"]
    assert "the same person may be with up to 2 owners" in question["hides"]
    assert "telling all rows of one person, with up to 2 owners, from any others" in promise
    assert "telling all rows of one person with you from any others" in promise
    assert "record" not in promise


def test_a_forecast_of_persons_breaks_no_rule_of_an_owner_who_demands_that() -> None:
    spec = run()
    rules = rules_of(Policy.model_validate(POLICY | {"adjacency": "person"}), person="patient_nbr")
    broken = objections(ReviewedRun.of(spec), OWNERS[0], rules, Cost(10**6, 10**7), None)
    assert not {"person", "adjacency"} & broken.keys()
