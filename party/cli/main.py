"""The command ``parley-party``, for the owner of a party."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import typer

from parley.common.encoding.texts import so_many
from parley.common.service.commands import (
    CommandGroup,
    CommandLine,
    Printer,
    deferred,
    print_json_line,
    tool_options,
    without_rich,
)
from parley.party.cli.backups import backup_command, merge_command, recover_command, restore_command
from parley.party.cli.forward import forward_command
from parley.party.cli.join import join_command
from parley.party.cli.learn import OWN_MODELS, learn_command
from parley.party.cli.ledger import (
    accept_data_command,
    audit_app,
    budget_command,
    end_command,
    init_command,
    log_command,
    release_command,
    witnessed_command,
)
from parley.party.cli.owner import approve_command, deny_command, owner_command, pending_command
from parley.party.cli.pin import pin_command
from parley.party.cli.stream import STREAMS, stream_command
from parley.party.cli.studies import studies_command, withdraw_command
from parley.party.cli.study import study_fit_app
from parley.party.commands import (
    DEFAULT_CONFIG,
    Config,
    Explain,
    LogFormat,
    as_text,
    end_by_readiness,
    print_table,
    quietly,
    show_settings,
    warn_unreachable,
)
from parley.party.keyholder.cli import key_holder_app as keyholder

with deferred():
    from parley.common import extras
    from parley.common.client import outbound
    from parley.common.encoding import key_words
    from parley.common.files import study_fit
    from parley.common.privacy import statement as privacy_statement
    from parley.common.secure_sum import envelope
    from parley.common.service import logs, tokens
    from parley.common.service import serve as serving
    from parley.common.wire import party_api
    from parley.party import policy as party_policy
    from parley.party import settings as party_settings
    from parley.party.answers import party
    from parley.party.api import app as service_app
    from parley.party.data import holdings, owner_data
    from parley.party.owner import page

if TYPE_CHECKING:
    from parley.common.data.study import Person
    from parley.party.data.holdings import HeldStudy
    from parley.party.ledger.records import DataPin
    from parley.party.settings import PartySettings, StudySettings


class PartyCommands(CommandGroup):
    """The commands of an owner."""

    panels: ClassVar[Mapping[str, str]] = {
        "Begin": "join study serve pin keyholder",
        "Studies and runs": "studies withdraw pending approve deny owner end release",
        "Budget": "budget log audit accept-data merge recover witnessed",
        "Learn": "learn stream",
        "Operate": "check config health init token identity forward backup restore",
    }
    instead: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("start", "run", "up", "connect"), "serve --config FILE"),
        **dict.fromkeys(("status", "requests", "runs", "list", "ask"), "pending   (or: health, studies, log --by-run)"),
        **dict.fromkeys(("yes", "accept", "allow", "consent"), "approve RUN"),
        **dict.fromkeys(("no", "reject", "refuse", "decline"), "deny RUN"),
        **dict.fromkeys(("spent", "ledger", "account", "cost"), "budget"),
        **dict.fromkeys(("leave", "quit", "unjoin"), "withdraw STUDY"),
        "words": "identity   (it prints the six words of your key)",
        **dict.fromkeys(
            ("train", "submit", "fit"), "learn   (a model of your own; others are asked for by parley-learner submit)"
        ),
        **dict.fromkeys(("stop", "kill"), "(a service ends by Ctrl-C; parley-party end RUN answers a run no more)"),
        "invite": "parley-learner invite NAME --study STUDY   (the operator's command)",
        "confirm": "parley-learner roster confirm NAME WORDS   (the operator's command)",
        "quickstart": "parley-learner quickstart TABLE   (the operator's command)",
        "--file": "--data TABLE",
    }


party_app = CommandLine(
    name="parley-party",
    cls=PartyCommands,
    callback=tool_options,
    help="""Run a party: the service beside an owner's private data.

