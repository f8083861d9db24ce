"""``parley-learner evaluate``, and how it and ``submit`` ask for a run and watch it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

import typer

from parley.common.service.commands import ExitCode, Printer, deferred, print_json_line, read_parameters
from parley.learner.api import routes
from parley.learner.cli.options import (
    BudgetOptions,
    LearnerOptions,
    ParameterOption,
    RunArgument,
    SubmitOptions,
    ThresholdOption,
)

with deferred():
    import asyncio

    from parley.learner.cli import display
    from parley.learner.client import connection, progress

if TYPE_CHECKING:
    from parley.learner.cli.client import LearnerClient
    from parley.learner.client.connection import AsyncConnection

EVALUATIONS = (
    "Examples:\n\n"
    "parley-learner evaluate 5f1c... --epsilon 0.1 --delta 1e-6 --watch\n\n"
    "parley-learner evaluate 5f1c... --epsilon 0.1 --delta 1e-6 --threshold balanced"
)
"""The command's examples, for its help."""


def evaluate_command(
    run: RunArgument,
    price: BudgetOptions,
    *,
    parameters: ParameterOption = None,
    threshold: ThresholdOption = None,
    submission: SubmitOptions,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Ask how good a completed run's model is on the rows that the owners hold out of training.

    It is a run of its own, which the owners approve and their ledgers charge. What it finds is in the model's document,
    each figure with an interval for the noise; `model` prints it.
    """
    body = price.body(parameters=read_parameters(parameters), threshold=threshold, purpose=submission.purpose)
    with learner.open() as client:
        queue_run(client, routes.EVALUATE_RUN.to(run=run), body, submission, out)
    if threshold and submission.watch:
        out.next(f"parley-learner model {run}")


def queue_run(
    client: LearnerClient, request: tuple[str, str], body: object, submission: SubmitOptions, out: Printer
) -> None:
    """Ask for a run by a method and a path; print its identifier, or watch it."""
    run = client.ask(*request, body, connection.key_header(submission.idempotency_key))
    if out.is_json:
        print_json_line(run)
    elif not submission.watch:
        typer.echo(run["id"])
        out.next(f"parley-learner watch {run['id']}")
    if submission.watch:
        watch_run(client, run["id"], out)


def watch_run(client: LearnerClient, run: str, out: Printer) -> None:
    """Show a run's events to its end, and those of the evaluation that follows; exit with 1 unless they completed."""
    last = _watch_one(client, run, out)
    if (follower := last.get("evaluated_by")) is not None:
        _watch_one(client, follower, out)
    if "evaluation" not in last:  # which has no model of its own
        out.next(f"parley-learner model {run}")


def _watch_one(client: LearnerClient, run: str, out: Printer) -> Mapping[str, Any]:
    """Show a run's events to its end, and return the last. Exits with 1 unless the run completed."""
    try:
        if out.is_json:
            last: Mapping[str, Any] = {}
            for event in client.watch(run):
                last = event.news
                print_json_line({"run": run, "number": event.number, "kind": event.kind, **last})
        else:
            last = display.follow(client.watch(run), progress.terminal(), lambda: _evaluated(client, run))
    except KeyboardInterrupt:
        out.aside(f"the run goes on: parley-learner watch {run}, or cancel {run}")
        raise
    if last.get("state") != "completed":
        raise typer.Exit(ExitCode.NO)
    return last


def _evaluated(client: LearnerClient, evaluation: str) -> Mapping[str, Any]:
    """Return the document of the model that a run evaluates."""
    model = client.ask(*routes.SHOW_RUN.to(run=evaluation))["evaluates"]
    with TemporaryFile() as downloaded:
        document: Mapping[str, Any] = client.download(routes.SHOW_MODEL.at(run=model), downloaded)
    return document


def watch_runs(learner: LearnerOptions, runs: Sequence[str], out: Printer) -> None:
    """Show the events of runs as they come, and of evaluations that follow; exit with 1 unless all completed."""
    url, token_file, ca = learner.place

    async def watch_all() -> list[bool]:
        async with connection.AsyncConnection(url, token_file=token_file, ca=ca) as client:
            return await asyncio.gather(*(_completes(client, run, out) for run in runs))

    if not all(asyncio.run(watch_all())):
        raise typer.Exit(ExitCode.NO)


async def _completes(client: AsyncConnection, run: str, out: Printer) -> bool:
    """Show a run's events beside those of others; returns whether it, and the evaluation that follows, completed."""
    last: Mapping[str, Any] = {}
    async for event in client.watch(run):
        last = event.news
        value = {"run": run, "number": event.number, "kind": event.kind, **last}
        out.result(value, f"{run} {_in_words(event.kind, last)}")
    if last.get("state") != "completed":
        return False
    follower = last.get("evaluated_by")
    return follower is None or await _completes(client, follower, out)


def _in_words(kind: str, news: Mapping[str, Any]) -> str:
    """Return a line that says what an event reports."""
    if kind == "round":
        return f"round {news['round']} of {news['of']}, epsilon spent at most {max(news['epsilon'].values()):.3g}"
    if kind == "dropped":
        return f"dropped {news['party']} in round {news['round']}: {news['reason']}"
    reason = news["problem"]["detail"] if news.get("problem") else news.get("reason")
    return f"{news['state']}: {reason}" if reason else str(news["state"])
