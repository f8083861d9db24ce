"""How good forecasts are: against what training on data comes to, over methods, budgets and data sets.

``realise`` trains, and prints a JSON line an outcome; ``judge`` reads such lines and prints what this version of the
code forecasts of each, and a summary: so two versions can be judged by the same outcomes.

    python -m scripts.benchmarks.forecast_quality realise [--untold] [NAME ...] > outcomes.jsonl
    python -m scripts.benchmarks.forecast_quality judge [--untold] < outcomes.jsonl

Studies tell what could be common knowledge of their labels, classes' shares or mean and deviation; with ``--untold``
they do not.

*What is realised.* All rows of a set are the population; five owners hold a half of them, at most 20,000, in
equal parts. ``excess`` (four draws of the noise, one of the owners' rows) is the mean loss without regularisation on
all rows less the least that there is, which is found with a lambda of 1e-7: the owners' rows are among them, so an
error of the sample counts by at most one less their part. ``alone`` is that of an owner's own minimiser, by the best of
four lambdas.

*Figures* are those of `parley.common.forecast.label_figures`, on all rows; ``median_miss`` is how far off they are.

*The summary*: Spearman's rank correlation of the estimates with the mean outcomes, over all, over the sets that
``scripts/benchmarks/utility.py`` has as cases, and for each set; how many outcomes lie in the interval; and its width,
high - low, in the median.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from parley.common.algorithms import build_algorithm, settle
from parley.common.arrays import FloatArray
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.errors import ParleyError
from parley.common.forecast.forecast import Forecast, forecast
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Hinge, Huber, Logistic, Loss, Softmax, Squared
from parley.common.learning.metrics import accuracy, auc, fitness, r_squared, rmse
from parley.common.learning.model import Model
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from scripts.benchmarks.forecast_data import Data, data_sets, study_of

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
N_OWNERS, MOST_EXAMPLES, DRAWS, DELTA = 5, 20_000, 4, 1e-5
MOST_ROUNDS = 300
UNTOLD = "--untold"
SUMMED = {"dp_gd", "psgd", "local_average"}
_SHOWN = 0.005
"""By so much a figure may be off that is shown in two digits."""
LEAST_LAMBDA = 1e-7
OWN_LAMBDAS, OWNERS_ALONE = (1e-4, 1e-3, 1e-2, 1e-1), 2
WAYS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "logistic": [
        ("dp_gd", {}),
        ("dp_gd", {"n_rounds": 30, "step": 4.0, "regularization": 1e-3, "clip_norm": 1.0}),
        ("dp_gd", {"n_rounds": 10, "averaging": 0.0, "step": 1.0, "regularization": 1e-2, "clip_norm": 1.0}),
        ("psgd", {"n_rounds": 30}),
        ("local_average", {}),
        ("average", {}),
        ("wu_strongly_convex", {"calibration": "tight", "n_rounds": 30}),
        ("wu_subgradient", {"calibration": "tight", "n_rounds": 30}),
        ("gop", {"calibration": "tight"}),
    ],
    "softmax": [
        ("dp_gd", {}),
        ("dp_gd", {"n_rounds": 30, "step": 2.0, "regularization": 1e-3, "clip_norm": 1.0}),
        ("local_average", {}),
        ("average", {}),
    ],
    "squared": [
        ("dp_gd", {}),
        ("dp_gd", {"n_rounds": 30, "step": 1.0, "regularization": 1e-3, "clip_norm": 1.0}),
        ("psgd", {"n_rounds": 30}),
        ("wu_strongly_convex", {"calibration": "tight", "n_rounds": 30}),
    ],
}
"""Methods by the kind of loss, with what is given of their parameters."""


def main() -> int:
    """Train and print outcomes, or judge the forecasts of outcomes from standard input; returns the exit status."""
    mode, *names = sys.argv[1:]
    if untold := UNTOLD in names:
        names.remove(UNTOLD)
    if mode == "judge":
        cases = [json.loads(line) for line in sys.stdin]
        return judge([case | {"label": {}} for case in cases] if untold else cases)
    for data in data_sets():
        if not names or data.name in names:
            for outcome in outcomes(data, {} if untold else data.label):
                print(json.dumps(outcome), flush=True)
    return 0


def outcomes(data: Data, label: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The results of each way of training on a set whose study states these facts on its label."""
    kind = type(data.loss).__name__.lower()
    n = min(data.population.y.size // 2, MOST_EXAMPLES) // N_OWNERS
    rows = np.random.default_rng(7).permutation(data.population.y.size)[: n * N_OWNERS].reshape(N_OWNERS, n)
    X, y = data.population.X, data.population.y
    shards = [Shard(X[part], y[part]) for part in rows]
    least, zero = least_on(data.loss, data.population), risk_of(data, np.zeros(1))
    alone = [
        min(risk_of(data, best_of(data.loss, shard, strength)) for strength in OWN_LAMBDAS) - least
        for shard in shards[:OWNERS_ALONE]
    ]
    case, study = 0, study_of(data.loss, X.shape[1], label)
    for epsilon in EPSILONS:
        for name, parameters in WAYS[kind]:
            case += 1
            start = time.perf_counter()
            facts = facts_of(study, data.loss, n, epsilon, secure_sum=name in SUMMED)
            algorithm, choices = settle(name, parameters, facts, MOST_ROUNDS)
            try:
                models = [
                    simulate(algorithm, Shard.stack(shards), facts, SeededNoise([3, case, s])) for s in range(DRAWS)
                ]
            except ParleyError as error:
                print(f"{data.name}, {name}, {epsilon}: {error}", file=sys.stderr)
                continue
            yield {
                "data": data.name, "loss": kind, "classes": data.loss.outputs, "calibrated": data.calibrated,
                "in_table": data.in_table, "label": label,
                "algorithm": name, "chosen": name == "dp_gd" and not parameters, "epsilon": epsilon,
                "n": n, "d": X.shape[1],
                "parameters": parameters | {term: choice.value for term, choice in choices.items()},
                "figures": figures_of(data, models),
                "excess": [round(risk_of(data, model.weights) - least, 6) for model in models],
                "alone": [round(risk, 6) for risk in alone], "gap": round(zero - least, 4), "least": round(least, 4),
                "seconds": round(time.perf_counter() - start, 2),
            }  # fmt: skip


def figures_of(data: Data, models: list[Model]) -> dict[str, list[float]]:
    """Return the figures of models on all rows by name, as `parley.common.forecast.label_figures` has them."""
    found: dict[str, list[float]] = {}
    for model in models:
        for name, value in _figures_of_one(data, model):
            found.setdefault(name, []).append(round(value, 5))
    return found


def _figures_of_one(data: Data, model: Model) -> Iterator[tuple[str, float]]:
    if isinstance(data.loss, Squared):
        yield from (("r_squared", r_squared(model, data.population)), ("rmse", rmse(model, data.population)))
        return
    yield "accuracy", accuracy(model, data.population)
    if data.loss.outputs > 1:
        return
    scores, positive = data.population.X @ model.weights, data.population.y > 0
    rare = positive if positive.mean() <= 0.5 else ~positive  # noqa: PLR2004
    towards = scores if positive.mean() <= 0.5 else -scores  # noqa: PLR2004
    yield "auc", auc(model, data.population)
    yield "recall", float((towards[rare] > 0).mean())
    falls, rises = np.sort(towards[rare]), np.sort(towards[~rare])
    thresholds = np.quantile(towards, np.linspace(0, 1, 2001))
    recall = 1 - np.searchsorted(falls, thresholds, side="right") / falls.size
    specificity = np.searchsorted(rises, thresholds, side="right") / rises.size
    yield "balanced_recall", float(recall[np.argmin(np.abs(recall - specificity))])


def facts_of(study: Study, loss: Loss, n: int, epsilon: float, *, secure_sum: bool) -> FederationFacts:
    """Return the facts of five equal owners."""
    terms = {"n_features": study.n_features, "loss": loss, "study": study, "secure_sum": secure_sum}
    return FederationFacts.uniform(np.full(N_OWNERS, n), epsilon=epsilon, delta=DELTA, **terms)  # type: ignore[arg-type]


def best_of(loss: Loss, shard: Shard, strength: float) -> FloatArray:
    """The minimiser on a shard with a lambda of this strength."""
    return minimise(loss, shard, strength * int(shard.n_examples), tolerance=1e-4)


def least_on(loss: Loss, shard: Shard) -> float:
    """The least mean loss on a shard."""
    return fitness(loss, Model(best_of(loss, shard, LEAST_LAMBDA)), shard, 0.0)


def risk_of(data: Data, weights: FloatArray) -> float:
    """The mean loss of weights on all rows."""
    shape = (data.population.n_features,) if data.loss.outputs == 1 else (data.loss.outputs, data.population.n_features)
    return fitness(data.loss, Model(np.broadcast_to(weights, shape)), data.population, 0.0)


def judge(cases: list[dict[str, Any]]) -> int:
    """Forecast each case; print what comes of it, and the summary."""
    cases = [case | foreseen(case) for case in cases]
    for case in cases:
        print(json.dumps(case))
    complete = [case for case in cases if case["high"] is not None]
    groups = {"all": complete, "table": [case for case in complete if case["in_table"]]}
    for name in dict.fromkeys(case["data"] for case in complete):
        groups[name] = [case for case in complete if case["data"] == name]
    for name, group in groups.items():
        if group:
            print(json.dumps({"summary": name} | summary(group)))
    return 0


def foreseen(case: dict[str, Any]) -> dict[str, Any]:
    """Return the forecast for a case."""
    losses: dict[str, Loss] = {"logistic": Logistic(), "squared": Squared(), "hinge": Hinge(), "huber": Huber()}
    loss = losses.get(case["loss"], Softmax(max(2, case["classes"])))
    study = study_of(loss, case["d"], case["label"])
    facts = facts_of(study, loss, case["n"], case["epsilon"], secure_sum=case["algorithm"] in SUMMED)
    try:
        answer = forecast(build_algorithm(case["algorithm"], case["parameters"]), facts)
    except ParleyError:
        answer = None
    if not isinstance(answer, Forecast):
        return {"low": None, "estimate": None, "high": None}
    excess, alone = answer.excess, answer.owners[0].alone
    return {"low": excess.low, "estimate": excess.estimate, "high": excess.high,
            "figures_forecast": {
                f.name: [f.interval.low, f.interval.estimate, f.interval.high] for f in answer.figures
            },
            "inside": [bool(excess.low <= value <= excess.high) for value in case["excess"]],
            "alone_forecast": [alone.low, alone.estimate, alone.high]}  # fmt: skip


def summary(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that sum up some cases."""
    means = [np.mean(case["excess"]) for case in cases]
    estimates, low, high = (np.array([case[name] for case in cases]) for name in ("estimate", "low", "high"))
    alone = [c["alone_forecast"][0] <= v <= c["alone_forecast"][2] for c in cases for v in c["alone"]]
    figures: dict[str, list[tuple[bool, float, float]]] = {}
    for case in cases:
        for name, (least, middle, most) in case["figures_forecast"].items():
            for value in case.get("figures", {}).get(name, ()):
                inside = least - _SHOWN <= value <= most + _SHOWN
                figures.setdefault(name, []).append((inside, most - least, middle - value))
    told = {
        name: {"rate": round(float(np.mean([inside for inside, _, _ in parts])), 3)}
        | {"median_width": round(float(np.median([width for _, width, _ in parts])), 3)}
        | {"median_miss": round(float(np.median([abs(miss) for *_, miss in parts])), 3)}
        for name, parts in figures.items()
    }
    return {
        "cases": len(cases), "figures": told,
        "rank_correlation": round(float(spearmanr(estimates, means).statistic), 4),
        "rate": round(float(np.mean([inside for c in cases for inside in c["inside"]])), 3),
        "rate_alone": round(float(np.mean(alone)), 3),
        "median_width": round(float(np.median(high - low)), 4),
        "median_ratio": round(float(np.median(np.array(estimates) / np.array(means))), 3),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