A party answers a learner's questions about its data with noise, and counts what each answer cost. To begin: join
by the invitation that you were given (parley-party join), and start (parley-party serve). Or write party.toml, make the
learner's token (parley-party token), see what the party would do (parley-party check), and make its ledger
(parley-party init).""",
)
party_app.add_typer(keyholder, name="keyholder")
party_app.add_typer(audit_app, name="audit")
party_app.add_typer(study_fit_app, name="study")
_EXAMPLES = {
    "join": "Example: parley-party join hospital-b.invitation.json --data loans.csv",
    "withdraw": "Example: parley-party withdraw loans --config hospital-b/party.toml",
    "approve": "Example: parley-party approve 5f1c... --config hospital-b/party.toml",
    "deny": "Example: parley-party deny 5f1c... --reason 'another purpose than agreed'",
    "pin": "Example: parley-party pin notary perfect armor candy few goddess hobby",
}

for name, command in (
    ("join", join_command),
    ("studies", studies_command),
    ("withdraw", withdraw_command),
    ("pin", pin_command),
    ("init", init_command),
    ("pending", pending_command),
    ("approve", approve_command),
    ("deny", deny_command),
    ("owner", owner_command),
    ("accept-data", accept_data_command),
    ("budget", budget_command),
    ("log", log_command),
    ("end", end_command),
    ("release", release_command),
    ("backup", backup_command),
    ("restore", restore_command),
    ("recover", recover_command),
    ("merge", merge_command),
    ("witnessed", witnessed_command),
    ("forward", forward_command),
):
    party_app.command(name, epilog=_EXAMPLES.get(name))(command)
party_app.command("learn", epilog=OWN_MODELS)(learn_command)
party_app.command("stream", epilog=STREAMS)(stream_command)


@party_app.command("config")
def party_config_command(config: Config = DEFAULT_CONFIG, explain: Explain = False, *, out: Printer) -> None:
    """Print the settings in effect, and whether file or environment says so; secrets are hidden.

    With --explain, every setting there is with type, default and meaning.
    """
    show_settings(party_settings.PartySettings, config, explain=explain, out=out)


@party_app.command("health")
def party_health_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Ask the party that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    end_by_readiness(party_settings.PartySettings, config, out)


@party_app.command("serve")
def party_serve(
    config: Config = DEFAULT_CONFIG,
    output: LogFormat = None,
) -> None:
    """Answer learners until told to stop (SIGINT or SIGTERM).

    Exits with status 3 and one line on standard error if settings, study, data or ledger cannot be used.
    """
    with without_rich():
        create, serve = service_app.create_party_app, serving.serve
        connecting, owner_page = outbound.Outbound, page.owner_page
    with quietly():
        settings = party_settings.PartySettings.load(config)
        if output:
            settings = settings.model_copy(update={"log_format": output})
        logs.configure(settings.log_format)
        if settings.tls:
            serving.tls_context(settings.tls)  # refuses before the ledger is opened
        app, connections = create(settings, apart=True), connecting(settings.outbound)
        beside = [connections.keep, *owner_page(app.state.settings, app.state.ledger)]
        serve(app, settings, beside, [connections.take_up])


@dataclass(frozen=True, slots=True)
class _Examined:
    """A study as ``check`` found it: its pin, what its owner may not have intended, and how its table was read."""

    held: HeldStudy
    pin: DataPin
    doubts: tuple[str, ...]
    mended: Mapping[str, float]
    notes: tuple[str, ...]
    person: Person | None

    @classmethod
    def of(cls, settings: PartySettings, entry: StudySettings) -> Self:
        """Load a study's examples and let them go again. Raises what `load_holding` raises."""
        holding = owner_data.load_holding(settings, entry)
        held = holdings.held_study(entry, entry.policy.over(settings.policy), holding)
        doubts = [*party_policy.study_cautions(held.policy, holding.study, entry.data.person, held.n_examples)]
        if bool((holding.shard.y == holding.shard.y[..., :1]).all()):
            doubts.append("all examples have the same label: alone, they teach nothing")
        if holding.study.person is not None and holding.loaded.persons is not None:
            person = holding.study.person
            doubts += study_fit.odd_persons(holding.loaded.persons, person.column, person.most_rows)
        pin = party.pin_of(entry, holding)
        return cls(held, pin, tuple(doubts), holding.mended, holding.loaded.notes, holding.study.person)

    def print(self, facts: Mapping[str, object]) -> None:
        """Print what a learner may know of the study, and for the owner alone how its table was read."""
        typer.echo(f"study {self.held.name}")
        for_owner = dict(facts)
        if self.person is not None:
            for_owner["n_examples"] = so_many(self.held.n_examples, "person")
            for_owner |= {f"person.{name}": value for name, value in self.person.model_dump().items()}
        print_table([(f"  {name}", as_text(value)) for name, value in for_owner.items()])
        for line in (*self.notes, *(f"{mending}: {share:.2%}" for mending, share in self.mended.items())):
            typer.echo(f"  {line} (known to the owner alone)")


