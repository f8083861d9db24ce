"""Budgets that halve drown the rounds: ``python -m scripts.demonstrations.halving``, in half a minute.

Rajkumar & Agarwal 2012, Section 3: Attempt 1 is mended by budgets epsilon_t = epsilon / 2^t, whose sum stays below
epsilon however many rounds there are; but the noise doubles each round, and gradient descent does not converge. Beside
it budgets epsilon / T, and dp_gd, whose Gaussian noise has the same promise up to delta = 1e-5 for all that is seen.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

from parley.common.algorithms import settle
from parley.common.protocol.algorithm import Algorithm
from parley.common.protocol.facts import FederationFacts
from parley.learner.experiments.simulation import SimulationSettings
from scripts.demonstrations.attempts import Composed, Finding, accuracies, report

EPSILON = 1.0
ROUNDS = (1, 2, 4, 8, 12)
REPEAT = 100
EQUAL = 0.05


def findings() -> Iterator[Finding]:
    """Accuracies on the paper's simulated data, five parties of 200 examples, by the number of rounds."""
    halved, even = ([_accuracy(_composed(n, halving=halving)) for n in ROUNDS] for halving in (True, False))
    tight = _accuracy(lambda facts: settle("dp_gd", {}, facts)[0])
    claim = f"ε_t = ε / 2^t: more rounds do harm, down to chance, at ε = {EPSILON:g}"
    falls = halved[-1] < 0.5 + EQUAL and halved[-1] < max(halved) - EQUAL
    yield Finding(claim, falls, _evidence(halved))
    yield Finding("ε_t = ε / T does better at 12 rounds", even[-1] > halved[-1] + EQUAL, _evidence(even))
    yield Finding("dp_gd does better than either at any", tight > max(*halved, *even) + EQUAL, f"accuracy {tight:.3f}")


def _composed(rounds: int, *, halving: bool) -> Callable[[FederationFacts], Algorithm]:
    return lambda _: Composed(n_rounds=rounds, regularization=0.1, halving=halving)


def _accuracy(algorithm: Callable[[FederationFacts], Algorithm]) -> float:
    settings = SimulationSettings("simulated", epsilon=EPSILON, delta=1e-5, repeat=REPEAT, seed=12)
    return accuracies(algorithm, settings).mean


def _evidence(accuracies: list[float]) -> str:
    accuracies_text = ", ".join(f"{accuracy:.3f} after {n}" for n, accuracy in zip(ROUNDS, accuracies, strict=True))
    return f"accuracy {accuracies_text}"


if __name__ == "__main__":
    sys.exit(report("halving", findings()))
