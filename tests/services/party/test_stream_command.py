"""The command ``parley-party stream``: what it prints, how it goes on, and what it refuses."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from parley.common.errors import UnavailableError
from parley.party.cli.main import party_app
from parley.party.settings import PartySettings
from tests.support.cluster import Cluster
from tests.support.ledgers import make_ledger
from tests.support.toml import write

COSTS = np.random.default_rng(6).uniform(-2, 2, (6, 3)).round(3).tolist()
LINES = [json.dumps(cost) for cost in COSTS]
DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "commands.md"
ACTION = re.compile(r'(?<="action": )\d')  # drawn with noise


@pytest.fixture
def config(cluster: Cluster) -> Path:
    settings: PartySettings = make_ledger(cluster.party_settings("party-1"))
    dumped = settings.model_dump(mode="json", exclude_none=True, include={"name", "state", "study", "data", "learners"})
    policy = {"epsilon": 3.0, "delta": 1e-5, "max_epsilon_per_run": 1.5, "max_delta_per_run": 1e-5}
    return write(cluster.root / "party.toml", dumped | {"policy": policy})


def command(config: Path, lines: str, *more: str, status: int = 0, **terms: object) -> Result:
    values = {"name": "prices", "actions": 3, "horizon": 6, "bound": 2, "epsilon": 1, "delta": 1e-6} | terms
    options = [word for name, value in values.items() for word in (f"--{name}", str(value))]
    sent = lines.encode(errors="surrogateescape")
    result = CliRunner().invoke(party_app, ["stream", "--config", str(config), *options, *more], input=sent)
    assert result.exit_code == status, result.output
    return result


def test_acts_and_goes_on(config: Path, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    first = command(config, "\n".join(LINES[:2]), "--receipt", str(receipt))
    rounds = [json.loads(line)["round"] for line in first.stdout.splitlines()]
    assert rounds == [1, 2, 3]
    assert "(1, 1e-06) transcript replace_one [tight], regret at most" in first.stderr
    ended = "the input ended early, 2 of 6 rounds have their costs: the same command goes on with"
    assert f"{ended} the same lines, and more" in first.stderr
    assert receipt.read_text().count("\n") == 1
    again = command(config, "", "--input", "rest", "--receipt", str(receipt))
    assert again.stdout.splitlines() == first.stdout.splitlines()[2:]
    assert "goes on at round 3; the first line is taken as the cost of round 3" in again.stderr
    assert f"{ended} the lines after these" in again.stderr
    continued = command(config, "\n\n".join(LINES) + "\n")
    assert "goes on at round 3; the first line is taken as the cost of round 1" in continued.stderr
    assert continued.stdout.splitlines()[0] == first.stdout.splitlines()[2]
    assert len(continued.stdout.splitlines()) == 4
    assert "early" not in continued.stderr
    assert continued.stderr.splitlines()[-1] == "prices: the horizon is over, all 6 rounds have their costs"
    assert "has ended" in command(config, "", status=3).stderr
    result = CliRunner().invoke(party_app, ["log", "--by-run", "--config", str(config)])
    assert "6 noisy answers (act)" in result.stdout
    spent = CliRunner().invoke(party_app, ["log", "--format", "json", "--config", str(config)])
    assert [json.loads(line)["epsilon"] for line in spent.stdout.splitlines()] == [1.0, 0, 0, 0, 0, 0]


def test_a_stream_keeps_the_study_that_it_is_about(config: Path) -> None:
    command(config, LINES[0], study="made-up")
    log = CliRunner().invoke(party_app, ["log", "--by-run", "--format", "json", "--config", str(config)])
    assert json.loads(log.stdout)["study"] == "made-up"
    assert "prices was begun with other terms, study made-up, not None" in command(config, "", status=3).stderr
    words = "there is no study ward-9; the settings name made-up"
    assert words in command(config, "", name="other", study="ward-9", status=3).stderr


def test_the_documents_show_what_it_prints(config: Path) -> None:
    block = DOCUMENT.read_text(encoding="utf-8").partition("$ printf '")[2].partition("```")[0]
    lines, _, expected = block.partition("' > costs.jsonl\n$ ")
    typed, *printed = expected.splitlines()
    arguments = typed.removeprefix("parley-party ").removesuffix(" < costs.jsonl").split()
    result = CliRunner().invoke(party_app, [*arguments, "--config", str(config)], input=lines.replace("\\n", "\n"))
    assert result.exit_code == 0, result.output
    output = [*result.stderr.splitlines()[:2], *result.stdout.splitlines(), *result.stderr.splitlines()[2:]]
    assert [ACTION.sub("", line) for line in output] == [ACTION.sub("", line) for line in printed]


def test_costs_after_the_horizon_are_refused(config: Path) -> None:
    refused = command(config, "\n".join([*LINES, LINES[0]]), status=3)
    assert len(refused.stdout.splitlines()) == 6
    assert "line 7 of the input, round 7: the horizon of 6 rounds is over" in refused.stderr


@pytest.mark.slow
def test_nothing_is_waited_for_after_the_horizon(config: Path) -> None:
    """A pipe whose writer leaves it open."""
    with subprocess.Popen(
        ["sh", "-c", _shell(config)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        process.stdin.write("\n".join(LINES) + "\n")
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
        assert len(process.stdout.readlines()) == 6
        assert "the horizon is over" in process.stderr.readlines()[-1]


def test_a_receipt_takes_the_place_of_an_older_one_and_of_nothing_else(config: Path, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    command(config, LINES[0], "--receipt", str(receipt))
    first = receipt.read_text()
    command(config, LINES[0], "--receipt", str(receipt), name="other", epsilon=0.5)
    assert receipt.read_text() != first, "the older knows nothing of this charge"
    receipt.write_text(LINES[0])
    refused = command(config, LINES[0], "--receipt", str(receipt), status=3, name="third")
    assert refused.stderr.strip().endswith("receipt is there, and is not replaced: a receipt that cannot be read")
    assert receipt.read_text() == LINES[0]
    log = CliRunner().invoke(party_app, ["log", "--by-run", "--config", str(config)])
    assert "third" not in log.stdout


def test_programs_are_told_errors_as_json_and_nothing_beside(config: Path) -> None:
    result = command(config, LINES[0], "--format", "json")
    assert not result.stderr
    assert len(result.stdout.splitlines()) == 2
    refused = command(config, "\n".join([LINES[0], "", "0"]), "--format", "json", status=3)
    error = json.loads(refused.stderr)
    assert error["type"] == "invalid-input"
    assert error["error"].startswith("line 3 of the input, round 2: a line must be a list of numbers")


def _full(*_: object) -> None:
    raise UnavailableError("the ledger cannot be written: its disk is full")


def test_a_disk_that_is_full_may_be_tried_again_later(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`docs/exit-codes.md` says so."""
    with monkeypatch.context() as broken:
        broken.setattr("parley.party.ledger.ledger._append", _full)
        assert "its disk is full" in command(config, LINES[0], status=4).stderr
    command(config, LINES[0])


