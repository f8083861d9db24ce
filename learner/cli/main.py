"""``parley-learner``: run the learner, ask it for runs, and try algorithms without any party."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Annotated, Any, ClassVar

import typer

from parley.common.encoding.texts import so_many
from parley.common.service.commands import (
    CommandGroup,
    CommandLine,
    Printer,
    deferred,
    read_cohort,
    refusal_is_no,
    tool_options,
)
from parley.learner.api import routes
from parley.learner.cli.backups import BACKUPS, RESTORES, backup_learner_command, restore_learner_command
from parley.learner.cli.begin import BEGINNINGS, init_learner_command
from parley.learner.cli.describe import DESCRIPTIONS, describe_command
from parley.learner.cli.forecast import EXAMPLES, forecast_command, outlook
from parley.learner.cli.models import (
    CARDS,
    EXPORTS,
    PREDICTIONS,
    SCHEMAS,
    VERIFICATIONS,
    card_command,
    export_command,
    predict_command,
    schema_command,
    verify_command,
)
from parley.learner.cli.options import (
    CohortOption,
    ConfigOption,
    ExplainOption,
    LearnerOptions,
    RunArgument,
    SubmitOptions,
    TrainingOptions,
)
from parley.learner.cli.public_rows import BOUNDS, PROJECTIONS, bounds_command, project_command
from parley.learner.cli.queueing import EVALUATIONS, evaluate_command, queue_run, watch_run, watch_runs
from parley.learner.cli.quickstart import QUICKSTARTS, quickstart_command
from parley.learner.cli.roster import INVITATIONS, invite_command, roster_app
from parley.learner.cli.serve import SERVICES, serve_command
from parley.learner.cli.settings import CHECKS, CONFIGURATIONS, learner_check_command, learner_config_command
from parley.learner.cli.simulate import SIMULATIONS, simulate_command
from parley.learner.cli.study import study_app
from parley.learner.models.model_files import written_whole
from parley.learner.runs.states import ENDS

with deferred():
    from parley.common.encoding import key_words
    from parley.common.secure_sum import envelope
    from parley.common.service import health, tokens
    from parley.learner import settings
    from parley.learner.cli import display
    from parley.learner.client import progress

HEALTH_CHECKS = "Example: parley-learner health --config learner.toml   (as the container's health check does)"
"""The command's example, for its help."""


def learner_health_command(*, config: ConfigOption = None, out: Printer) -> None:
    """Ask the learner that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    service_settings = settings.LearnerSettings.load(config)
    with refusal_is_no():
        health.ask_ready(service_settings)
    out.done("ready", ready=True)


class LearnerCommands(CommandGroup):
    """The commands of a learner's operator and users."""

    panels: ClassVar[Mapping[str, str]] = {
        "Begin": "quickstart init study simulate",
        "Owners": "invite roster public bounds project receipts",
        "Runs": "forecast describe submit watch list resume cancel opened",
        "Models": "model evaluate threshold predict card export verify schema",
        "Operate": "serve check config health token identity backup restore delete",
    }
    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("train", "run", "fit", "learn", "query"), "submit STUDY --epsilon 1 --delta 1e-5 --watch"),
        **dict.fromkeys(("results", "status", "runs", "jobs", "ls", "show"), "list"),
        **dict.fromkeys(("download", "get", "fetch", "save"), "model RUN --save model.json"),
        **dict.fromkeys(("start", "up", "run-server", "server"), "serve"),
        **dict.fromkeys(("setup", "new", "create", "begin"), "quickstart TABLE"),
        **dict.fromkeys(("members", "owners", "parties", "users"), "roster list"),
        **dict.fromkeys(("stop", "kill", "abort"), "cancel RUN   (the service itself ends by Ctrl-C)"),
        **dict.fromkeys(
            ("studies", "datasets"), "study   (init makes one; the learner's page lists those that it has)"
        ),
        **dict.fromkeys(("score", "test", "metrics", "accuracy"), "evaluate RUN --epsilon 0.1 --delta 1e-6"),
        **dict.fromkeys(("logs", "log", "events", "follow"), "watch RUN"),
        "join": "parley-party join INVITATION --data TABLE   (an owner's command)",
        "login": "(set PARLEY_URL and PARLEY_TOKEN_FILE, or type beside the folder learner)",
        "approve": "parley-party approve RUN   (an owner's command)",
        **dict.fromkeys(("--rounds", "--n-rounds", "--iterations", "--epochs"), "-p n_rounds=NUMBER"),
        **dict.fromkeys(("--parties", "--owners", "--owner"), "--party NAME, once for each"),
        **dict.fromkeys(("--params", "--param"), "-p NAME=VALUE"),
        "--eps": "--epsilon",
    }


