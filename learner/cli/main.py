"""``parley-learner``: run the learner, ask it for runs, and try algorithms without any party.

What needs the web stack or numpy is imported in the command that uses it, so that help comes at once.

``parley-learner health``: for the health checks of whoever runs a learner.
"""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryFile
from typing import Annotated
from urllib.parse import quote

import typer

from parley.common.encoding.texts import so_many
from parley.common.service.commands import (
    CommandGroup,
    FormatOption,
    print_aside,
    print_json_line,
    print_next,
    print_result,
    read_cohort,
    refusal_is_no,
    tool_options,
    without_rich,
)
from parley.learner.cli.begin import BEGINNINGS, init_learner_command
from parley.learner.cli.describe import DESCRIPTIONS, describe_command
from parley.learner.cli.forecast import EXAMPLES, forecast_command
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
    DEFAULT_URL,
    AdjacencyOption,
    AlgorithmOption,
    AnswerEveryOption,
    BudgetOption,
    CaOption,
    CohortOption,
    ColludersOption,
    ConfigOption,
    DeltaOption,
    EpsilonOption,
    EvaluateOption,
    ExplainOption,
    KeyOption,
    MinimumOption,
    ParameterOption,
    PartyOption,
    PublicOption,
    PurposeOption,
    RunArgument,
    SecondsOption,
    SecureSumOption,
    StudyArgument,
    TokenFileOption,
    UrlOption,
    WatchOption,
    open_client,
    read_terms,
)
from parley.learner.cli.public_rows import BOUNDS, PROJECTIONS, bounds_command, project_command
from parley.learner.cli.queueing import EVALUATIONS, evaluate_command, queue_run, watch_run, watch_runs
from parley.learner.cli.roster import INVITATIONS, invite_command, roster_app
from parley.learner.cli.settings import CHECKS, CONFIGURATIONS, learner_check_command, learner_config_command
from parley.learner.cli.simulate import SIMULATIONS, simulate_command
from parley.learner.cli.study import study_app
from parley.learner.models.model_files import written_whole
from parley.learner.runs.states import ENDS

# ruff: noqa: PLC0415


HEALTH_CHECKS = "Example: parley-learner health --config learner.toml   (as the container's health check does)"
"""How the command is used."""


def learner_health_command(config: ConfigOption = None, output: FormatOption = "text") -> None:
    """Ask the learner that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    from parley.common.service.health import ask_ready
    from parley.learner.settings import LearnerSettings

    settings = LearnerSettings.load(config)
    with refusal_is_no():
        ask_ready(settings)
    print_result(output, "ready", ready=True)


# ruff: noqa: PLC0415


learner_app = typer.Typer(
    name="parley-learner",
    cls=CommandGroup,
    callback=tool_options,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train one model on data that stays with its owners.\n\n"
    "The learner asks each owner's party questions whose answers are differentially private, round by round, and makes "
    "a model of them. Start it with serve; then submit a run, watch it, fetch its model, or "
    "evaluate it on rows that the owners hold out. "
    "forecast says what a run would achieve and who should take part; simulate tries an algorithm on public "
    "data in this process.",
    epilog="Exit status: 0 done, 1 the answer is no, 2 wrong usage, 3 refused or failed, 4 no answer from a service. "
    "Set PARLEY_URL, PARLEY_TOKEN_FILE (or PARLEY_TOKEN) and PARLEY_CA once instead of giving --url, "
    "--token-file and --ca each time. PARLEY_PROXY names an HTTP proxy on the way to a learner, "
    "http://host:port or http://user:password@host:port.",
)


learner_app.add_typer(roster_app, name="roster")
learner_app.add_typer(study_app, name="study")
learner_app.command("init", epilog=BEGINNINGS)(init_learner_command)
learner_app.command("invite", epilog=INVITATIONS)(invite_command)


@learner_app.command("serve", epilog="Example: parley-learner serve --config learner.toml")
def serve_command(config: ConfigOption = None) -> None:
    """Run the learner's service, and take up every run that an earlier stop or crash interrupted."""
    with without_rich():
        from parley.common.service import logs
        from parley.common.service.serve import serve as run
        from parley.common.service.serve import tls_context
        from parley.learner.api.app import create_learner_app
        from parley.learner.api.membership import renewals
        from parley.learner.settings import LearnerSettings

    settings = LearnerSettings.load(config)
    logs.configure(settings.log_format)
    if settings.tls:
        tls_context(settings.tls)  # refuses before the store is opened
    run(create_learner_app(settings), settings, renewals(settings))


