"""The command ``parley-party learn``, among parties that run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parley.party.cli.main import party_app
from tests.services.party_learn.test_learning import Owners
from tests.support.processes import party_processes

TERMS = ("learn", "--epsilon", "1", "--delta", "1e-5", "-p", "n_rounds=3")


def config(owners: Owners, urls: dict[str, str]) -> Path:
    """The settings file of the first owner."""
    settings = owners.party_settings("party-1").model_dump(mode="json", exclude={"peers"}, exclude_none=True)
    settings["peers"] = [{"name": name, "url": url, "token": "party-1"} for name, url in urls.items()]
    path = owners.root / "party.toml"
    tables = ("data", "policy", "limits")
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items() if not isinstance(value, dict | list)]
    for table in tables:
        lines += [f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in settings[table].items())]
    for table in ("learners", "peers"):
        for entry in settings[table]:
            lines += [f"[[{table}]]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    path.write_text("\n".join(lines))
    return path


def run(path: Path, *arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(party_app, [*TERMS, "--config", str(path), *arguments])
    assert result.exit_code == status, result.output
    return result


def test_trains_an_owners_own_model(tmp_path: Path) -> None:
    owners = Owners(tmp_path, n_parties=3)
    with party_processes(owners) as urls:
        path = config(owners, {name: url for name, url in urls.items() if name != "party-1"})
        result = run(path, "--save", str(tmp_path / "model.json"), "--run", "mine")
        again = run(path, "--run", "mine", "--format", "json")
    model = json.loads((tmp_path / "model.json").read_text())
    assert model["contributors"] == ["party-2", "party-3", "party-1"]
    assert "dp_gd, 3 rounds, with party-2, party-3, party-1" in result.stdout
    assert "of your own examples: none: every party that answers sees weights that are computed from" in result.stderr
    assert json.loads(again.stdout) == model  # the same run gets the same answers


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--party", "party-9"), "unknown parties: party-9"),
        (("--party", "party-1"), "unknown parties: party-1"),
        (("--budget", "party-9=1,1e-5"), "unknown parties: party-9"),
        (("--budget", "party-2=much"), "the budget of party-2 must be EPSILON,DELTA"),
        (("--algorithm", "wu_subgradient", "-p", "step=0"), "step"),
        (("--algorithm", "wu_subgradient", "-p", "overlap=0"), "overlap"),
        (("--deadline", "0.1"), "party-2 cannot be reached"),
    ],
)
def test_says_in_a_line_what_is_wrong(tmp_path: Path, arguments: tuple[str, ...], word: str) -> None:
    path = config(Owners(tmp_path, n_parties=3), {"party-2": "http://127.0.0.1:9", "party-3": "http://127.0.0.1:10"})
    status = 4 if "reached" in word else 3
    assert word in run(path, *arguments, status=status).stderr.splitlines()[-1]


def test_who_has_no_peers_is_told_where_they_stand(tmp_path: Path) -> None:
    assert "the settings have no [[peers]]" in run(config(Owners(tmp_path, n_parties=2), {}), status=3).stderr


def test_the_help_says_what_is_not_protected() -> None:
    output = " ".join(CliRunner().invoke(party_app, ["learn", "--help"]).stdout.split())
    assert "YOUR OWN EXAMPLES ARE NOT PROTECTED FROM THE PARTIES THAT YOU ASK" in output
    assert "parley-party learn --algorithm wu_subgradient" in output