learner_app = CommandLine(
    name="parley-learner",
    cls=LearnerCommands,
    callback=tool_options,
    help="Train one model on data that stays with its owners.\n\n"
    "The learner asks each owner's party questions whose answers are differentially private, round by round, and makes "
    "a model of them. Start it with serve; then submit a run, watch it, fetch its model, or "
    "evaluate it on rows that the owners hold out. "
    "forecast says what a run would achieve and who should take part; simulate tries an algorithm on public "
    "data in this process.",
    epilog="Exit status: 0 done, 1 the answer is no, 2 wrong usage, 3 refused or failed, 4 no answer from a service. "
    "Set PARLEY_URL, PARLEY_TOKEN_FILE (or PARLEY_TOKEN) and PARLEY_CA once instead of giving --url, "
    "--token-file and --ca each time. PARLEY_PROXY names an HTTP proxy on the way to a learner that "
    "is not on this machine, http://host:port or http://user:password@host:port.",
)


learner_app.add_typer(roster_app, name="roster")
learner_app.add_typer(study_app, name="study")
learner_app.command("quickstart", epilog=QUICKSTARTS)(quickstart_command)
learner_app.command("init", epilog=BEGINNINGS)(init_learner_command)
learner_app.command("invite", epilog=INVITATIONS)(invite_command)


learner_app.command("serve", epilog=SERVICES)(serve_command)


@learner_app.command(
    "token", epilog="Example: parley-learner token > alice.token   (the hash goes to [[users]] token_hash)"
)
def token_command(out: Printer) -> None:
    """Make a bearer token: the token itself on standard output, its hash for the settings on standard error."""
    made = tokens.new_token()
    digest = tokens.hash_token(made)
    out.done(made, token=made, token_hash=digest)
    out.aside(f"token_hash = {json.dumps(digest)}")


@learner_app.command("identity", epilog="Example: parley-learner identity --config learner.toml")
def identity_command(*, config: ConfigOption = None, out: Printer) -> None:
    """Print the public key that parties and key holders pin for secure sums; it is made on the first call and stays."""
    key = envelope.public_hex(settings.LearnerSettings.load(config).signing_key())
    words = key_words.words_of(key)
    out.done(key, public_key=key, words=words)
    out.aside(f"words: {' '.join(words)}")


