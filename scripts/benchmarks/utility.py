"""How well runs learn that nobody tuned: the cases of `scripts/utility/cases.py`, with nothing given but a budget.

    PARLEY_DATA=... python -m scripts.benchmarks.utility [NAME ...] [--draws 10] [--no-grid]

One JSON line a case and epsilon. ``value`` is the mean over draws of noise, and of splits where the publisher has none,
of dp_gd's model on held-out examples, with the parameters that are chosen from public facts alone; ``sd`` is the
deviation of one draw. The whole transcript is counted, the sums are secure, one owner may collude. Beside it, in the
same unit: ``least``, the goal; ``majority``, a model that looks at no feature; ``pooled``, all examples in one place
without privacy, at the lambda that tests best (of large sets 1e-5); ``published``; ``best_of_grid``, other parameters
of dp_gd searched on the test examples, and the choice's ``regret``; ``diffprivlib``, where it is installed, with its
own defaults. All but ``value`` may look at what a run never sees. Card frauds have the relative fitness ``psi`` too, of
runs to which the lambda of the problem is given.

A case whose data are absent says so. The exit status is 1 where data are absent or a goal is missed. Without the grid
it takes about a quarter of an hour on two idle cores, most of it for MNIST; with it, hours.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean, pstdev
from typing import Any

from parley.common.algorithms.dp_gd import DpGd
from parley.common.learning.metrics import accuracy, relative_fitness
from parley.common.learning.model import Model
from parley.common.protocol.algorithm import Algorithm
from scripts.utility import baselines, grid
from scripts.utility.cases import CASES, Case, Goal
from scripts.utility.examples import AbsentError
from scripts.utility.trial import Trial


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="How well runs learn that nobody tuned.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--draws", type=int, default=10, help="draws of noise (default: %(default)s)")
    parser.add_argument("--no-grid", dest="grid", action="store_false", help="do not search a grid of parameters")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in CASES]:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.draws < 1:
        parser.error(f"--draws must be positive, not {options.draws}")
    all_met = True
    for name in options.names or CASES:
        for line in lines(CASES[name], range(options.draws), search=options.grid):
            all_met &= line["met"]
            print(json.dumps({"benchmark": "utility", "case": name, **line}), flush=True)
    sys.exit(not all_met)


def lines(case: Case, draws: Sequence[int], *, search: bool) -> Iterator[dict[str, Any]]:
    """A line for each epsilon of a case, or one that says what is absent."""
    try:
        examples = case.load()
    except AbsentError as error:
        yield {"absent": str(error), "met": False}
        return
    for epsilon, goal in case.goals.items():
        start = time.perf_counter()
        trial = Trial(case, examples, epsilon)
        figures = measured(trial, goal, draws, search=search)
        yield figures | {"seconds": round(time.perf_counter() - start, 1)}


def measured(trial: Trial, goal: Goal, draws: Sequence[int], *, search: bool) -> dict[str, Any]:
    """The value of an algorithm on a case at an epsilon, and the values of others."""
    algorithm = trial.chosen()
    models = trial.models(algorithm, draws)
    values = trial.worth(models, draws)
    value = fmean(values)
    strength, pooled = baselines.pooled(trial, draws if trial.examples.is_redrawn else draws[:1])
    theirs = baselines.diffprivlib(trial, draws[:1] if trial.is_large else draws)
    others = beside(trial, models, draws)
    figures = {
        "epsilon": trial.epsilon, "measure": trial.case.value, "value": value, "sd": pstdev(values),
        "least": goal.least, "majority": trial.majority(draws), "pooled": pooled, "published": goal.published,
        "best_of_grid": None, "diffprivlib": fmean(theirs) if theirs else None, "regret": None,
    } | others  # fmt: skip
    if search:
        figures |= regret(trial, algorithm, draws, value)
    fit = trial.case.fitness is None or others["psi"] <= trial.case.fitness.most
    is_met = fit and (goal.least is None or value >= goal.least)
    return _rounded(figures) | {"met": is_met, "lambda_of_pooled": strength} | _terms(trial, algorithm, draws)


def beside(trial: Trial, models: Sequence[Model], draws: Sequence[int]) -> dict[str, float]:
    """Further figures: values on other tests, and the relative fitness with the accuracy where required."""
    figures = {
        name: fmean(trial.metric(model, shard) for model in models) for name, shard in trial.examples.beside.items()
    }
    if trial.case.fitness is not None:
        tests = [trial.examples.split(draw)[1] for draw in draws]
        figures["accuracy"] = fmean(map(accuracy, models, tests))
        figures["psi"] = psi(trial, trial.case.fitness.regularization, draws)
    return figures


def psi(trial: Trial, regularization: float, draws: Sequence[int]) -> float:
    """The relative fitness on the owners' own examples of runs to which the problem's lambda is given, and no more."""
    models = trial.models(trial.chosen(regularization=regularization), draws)
    return fmean(
        relative_fitness(
            trial.examples.loss,
            model,
            trial.pooled(regularization, draw),
            trial.examples.split(draw)[0],
            regularization,
        )
        for model, draw in zip(models, draws, strict=True)
    )


def regret(trial: Trial, algorithm: DpGd, draws: Sequence[int], value: float) -> dict[str, Any]:
    """The value of the grid's best parameters, the regret of the choice, and these parameters."""
    parameters, best = grid.best(trial, algorithm, draws, value)
    return {"best_of_grid": best, "regret": best - value, "best_parameters": _parameters(parameters)}


def _terms(trial: Trial, algorithm: Algorithm, draws: Sequence[int]) -> dict[str, Any]:
    """Return the terms of a measurement."""
    facts = trial.facts
    return {
        "draws": len(draws), "delta": float(f"{facts.delta[0]:.3g}"), "owners": len(facts.parties),
        "n": facts.n_total, "d": facts.n_features, "parameters": _parameters(algorithm),
    }  # fmt: skip


def _parameters(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm's parameters, to three figures."""
    fields_of: dict[str, Any] = asdict(algorithm)  # type: ignore[call-overload]
    return {name: float(f"{value:.3g}") if isinstance(value, float) else value for name, value in fields_of.items()}


def _rounded(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures to four places, but for what is no measurement."""
    return {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}


if __name__ == "__main__":
    main()
