"""``parley-learner simulate``: try an algorithm on data in this process, without any party."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from parley.common.encoding.texts import so_many
from parley.common.service.commands import CsvOption, Printer, TableOption, deferred, read_parameters
from parley.learner.cli.forecast import hardly_private
from parley.learner.cli.options import ExplainOption, ParameterOption
from parley.learner.experiments import simulated_names

with deferred():
    from parley.learner.cli import display
    from parley.learner.client import progress
    from parley.learner.experiments import simulation

if TYPE_CHECKING:
    from parley.learner.experiments.simulation import SimulationResult

SIMULATIONS = (
    "Examples:\n\n"
    "parley-learner simulate --data wdbc --algorithm dp_gd --parties 5 --reveal sum --epsilon 1 "
    "--delta 1e-5 --repeat 20 --seed 7 --format json\n\n"
    "parley-learner simulate --data digits -p n_rounds=60 -p step=8\n\n"
    "parley-learner simulate --data digits --algorithm ensemble_vote --parties 100 --epsilon 5\n\n"
    "parley-learner simulate --data loans.csv --study loans.json"
)
"""The command's examples, for its help."""


def simulate_command(
    data: Annotated[
        str,
        typer.Option(help="wdbc, digits, simulated, simulated-ball, a CSV, Parquet or LIBSVM file, or what join takes"),
    ] = "wdbc",
    study: Annotated[Path | None, typer.Option(help="the study's JSON file, if the data is a file")] = None,
    table: TableOption = None,
    csv: CsvOption = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(simulated_names())}; auto is the one with the best forecast, as for submit; psgd and "
            "gop are for two classes only, and those that seek a private minimiser, or vote, are not for real labels"
        ),
    ] = "dp_gd",
    parameter: ParameterOption = None,
    parties: Annotated[int, typer.Option(min=1, help="how many parties share the data")] = 5,
    skew: Annotated[
        float, typer.Option(min=0, help="party k gets a share proportional to k^skew: 0 is even, 1 is 1 : 2 : 3 ...")
    ] = 0.0,
    reveal: Annotated[
        Literal["sum", "each"],
        typer.Option(
            help="what the learner sees: each answer, with all of its owner's noise, as in runs by default; or the "
            "sum, with noise in shares, as by --secure-sum paillier"
        ),
    ] = "each",
    epsilon: Annotated[float, typer.Option(help="each party's budget")] = 1.0,
    delta: Annotated[float, typer.Option(help="each party's budget")] = 1e-5,
    repeat: Annotated[int, typer.Option(min=1, help="repetitions, each with a split and noise of its own")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="the same seed gives the same splits and noise")] = 0,
    public_rows: Annotated[
        int | None,
        typer.Option(
            help="how many training examples are public rows, for ensembles; a fifth, at most 2,000, if not given"
        ),
    ] = None,
    baselines: Annotated[
        bool, typer.Option(help="say what to measure it by: the majority, all data pooled, each owner alone, the best")
    ] = True,
    explain: ExplainOption = False,
    *,
    out: Printer,
) -> None:
    """Try an algorithm on data in this process: how good its models are on held-out examples, and the guarantee.

    For classes it prints the accuracy, and for two classes the AUC; for a real label the RMSE in the label's units and
    R². Beside these it prints the same for no model, for all data without privacy, for each owner's own data, and for
    the best algorithm at the same budget, with parameters chosen by itself: this run, if none that was tried is better.
    """
    parameters = read_parameters(parameter)
    settings = simulation.SimulationSettings(
        data,
        study,
        algorithm,
        parameters,
        parties,
        skew,
        reveal,
        epsilon,
        delta,
        repeat,
        seed,
        public_rows,
        tables=tuple(table or ()),
        csv=csv,
        colluders=int(reveal == "sum" and parties > 1),  # as a run's by default
    )
    for warning in hardly_private(epsilon):
        out.aside(warning)
    with display.progress_bar(progress.terminal(stderr=True)) as bar:
        task = bar.add_task(algorithm, total=repeat, figures="")
        result = simulation.run_simulation(
            settings, lambda done, _: bar.update(task, completed=done), with_baselines=baselines
        )
    out.result(result.to_json(), _lines(result, explain=explain))
    for warning in result.warnings:
        out.aside(f"warning: {warning}")


_NOISE = {
    "each": "each owner adds all of its noise, as in a run by default; --reveal sum is as by --secure-sum paillier",
    "sum": "owners add noise in shares, as in a run by --secure-sum paillier; without it a run has more noise",
}


def _lines(result: SimulationResult, *, explain: bool) -> Iterator[str]:
    """Yield the lines that show a simulation's result."""
    settings = result.settings
    yield f"{settings.algorithm}: {display.measured(result.metrics)}, over {so_many(settings.repeat, 'repetition')}"
    if result.baselines:
        yield f"  {display.beside(result.baselines, result.kind)}"
    yield f"  {_NOISE[settings.reveal]}"
    if result.unit == "person":
        yield f"  each person counts once: {result.n_train:,} to train on and {result.n_test:,} to test on"
    if result.n_dropped:
        yield f"  {result.n_dropped:,} of the table's {result.n_rows:,} rows miss a value and are empty ones"
    yield from (f"  {name} = {choice}" for name, choice in result.choices.items() if explain or name == "algorithm")
    yield from (f"  {line}" for line in display.promises([guarantee.to_json() for guarantee in result.guarantees]))