@learner_app.command(
    "token", epilog="Example: parley-learner token > alice.token   (the hash goes to [[users]] token_hash)"
)
def token_command(output: FormatOption = "text") -> None:
    """Make a bearer token: the token itself on standard output, its hash for the settings on standard error."""
    from parley.common.service.tokens import hash_token, new_token

    made = new_token()
    if output == "json":
        print_json_line({"token": made, "token_hash": hash_token(made)})
    else:
        typer.echo(made)
        typer.echo(f"token_hash = {json.dumps(hash_token(made))}", err=True)


@learner_app.command("identity", epilog="Example: parley-learner identity --config learner.toml")
def identity_command(config: ConfigOption = None, output: FormatOption = "text") -> None:
    """Print the public key that parties and key holders pin for secure sums; it is made on the first call and stays."""
    from parley.common.encoding.key_words import words_of
    from parley.common.secure_sum.envelope import public_hex
    from parley.learner.settings import LearnerSettings

    key = public_hex(LearnerSettings.load(config).signing_key())
    print_result(output, key, public_key=key, words=words_of(key))
    print_aside(output, f"words: {' '.join(words_of(key))}")


@learner_app.command(
    epilog="Examples:\n\n"
    "parley-learner submit biopsies --epsilon 1 --delta 1e-5 --watch\n\n"
    "parley-learner submit study.json --algorithm psgd -p n_rounds=50 --epsilon 2 --delta 1e-5 "
    "--budget hospital-b=0.5,1e-6 --minimum-contributors 4"
)
def submit(
    study: StudyArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    algorithm: AlgorithmOption = "dp_gd",
    parameter: ParameterOption = None,
    party: PartyOption = None,
    budget: BudgetOption = None,
    minimum_contributors: MinimumOption = None,
    cohort: CohortOption = None,
    answer_every: AnswerEveryOption = 1,
    colluders: ColludersOption = None,
    secure_sum: SecureSumOption = "none",
    adjacency: AdjacencyOption = "replace_one",
    public: PublicOption = None,
    evaluate: EvaluateOption = None,
    purpose: PurposeOption = "",
    idempotency_key: KeyOption = None,
    seconds: SecondsOption = 60.0,
    explain: ExplainOption = False,
    watch: WatchOption = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Ask for a run: all parties are asked to approve it, then the algorithm is run.

    Says first, on standard error, what to expect of it, what owners would get alone, and how long it takes.
    """
    from parley.learner.cli.forecast import outlook

    body = read_terms(
        study,
        parameter,
        budget,
        algorithm=algorithm,
        epsilon=epsilon,
        delta=delta,
        parties=party,
        minimum_contributors=minimum_contributors,
        cohort=read_cohort(cohort),
        answer_every=answer_every,
        colluders=colluders,
        secure_sum=secure_sum,
        adjacency=adjacency,
        public=public,
        evaluate=evaluate,
        purpose=purpose,
        seconds=seconds,
    )
    with open_client(url, token_file, ca) as client:
        for line in outlook(client, body, explain=explain):
            typer.echo(line, err=True)
        queue_run(client, "/v1/runs", body, idempotency_key, output, watch=watch)


learner_app.command("describe", epilog=DESCRIPTIONS)(describe_command)
learner_app.command("evaluate", epilog=EVALUATIONS)(evaluate_command)
learner_app.command("forecast", epilog=EXAMPLES)(forecast_command)
learner_app.command("check", epilog=CHECKS)(learner_check_command)
learner_app.command("config", epilog=CONFIGURATIONS)(learner_config_command)
learner_app.command("health", epilog=HEALTH_CHECKS)(learner_health_command)
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
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Watch runs to their ends: rounds, objective, epsilon spent, parties dropped. Exit status 0 if all completed.

    Of several runs, each line begins with its run. As JSON, one event a line, with its run.
    """
    with open_client(url, token_file, ca) as client:
        watched = runs or [each["id"] for each in client.pages("/v1/runs", "runs") if each["state"] not in ENDS]
        if len(watched) == 1:
            watch_run(client, watched[0], output)
            return
    watch_runs(url, token_file, ca, watched, output)


@learner_app.command("list", epilog="Example: parley-learner list --limit 10")
def list_runs(
    limit: Annotated[int, typer.Option(min=1, help="how many")] = 20,
    everything: Annotated[bool, typer.Option("--all", help="all runs, however many")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """List the newest runs, the newest first."""
    from parley.learner.cli.display import show_runs
    from parley.learner.client.progress import terminal

    with open_client(url, token_file, ca) as client:
        runs = list(client.pages("/v1/runs", "runs", None if everything else limit))
    if output == "json":
        print_json_line(runs)
    else:
        show_runs(runs, terminal())


@learner_app.command(epilog="Example: parley-learner receipts hospital-a > receipt   (then: parley-party recover ...)")
def receipts(
    name: Annotated[str, typer.Argument(help="a party or a key holder")],
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Print the newest receipt that the learner holds of a party or key holder, whose owner has lost its ledger.

    The owner's `parley-party recover --receipt FILE` charges what it says may have been spent.
    """
    with open_client(url, token_file, ca) as client:
        newest = client.ask("GET", f"/v1/parties/{quote(name)}/receipt")
    if output == "json":
        print_json_line(newest)
    else:
        typer.echo(newest["receipt"])


@learner_app.command(epilog="Example: parley-learner opened 5f1c... --format json | jq .[0].receipts")
def opened(
    run: RunArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """List the sums that key holders opened in a run: round, contributors, and with JSON what each holder signed."""
    from parley.learner.cli.display import show_receipts
    from parley.learner.client.progress import terminal

    with open_client(url, token_file, ca) as client:
        rounds = client.ask("GET", f"/v1/runs/{run}/receipts")
    if output == "json":
        print_json_line(rounds)
    else:
        show_receipts(rounds, terminal())


@learner_app.command(
    epilog="Examples:\n\n"
    "parley-learner public rows.csv --study biopsies   (then: submit biopsies ... --public DIGEST)\n\n"
    "parley-learner public labelled.csv --study biopsies --start   (the same, for any descent to start from)"
)
def public(
    table: Annotated[Path, typer.Argument(help="a CSV or Parquet file with the study's features; no label is needed")],
    study: Annotated[str, typer.Option(help="a study that the learner knows, whose columns they are")],
    start: Annotated[bool, typer.Option("--start", help="keep weights that fit the rows, to start from")] = False,
    labelled: Annotated[bool, typer.Option("--labelled", help="keep the rows' labels too, as `feature` needs")] = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Upload public rows that runs may ask about, and print their digest. Every party of such a run sees them."""
    with open_client(url, token_file, ca) as client:
        form = f"{'&start=true' if start else ''}{'&labelled=true' if labelled else ''}"
        name = client.upload(f"/v1/public?study={quote(study)}{form}", table)
    if output == "json":
        print_json_line(name)
    else:
        typer.echo(name["digest"])
        typer.echo(f"{so_many(name['rows'], 'row')} of {so_many(name['width'], 'number')}", err=True)
    print_next(output, f"parley-learner submit {study} --public {name['digest']} --epsilon EPSILON --delta DELTA")


@learner_app.command(epilog="Example: parley-learner cancel 5f1c...")
def cancel(
    run: RunArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """End a run. What its parties have been charged stays charged."""
    with open_client(url, token_file, ca) as client:
        view = client.ask("POST", f"/v1/runs/{run}/cancel")
    if output == "json":
        print_json_line(view)
    else:
        done, of = view["rounds"]["done"], so_many(view["rounds"]["of"], "round")
        typer.echo(f"{view['id']} is {view['state']} after {done} of {of}")


@learner_app.command(epilog="Example: parley-learner resume 5f1c...")
def resume(
    run: RunArgument,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Have a paused run ask again at once. It goes on by itself too, but later."""
    with open_client(url, token_file, ca) as client:
        view = client.ask("POST", f"/v1/runs/{run}/resume")
    if output == "json":
        print_json_line(view)
    else:
        typer.echo(f"{view['id']} was {view['state']}, and asks again")
    print_next(output, f"parley-learner watch {run}")


@learner_app.command(epilog="Example: parley-learner model 5f1c... --save model.json")
def model(
    run: RunArgument,
    save: Annotated[Path | None, typer.Option(help="file to write; RUN.json in text format if not given")] = None,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Save a completed run's model as JSON, and say what it promises the owners of the data."""
    from parley.learner.cli.display import evaluation_lines, promises

    if save is None and output == "text":
        save = Path(f"{run}.json")
    with TemporaryFile() as found:
        with open_client(url, token_file, ca) as client:
            document = client.download(f"/v1/runs/{run}/model", found)
        if save is not None:
            found.seek(0)
            with written_whole(save) as part, part.open("wb") as file:
                copyfileobj(found, file)
    if output == "json":
        print_json_line(document)
    else:
        width = len(document["column_names"]) or f"{document['study']['features'][0]['columns']:,} sparse"
        figures = f"{so_many(document['rounds'], 'round')}, {document['kind']}, {width} columns"
        classes = f", {len(document['classes'])} classes" if document["classes"] else ""
        typer.echo(f"{save}: {document['algorithm']}, {figures}{classes}")
        for line in promises(document["guarantees"]):
            typer.echo(f"  {line}")
        for line in evaluation_lines(document["evaluation"]):
            typer.echo(f"  {line}")
        print_next(output, f"parley-learner verify {save}")
