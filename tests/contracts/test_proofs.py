"""Every event of every algorithm is proven: the proofs that algorithms declare, run (`tests.contracts.proving`)."""

from __future__ import annotations

from functools import cache

import pytest

from parley.common.algorithms import REGISTRY, build_algorithm
from tests.contracts.algorithms import ALIASES, CASES, Case, each_of
from tests.contracts.proving import Proven, prove

pytestmark = pytest.mark.long

SEEN = {case.name: label for label, case in CASES.items() if label.count("-") == 1}.values()
"""Each algorithm with its defaults, under a secure sum where it can be."""
QUICK = {
    label for label in SEEN if CASES[label].name not in {"average", "local_average", "ensemble_soft", "wu_subgradient"}
}
"""Those that quick tests look at: the rest have the noise of others."""
TOGETHER = {
    f"release-{'-'.join(chosen.values())}": Case("release", build_algorithm("release", chosen), secure_sum=False)
    for chosen in (
        {"mechanism": "centroids", "law": "l2_laplace"},
        {"mechanism": "one_against_rest", "law": "l2_laplace"},
        {"mechanism": "one_against_rest", "calibration": "paper"},
        {"mechanism": "generalized", "law": "l2_laplace", "calibration": "paper"},
        {"mechanism": "generalized", "law": "l2_laplace", "calibration": "thesis"},
        {"mechanism": "objective", "law": "l2_laplace", "calibration": "jain_thakurta"},
    )
}
"""Values of several parameters that make a mechanism of its own."""


@cache
def proven(label: str) -> tuple[Proven, ...]:
    """Return what is proven about a case."""
    return tuple(prove((CASES | TOGETHER)[label]))


@each_of(CASES | TOGETHER, slow=(CASES | TOGETHER).keys() - QUICK)
def test_every_event_is_proven_and_half_of_the_noise_would_be_noticed(case: Case) -> None:
    (label,) = (label for label, other in (CASES | TOGETHER).items() if other is case)
    for other in proven(label):
        print(f"{label}: {other.event}: {other.proof}: {other.figure}")


@pytest.mark.slow
def test_the_table_of_proofs_has_every_algorithm() -> None:
    """The printed table has every algorithm with its default parameters."""
    rows = {
        (case.name, its_proof.event, its_proof.proof): its_proof.figure
        for label, case in CASES.items()
        if label in SEEN
        for its_proof in proven(label)
    }
    print("| algorithm | event | proof | figure |")
    for (name, event, proof), figure in rows.items():
        print(f"| {name} | {event} | {proof} | {figure} |")
    assert {name for name, *_ in rows} == REGISTRY.keys() - ALIASES
    baselines = {name for name, event, proof in rows if proof == "none needed"}
    assert baselines == {"pooled", "local", "matrix_perturbation"}
