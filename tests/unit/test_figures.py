"""The figures' frame on a tiny figure."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from matplotlib import pyplot as plt

from parley.learner.experiments.simulation import SimulationSettings
from scripts.figures import __main__ as command_line
from scripts.figures.__main__ import main
from scripts.figures.claims.table import Claim
from scripts.figures.frame import Figure, Line, Paper, Ruling, Verdict, all_figures, errors, standard_error
from scripts.figures.panels import Outcome, Panels, Place, draw, fall, sweep, write
from scripts.figures.reproduction import Record, Row, merged, page, read


def tiny(*, holds: bool) -> Figure[Panels]:
    """Two lines of two points each, in two panels."""
    simulations = {
        Place(row, "all", line, x): SimulationSettings("simulated", algorithm=line, skew=x, repeat=3)
        for row in ("upper", "lower")
        for line in ("dp_gd", "pooled")
        for x in (0.0, 1.0)
    }
    lines = {"dp_gd": Line("private", "#0072B2", "o"), "pooled": Line("not private", "#000000", "s", "--")}
    return Figure(
        Paper("paper", "A Paper", "its title", "12"), "tiny", "Tiny", sweep(simulations), sweep(simulations, 2),
        Panels.of, write, partial(draw, lines, "skew"),
        lambda _: [Verdict("paper.so", "all", Ruling.of(holds), "1 of 1")],
    )  # fmt: skip


CLAIM = Claim(
    key="paper.so", short="it is so", where="Theorem 1", says="it is so", form="quotation", judged="one",
)  # fmt: skip


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., int]:
    """The command line with a tiny figure alone, whose claim holds or not, in this process."""

    def run(*arguments: str, holds: bool = True, picture: bool = False, claim: Claim = CLAIM) -> int:
        figure = tiny(holds=holds) if picture else replace(tiny(holds=holds), draw=lambda *_: None)
        monkeypatch.setattr(command_line, "all_figures", lambda: (figure,))
        monkeypatch.setattr(command_line, "processes", ThreadPoolExecutor)
        monkeypatch.setattr(command_line, "claims", lambda: {CLAIM.key: claim})
        monkeypatch.setattr(command_line, "items", tuple)
        monkeypatch.setattr(command_line, "shrink", lambda *_: None)
        return main([*arguments, "--out", str(tmp_path / "new"), "--reproduction", str(tmp_path)])

    return run


@pytest.mark.slow
def test_the_table_says_what_was_simulated_and_promised(command: Callable[..., int], tmp_path: Path) -> None:
    assert command(picture=True) == 0
    with (tmp_path / "new" / "tiny.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    private, public = rows[0], rows[2]
    assert (private["algorithm"], private["epsilon"], private["repeat"]) == ("dp_gd", "1.0", "3")
    assert float(private["transcript_epsilon"]) == pytest.approx(1.0)
    assert public["transcript_epsilon"] == "", "nothing is promised"
    assert 0.5 < float(private["accuracy_mean"]) < float(public["accuracy_mean"]) <= 1
    assert float(private["accuracy_standard_error"]) == pytest.approx(float(private["accuracy_sd"]) / 3**0.5, abs=1e-4)
    picture = plt.imread(tmp_path / "new" / "tiny.png")
    assert min(picture.shape[:2]) > 400
    assert len(np.unique(picture[..., :3].reshape(-1, 3), axis=0)) > 10, "not blank"


def test_a_run_goes_on_where_it_was_and_gives_the_same_table(command: Callable[..., int], tmp_path: Path) -> None:
    command()
    table, cache = tmp_path / "new" / "tiny.csv", tmp_path / "new" / "cache"
    before, results = table.read_bytes(), {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    lost = min(results)
    lost.unlink()
    command()
    assert table.read_bytes() == before
    assert {path: path.stat().st_mtime_ns for path in cache.iterdir() if path != lost} | {
        lost: results[lost]
    } == results


def test_a_claim_that_fails_without_a_cause_fails_the_command(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(holds=False) == 1
    assert "paper.so: all: DOES NOT HOLD (1 of 1)" in capsys.readouterr().out
    row = "| Theorem 1 | all | `tiny` | 1 of 1 |  | 3 | DOES NOT HOLD |"
    assert row in (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert command(holds=False, claim=CLAIM.model_copy(update={"cause": "paper", "why": "it is not"})) == 0
    text = (tmp_path / "reproduction.md").read_text(encoding="utf-8")
    assert row.replace("HOLD |", "HOLD (the paper: it is not) |") in text
    assert "| Theorem 1 | [it is so](#paperso) (`paper.so`) | DOES NOT HOLD | the paper: it is not |" in text


def test_a_quick_run_judges_nothing_and_leaves_what_a_full_one_wrote(
    command: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "reproduction.md"
    assert command("--quick", holds=False) == 0
    assert "too few runs to tell" in capsys.readouterr().out
    assert "| 2 | too few runs to tell |" in page.read_text(encoding="utf-8")
    with (tmp_path / "new" / "tiny.csv").open() as file:
        assert {row["repeat"] for row in csv.DictReader(file)} == {"2"}
    command()
    full = page.read_bytes()
    assert "“it is so”".encode() in full
    assert b"| holds |" in full
    command("--quick")
    assert page.read_bytes() == full


def test_the_report_has_other_figures_rows_too_in_the_order_of_the_figures(
    command: Callable[..., int], tmp_path: Path
) -> None:
    command()
    before = read(tmp_path / "reproduction.json")
    one = tiny(holds=True)
    figures = [replace(one, name=name) for name in ("first", "tiny", "last")]
    row = Row.of(Verdict(CLAIM.key, "a | b", Ruling.HOLDS, "2 of 2"), tells=True)
    record = Record.of(one, one.full, 1.5, [row])
    records = merged(before, {"last": record, "first": record}, figures)
    assert list(records) == ["first", "tiny", "last"]
    text = page(records, {CLAIM.key: CLAIM}, figures)
    assert re.findall(r"^\| Theorem 1 \| .* \| `(\w+)` ", text, re.MULTILINE) == ["first", "tiny", "last"]
    assert "a ∣ b" in text
    assert list(merged(records, {}, figures[:2])) == ["first", "tiny"], "what is no figure any more goes"


def test_only_what_is_asked_for_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "rajkumar", "wu_fig02"]) == 0
    listed = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    splits = [f"rajkumar_fig{number}_{deal}" for number in (1, 2) for deal in ("shares", "simplex")]
    assert listed == [*splits, "rajkumar_theorem51", "wu_fig02"]
    with pytest.raises(SystemExit):
        main(["rajkumar_fig9"])
    assert "no such figure: rajkumar_fig9" in capsys.readouterr().err


@pytest.mark.parametrize("jobs", ["0", "-1"])
def test_no_processes_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs: str
) -> None:
    with pytest.raises(SystemExit):
        main(["wu_fig02", "--quick", "--jobs", jobs, "--out", str(tmp_path / "out")])
    assert f"--jobs must be at least 1, not {jobs}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_without_data_nothing_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PARLEY_DATA", raising=False)
    assert main(["hamm_fig4", "wu_fig02", "--out", str(tmp_path / "out"), "--reproduction", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "hamm_fig4: not drawn: PARLEY_DATA has no url-subset" in output
    assert "wu_fig02: not drawn: PARLEY_DATA has no lending-club" in output
    assert not list((tmp_path / "out").iterdir())


def test_the_figures_are_named_after_their_papers() -> None:
    figures = all_figures()
    names = [figure.name for figure in figures]
    assert len(set(names)) == len(names)
    for figure in figures:
        assert figure.name.startswith(f"{figure.paper.name}_")
        assert set() < set(figure.quick.points) <= set(figure.full.points)


def test_errors_are_those_of_the_mean() -> None:
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert standard_error(values) == pytest.approx(values.std(ddof=1) / 2)
    assert errors(values) == pytest.approx(3 / standard_error(values))
    assert fall(made_up(0.9), made_up(0.7)).mean() == pytest.approx(0.2)


def made_up(accuracy: float) -> Outcome:
    """An outcome of about this mean accuracy, with a little scatter."""
    scatter = np.random.default_rng(5).normal(0, 0.01, 50)
    return Outcome(SimulationSettings(), accuracy + scatter - scatter.mean())