def test_a_line_that_is_no_text_is_named(config: Path) -> None:
    refused = command(config, f"{LINES[0]}\n[\udcff]\n{LINES[1]}", status=3)
    assert "line 2 of the input, round 2: a line must be JSON" in refused.stderr


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"actions": 1}, "actions must lie between 2"),
        ({"horizon": 0}, "the horizon must lie between 1"),
        ({"bound": 0}, "the bound must be positive"),
        ({"bound": math.nan}, "bound: Input should be a finite number"),
        ({"epsilon": 2}, "the run costs epsilon 2"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"delta": 1}, "delta must be 0, or at least 1e-18 and below 1"),
        ({"epsilon": 1e300}, "epsilon must lie between 1e-06 and 1e+12"),
        ({"calibration": "none"}, "calibration"),
        ({"adversary": "kind"}, "adversary"),
        ({"name": "two words"}, "name: String should match"),
    ],
)
def test_unfit_terms_cost_nothing(config: Path, terms: dict[str, object], words: str) -> None:
    misused = 2 if terms.keys() & {"calibration", "adversary"} else 3
    assert words in command(config, LINES[0], status=misused, **terms).stderr
    log = CliRunner().invoke(party_app, ["log", "--by-run", "--config", str(config)])
    assert "prices" not in log.stdout


def test_a_cost_that_is_none_stops_the_stream_where_it_stood(config: Path) -> None:
    for line, words in (("[0, 0, 3]", "action 2 is not a number within the bound of 2"), ("[0]", "3 numbers")):
        assert words in command(config, line, status=3).stderr
    assert json.loads(command(config, LINES[0]).stdout.splitlines()[-1])["round"] == 2


def test_an_action_that_cannot_be_told_is_a_foreseen_error_and_shown_again(config: Path, tmp_path: Path) -> None:
    refused = command(config, LINES[0], "--receipt", str(tmp_path / "absent" / "receipt"), status=3)
    assert refused.stderr.splitlines()[1:] == [f"parley-party: {tmp_path}/absent/receipt: No such file or directory"]
    assert not refused.stdout
    assert json.loads(command(config, "").stdout)["round"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        ("<&-", 0, "0 of 6 rounds have their costs"),
        (">&-", 3, "standard output is closed: nobody would see an action"),
        pytest.param(
            ">/dev/full", 3, "input or output: No space left on device",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full"),
        ),
    ],
)  # fmt: skip
def test_streams_that_are_closed_or_full_end_it_in_a_line(config: Path, redirected: str, code: int, told: str) -> None:
    ended = subprocess.run(
        ["sh", "-c", f"{_shell(config)} {redirected}"],
        input=LINES[0], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)
    assert told in ended.stderr.splitlines()[-1]


def _shell(config: Path) -> str:
    """The command as a shell takes it."""
    terms = "--name prices --actions 3 --horizon 6 --bound 2 --epsilon 1 --delta 1e-6"
    return f"exec {Path(sys.executable).parent / 'parley-party'} stream --config {config} {terms}"
