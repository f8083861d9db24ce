"""What docs/explanation/results.md says that untuned runs reach is what they reach, on the sets that take seconds."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean

import pytest

from scripts.utility.cases import CASES
from scripts.utility.examples import AbsentError
from scripts.utility.trial import Trial
from tests.support.nightly import NIGHTLY

STATED = Path(__file__).parents[2] / "docs" / "explanation" / "results.md"
ROWS = {
    "Adult": "adult",
    "Adult, 200 owners of 100 rows": "adult-200-owners",
    "HAR, six activities": "har",
    "Cod-RNA": "cod-rna",
    "breast cancer": "wdbc",
    "digits of scikit-learn": "digits",
    "card frauds, three owners: AUC": "card-fraud",
    "Lending Club, interest rates: R²": "lending-club",
}
"""All rows of the table but those of the two sets that take minutes."""
DRAWS = range(10)
TRIED = ROWS.keys() if NIGHTLY else ROWS.keys() - {"HAR, six activities"}
DIGITS = 0.002
"""Other machines round sums otherwise."""


def stated() -> list[tuple[str, float, float]]:
    """A row of the table: its name, epsilon, and what Parley is said to reach."""
    rows = re.findall(
        r"^\| (\S.*?) \| (\S+), \S+ \| \S+ \| (\.\d+) \|", STATED.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [(name, float(epsilon), float(value)) for name, epsilon, value in rows]


def test_every_row_is_known() -> None:
    assert {name for name, *_ in stated()} - set(ROWS) == {"KDD99, attack or not", "MNIST, ten digits"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "epsilon", "value"), [row for row in stated() if row[0] in TRIED])
def test_it_is_reached(name: str, epsilon: float, value: float) -> None:
    case = CASES[ROWS[name]]
    try:
        trial = Trial(case, case.load(), epsilon)
    except AbsentError as error:
        pytest.skip(str(error))
    assert fmean(trial.worth(trial.models(trial.chosen(), DRAWS), DRAWS)) == pytest.approx(value, abs=DIGITS)
