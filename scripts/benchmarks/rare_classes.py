"""What balanced class weights do for a rare class: recall, precision and probabilities, with privacy and without.

    PARLEY_DATA=... python -m scripts.benchmarks.rare_classes [NAME ...] [--draws 5] [--epsilon 1]

One JSON line a data set, algorithm and rule of weights. Three owners hold the rows in equal parts by their order, and
show the sum of their noisy gradients alone (`dp_gd`, its parameters chosen from public facts; delta is 1/n^2);
``pooled`` is the minimiser on all rows in one place, without privacy, in the first draw. A quarter of the rows is held
out, another one in each draw. ``recall`` and ``precision`` are of the positive class at score 0; ``probability`` is the
mean of its predicted probabilities, weights undone, beside its ``share``.

The sets are Adult (24 % earn more than 50,000), and encounters of patients with diabetes (Strack et al. 2014): after
11 % of them the patient is back within 30 days. The studies say so, and take bounds from the publishers' descriptions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from scipy.special import expit

from parley.common.algorithms import settle
from parley.common.data.class_weights import prior_offset
from parley.common.data.columns import Category, Feature, Label
from parley.common.data.loading import shard_of
from parley.common.data.shard import Shard
from parley.common.data.study import Study
from parley.common.files.studies import read_study
from parley.common.files.tables import read_columns
from parley.common.learning.losses import build_loss
from parley.common.learning.metrics import auc
from parley.common.privacy.noise import SeededNoise
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.simulation import simulate
from parley.learner.experiments.datasets import deal, shard_sizes
from scripts.utility.examples import data_path, quarter

_ADULT = Path(__file__).parents[2] / "tests" / "data" / "adult" / "study.json"
_OWNERS = 3
_BOUNDS = {
    "time_in_hospital": (1, 14),
    "num_lab_procedures": (0, 130),
    "num_procedures": (0, 6),
    "num_medications": (0, 80),
    "number_outpatient": (0, 20),
    "number_emergency": (0, 20),
    "number_inpatient": (0, 15),
    "number_diagnoses": (1, 16),
}
_VALUES: dict[str, tuple[str, ...]] = {
    "age": tuple(f"[{first}-{first + 10})" for first in range(0, 100, 10)),
    "gender": ("Female", "Male"),
    "admission_type_id": ("1", "2", "3"),
    "discharge_disposition_id": ("1", "2", "3", "5", "6", "11", "22"),
    "admission_source_id": ("1", "4", "6", "7"),
    "A1Cresult": ("None", "Norm", ">7", ">8"),
    "max_glu_serum": ("None", "Norm", ">200", ">300"),
    "insulin": ("No", "Steady", "Up", "Down"),
    "change": ("No", "Ch"),
    "diabetesMed": ("No", "Yes"),
}
READMISSION = Study(
    name="readmission",
    features=(
        *(Feature(name=name, lower=lower, upper=upper) for name, (lower, upper) in _BOUNDS.items()),
        *(Category(name=name, values=values, other=True) for name, values in _VALUES.items()),
    ),
    label=Label(name="within_30_days", values=("no", "yes"), shares=(0.89, 0.11)),
)


def readmission() -> tuple[Study, Shard]:
    """Return the encounters: whether a patient is readmitted within 30 days."""
    columns = dict(read_columns(data_path("diabetes-readmission", "encounters.parquet")))
    columns["within_30_days"] = np.where(columns["readmitted"] == "<30", "yes", "no")
    columns |= {name: columns[name].astype(str) for name in _VALUES}
    return READMISSION, shard_of(READMISSION, columns, clip=True)


def adult() -> tuple[Study, Shard]:
    """Return Adult's training rows: whether somebody earns more than 50,000."""
    study = read_study(_ADULT)
    label = study.label.model_copy(update={"shares": (0.76, 0.24)})
    study = study.model_copy(update={"label": label})
    return study, shard_of(study, read_columns(data_path("adult", "adult-train.parquet")), clip=True)


SETS: dict[str, Callable[[], tuple[Study, Shard]]] = {"readmission": readmission, "adult": adult}


def measured(study: Study, rows: Shard, algorithm: str, epsilon: float, draws: int) -> dict[str, float]:
    """Return the mean over draws of a model's figures for the positive class, on held-out rows."""
    figures: list[dict[str, float]] = []
    split = quarter(rows)
    for draw in range(draws):
        train, test = split(draw)
        facts = FederationFacts.uniform(
            np.array(shard_sizes(len(train.y), _OWNERS)),
            epsilon=epsilon, delta=float(len(train.y)) ** -2, n_features=study.n_features, loss=build_loss(study),
            study=study, secure_sum=True, colluders=1,
        )  # fmt: skip
        settled, _ = settle(algorithm, {}, facts)
        owned = deal(train, tuple(facts.n_examples.tolist()))
        model = simulate(settled, owned, facts, SeededNoise([draw, 2]))
        scores, is_positive = model.scores(test.X), test.y > 0
        predicted = scores > 0
        hits = int((predicted & is_positive).sum())
        figures.append(
            {
                "recall": hits / int(is_positive.sum()),
                "precision": hits / max(1, int(predicted.sum())),
                "auc": auc(model, test),
                "probability": float(expit(scores - prior_offset(study.weights_of_classes, 1)).mean()),
                "share": float(is_positive.mean()),
            }
        )
    return {name: round(fmean(figure[name] for figure in figures), 4) for name in figures[0]}


def lines(names: list[str], epsilon: float, draws: int) -> Iterator[dict[str, Any]]:
    """Yield a line for each data set, algorithm and rule."""
    for name in names:
        study, rows = SETS[name]()
        for algorithm, rule in product(("dp_gd", "pooled"), (None, "balanced")):
            weighted = study.model_copy(update={"class_weights": rule})
            yield {
                "set": name, "algorithm": algorithm, "class_weights": rule or "none",
                "epsilon": epsilon if algorithm == "dp_gd" else None,
                **measured(weighted, rows, algorithm, epsilon, draws if algorithm == "dp_gd" else 1),
            }  # fmt: skip


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SETS)}; all if not given")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    given = parser.parse_args()
    for line in lines(given.names or list(SETS), given.epsilon, given.draws):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
