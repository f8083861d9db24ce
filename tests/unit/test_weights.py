"""Weights that are mostly zero are spelt by those that are not, and read back the same."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from parley.common.runs.weights import SparseRow


def test_few_entries_are_spelt_and_many_are_whole() -> None:
    weights = np.zeros(200)
    weights[[3, 150]] = 1.5, -2.0
    spelt = SparseRow.spelt(weights)
    assert isinstance(spelt, dict)
    assert (spelt["length"], *map(list, (spelt["index"], spelt["value"]))) == (200, [3, 150], [1.5, -2.0])
    assert (SparseRow.model_validate_json(SparseRow.model_validate(spelt).model_dump_json()).whole == weights).all()
    for whole in (np.ones(200), np.zeros(5)):
        assert SparseRow.spelt(whole) is whole


@pytest.mark.parametrize(
    "faulty",
    [
        {"length": 3, "index": [0, 1], "value": [1.0]},
        {"length": 3, "index": [1, 0], "value": [1.0, 2.0]},
        {"length": 3, "index": [1, 1], "value": [1.0, 2.0]},
        {"length": 3, "index": [3], "value": [1.0]},
        {"length": 3, "index": [-1], "value": [1.0]},
        {"length": 0, "index": [], "value": []},
    ],
)
def test_what_is_no_row_is_refused(faulty: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SparseRow.model_validate(faulty)