@learner_app.command(
    epilog="Examples:\n\n"
    "parley-learner submit biopsies --epsilon 1 --delta 1e-5 --watch\n\n"
    "parley-learner submit study.json --algorithm psgd -p n_rounds=50 --epsilon 2 --delta 1e-5 "
    "--budget hospital-b=0.5,1e-6 --minimum-contributors 4"
)
def submit(
    terms: TrainingOptions,
    *,
    cohort: CohortOption = None,
    submission: SubmitOptions,
    explain: ExplainOption = False,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Ask for a run: the parties that hold its study are asked to approve it, then the algorithm is run.

    The command first prints on standard error what to expect of the run, what owners would get alone, and its time.
    """
    body = terms.body(cohort=read_cohort(cohort), purpose=submission.purpose)
    with learner.open() as client:
        for line in outlook(client, body, explain=explain):
            typer.echo(line, err=True)
        queue_run(client, routes.SUBMIT.to(), body, submission, out)


learner_app.command("describe", epilog=DESCRIPTIONS)(describe_command)
learner_app.command("evaluate", epilog=EVALUATIONS)(evaluate_command)
learner_app.command("forecast", epilog=EXAMPLES)(forecast_command)
learner_app.command("check", epilog=CHECKS)(learner_check_command)
learner_app.command("config", epilog=CONFIGURATIONS)(learner_config_command)
learner_app.command("health", epilog=HEALTH_CHECKS)(learner_health_command)
learner_app.command("backup", epilog=BACKUPS)(backup_learner_command)
learner_app.command("restore", epilog=RESTORES)(restore_learner_command)
learner_app.command("simulate", epilog=SIMULATIONS)(simulate_command)
learner_app.command("bounds", epilog=BOUNDS)(bounds_command)
learner_app.command("project", epilog=PROJECTIONS)(project_command)
learner_app.command("predict", epilog=PREDICTIONS)(predict_command)
learner_app.command("card", epilog=CARDS)(card_command)
learner_app.command("export", epilog=EXPORTS)(export_command)
learner_app.command("schema", epilog=SCHEMAS)(schema_command)
learner_app.command("verify", epilog=VERIFICATIONS)(verify_command)


@learner_app.command("watch", epilog="Example: parley-learner watch 5f1c... --format json | jq .epsilon")
def watch_command(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="runs' identifiers; all that are active if not given")
    ] = None,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Watch runs to their ends: rounds, objective, epsilon spent, parties dropped. Exit status 0 if all completed.

    With several runs, each line begins with the run's identifier. With --format json, each line is an event of a run.
    """
    with learner.open() as client:
        watched = runs or [run["id"] for run in client.pages(routes.LIST_RUNS, "runs") if run["state"] not in ENDS]
        if len(watched) == 1:
            watch_run(client, watched[0], out)
            return
    watch_runs(learner, watched, out)


@learner_app.command("list", epilog="Example: parley-learner list --limit 10")
def list_runs(
    limit: Annotated[int, typer.Option(min=1, help="how many")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="all runs, however many")] = False,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """List the newest runs, the newest first."""
    with learner.open() as client:
        runs = list(client.pages(routes.LIST_RUNS, "runs", None if everything else limit))
    out.result(runs, lambda: display.show_runs(runs, progress.terminal()))


@learner_app.command(epilog="Example: parley-learner receipts hospital-a > receipt   (then: parley-party recover ...)")
def receipts(
    name: Annotated[str, typer.Argument(help="a party or a key holder")],
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Print the newest receipt that the learner holds of a party or key holder, whose owner has lost its ledger.

    The owner's `parley-party recover --receipt FILE` charges what may have been spent according to it.
    """
    with learner.open() as client:
        newest = client.ask(*routes.SHOW_RECEIPT.to(name=name))
    out.result(newest, newest["receipt"])


@learner_app.command(epilog="Example: parley-learner opened 5f1c... --format json | jq .[0].receipts")
def opened(
    run: RunArgument,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """List the sums that key holders opened in a run: round, contributors, and with JSON what each holder signed."""
    with learner.open() as client:
        rounds = client.ask(*routes.LIST_OPENED.to(run=run))
    out.result(rounds, lambda: display.show_receipts(rounds, progress.terminal()))


@learner_app.command(
    epilog="Examples:\n\n"
    "parley-learner public rows.csv --study biopsies   (then: submit biopsies ... --public DIGEST)\n\n"
    "parley-learner public labelled.csv --study biopsies --start   (the same, for any descent to start from)"
)
def public(
    table: Annotated[Path, typer.Argument(help="a CSV or Parquet file with the study's features; no label is needed")],
    study: Annotated[str, typer.Option(help="a study of the learner; the rows have its columns")],
    start: Annotated[bool, typer.Option("--start", help="keep weights that fit the rows, to start from")] = False,
    labelled: Annotated[bool, typer.Option("--labelled", help="keep the rows' labels too, as `feature` needs")] = False,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Upload public rows that runs may ask about, and print their digest. Every party of such a run sees them."""
    with learner.open() as client:
        kind = {name: "true" for name, is_asked in (("start", start), ("labelled", labelled)) if is_asked}
        uploaded = client.upload(routes.UPLOAD_PUBLIC_ROWS.at({"study": study} | kind), table)
    out.result(uploaded, uploaded["digest"])
    out.aside(f"{so_many(uploaded['rows'], 'row')} of {so_many(uploaded['width'], 'number')}")
    out.next(f"parley-learner submit {study} --public {uploaded['digest']} --epsilon EPSILON --delta DELTA")


@learner_app.command(epilog="Example: parley-learner cancel 5f1c...")
def cancel(
    run: RunArgument,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """End a run. What its parties have been charged stays charged."""
    with learner.open() as client:
        view = client.ask(*routes.CANCEL.to(run=run))
    done, of = view["rounds"]["done"], so_many(view["rounds"]["of"], "round")
    out.result(view, f"{view['id']} is {view['state']} after {done} of {of}")


@learner_app.command("delete", epilog="Example: parley-learner delete 5f1c... --only-log")
def delete_command(
    run: RunArgument,
    only_log: Annotated[
        bool, typer.Option("--only-log", help="its replies and the news of its rounds alone; the model stays")
    ] = False,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Delete a run that has ended, with its model, for operators. What its parties were charged stays charged.

    The settings under [retention] do so by themselves, after the days that they name.
    """
    with learner.open() as client:
        client.ask(*routes.DELETE_RUN.to({"only_log": "true"} if only_log else {}, run=run))
    out.done(f"{'the log of ' if only_log else ''}{run} is deleted", run=run, only_log=only_log)


@learner_app.command(epilog="Example: parley-learner resume 5f1c...")
def resume(
    run: RunArgument,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Make a paused run ask its parties again at once. Without this command it does so later."""
    with learner.open() as client:
        view = client.ask(*routes.RESUME.to(run=run))
    out.result(view, f"{view['id']} was {view['state']}, and asks again")
    out.next(f"parley-learner watch {run}")


@learner_app.command(epilog="Example: parley-learner model 5f1c... --save model.json")
def model(
    run: RunArgument,
    save: Annotated[Path | None, typer.Option(help="file to write; RUN.json in text format if not given")] = None,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Save a completed run's model as JSON, and say what it promises the owners of the data."""
    if save is None and not out.is_json:
        save = Path(f"{run}.json")
    with TemporaryFile() as downloaded:
        with learner.open() as client:
            document = client.download(routes.SHOW_MODEL.at(run=run), downloaded)
        if save is not None:
            downloaded.seek(0)
            with written_whole(save) as part, part.open("wb") as file:
                copyfileobj(downloaded, file)
    out.result(document, [f"{save}: {line}" if first else f"  {line}" for first, line in _model_lines(document)])
    out.next(f"parley-learner verify {save}")


@learner_app.command(
    "threshold",
    epilog="Examples:\n\n"
    "parley-learner threshold 5f1c... balanced\n\n"
    "parley-learner threshold 5f1c... cost=1:20   (a missed case costs as much as 20 false alarms)\n\n"
    "parley-learner threshold 5f1c... none   (back to 0)",
)
def threshold_command(
    run: RunArgument,
    rule: Annotated[
        str,
        typer.Argument(
            metavar="RULE",
            help="balanced, f1, recall=.9, cost=FP:FN: by the model's evaluation; probability=.1, prevalence: public; "
            "none: 0 again",
        ),
    ],
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Choose where a model of two classes says yes, for rare classes or unequal errors; it costs no privacy.

    By default the score must exceed 0, and a rare class is then predicted for hardly anybody. Predictions, cards and
    exports of the model's document have the threshold from then on.
    """
    with learner.open() as client:
        threshold = client.ask(*routes.SET_THRESHOLD.to(run=run), {"rule": rule})
        with TemporaryFile() as downloaded:
            document = client.download(routes.SHOW_MODEL.at(run=run), downloaded) if threshold else {}
    out.result(threshold, display.threshold_lines(document) if threshold else "the threshold is 0, as without a rule")
    out.next(f"parley-learner model {run}")


def _model_lines(document: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """Yield the lines that describe a model, each with whether it is the first."""
    width = len(document["column_names"]) or f"{document['study']['features'][0]['columns']:,} sparse"
    figures = f"{so_many(document['rounds'], 'round')}, {document['kind']}, {width} columns"
    classes = f", {len(document['classes'])} classes" if document["classes"] else ""
    yield True, f"{document['algorithm']}, {figures}{classes}"
    yield from ((False, line) for line in display.promises(document["guarantees"]))
    yield from ((False, line) for line in display.threshold_lines(document))