@party_app.command("check")
def party_check(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Load settings, studies, data and, if there is one, the ledger as "serve" would; say what the party would refuse.

    Prints the party's public facts and the owner's rules in words. Exits with status 3 and one line on standard error
    if something cannot be used. Answers nothing and costs nothing.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        if settings.tracing:
            extras.require_extra("tracing", "settings: tracing")
        examined, budget, ledger = [_Examined.of(settings, entry) for entry in settings.held], {}, {}
        facts = party.facts_of(settings, [one.held for one in examined]).model_dump(mode="json")
        if has_ledger := (settings.state / "ledger.db").exists():
            with party.open_store(settings) as store:
                store.accounts.check_shares()
                for one in examined:
                    party.check_pin(store, one.pin)
                budget = party_api.BudgetReport.of(store.account()).model_dump(exclude={"units"})
                growth = store.chain.growth()
                ledger = {"ledger": growth.facts if out.is_json else str(growth)}
        facts["public_key"] = settings.identity.key if settings.secure_sum else None
        doubts = [
            *party_policy.key_cautions(settings),
            *party_policy.person_cautions(settings, party.charged_adjacency(settings)),
            *(doubt for one in examined for doubt in one.doubts),
        ]
    if not has_ledger:
        typer.echo("parley-party: there is no ledger yet: make it with parley-party init", err=True)
    warn_unreachable(settings.outbound)
    for doubt in dict.fromkeys(doubts):
        typer.echo(f"parley-party: {doubt}", err=True)
    learners, refuses = [learner.name for learner in settings.learners], list(_refusals(settings))
    if out.is_json:
        read = [
            {"study": one.held.name, "mended": one.mended, "read_as": one.notes}
            | ({"person": one.person.model_dump()} if one.person else {})
            for one in examined
        ]
        print_json_line(
            {"party": facts, "budget": budget, "learners": learners, "read": read, "refuses": refuses} | ledger
        )
        return
    of_studies = facts.pop("studies")
    print_table([(name, as_text(value)) for name, value in {**facts, "learners": learners, **budget, **ledger}.items()])
    if budget and settings.policy.composition == "filter":
        typer.echo(privacy_statement.NOT_A_SUM)
    for one, study_facts in zip(examined, of_studies, strict=True):
        one.print(study_facts)
    typer.echo("\n  ".join(["refuses", *refuses]))


@party_app.command("identity")
def party_identity(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Print the public key that this party signs with in secure sums; it is made when first needed and stays.

    Give it to the learner, who pins it in [[parties]] as public_key.
    """
    with quietly():
        key = envelope.public_hex(party_settings.PartySettings.load(config).signing_key())
    out.done(key, public_key=key, words=key_words.words_of(key))
    out.aside(f"words: {' '.join(key_words.words_of(key))}")


@party_app.command("token")
def party_token(*, out: Printer) -> None:
    """Make a bearer token for a learner, and the hash that party.toml knows it by. Neither is stored.

    Give the token to the learner, and keep the hash in [[learners]] as token_hash.
    """
    made = tokens.new_token()
    out.result(
        {"token": made, "token_hash": tokens.hash_token(made)},
        lambda: print_table([("token", made), ("token_hash", tokens.hash_token(made))]),
    )


def _refusals(settings: PartySettings) -> Iterator[str]:
    """Yield what the owner's rules refuse, in words."""
    policy = settings.policy
    yield f"tokens of others than {', '.join(learner.name for learner in settings.learners)}"
    yield from _refusals_by_study(settings)
    yield f"runs that cost more than epsilon {policy.max_epsilon_per_run:g} or delta {policy.max_delta_per_run:g}"
    yield from _hiding_too_little(settings)
    if policy.public_rows is not None:
        pinned = ", ".join(digest[:12] for digest in policy.public_rows)
        yield f"questions about other public rows than {pinned or 'none'}"
    yield f"costs, in the {policy.view} view, beyond what is left of epsilon {policy.epsilon:g}, delta {policy.delta:g}"
    yield f"runs with fewer than {policy.minimum_contributors} contributors to each sum"
    yield f"runs of more than {so_many(policy.max_rounds, 'round')}"
    yield f"more than {so_many(policy.max_runs_per_day, 'run')} a day of one learner"
    if policy.require_secure_sum:
        yield "runs without a secure sum"
    if settings.secure_sum is None or not settings.key_holder_pins:
        yield "runs with a secure sum: no key holder is pinned whose key was compared"
    else:
        yield f"sums opened by others than {', '.join(settings.key_holder_pins)}"
        yield f"sums under keys of fewer than {settings.secure_sum.minimum_key_bits} bits"
    if policy.colluders:
        yield f"shared noise that tolerates fewer than {policy.colluders} colluders"
    others = ", ".join(entry.label for entry in settings.held)
    least = policy.minimum_rows
    yield f"data of fewer than {so_many(least, 'row')}, or than {so_many(least, 'person')} where a study hides persons"
    yield f"other studies than {others}"


def _hiding_too_little(settings: PartySettings) -> Iterator[str]:
    """Yield what is refused because it hides too little."""
    policy = settings.policy
    if policy.adjacency == "whole_party":
        yield "runs that protect one record or one person each, not all of the owner's data"
    if policy.adjacency == "person":
        yield "runs that protect one record each, not all rows of a person"
    for entry in settings.held:
        if entry.data.person is not None:
            yield f"about {entry.label}, runs that take another column than {entry.data.person!r} for whose a row is"
    if policy.overlap > 1:
        yield f"runs that count on the same person, or record, with fewer than {policy.overlap} of their owners"


def _refusals_by_study(settings: PartySettings) -> Iterator[str]:
    """Yield what studies may have rules of their own about: algorithms, and who says yes."""
    policies = {entry.label: entry.policy.over(settings.policy) for entry in settings.held}
    algorithms = {", ".join(policy.algorithms) for policy in policies.values()}
    for allowed in sorted(algorithms):
        studies = [name for name, policy in policies.items() if ", ".join(policy.algorithms) == allowed]
        about = f"about {', '.join(studies)}, " if len(algorithms) > 1 else ""
        yield f"{about}other algorithms than {allowed}"
    if manual := [name for name, policy in policies.items() if policy.approval == "manual"]:
        about = f"about {', '.join(manual)}, " if len(manual) < len(policies) else ""
        hours = f"{settings.policy.approval_hours:g} hours"
        yield f"{about}runs that the owner has not approved within {hours} (parley-party pending)"
