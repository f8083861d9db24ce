"""The command parley-party, and what it says of settings, data and studies that cannot be used."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from parley.common.data.study import Person
from parley.common.service.tokens import hash_token
from parley.party.cli.ledger import audit_app
from parley.party.cli.main import party_app
from parley.party.cli.study import study_fit_app
from parley.party.keyholder.cli import key_holder_app as keyholder
from tests.support.cluster import LEARNER, Cluster, made_up
from tests.support.processes import free_port, wait_until_ready
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

SECRET = "31.4159"
"""A private value, put where something is wrong."""


@pytest.fixture
def config(cluster: Cluster) -> Path:
    """The settings file of the first party."""
    path = cluster.root / "party.toml"
    path.write_text(
        f"""
name = "party-1"
state = "{cluster.root / "party-1"}"
study = "{cluster.study_path}"
[data]
source = "{cluster.root / "party-1.csv"}"
[policy]
epsilon = 3
delta = 1e-4
max_epsilon_per_run = 1.5
max_delta_per_run = 1e-5
minimum_rows = 5
[[learners]]
name = "learner"
token_hash = "{hash_token(LEARNER)}"
"""
    )
    return path


def run(*arguments: str | Path) -> Result:
    """The command's exit status and what it printed."""
    return CliRunner().invoke(party_app, [str(argument) for argument in arguments])


def change(path: Path, line: int, edit: Callable[[list[str]], list[str]]) -> None:
    """Edit the cells of one line of a CSV file."""
    lines = path.read_text().splitlines()
    lines[line] = ",".join(edit(lines[line].split(",")))
    path.write_text("\n".join(lines) + "\n")


def test_check_says_what_the_party_is_and_refuses(config: Path) -> None:
    text = run("check", "--config", config)
    assert text.exit_code == 0, text.stderr
    assert "n_examples" in text.stdout
    assert "other algorithms than dp_gd" in text.stdout
    assert text.stderr == ""
    facts = json.loads(run("check", "--config", config, "--format", "json").stdout)
    assert facts["party"]["studies"][0]["n_examples"] == 40
    assert facts["budget"]["epsilon_left"] == 3
    assert "tokens of others than learner" in facts["refuses"]


def test_budget_and_log_tell_the_ledger(config: Path, cluster: Cluster, client: httpx.Client) -> None:
    propose(client, run_spec(cluster, n_rounds=2))
    for round in (1, 2):
        ask(client, round, weights(cluster, round)).raise_for_status()
    budget = json.loads(run("budget", "--config", config, "--format", "json").stdout)
    assert budget["units"]["spent"][0] == pytest.approx(1e6, abs=10)
    assert "spent" in run("budget", "--config", config).stdout
    entries = [json.loads(line) for line in run("log", "--config", config, "--format", "json").stdout.splitlines()]
    assert [(entry["number"], entry["learner"], entry["run"], entry["round"]) for entry in entries] == [
        (5, "learner", "run", 1),
        (6, "learner", "run", 2),
    ]
    assert sum(entry["epsilon"] for entry in entries) == pytest.approx(budget["units"]["spent"][0] / 1e6)
    assert len(run("log", "--config", config).stdout.splitlines()) == 3


def test_token_makes_a_token_and_its_hash() -> None:
    made = json.loads(run("token", "--format", "json").stdout)
    assert hash_token(made["token"]) == made["token_hash"]
    assert json.loads(run("token", "--format", "json").stdout)["token"] != made["token"]
    assert "token_hash" in run("token").stdout


def test_every_command_teaches() -> None:
    groups = {(): party_app, ("keyholder",): keyholder, ("audit",): audit_app, ("study",): study_fit_app}
    for group, commands in groups.items():
        for command in commands.registered_commands:
            path = (*group, command.name or command.callback.__name__)  # type: ignore[union-attr]
            help_text = run(*path, "--help").stdout
            assert len(help_text.split("Options:")[0].split()) > 20, path
            assert "--format" in help_text, path


def _missing(cluster: Cluster) -> None:
    (cluster.root / "party-1.csv").unlink()


def _directory(cluster: Cluster) -> None:
    _missing(cluster)
    (cluster.root / "party-1.csv").mkdir()


def _not_a_table(cluster: Cluster) -> None:
    (cluster.root / "party-1.csv").write_bytes(b"x0,x1,x2,y\n0.1,0.2,0.3,yes\n0.1," + SECRET.encode() + b'"\x00,\n')


def _no_such_column(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 0, lambda cells: ["z", *cells[1:]])


def _column_twice(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 0, lambda cells: [cells[1], *cells[1:]])


def _label_outside(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: [*cells[:-1], SECRET])


