"""Bad terms of a collaboration, over HTTP and on the command line: each refused by a clear problem before any round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from parley.learner.cli.main import learner_app as learner
from parley.party.cli.main import party_app as party
from tests.services.forecast.conftest import Owners
from tests.support.cluster import submit, watch

GOOD: dict[str, Any] = {"study": "made-up", "epsilon": 0.1, "delta": 1e-5, "algorithm": "wu_subgradient"}
REGRESSION: dict[str, Any] = {
    "name": "rates",
    "features": [{"name": "x", "lower": 0, "upper": 1}],
    "label": {"name": "rate", "lower": 0.0, "upper": 0.3},
    "loss": {"kind": "squared"},
}


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/forecasts"])
@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"budgets": {"party-9": {"epsilon": 1, "delta": 1e-5}}}, "budgets: unknown parties: party-9"),
        ({"secure_sum": "paillier"}, "this learner has no key holders"),
        ({"evaluate": 0.5}, "hold_out"),
        ({"parameters": {"overlap": 0}}, "overlap: Input should be greater than or equal to 1"),
        ({"parameters": {"overlap": 0.5}}, "overlap"),
        ({"parameters": {"step": 0}}, "step: Input should be greater than or equal to"),
        ({"parameters": {"step": -1}}, "step: Input should be greater than or equal to"),
        ({"algorithm": "wu_strongly_convex", "parameters": {"rho": 0}}, "rho: Input should be greater than 0"),
        ({"algorithm": "dp_gd", "parameters": {"step": 0}}, "step: Input should be greater than or equal to"),
        (
            {
                "algorithm": "wu_strongly_convex",
                "study": REGRESSION | {"label": {"name": "y", "values": ["0", "1"]}, "loss": {"kind": "hinge"}},
            },
            "for 'hinge' take wu_subgradient",
        ),
    ],
)
def test_terms_that_cannot_be_are_refused(alone: TestClient, path: str, changes: dict[str, Any], word: str) -> None:
    response = alone.post(path, json=GOOD | changes)
    assert response.status_code == 422
    assert word in response.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/forecasts"])
@pytest.mark.parametrize(
    "label",
    [{"name": "rate"}, {"name": "rate", "lower": 0}, {"name": "rate", "lower": 1, "upper": 1}],
    ids=["no bounds", "one bound", "nothing between"],
)
def test_a_real_label_needs_public_bounds(alone: TestClient, path: str, label: dict[str, Any]) -> None:
    response = alone.post(path, json=GOOD | {"study": REGRESSION | {"label": label}})
    assert response.status_code == 422
    assert {tuple(fault["loc"][:2]) for fault in response.json()["errors"]} == {("body", "study")}


def test_a_study_file_with_an_unbounded_label_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(REGRESSION | {"label": {"name": "rate", "lower": 0}}))
    arguments = ["forecast", str(path), "--epsilon", "1", "--delta", "1e-5", "--owner", "a=10"]
    result = CliRunner().invoke(learner, arguments, env={"PARLEY_TOKEN": "t"})
    assert result.exit_code == 3
    assert "rates.json" in result.stderr
    assert "label" in result.stderr
    assert "upper" in result.stderr


def one_class(owners: Owners, name: str) -> None:
    """Give every example of a party the same label."""
    path = owners.root / f"{name}.csv"
    path.write_text(path.read_text().replace(",yes", ",no"))


class OneClass(Owners):
    """Five parties; one has examples of one class only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        one_class(self, "party-2")


@pytest.mark.parametrize("owners", [OneClass], indirect=True)
async def test_a_shard_of_one_class_takes_part(client: httpx.AsyncClient) -> None:
    """The algorithms need no class of each owner; a refusal would tell the learner about the owner's labels."""
    terms = GOOD | {"parameters": {"n_rounds": 3, "calibration": "tight"}}
    events = await watch(client, await submit(client, **terms))
    assert events[-1][1]["state"] == "completed"


@pytest.mark.parametrize(("kind", "warned"), [(Owners, False), (OneClass, True)])
def test_the_owner_of_a_shard_of_one_class_is_told(tmp_path: Path, kind: type[Owners], warned: bool) -> None:  # noqa: FBT001
    owners = kind(tmp_path)
    settings = owners.party_settings("party-2").model_dump(mode="json", exclude_none=True)
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if isinstance(value, str | int | float)]
    for table in ("data", "policy"):
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in settings[table].items())]
    lines += ["[[learners]]", *(f"{key} = {json.dumps(value)}" for key, value in settings["learners"][0].items())]
    path = tmp_path / "party.toml"
    path.write_text("\n".join(lines))
    result = CliRunner().invoke(party, ["check", "--config", str(path), "--format", "json"])
    assert result.exit_code == 0, result.output
    assert ("all examples have the same label" in result.stderr) == warned
    assert json.loads(result.stdout)["party"]["name"] == "party-2"
