"""The terms of a run, as its roster and queries spell them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from pydantic import ValidationError

from parley.common.algorithms import REGISTRY
from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.runs.secure_terms import check_roster, draft_roster, noise_text, round_terms, session_of
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.errors import Reason
from parley.common.secure_sum.messages import MAX_TEXT, Roster, RosterKeyHolder, SumQuery
from tests.support.rounds import completed

Refused = Callable[[Reason], AbstractContextManager[object]]
NAMES = ("a" * 100, "b", "c")
KEYS = {name: f"{i:064x}" for i, name in enumerate(NAMES, 1)}
HOLDER = RosterKeyHolder("holder", "ee" * 32, f"{2**2047 + 1:x}")

FEATURES = tuple(Feature(name=name, lower=0, upper=1) for name in ("x", "z"))


def spec(**changes: object) -> RunSpec:
    """A run of three parties; two must contribute."""
    study = Study(name="s", features=FEATURES, label=Label(name="y", values=("0", "1")))
    fields = {
        "study": study,
        "algorithm": "dp_gd",
        "parameters": {"n_rounds": 3},
        "parties": tuple(
            Member(name=name, n_examples=1000 * i, budget=Budget(epsilon=i, delta=1e-6))
            for i, name in enumerate(NAMES, 1)
        ),
        "minimum_contributors": 2,
        "colluders": 1,
        "secure_sum": "paillier",
    }
    return RunSpec.model_validate(fields | changes)


def draft(run: str = "run-1", **changes: object) -> Roster:
    """The learner's roster of that run."""
    return draft_roster(run, spec(**changes), key_bits=2048, learner="ff" * 32, party_keys=KEYS, key_holders=[HOLDER])


def test_a_drafted_roster_is_accepted() -> None:
    check_roster(draft(), "run-1", spec())


def test_a_roster_of_other_terms_is_refused(refused: Refused) -> None:
    roster, (first, second, third) = draft(), draft().parties
    quieter = replace(second, noise=noise_text(spec().build(), spec(colluders=0).facts().of(1), 1) + " ")
    for changes in (
        {"session": "00" * 16},
        {"d": 4},
        {"minimum_contributors": 3},
        {"colluders": 0},
        {"fraction_bits": 31},
        {"parties": (first, second)},
        {"parties": (second, first, third)},
        {"parties": (first, quieter, third)},
        {"parties": (first, replace(second, name="d"), third)},
    ):
        with refused(Reason.WRONG_TERMS):
            check_roster(replace(roster, **changes), "run-1", spec())


def test_a_roster_belongs_to_one_run_and_one_specification(refused: Refused) -> None:
    assert session_of("run-1", spec()) == session_of("run-1", spec())
    for run, other in (("run-2", spec()), ("run-1", spec(parameters={"n_rounds": 4}))):
        assert session_of(run, other) != session_of("run-1", spec())
        with refused(Reason.WRONG_TERMS):
            check_roster(draft(), run, other)


def test_a_query_of_other_terms_is_refused(refused: Refused) -> None:
    terms = round_terms(spec().build(), spec().facts(), 1)
    query = SumQuery("00" * 16, "00" * 32, 1, "gradient", "00" * 32, terms.clip, terms.noise, 0)
    terms.check(query)
    for changes in ({"clip": 0.5}, {"noise": "GaussianEvent(mu=9)"}):
        with refused(Reason.WRONG_TERMS):
            terms.check(replace(query, **changes))


@pytest.mark.parametrize("name", [name for name, algorithm in REGISTRY.items() if not algorithm.curator])
def test_the_noise_of_every_algorithm_has_a_spelling_that_fits(name: str) -> None:
    run = completed(spec(algorithm=name, parameters={}))
    assert all(len(noise_text(run.build(), run.facts().of(index), 1)) <= MAX_TEXT for index in range(3))
    check_roster(draft(algorithm=name, parameters={}, public=run.public, study=run.study), "run-1", run)


def test_a_sum_of_one_and_a_sum_of_too_many_are_no_runs() -> None:
    with pytest.raises(ValidationError, match="minimum_contributors = 2"):
        spec(minimum_contributors=1, colluders=0)
    many = [Member(name=f"p{i}", n_examples=1, budget=Budget(epsilon=1, delta=1e-6)) for i in range(1025)]
    with pytest.raises(ValidationError, match="at most 1024"):
        spec(parties=many)
    assert spec(parties=many, secure_sum="none").secure_sum == "none"