def _label_missing(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: [*cells[:-1], ""])


def _nan(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: ["nan", *cells[1:]])


def _empty_cell(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: ["", *cells[1:]])


def _infinite(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: ["inf", *cells[1:]])


def _words(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: [f"{SECRET} cm", *cells[1:]])


def _beyond(cluster: Cluster) -> None:
    change(cluster.root / "party-1.csv", 3, lambda cells: [SECRET, *cells[1:]])


def _no_row(cluster: Cluster) -> None:
    path = cluster.root / "party-1.csv"
    path.write_text(path.read_text().splitlines()[0] + "\n")


def _empty_file(cluster: Cluster) -> None:
    (cluster.root / "party-1.csv").write_text("")


def _few_rows(cluster: Cluster) -> None:
    path = cluster.root / "party-1.csv"
    path.write_text("\n".join(path.read_text().splitlines()[:4]) + "\n")


def _study_missing(cluster: Cluster) -> None:
    cluster.study_path.unlink()


def _study_broken(cluster: Cluster) -> None:
    cluster.study_path.write_text('{"name": 3}')


def _study_unlike(cluster: Cluster) -> None:
    study = json.loads(cluster.study_path.read_text())
    study["features"].append({"name": "height", "lower": 0, "upper": 1})
    cluster.study_path.write_text(json.dumps(study))


def _three_labels(cluster: Cluster) -> None:
    study = json.loads(cluster.study_path.read_text())
    study["label"]["values"].append("perhaps")
    cluster.study_path.write_text(json.dumps(study))


BAD_INPUT: dict[Callable[[Cluster], None], str] = {
    _missing: "is missing",
    _directory: "of the files of a folder say FOLDER/*.csv",
    _not_a_table: "cannot be read",
    _no_such_column: "column 'x0': absent",
    _column_twice: "names columns twice: see places 1, 2",
    _label_outside: "column 'y': unknown label in 1 row",
    _label_missing: "column 'y': missing in 1 row",
    _nan: "column 'x0': missing in 1 row",
    _empty_cell: "column 'x0': missing in 1 row",
    _infinite: "column 'x0': beyond the bounds in 1 row",
    _words: "column 'x0': not numeric in 1 row",
    _beyond: "column 'x0': beyond the bounds in 1 row; data.out_of_bounds = \"clip\"",
    _no_row: "the data has no row",
    _empty_file: "cannot be read",
    _few_rows: "fewer rows than policy.minimum_rows = 5",
    _study_missing: "cannot be read",
    _study_broken: "features: Field required",
    _study_unlike: "column 'height': absent",
    _three_labels: "label 'y' has 3 values: its loss must be 'softmax'",
}


@pytest.mark.parametrize("spoil", BAD_INPUT, ids=lambda spoil: spoil.__name__.strip("_"))
def test_bad_input_is_one_line_without_a_private_value(
    config: Path, cluster: Cluster, spoil: Callable[[Cluster], None]
) -> None:
    spoil(cluster)
    ledger = (cluster.root / "party-1" / "ledger.db").read_bytes()
    for command in ("check", "serve"):
        result = run(command, "--config", config)
        assert result.exit_code == 3
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("parley-party: ")
        assert BAD_INPUT[spoil] in line
        assert SECRET not in line
        assert (cluster.root / "party-1" / "ledger.db").read_bytes() == ledger


