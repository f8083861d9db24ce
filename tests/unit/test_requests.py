"""What a request leaves open is settled on the safe side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parley.common.errors import InvalidInputError
from parley.learner.api.requests import RunRequest
from parley.learner.storage.public_rows import PublicRowStore
from tests.support.cluster import made_up

STUDY = made_up(3)
ROSTER = {f"party-{i}": None for i in range(5)}
SUM = {"secure_sum": "paillier"}


@pytest.mark.parametrize(
    ("terms", "colluders"),
    [
        ({}, 0),
        ({"colluders": 2}, 2),
        (SUM, 1),
        (SUM | {"minimum_contributors": 2}, 1),
        (SUM | {"colluders": 0}, 0),
        (SUM | {"colluders": 3}, 3),
    ],
)
def test_a_secure_sum_is_safe_against_each_of_its_parties_unless_said_otherwise(
    tmp_path: Path, terms: dict[str, Any], colluders: int
) -> None:
    request = RunRequest.model_validate({"study": "made-up", "epsilon": 1, "delta": 1e-5} | terms)
    spec = request.draft({"made-up": STUDY}, ROSTER, PublicRowStore(tmp_path))
    assert spec.colluders == colluders
    share = spec.facts().share
    assert share == (1 / (spec.minimum_contributors - colluders) if "secure_sum" in terms else 1)
    print(f"{terms or 'no secure sum'}: {colluders} colluders, each party adds {share:.2f} of the noise's variance")


def test_as_many_colluders_as_contributors_are_refused(tmp_path: Path) -> None:
    request = RunRequest.model_validate({"study": "made-up", "epsilon": 1, "delta": 1e-5, "colluders": 5} | SUM)
    with pytest.raises(InvalidInputError, match="colluders must lie between 0 and minimum_contributors - 1, not 5"):
        request.draft({"made-up": STUDY}, ROSTER, PublicRowStore(tmp_path))
