"""``parley-learner evaluate``, and how it and ``submit`` ask for a run and watch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import typer

from parley.common.service.commands import (
    ExitCode,
    Format,
    FormatOption,
    print_aside,
    print_json_line,
    print_next,
    read_budgets,
    read_parameters,
)
from parley.learner.cli.options import (
    DEFAULT_URL,
    BudgetOption,
    CaOption,
    DeltaOption,
    EpsilonOption,
    KeyOption,
    ParameterOption,
    PurposeOption,
    RunArgument,
    TokenFileOption,
    UrlOption,
    WatchOption,
    open_client,
)

if TYPE_CHECKING:
    from parley.learner.cli.client import LearnerClient
    from parley.learner.client.connection import AsyncConnection

EVALUATIONS = (
    "Examples:\n\n"
    "parley-learner evaluate 5f1c... --epsilon 0.1 --delta 1e-6 --watch\n\n"
    "parley-learner evaluate 5f1c... --epsilon 0.1 --delta 1e-6 -p bins=10"
)
"""How the command is used."""


def evaluate_command(
    run: RunArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    parameter: ParameterOption = None,
    budget: BudgetOption = None,
    purpose: PurposeOption = "",
    idempotency_key: KeyOption = None,
    watch: WatchOption = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Ask how good a completed run's model is on the rows that the owners hold out of training.

    It is a run of its own, which the owners approve and their ledgers charge. What it finds is in the model's document,
    each figure with an interval for the noise; `model` prints it.
    """
    body = {
        "epsilon": epsilon,
        "delta": delta,
        "budgets": read_budgets(budget),
        "parameters": read_parameters(parameter),
        "purpose": purpose,
    }
    with open_client(url, token_file, ca) as client:
        queue_run(client, f"/v1/runs/{quote(run)}/evaluation", body, idempotency_key, output, watch=watch)


def queue_run(client: LearnerClient, path: str, body: object, key: str | None, output: Format, *, watch: bool) -> None:
    """Ask for a run; print its identifier, or watch it."""
    run = client.ask("POST", path, body, {"Idempotency-Key": key} if key else {})
    if output == "json":
        print_json_line(run)
    elif not watch:
        typer.echo(run["id"])
        print_next(output, f"parley-learner watch {run['id']}")
    if watch:
        watch_run(client, run["id"], output)


def watch_run(client: LearnerClient, run: str, output: Format) -> None:
    """Show a run's events to its end, and those of the evaluation that follows; exit with 1 unless they completed."""
    last = _watch_one(client, run, output)
    if (follower := last.get("evaluated_by")) is not None:
        _watch_one(client, follower, output)
    if "evaluation" not in last:  # which has no model of its own
        print_next(output, f"parley-learner model {run}")


def _watch_one(client: LearnerClient, run: str, output: Format) -> Mapping[str, Any]:
    """Show a run's events to its end; the last of them. Exits with 1 unless it completed."""
    from parley.learner.cli.display import follow  # noqa: PLC0415 -- help comes without numpy
    from parley.learner.client.progress import terminal  # noqa: PLC0415

    try:
        if output == "text":
            last = follow(client.watch(run), terminal())
        else:
            for event in client.watch(run):
                last = event.news
                print_json_line({"run": run, "number": event.number, "kind": event.kind, **last})
    except KeyboardInterrupt:
        print_aside(output, f"the run goes on: parley-learner watch {run}, or cancel {run}")
        raise
    if last.get("state") != "completed":
        raise typer.Exit(ExitCode.NO)
    return last


def watch_runs(url: str, token_file: Path | None, ca: Path | None, runs: Sequence[str], output: Format) -> None:
    """Show the events of runs as they come, and of evaluations that follow; exit with 1 unless all completed."""
    import asyncio  # noqa: PLC0415 -- help comes faster without

    from parley.learner.client.connection import AsyncConnection  # noqa: PLC0415

    async def watch_all() -> list[bool]:
        async with AsyncConnection(url, token_file=token_file, ca=ca) as learner:
            return await asyncio.gather(*(_completes(learner, run, output) for run in runs))

    if not all(asyncio.run(watch_all())):
        raise typer.Exit(ExitCode.NO)


async def _completes(learner: AsyncConnection, run: str, output: Format) -> bool:
    """Show a run's events beside those of others; whether it, and the evaluation that follows, completed."""
    last: Mapping[str, Any] = {}
    async for event in learner.watch(run):
        last = event.news
        if output == "json":
            print_json_line({"run": run, "number": event.number, "kind": event.kind, **last})
        else:
            typer.echo(f"{run} {_in_words(event.kind, last)}")
    if last.get("state") != "completed":
        return False
    follower = last.get("evaluated_by")
    return follower is None or await _completes(learner, follower, output)


def _in_words(kind: str, news: Mapping[str, Any]) -> str:
    """An event in a line."""
    if kind == "round":
        return f"round {news['round']} of {news['of']}, epsilon spent at most {max(news['epsilon'].values()):.3g}"
    if kind == "dropped":
        return f"dropped {news['party']} in round {news['round']}: {news['reason']}"
    why = news["problem"]["detail"] if news.get("problem") else news.get("reason")
    return f"{news['state']}: {why}" if why else str(news["state"])
