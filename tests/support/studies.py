"""Studies made up for tests."""

from __future__ import annotations

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study


def numbers_study(d: int) -> Study:
    """A study of d columns from -1 to 1 and two classes, whose rows are divided by nothing that they do not tell."""
    features = tuple(Feature(name=f"x{i}", lower=-1, upper=1) for i in range(d))
    return Study(
        name="numbers",
        features=features,
        label=Label(name="y", values=("no", "yes")),
        intercept=False,
        row_norm="largest",
    )
