"""What a run keeps of its budget to evaluate its own model, where that is of use."""

from __future__ import annotations

import pytest

from parley.common.algorithms import REGISTRY, build_algorithm
from parley.common.data.columns import Feature, Label, RealLabel
from parley.common.data.study import Study
from parley.common.errors import InvalidInputError
from parley.common.runs.consent import OwnerRules
from parley.common.runs.evaluation import evaluation_spec
from parley.common.runs.self_evaluation import is_of_use, keep_for_evaluation
from parley.common.runs.specification import Budget, Member, RunSpec

FEATURE = Feature(name="x", lower=0, upper=1)
CLASSES = Label(name="y", values=("no", "yes"))
RULES = OwnerRules(
    algorithms=("dp_gd", "evaluate"),
    view="transcript",
    adjacency="replace_one",
    minimum_contributors=1,
    colluders=0,
    require_secure_sum=False,
    max_epsilon_per_run=2.0,
    max_delta_per_run=1e-4,
    max_rounds=100,
    public_rows=None,
    round_bytes=2**28,
    body_bytes=2**24,
)
MANY = 2_000_000


def run(
    n: int, *, hold_out: float | None = 0.1, label: Label | RealLabel = CLASSES, delta: float = 1e-5, **terms: object
) -> RunSpec:
    study = Study(name="s", features=(FEATURE,), label=label, hold_out=hold_out)
    members = tuple(
        Member(name=name, n_examples=n, budget=Budget(epsilon=epsilon, delta=delta))
        for name, epsilon in (("a", 1.0), ("b", 2.0))
    )
    given = {"algorithm": "dp_gd", "parameters": {}, "minimum_contributors": 2} | terms
    return RunSpec.model_validate({"study": study, "parties": members} | given)


def test_a_tenth_is_kept_where_many_rows_are_held_out() -> None:
    whole = run(MANY)
    kept = keep_for_evaluation(whole, {"a": RULES, "b": RULES}, if_useful=True)
    assert kept.evaluation is not None
    assert kept.run == whole, "a record that is held out loses the evaluation's part alone"
    assert [member.budget.epsilon for member in kept.evaluation.parties] == [0.1, 0.2]
    assert kept.words == "a tenth of the budget (epsilon 0.1 to 0.2) evaluates the model on 400,000 held-out rows"
    assert keep_for_evaluation(whole, {}, if_useful=False).words is None


@pytest.mark.parametrize(
    ("whole", "rules", "words"),
    [
        (run(200), RULES, "40 held-out rows are too few at epsilon 0.1 to 0.2; ask for it later, at a larger one (parley-learner evaluate RUN --epsilon 5 --delta 1e-6)"),  # noqa: E501
        (run(5), RULES, "hold_out = 0.1 leaves none of the 5 rows of a to evaluate on"),
        (run(MANY, adjacency="whole_party", algorithm="parameter_average"), RULES, "hide"),
        (run(MANY), RULES.model_copy(update={"algorithms": ("dp_gd",)}), "a: the owner does not allow evaluate"),
        (run(MANY), RULES.model_copy(update={"public_rows": ()}), "a: the owner does not allow these public rows"),
        (run(MANY, hold_out=None), RULES, None),
        (run(MANY, algorithm="release"), RULES, None),
        (run(MANY, algorithm="describe"), RULES, None),
    ],
)  # fmt: skip
def test_nothing_is_kept_and_the_words_say_why(whole: RunSpec, rules: OwnerRules, words: str | None) -> None:
    kept = keep_for_evaluation(whole, {"a": rules, "b": rules}, if_useful=True)
    assert (kept.run, kept.evaluation) == (whole, None)
    assert (kept.words is None) if words is None else (kept.words or "").startswith("the model is not evaluated: ")
    assert (words or "") in (kept.words or "")


def test_of_a_class_that_noise_hides_it_is_not_of_use() -> None:
    def told(shares: tuple[float, float]) -> bool:
        label = Label(name="y", values=("no", "yes"), shares=shares)
        return keep_for_evaluation(run(30_000, label=label), {}, if_useful=True).evaluation is not None

    assert (told((0.5, 0.5)), told((0.97, 0.03))) == (True, False)


def test_a_run_without_delta_is_evaluated_without_delta() -> None:
    kept = keep_for_evaluation(run(MANY, delta=0.0), {}, if_useful=True)
    assert kept.evaluation is not None
    assert {member.budget.delta for member in (*kept.run.parties, *kept.evaluation.parties)} == {0.0}


def test_what_was_asked_for_is_evaluated_however_little_it_tells() -> None:
    whole = run(50)
    asked = evaluation_spec(whole, {name: Budget(epsilon=0.25, delta=1e-6) for name in whole.names}, {})
    kept = keep_for_evaluation(whole, {}, asked, if_useful=False)
    assert (kept.run, kept.evaluation) == (whole, None), "it is stored already"
    assert kept.words == (
        "0.25 of the budget (epsilon 0.25) evaluates the model on 10 held-out rows; so few say little at this epsilon: "
        "take a larger share by --evaluate, or ask for it later, with more rows: even an epsilon of 10 is too little"
    )
    with pytest.raises(InvalidInputError, match="none of the 9 rows of a"):
        keep_for_evaluation(run(9), {}, asked, if_useful=False)


@pytest.mark.parametrize("stated", [{}, {"mean": 0.0, "deviation": 2.0}])
def test_of_a_real_label_it_is_of_use_where_r_squared_is_known(stated: dict[str, float]) -> None:
    def told(n: int) -> bool:
        whole = run(n, label=RealLabel(name="y", lower=-10, upper=10, **stated))
        kept = keep_for_evaluation(whole, {}, if_useful=True)
        return kept.evaluation is not None and is_of_use(kept.evaluation)

    assert (told(1000), told(100 * MANY)) == (False, True)


def test_what_makes_no_model_for_all_says_so() -> None:
    makes_none = {name for name in REGISTRY if not build_algorithm(name, {}).makes_one_model}
    assert makes_none == {"describe", "evaluate", "ftrl", "individual", "local", "matrix_perturbation", "release"}
    assert not build_algorithm("feature", {"second": "own", "aggregator": "a"}).makes_one_model
