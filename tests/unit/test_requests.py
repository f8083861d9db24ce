"""What a request leaves open is settled on the safe side."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from parley.common.errors import InvalidInputError
from parley.common.runs.evaluation import divide
from parley.common.runs.specification import Budget, Member, PublicRows, RunSpec
from parley.learner.api.requests import EvaluationRequest, ForecastRequest, RunRequest
from parley.learner.runs.run import Run
from parley.learner.storage.public_rows import PublicRowStore
from tests.support.cluster import made_up

STUDY = made_up(3)
ROSTER = {f"party-{i}": None for i in range(5)}
SUM: dict[str, Any] = {"secure_sum": "paillier"}


@pytest.mark.parametrize(
    ("terms", "colluders"),
    [
        ({}, 0),
        ({"colluders": 2}, 2),
        (SUM, 1),
        (SUM | {"minimum_contributors": 2}, 1),
        (SUM | {"colluders": 0}, 0),
        (SUM | {"colluders": 3}, 3),
    ],
)
def test_a_secure_sum_is_safe_against_each_of_its_parties_unless_said_otherwise(
    tmp_path: Path, terms: dict[str, Any], colluders: int
) -> None:
    request = RunRequest.model_validate({"study": "made-up", "epsilon": 1, "delta": 1e-5} | terms)
    spec = request.draft({"made-up": STUDY}, ROSTER, PublicRowStore(tmp_path))
    assert spec.colluders == colluders
    share = spec.facts().share
    assert share == (1 / (spec.minimum_contributors - colluders) if "secure_sum" in terms else 1)
    print(f"{terms or 'no secure sum'}: {colluders} colluders, each party adds {share:.2f} of the noise's variance")


def test_as_many_colluders_as_contributors_are_refused(tmp_path: Path) -> None:
    request = RunRequest.model_validate({"study": "made-up", "epsilon": 1, "delta": 1e-5, "colluders": 5} | SUM)
    with pytest.raises(InvalidInputError, match="colluders must lie between 0 and minimum_contributors - 1, not 5"):
        request.draft({"made-up": STUDY}, ROSTER, PublicRowStore(tmp_path))


def order(kind: type[RunRequest] = RunRequest, **terms: object) -> RunRequest:
    """A request with these terms."""
    return kind.model_validate({"study": "made-up", "epsilon": 1, "delta": 1e-5} | terms)


def drafted(tmp_path: Path, kind: type[RunRequest] = RunRequest, **terms: object) -> RunSpec:
    """The draft of such a request."""
    return order(kind, **terms).draft({"made-up": STUDY, "held": HELD}, ROSTER, PublicRowStore(tmp_path))


HELD = STUDY.model_copy(update={"hold_out": 0.25})
BUDGET = Budget(epsilon=1, delta=1e-5)


def test_a_request_is_for_the_whole_roster_unless_it_says_otherwise(tmp_path: Path) -> None:
    members = tuple(Member(name=name, n_examples=1, budget=BUDGET) for name in ROSTER)
    assert drafted(tmp_path) == RunSpec(
        study=STUDY,
        algorithm="dp_gd",
        parameters={},
        parties=members,
        minimum_contributors=5,
        colluders=0,
        secure_sum="none",
        answer_every=1,
        adjacency="replace_one",
        public=None,
    )
    start = PublicRowStore(tmp_path).add_weights(np.zeros((1, 4)))
    assert drafted(tmp_path, public=start.digest).public == start
    few = drafted(
        tmp_path,
        study=HELD.model_dump(mode="json"),
        algorithm="local_average",
        parameters={"regularization": 0.5},
        parties=["party-3", "party-1"],
        budgets={"party-1": {"epsilon": 2, "delta": 1e-6}},
        minimum_contributors=1,
        answer_every=3,
    )
    assert few.study == HELD
    assert few.parties == (
        Member(name="party-3", n_examples=1, budget=BUDGET),
        Member(name="party-1", n_examples=1, budget=Budget(epsilon=2, delta=1e-6)),
    )
    assert (few.algorithm, few.parameters) == ("local_average", {"regularization": 0.5})
    assert (few.minimum_contributors, few.answer_every, few.public) == (1, 3, None)


def test_a_cohort_needs_its_least_in_every_sum(tmp_path: Path) -> None:
    assert drafted(tmp_path, cohort={"least": 5}).minimum_contributors == 5
    assert drafted(tmp_path, cohort={"least": 2}).minimum_contributors == 2
    assert drafted(tmp_path, cohort={"least": 3}, minimum_contributors=3).minimum_contributors == 3
    with pytest.raises(InvalidInputError, match="a secure sum hides nothing below minimum_contributors = 2"):
        drafted(tmp_path, cohort={"least": 1}, **SUM)
    assert drafted(tmp_path, cohort={"least": 2}, **SUM).colluders == 1


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"algorithm": "auto", "parameters": {"step": 1}}, "parameters are those of an algorithm: name one"),
        ({"study": "other"}, "^unknown study 'other'; there are held, made-up$"),
        ({"parties": []}, "parties must name at least one party, and none twice"),
        ({"parties": ["party-1", "party-1"]}, "parties must name at least one party, and none twice"),
        (
            {"parties": list("gfedcba")},
            "^parties: unknown parties: a, b, c, d, e; there are party-0, party-1, party-2, party-3, party-4$",
        ),
        (
            {"parties": ["party-1"], "budgets": {"party-2": BUDGET}},
            "^budgets: unknown parties: party-2; the run has party-1$",
        ),
        ({"answer_every": 2}, "^answer_every above 1 needs minimum_contributors below the number of parties$"),
        ({"cohort": {"least": 6}}, "^cohort.least = 6, and the run names 5 parties$"),
        ({"cohort": {"least": 2}, "minimum_contributors": 3}, "^minimum_contributors = 3 is above cohort.least = 2$"),
        ({"minimum_contributors": 6}, "minimum_contributors"),
        ({"algorithm": "auto", "minimum_contributors": 2, "colluders": 2}, "colluders must lie between 0 and"),
        ({"algorithm": "gop"}, "^gop needs a trusted curator who holds all data: name one party$"),
        (
            {"algorithm": "matrix_perturbation", **SUM},
            "^matrix_perturbation asks for each party's answer, which a secure sum never shows$",
        ),
        ({"delta": 0}, "delta"),
        ({"budgets": {"party-4": {"epsilon": 1, "delta": 0}}}, "delta"),
        ({"public": "0" * 64}, "there are no public rows 000000000000 here"),
        ({"parameters": {"n_rounds": 0}}, "n_rounds"),
    ],
)
def test_what_cannot_be_is_said_by_name(tmp_path: Path, terms: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        drafted(tmp_path, **terms)


def test_a_learner_without_owners_or_studies_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="this learner has no party yet"):
        order().draft({"made-up": STUDY}, {}, PublicRowStore(tmp_path))
    with pytest.raises(InvalidInputError, match=r"^unknown study 'made-up'; there are none$"):
        order().draft({}, ROSTER, PublicRowStore(tmp_path))


def test_a_curators_algorithm_is_for_one_party_or_imagined(tmp_path: Path) -> None:
    assert drafted(tmp_path, algorithm="gop", parties=["party-1"]).names == ("party-1",)
    assert len(drafted(tmp_path, ForecastRequest, algorithm="gop").names) == 5


def test_an_open_algorithm_is_drafted_as_any(tmp_path: Path) -> None:
    request = order(algorithm="auto")
    assert request.any_algorithm
    assert not order().any_algorithm
    assert drafted(tmp_path, algorithm="auto").algorithm == "dp_gd"


def test_an_evaluation_has_its_share_of_each_budget(tmp_path: Path) -> None:
    terms: dict[str, Any] = {"study": "held", "budgets": {"party-2": {"epsilon": 2, "delta": 1e-5}}}
    assert order(**terms).evaluation(drafted(tmp_path, **terms)) is None
    terms["evaluate"] = 0.25
    draft = drafted(tmp_path, **terms)
    evaluation = order(**terms).evaluation(draft)
    assert evaluation is not None
    kept = {name: divide(BUDGET, 0.25) for name in ROSTER} | {"party-2": divide(Budget(epsilon=2, delta=1e-5), 0.25)}
    assert [member.budget.epsilon for member in draft.parties] == [2 if name == "party-2" else 1 for name in ROSTER]
    assert [member.budget for member in evaluation.parties] == [kept[name][1] for name in ROSTER]
    assert (evaluation.algorithm, evaluation.parameters) == ("evaluate", {})
    terms["algorithm"] = "describe"
    with pytest.raises(InvalidInputError, match=r"^describe makes no model that can be evaluated$"):
        order(**terms).evaluation(drafted(tmp_path, **terms))


def test_an_evaluation_is_of_the_members_of_its_run(tmp_path: Path) -> None:
    spec = drafted(tmp_path, study="held", minimum_contributors=2).settled()[0]
    run = cast("Run", SimpleNamespace(spec=spec, members=("party-1", "party-3")))
    weights = PublicRows.of(np.zeros((1, 4)))
    own = Budget(epsilon=0.5, delta=1e-6)
    request = EvaluationRequest(epsilon=1, delta=1e-5, budgets={"party-3": own}, parameters={"figures": 1}, purpose="")
    with pytest.raises(InvalidInputError, match="figures"):
        request.draft(run, weights)
    draft = request.model_copy(update={"parameters": {}}).draft(run, weights)
    assert [(member.name, member.budget) for member in draft.parties] == [("party-1", BUDGET), ("party-3", own)]
    assert draft.public == weights
    assert EvaluationRequest(epsilon=1, delta=1e-5, budgets={}, parameters={}).draft(run).public != weights
    unknown = EvaluationRequest(epsilon=1, delta=1e-5, budgets=dict.fromkeys("gfedcba", own), parameters={})
    with pytest.raises(InvalidInputError, match=r"^budgets: unknown parties: a, b, c, d, e$"):
        unknown.draft(run)
    with pytest.raises(InvalidInputError, match="epsilon"):
        EvaluationRequest(epsilon=0, delta=1e-5, budgets={}, parameters={}).draft(run)


def test_a_rule_that_an_evaluation_chooses_has_a_tenth_kept_even_if_it_tells_little(tmp_path: Path) -> None:
    ruled = order(study="held", threshold="balanced")
    draft = ruled.draft({"held": HELD}, ROSTER, PublicRowStore(tmp_path))
    kept = ruled.evaluation(draft)
    assert kept is not None
    assert (draft.parties[0].budget.epsilon, kept.parties[0].budget.epsilon) == (1.0, 0.1)
    assert (ruled.threshold_rule(draft, kept), ruled.may_evaluate) == ("balanced", False)
    none = order(study="held", threshold="balanced", evaluate=0)
    with pytest.raises(InvalidInputError, match="none follows this run"):
        none.threshold_rule(draft, none.evaluation(draft))
    unheld = order(threshold="balanced")
    with pytest.raises(InvalidInputError, match="hold"):
        unheld.evaluation(unheld.draft({"made-up": STUDY}, ROSTER, PublicRowStore(tmp_path)))
