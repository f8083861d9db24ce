"""How much noise a site's release has at one budget and one lambda, beside what it had: a JSON line a setting.

    python -m scripts.benchmarks.site_noise [--epsilon 0.1 1] [--delta 1e-5]

``output`` lines are noise on a minimiser: ``factor`` is its deviation over that for 2 L / (n lambda), as published, at
the lambda at which the latter moves scores by the accepted drift; ``lambda`` and ``chosen`` are that lambda and the one
that the rule chooses for the noise of now. ``one_against_rest`` lines are Gaussian tilts of K models: ``factor`` is the
deviation of a weight's noise over that of models which have a K-th of the budget each, at the lambda that the rule
chooses. ``shares`` lines are noise under a secure sum: its deviation over that of shares for as many as answer, where
these are more than the fewest that must.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import replace

from parley.common.algorithms.release import DRIFTS, strength_by_drift
from parley.common.learning.losses import Huber, Logistic, Loss, Softmax
from parley.common.privacy.mechanisms.objective import objective
from parley.common.privacy.mechanisms.one_against_rest import one_against_rest
from parley.common.privacy.mechanisms.output import hiding, output
from parley.common.privacy.mechanisms.site import SiteTerms

_SIZES = (200, 2000, 20_000)
_N_FEATURES = 10


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description="How much less noise a site's release has than it had.")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0], help="budgets (default: %(default)s)")
    parser.add_argument("--delta", type=float, default=1e-5, help="of each (default: %(default)s)")
    options = parser.parse_args()
    for epsilon in options.epsilon:
        for line in (*output_lines(epsilon, options.delta), *class_lines(epsilon, options.delta)):
            print(json.dumps({"epsilon": epsilon, **line}))
    for line in share_lines():
        print(json.dumps(line))


def output_lines(epsilon: float, delta: float) -> Iterator[dict[str, object]]:
    """Noise on a minimiser, by its loss and the number of rows."""
    losses: tuple[Loss, ...] = Logistic(), Huber(), Softmax(3), Softmax(10)
    for loss in losses:
        for n in _SIZES:
            terms = SiteTerms(loss, n, _N_FEATURES, 1.0, epsilon, delta)
            before = hiding(terms, loss, 2 * loss.lipschitz / n).deviation  # at lambda = 1
            strength = before / DRIFTS["output"]
            at_strength = output(replace(terms, regularization=strength)).deviation
            chosen = strength_by_drift("output", lambda each: output(replace(terms, regularization=each)).deviation)  # noqa: B023
            yield {
                "mechanism": "output", "loss": str(loss), "n": n, "factor": round(at_strength * strength / before, 3),
                "lambda": float(f"{strength:.3g}"), "chosen": chosen.value,
            }  # fmt: skip


def class_lines(epsilon: float, delta: float) -> Iterator[dict[str, object]]:
    """Tilts of one class against the rest, by the number of classes and of rows."""
    for k in (3, 5, 10):
        for n in _SIZES:
            terms = SiteTerms(Softmax(k), n, _N_FEATURES, 1.0, epsilon, delta)
            chosen = strength_by_drift("one_against_rest", lambda _: one_against_rest(terms).deviation)  # noqa: B023
            terms = replace(terms, regularization=float(str(chosen.value)))
            each = objective(replace(terms, loss=Logistic(), epsilon=epsilon / k, delta=delta / k))
            yield {
                "mechanism": "one_against_rest", "classes": k, "n": n,
                "factor": round(one_against_rest(terms).deviation / each.deviation, 3), "chosen": chosen.value,
            }  # fmt: skip


def share_lines() -> Iterator[dict[str, object]]:
    """Noise in shares, by the fewest contributors, colluders and how many answer."""
    for least, colluders in ((10, 1), (10, 2), (50, 5)):
        for answering in (least, 2 * least, 5 * least):
            surplus = math.sqrt((answering - colluders) / (least - colluders))
            yield {"shares": least, "colluders": colluders, "answering": answering, "deviation": round(surplus, 2)}


if __name__ == "__main__":
    main()
