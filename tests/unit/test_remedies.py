"""What helps where owners would refuse a run, without parties."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from parley.common.algorithms import REGISTRY
from parley.common.client.affordable import charged
from parley.common.errors import BudgetExhaustedError
from parley.common.privacy.account import Account, limit
from parley.common.runs.evaluation import evaluation_spec
from parley.common.runs.specification import RunSpec
from parley.learner.forecasting import selection
from parley.learner.forecasting.remedies import RefusedRun, Reviewed, smaller_runs
from tests.unit.test_forecast_views import spec_of

EXHAUSTED = BudgetExhaustedError.kind


def stated(**rules: Any) -> Any:  # noqa: ANN401 -- rules of an owner, as far as they are needed here
    usual = {"max_epsilon_per_run": 10.0, "max_delta_per_run": 1e-5, "algorithms": tuple(REGISTRY), "max_rounds": 100}
    return SimpleNamespace(**(usual | {"minimum_contributors": 1, "colluders": 0} | rules))


def refused(
    rule: str,
    draft: RunSpec,
    account: Account | None = None,
    roomy: RunSpec | None = None,
    **rules: Any,  # noqa: ANN401 -- as above
) -> tuple[str, ...]:
    """What helps if each party refuses a run by one rule."""
    facts = dict.fromkeys(draft.names, stated(**rules))

    def review(changed: RunSpec) -> Iterator[Reviewed]:
        for way in selection.candidates(changed, None, 50, any_algorithm=False):
            charges = charged(way.spec, None)
            over = any(member.budget.delta > rules.get("max_delta_per_run", 1) for member in changed.parties)
            yield charges, dict.fromkeys(changed.names, {"max_delta_per_run": "too much"} if over else {})

    reasons = {name: {rule: "why"} for name in draft.names}
    accounts = {} if account is None else dict.fromkeys(draft.names, account)
    return RefusedRun(draft, reasons, facts, accounts, review, roomy=roomy).helpful_options()


def open_run(algorithm: str, **terms: Any) -> RunSpec:  # noqa: ANN401 -- terms of a run
    return spec_of((1.0, 1.0), algorithm=algorithm, parameters={}, **terms)


def test_owners_who_allow_no_delta_are_offered_none_and_where_noise_needs_one_another_algorithm() -> None:
    assert refused("max_delta_per_run", open_run("release"), max_delta_per_run=0.0) == ("--delta 0",)
    assert refused("max_delta_per_run", open_run("dp_gd"), max_delta_per_run=0.0) == (
        "--delta 0 --algorithm release or average",
    )
    few: dict[str, Any] = {"max_delta_per_run": 0.0, "algorithms": ("dp_gd", "describe", "wu_subgradient")}
    assert refused("max_delta_per_run", open_run("dp_gd"), **few) == ("--delta 0 --algorithm wu_subgradient",)
    none = few | {"algorithms": ("dp_gd", "psgd")}
    assert refused("max_delta_per_run", open_run("dp_gd"), **none) == ()
    assert refused("max_delta_per_run", open_run("dp_gd"), max_delta_per_run=1e-6) == ("--delta 1e-06",)


def test_an_evaluation_is_offered_no_option_that_it_takes_from_the_run_that_trained_its_model() -> None:
    trained = open_run("dp_gd")
    assert refused("overlap", trained, overlap=2) == ("--overlap 2",)
    budgets = {member.name: member.budget for member in trained.parties}
    held_out = trained.model_copy(update={"study": trained.study.model_copy(update={"hold_out": 0.1})})
    evaluation = evaluation_spec(held_out, budgets, {})
    because = "because an evaluation takes such terms from the run that trained its model"
    for rule, option in (("overlap", "--overlap 2"), ("minimum_contributors", "--minimum-contributors 2")):
        again = f"to train a model with {option} and evaluate that, {because}"
        rules: dict[str, Any] = {rule: 2}
        assert refused(rule, evaluation, **rules) == (again,)
    assert refused("max_epsilon_per_run", evaluation, max_epsilon_per_run=0.5) == ("--epsilon 0.5",)


def test_a_smaller_epsilon_is_one_that_some_choice_fits() -> None:
    account = limit(0.3, 0.0)
    (help_,) = refused(EXHAUSTED, open_run("release"), account)
    assert help_ == "--epsilon 0.3 --delta 0"


def test_what_others_leave_room_for_is_offered_as_it_is() -> None:
    draft = open_run("release")
    roomy = next(smaller_runs(draft))
    assert roomy.parties[0].budget.epsilon == 0.5
    assert refused(EXHAUSTED, draft) == ()
    assert refused(EXHAUSTED, draft, roomy=roomy) == ("--epsilon 0.5",)