def test_the_owner_may_have_values_clipped(config: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    _beyond(cluster)
    monkeypatch.setenv("PARLEY_PARTY_DATA__OUT_OF_BOUNDS", "clip")
    assert run("check", "--config", config).exit_code == 0


@pytest.mark.parametrize(
    ("person", "pinned", "words"),
    [
        (
            {"column": "visit"},
            "visit",
            "each row has another 'visit': is this a row's number? Then persons are records",
        ),
        ({"column": "ward", "most_rows": 5}, "ward", "15 rows of persons with more than 5 are left out"),
        (
            {"column": "visit"},
            "",
            "runs about made-up will be refused: the study made-up takes 'visit' for the column that says whose",
        ),
        ({"column": "visit"}, "ward", "runs about made-up will be refused: the study made-up takes 'visit'"),
        (
            None,
            "visit",
            "runs about made-up will be refused: the owner's rows belong to persons by the column 'visit'",
        ),
        (None, "", "runs about made-up will be refused: the owner protects each person, all rows at once"),
    ],
)
def test_check_says_what_is_odd_about_persons(
    config: Path, monkeypatch: pytest.MonkeyPatch, person: dict[str, Any] | None, pinned: str, words: str
) -> None:
    rng, root = np.random.default_rng(1), config.parent
    columns: dict[str, Any] = {f"x{column}": rng.uniform(-1, 1, 20) for column in range(3)}
    columns |= {"y": ["yes", "no"] * 10, "visit": np.arange(20), "ward": ["east"] * 20}
    pq.write_table(pa.table(columns), root / "data.parquet")
    study = made_up(3).model_copy(update={"person": person and Person(**person)})
    (root / "study.json").write_text(study.model_dump_json(), encoding="utf-8")
    settings = {"POLICY__ADJACENCY": "person", "POLICY__MINIMUM_ROWS": "1", "STATE": root / "new"}
    settings |= {"STUDY": root / "study.json", "DATA__SOURCE": root / "data.parquet"}
    for name, value in (settings | ({"DATA__PERSON": pinned} if pinned else {})).items():
        monkeypatch.setenv(f"PARLEY_PARTY_{name}", str(value))
    checked = run("check", "--config", config)
    assert checked.exit_code == 0, checked.output
    assert words in checked.stderr
    stated = ("n_examples", "person.column", "person.most_rows", "person.missing")
    shown = dict(line.split(maxsplit=1) for line in checked.stdout.splitlines() if line.strip().startswith(stated))
    if person is not None:
        n_persons, most_rows = {"visit": ("20 persons", "1000"), "ward": ("1 person", "5")}[person["column"]]
        assert shown == dict(zip(stated, (n_persons, person["column"], most_rows, "refuse"), strict=True))
    else:
        assert shown == {"n_examples": "20"}
    assert "data of fewer than 1 row, or than 1 person where a study hides persons" in checked.stdout
    (read,) = json.loads(run("check", "--config", config, "--format", "json").stdout)["read"]
    assert read.get("person") == (study.person and study.person.model_dump())


def test_parquet_is_read_too(config: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    columns = {name: rng.uniform(-1, 1, 20) for name in cluster.study.feature_names}
    pq.write_table(pa.table(columns | {"y": ["yes", "no"] * 10}), cluster.root / "data.parquet")
    monkeypatch.setenv("PARLEY_PARTY_DATA__SOURCE", str(cluster.root / "data.parquet"))
    assert (
        json.loads(run("check", "--config", config, "--format", "json").stdout)["party"]["studies"][0]["n_examples"]
        == 20
    )


@pytest.mark.parametrize("values", [["a", None], [b"\xff", b"x"], [[1], [2]]], ids=["null", "bytes", "lists"])
def test_odd_columns_are_refused(
    config: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, values: list[object]
) -> None:
    columns: dict[str, list[object]] = {name: [0.0, 0.5] for name in cluster.study.feature_names}
    monkeypatch.setenv("PARLEY_PARTY_DATA__SOURCE", str(cluster.root / "odd.parquet"))
    for odd in ("x0", "y"):
        pq.write_table(pa.table(columns | {"y": ["yes", "no"]} | {odd: values}), cluster.root / "odd.parquet")
        result = run("check", "--config", config)
        assert result.exit_code == 3
        (line,) = result.stderr.splitlines()
        assert f"'{odd}'" in line


def test_unusable_settings_ledgers_and_certificates_are_one_line_too(config: Path, cluster: Cluster) -> None:
    assert "No such file" in run("check", "--config", cluster.root / "none.toml").stderr
    good = config.read_text()
    certificate = cluster.root / "none.pem"
    config.write_text(good + f'[tls]\ncertificate = "{certificate}"\nkey = "{certificate}"\n')
    refused = run("serve", "--config", config)
    assert refused.exit_code == 3
    assert "none.pem" in refused.stderr.splitlines()[-1]
    config.write_text(good)
    (cluster.root / "party-1" / "ledger.db").write_text("not a database" * 100)
    refused = run("check", "--config", config)
    assert refused.exit_code == 3
    assert refused.stderr == "parley-party: the ledger's database is damaged\n"


def test_serve_answers_until_it_is_told_to_stop(config: Path, cluster: Cluster) -> None:
    port = free_port()
    program = "from parley.party.cli.main import party_app; party_app()"
    command = [sys.executable, "-c", program, "serve", "--config", str(config)]
    environment = {"PARLEY_PARTY_PORT": str(port), "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        try:
            wait_until_ready(f"http://127.0.0.1:{port}")
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=ASKING, trust_env=False) as client:
                propose(client, run_spec(cluster)).raise_for_status()
                ask(client, 1, weights(cluster, 1)).raise_for_status()
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=20)
    assert process.returncode == 0
    events = [json.loads(line)["event"] for line in log.splitlines()]
    databases = ["database", "database"]  # the ledger, and the receipts of others
    assert events == [*databases, "serving", "proposed", "approved", "charged"]
