"""The command ``parley-party``: for the owner who runs a party.

What needs the web stack, numpy or cryptography is imported in the command that uses it, so that help comes at once.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from party.cli.keyholder import key_holder_app as keyholder
from party.cli.learn import learn_command
from party.cli.output import (
    DEFAULT_CONFIG,
    Config,
    LogFormat,
    Output,
    OutputFormat,
    print_json,
    print_table,
    refusing,
    spelt,
)

if TYPE_CHECKING:
    from party.settings import PartySettings

party_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Run a party: the service beside an owner's private data.

A party answers a learner's questions about its data with noise, and counts what each answer cost. To begin: write
party.toml, make the learner's token (parley-party token), see what the party would do (parley-party check), and start
it (parley-party serve).""",
)
party_app.add_typer(keyholder, name="keyholder")
party_app.command("learn")(learn_command)


@party_app.command("serve")
def party_serve(
    config: Config = DEFAULT_CONFIG,
    output: LogFormat = None,
) -> None:
    """Answer learners until told to stop (SIGINT or SIGTERM).

    Exits with status 2 and one line on standard error if settings, study, data or ledger cannot be used.
    """
    from common.service import logs
    from common.service.serve import serve as run
    from common.service.serve import tls_context
    from party.api.app import create_party_app
    from party.settings import PartySettings

    with refusing():
        settings = PartySettings.load(config)
        if output:
            settings = settings.model_copy(update={"log_format": output.value})
        logs.configure(settings.log_format)
        if settings.tls:
            tls_context(settings.tls)  # refuses before the ledger is opened
        run(create_party_app(settings, apart=True), settings)


@party_app.command("check")
def party_check(config: Config = DEFAULT_CONFIG, output: Output = OutputFormat.TEXT) -> None:
    """Load settings, study, data and ledger as "serve" would, and say what the party would refuse.

    Prints the party's public facts and the owner's rules in words. Exits with status 2 and one line on standard error
    if something cannot be used. Answers nothing and costs nothing.
    """
    from common.secure_sum.envelope import public_hex
    from party.answering.party import Party
    from party.settings import PartySettings

    with refusing():
        settings = PartySettings.load(config)
        with Party(settings) as party:
            facts, left = party.facts.model_dump(mode="json"), party.budget().model_dump()
        facts["public_key"] = public_hex(settings.signing_key()) if settings.secure_sum else None
        holding = party.holding
    is_alike = bool((holding.shard.y == holding.shard.y[..., :1]).all())
    if is_alike:
        typer.echo("parley-party: all examples have the same label: alone, they teach nothing", err=True)
    known, refuses = [learner.name for learner in settings.learners], list(_refusals(settings))
    if output is OutputFormat.JSON:
        print_json({"party": facts, "budget": left, "learners": known, "mended": holding.mended, "refuses": refuses})
        return
    print_table([(name, spelt(value)) for name, value in {**facts, "learners": known, **left}.items()])
    for what, share in holding.mended.items():
        typer.echo(f"  {what}: {share:.2%} (known to the owner alone)")
    typer.echo("refuses")
    for refusal in refuses:
        typer.echo(f"  {refusal}")


@party_app.command()
def budget(config: Config = DEFAULT_CONFIG, output: Output = OutputFormat.TEXT) -> None:
    """Show what all runs of all learners together may cost, what they have cost, and what is left."""
    from party.answering.party import open_store, report
    from party.settings import PartySettings

    with refusing(), open_store(PartySettings.load(config)) as store:
        left = report(store.account())
    if output is OutputFormat.JSON:
        print_json(left.model_dump())
        return
    print_table(
        [
            ("", "epsilon", "delta"),
            ("allowed", f"{left.epsilon_limit:g}", f"{left.delta_limit:g}"),
            ("spent", f"{left.epsilon_spent:g}", f"{left.delta_spent:g}"),
            ("left", f"{left.epsilon_left:g}", f"{left.delta_left:g}"),
        ]
    )


@party_app.command()
def log(config: Config = DEFAULT_CONFIG, output: Output = OutputFormat.TEXT) -> None:
    """List the ledger: every answer that was given, to whom, when, and what it cost. One JSON object a line with JSON.

    The ledger's chain of hashes is checked first; a ledger that was changed is refused with status 2.
    """
    from common.privacy.account import DELTA_UNITS, MICRO
    from party.answering.party import open_store
    from party.settings import PartySettings

    with refusing(), open_store(PartySettings.load(config)) as store:
        entries = store.entries()
    if output is OutputFormat.JSON:
        for entry in entries:
            typer.echo(
                json.dumps({**asdict(entry), "epsilon": entry.epsilon / MICRO, "delta": entry.delta / DELTA_UNITS})
            )
        return
    rows = [
        (
            str(e.number),
            _when(e.at),
            e.learner,
            e.run,
            str(e.round),
            f"{e.epsilon / MICRO:g}",
            f"{e.delta / DELTA_UNITS:g}",
        )
        for e in entries
    ]
    print_table([("number", "time", "learner", "run", "round", "epsilon", "delta"), *rows])


@party_app.command("identity")
def party_identity(config: Config = DEFAULT_CONFIG, output: Output = OutputFormat.TEXT) -> None:
    """Print the public key that this party signs with in secure sums; it is made when first needed and stays.

    Give it to the learner, who pins it in [[parties]] as public_key.
    """
    from common.secure_sum.envelope import public_hex
    from party.settings import PartySettings

    with refusing():
        key = public_hex(PartySettings.load(config).signing_key())
    if output is OutputFormat.JSON:
        print_json({"public_key": key})
        return
    typer.echo(key)


@party_app.command("token")
def party_token(output: Output = OutputFormat.TEXT) -> None:
    """Make a bearer token for a learner, and the hash that party.toml knows it by. Neither is stored.

    Give the token to the learner, and keep the hash in [[learners]] as token_hash.
    """
    from common.service.tokens import hash_token, new_token

    made = new_token()
    if output is OutputFormat.JSON:
        print_json({"token": made, "token_hash": hash_token(made)})
        return
    print_table([("token", made), ("token_hash", hash_token(made))])


def _refusals(settings: PartySettings) -> Iterator[str]:
    """The owner's rules in words."""
    policy = settings.policy
    yield f"tokens of others than {', '.join(learner.name for learner in settings.learners)}"
    yield f"other algorithms than {', '.join(policy.algorithms)}"
    yield f"runs that cost more than epsilon {policy.max_epsilon_per_run:g} or delta {policy.max_delta_per_run:g}"
    if policy.adjacency == "whole_party":
        yield "runs that protect one record each, not all of the owner's data"
    if policy.public_rows is not None:
        pinned = ", ".join(digest[:12] for digest in policy.public_rows)
        yield f"questions about other public rows than {pinned or 'none'}"
    yield f"costs, in the {policy.view} view, beyond what is left of epsilon {policy.epsilon:g}, delta {policy.delta:g}"
    yield f"runs with fewer than {policy.minimum_contributors} contributors to each sum"
    yield f"runs of more than {policy.max_rounds} rounds"
    if policy.require_secure_sum:
        yield "runs without a secure sum"
    if settings.secure_sum is None:
        yield "runs with a secure sum: no trusted key holder is configured"
    else:
        yield f"sums opened by others than {', '.join(settings.secure_sum.pins)}"
        yield f"sums under keys of fewer than {settings.secure_sum.minimum_key_bits} bits"
    if policy.colluders:
        yield f"shared noise that tolerates fewer than {policy.colluders} colluders"
    yield f"data with fewer than {policy.minimum_rows} rows, and other studies than {settings.study}"


def _when(at: int) -> str:
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")
