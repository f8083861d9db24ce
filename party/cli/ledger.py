"""The commands of ``parley-party`` that make, show and audit the ledger.

``accept-data`` pins changed data in it, and ``witnessed`` prints the receipts that the party holds of other services.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from parley.common.encoding.texts import so_many
from parley.common.errors import InvalidInputError, NotFoundError
from parley.common.service.commands import (
    CommandLine,
    Printer,
    deferred,
    print_json_line,
    refusal_is_no,
)
from parley.party.commands import (
    DEFAULT_CONFIG,
    Config,
    LearnerOption,
    LedgerRun,
    config_words,
    print_table,
    quietly,
)

with deferred():
    from parley.common.privacy import account as privacy_account
    from parley.common.privacy import statement as privacy_statement
    from parley.common.protocol import receipts as protocol_receipts
    from parley.common.wire import party_api
    from parley.party import policy
    from parley.party import settings as party_settings
    from parley.party.answers import party
    from parley.party.data import owner_data
    from parley.party.ledger import accounts, audit, ledger, records

if TYPE_CHECKING:
    from parley.common.privacy.account import Account
    from parley.party.ledger.accounts import Statement
    from parley.party.ledger.audit import RunSummary
    from parley.party.ledger.records import Entry, Pinned
    from parley.party.settings import Policy


audit_app = CommandLine(
    name="audit",
    help="Write the ledger into a signed file, and check such a file anywhere, with the party's public key alone.",
)


def init_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Make a new party's ledger, and pin the data in it: the party starts with these alone until you accept others.

    Once: a party without its ledger does not start, for what it spent stays spent.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        pins = [party.pin_of(held, owner_data.load_holding(settings, held)) for held in settings.held]
        ledger.create_ledger(settings.state, settings.identity, settings.policy.adjacency)
        with party.open_store(settings) as store:
            for data in pins:
                store.pin(data)
    cautions = {
        words for data in pins for words in policy.policy_cautions(settings.policy, data.n_examples, data.study.unit)
    }
    for words in sorted(cautions):
        typer.echo(f"parley-party: {words}", err=True)
    text = f"a new ledger in {settings.state}: keep it, back it up, never put an old copy back"
    out.done(text, state=str(settings.state))
    out.next(f"parley-party serve{config_words(config)}")


def budget_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Show what all runs of all learners together may cost, what each study and learner has cost, and what is left.

    All studies have one account, but for those about people who, as you say, are in no table of the others: these have
    an account of their own. What each study and learner has had of an account are parts of it, which add up.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        with party.open_store(settings, to_read=True) as store:
            statements, growth, ended = store.statements(), store.chain.growth(), store.books.merged
    if ended is not None:  # otherwise somebody may take what it says is left for what can be spent
        typer.echo(f"parley-party: {ledger.ended_in_words(ended, settings.identity)}", err=True)
    if out.is_json:
        print_json_line(
            party_api.BudgetReport.of(statements[0].account).model_dump()
            | {"accounts": [statement.to_json() for statement in statements], "ledger": growth.facts}
        )
        return
    for statement in statements:
        if len(statements) > 1:
            typer.echo(f"The account of {statement.whose}:")
        _print_account(statement, settings.policy)
    typer.echo(f"the ledger has {growth}")


_KINDS: tuple[accounts.PartKind, ...] = ("spent", "reserved", "unused share", "left")


def _print_account(statement: Statement, policy: Policy) -> None:
    """Print what is left of an account, and what each study and learner has had of it."""
    report = party_api.BudgetReport.of(statement.account)
    percents = {kind: sum(part.percent for part in statement.parts if part.kind == kind) for kind in _KINDS}
    set_aside = [("set aside", "", "", f"{percents['unused share']:.2f}%")] if statement.set_aside else []
    holds_at = report.delta_spent if report.composition == "basic" else report.delta_limit
    print_table(
        [
            ("", "epsilon", "delta", "part"),
            ("allowed", f"{report.epsilon_limit:g}", f"{report.delta_limit:g}", "100.00%"),
            ("spent", _epsilon(report.epsilon_spent), f"{holds_at:g}", f"{percents['spent']:.2f}%"),
            ("nonadaptive", f"{report.epsilon_nonadaptive:g}", f"{holds_at:g}", ""),
            ("reserved", f"{report.epsilon_reserved:g}", "", f"{percents['reserved']:.2f}%"),
            *set_aside,
            ("left", f"{report.epsilon_left:g}", f"{report.delta_left:g}", f"{percents['left']:.2f}%"),
        ]
    )
    if statement.account.composition == "filter":
        typer.echo(privacy_statement.NOT_A_SUM)
    if len(statement.usages) > 1 or statement.set_aside:
        print_table(_parts(statement))
    if statement.rows:
        print_table(_rows(statement))
        typer.echo(accounts.IN_PARALLEL)
    so_far, left = privacy_statement.in_words(statement.account, policy.max_epsilon_per_run, policy.max_delta_per_run)
    if statement.rows:
        left = f"To runs about any other rows: {left[0].lower()}{left[1:]}"
    for sentence in (so_far, *(_shares(statement) if statement.set_aside else [left])):
        typer.echo(sentence)
    if statement.to_a_person:
        typer.echo(str(statement.to_a_person))
    if statement.people:
        typer.echo(f"The limit holds for a person only if {accounts.promise_about(statement.people)}.")


def _epsilon(spent: float | None) -> str:
    """Return what is spent, as a cell of a table."""
    return "-" if spent is None else f"{spent:g}"


def _shares(statement: Statement) -> Iterator[str]:
    """Yield in sentences what is set aside for studies, and what that leaves for each."""
    for study, share in statement.set_aside.items():
        left = f"one more run for it may cost epsilon {statement.one_more[study]:.3g}"
        yield f"A part of {share:.4g} of the account is set aside for {study}: {left}."
    yield f"One more run for any other study may cost epsilon {statement.one_more['']:.3g}."


def _rows(statement: Statement) -> list[tuple[str, ...]]:
    """Return a table of what the rows of studies have lost that are asked about apart from others."""
    rows = [
        (usage.study, usage.rows, f"{usage.spent:.2%}", f"{usage.reserved:.2%}", f"{usage.one_more:.3g}")
        for usage in statement.rows
    ]
    return [("study", "rows", "spent", "reserved", "one more: epsilon"), *rows]


def _parts(statement: Statement) -> list[tuple[str, ...]]:
    """Return a table of an account's parts, a row for each study and learner; the last row adds them up to 100 %."""
    kinds: list[accounts.PartKind] = [*_KINDS]
    if not statement.set_aside:
        kinds.remove("unused share")
    cells = {(part.study, part.learner, part.kind): f"{part.percent:.2f}%" for part in statement.parts}
    rows = [
        (study or "-", learner or "-", *(cells.get((study, learner, kind), "") for kind in kinds))
        for study, learner in dict.fromkeys(
            (part.study, part.learner) for part in statement.parts if part.kind != "left"
        )
    ]
    sums = {kind: sum(part.percent for part in statement.parts if part.kind == kind) for kind in kinds}
    return [("study", "learner", *kinds), *rows, ("together", "", *(f"{sums[kind]:.2f}%" for kind in kinds))]


def log_command(
    config: Config = DEFAULT_CONFIG,
    *,
    by_run: Annotated[
        bool, typer.Option("--by-run", help="One line a run: who asked, what for, what it cost.")
    ] = False,
    data: Annotated[
        bool, typer.Option("--data", help="One line each time that the owner let answers be about other data.")
    ] = False,
    out: Printer,
) -> None:
    """List the ledger: every answer that was given, to whom, when, and what it cost. One JSON object a line with JSON.

    With --by-run it lists runs instead: who asked, what for, and what was seen and refused. With --data it lists which
    data answers were about, by which query, and since when.

    The ledger's chain of hashes is checked first; a ledger that was changed is refused with status 3.
    """
    with quietly(), party.open_store(party_settings.PartySettings.load(config), to_read=True) as store:
        entries = store.entries()
    if data:
        _print_pins(entries, out)
    elif by_run:
        _print_runs(audit.by_run(entries), out)
    else:
        _print_answers(entries, out)


def end_command(
    run: LedgerRun, config: Config = DEFAULT_CONFIG, learner: LearnerOption = None, *, out: Printer
) -> None:
    """Answer no more rounds of a run, and free what is still reserved for it. What was charged stays charged."""
    _each_run(config, run, learner, "ended", out)


def release_command(
    run: LedgerRun, config: Config = DEFAULT_CONFIG, learner: LearnerOption = None, *, out: Printer
) -> None:
    """Free what is still reserved for a run without ending it: it goes on while the budget suffices."""
    _each_run(config, run, learner, "released", out)


@audit_app.command("export")
def audit_export(
    file: Path,
    config: Config = DEFAULT_CONFIG,
    bodies: Annotated[
        bool, typer.Option(help="Whether to put the answers themselves in, but those to secure sums.")
    ] = True,
    *,
    out: Printer,
) -> None:
    """Write the whole ledger into a signed file: approvals, prices, answers, limits, refusals, in order."""
    with (
        quietly(),
        party.open_store(party_settings.PartySettings.load(config), to_read=True) as store,
        file.open("x", encoding="utf-8") as target,
    ):
        target.writelines(f"{line}\n" for line in audit.export(store, bodies=bodies))
    key = settings_key(config)
    out.done(f"{file}: check it with parley-party audit verify {file} --key {key}", file=str(file), key=key)


@audit_app.command("verify")
def audit_verify(
    file: Path,
    key: Annotated[str, typer.Option(help="The party's public key, as parley-party identity prints it.")],
    *,
    out: Printer,
) -> None:
    """Check a file that "audit export" wrote, without a ledger: exits with status 1 if anything in it was changed."""
    with quietly():
        try:
            with refusal_is_no():
                entries, receipt = audit.verify(audit.lines_of(file), key)
        except OSError as error:
            raise InvalidInputError(f"{file} cannot be read: {error.strerror}") from None
    typer.echo(f"{receipt.signer}: {len(entries)} entries, all as they were signed", err=True)
    if not out.is_json:
        _print_pins(entries, out)
    _print_runs(audit.by_run(entries), out)
    _print_standing(audit.standing(entries), out)


def settings_key(config: Path) -> str:
    """Return the party's public key."""
    return party_settings.PartySettings.load(config).identity.key


def _each_run(config: Path, run: str, learner: str | None, state: Literal["ended", "released"], out: Printer) -> None:
    """End or release a run of ``learner``, or of the only learner that has one of this name."""
    with quietly(), party.open_store(party_settings.PartySettings.load(config)) as store:
        owners = [name for name, name_of_run in store.books.runs if name_of_run == run and learner in {None, name}]
        if not owners:
            raise NotFoundError(f"run {run} is not known here")
        if len(owners) > 1:
            raise InvalidInputError(f"{', '.join(owners)} each have a run {run}: name one with --learner")
        if state == "ended":
            store.consents.end(owners[0], run, "owner")
        else:
            store.consents.release(owners[0], run)
    out.done(f"{run} of {owners[0]}: {state}", learner=owners[0], run=run, state=state)


def _print_answers(entries: list[Entry], out: Printer) -> None:
    answers: list[tuple[Entry, records.Answered]] = [
        (e, e.record) for e in entries if isinstance(e.record, records.Answered)
    ]
    rows: list[dict[str, Any]] = [
        {
            "number": entry.number,
            "at": entry.at,
            "learner": answer.learner,
            "run": answer.run,
            "round": answer.round,
            "query": answer.query,
            "answer": entry.attached["body"],
            "epsilon": answer.cost.epsilon / privacy_account.MICRO,
            "delta": answer.cost.delta / privacy_account.DELTA_UNITS,
            "adjacency": answer.adjacency,
        }
        for entry, answer in answers
    ]
    if out.is_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    columns = ("number", "time", "learner", "run", "round", "epsilon", "delta")
    cells = [
        (
            str(r["number"]),
            when(r["at"]),
            r["learner"],
            r["run"],
            str(r["round"]),
            f"{r['epsilon']:g}",
            f"{r['delta']:g}",
        )
        for r in rows
    ]
    print_table([columns, *cells])


def _print_pins(entries: list[Entry], out: Printer) -> None:
    pins = [(entry, entry.record) for entry in entries if isinstance(entry.record, records.Pinned)]
    if out.is_json:
        for entry, pin in pins:
            typer.echo(json.dumps({"number": entry.number, "at": entry.at, **asdict(pin)}))
        return
    columns = ("number", "data since", "name", "people", "source", "tables", "study", "rows", "salted digest")
    cells = [
        (
            str(entry.number),
            when(entry.at),
            pin.name or "-",
            pin.people or "all",
            " ".join(pin.source.split()),
            _tables(pin),
            pin.study[:12],
            _examples(pin),
            pin.rows[:12],
        )
        for entry, pin in pins
    ]
    print_table([columns, *cells])


def _examples(pin: Pinned) -> str:
    """Return which rows of its table were pinned, or how many persons: how many rows these have is in no ledger."""
    if not pin.n_examples:
        return "-"
    return so_many(pin.n_examples, "person") if pin.most_rows else f"{pin.first + 1}-{pin.first + pin.n_examples}"


def _tables(pin: Pinned) -> str:
    return ", ".join(f"{name} = {at}" for name, at in pin.tables.items()) or "-"


def _print_runs(runs: list[RunSummary], out: Printer) -> None:
    rows: list[dict[str, Any]] = []
    for run in runs:
        terms = run.approved
        rows.append(
            {
                "learner": run.learner,
                "run": run.run,
                "study": terms.study if terms else None,
                "algorithm": terms.algorithm if terms else None,
                "user": terms.user if terms else None,
                "purpose": terms.purpose if terms else None,
                "price": terms and terms.reserved.epsilon / privacy_account.MICRO,
                "epsilon": run.charged.epsilon / privacy_account.MICRO,
                "delta": run.charged.delta / privacy_account.DELTA_UNITS,
                "seen": run.seen,
                "from": when(run.first),
                "to": when(run.last),
                "ended": run.ended,
                "refusals": dict(run.refusals),
            }
        )
    if out.is_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    columns = (
        "learner",
        "run",
        "study",
        "algorithm",
        "user",
        "purpose",
        "price",
        "epsilon",
        "delta",
        "seen",
        "refusals",
    )
    print_table([columns, *(tuple(_cell(row[name]) for name in columns) for row in rows)])


def _print_standing(accounts_by_people: Mapping[str, Account], out: Printer) -> None:
    """Print what is allowed and spent of each account, as its entries alone say."""
    reports = {people: party_api.BudgetReport.of(account) for people, account in accounts_by_people.items()}
    if out.is_json:
        for people, report in reports.items():
            typer.echo(json.dumps({"people": people, "budget": report.model_dump(mode="json")}))
        return
    columns = ("account", "epsilon allowed", "delta allowed", "epsilon spent", "nonadaptive")
    rows = [
        (
            accounts.whose(people),
            f"{report.epsilon_limit:g}",
            f"{report.delta_limit:g}",
            _epsilon(report.epsilon_spent),
            f"{report.epsilon_nonadaptive:g}",
        )
        for people, report in reports.items()
    ]
    print_table([columns, *rows])
    typer.echo(privacy_statement.SPENT_MEANS)


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{rule} x {count}" for rule, count in value.items()) or "-"
    return f"{value:g}" if isinstance(value, float) else str(value or "-")


def when(at: int) -> str:
    """Format a time in UTC; ``at`` is in seconds since 1970."""
    return datetime.fromtimestamp(at, tz=UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def accept_data_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Say that the data, their query or their study have changed, and that answers are about the new data from now on.

    A study whose data changed under the ledger is not answered about before that. The ledger keeps the word, with the
    query's text. What was charged stays charged, and all runs of learners about the study end: their answers were about
    other data. A service that runs takes the new data up by itself.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        with party.open_store(settings) as store:
            before = set(store.consents.open_runs())
            is_first = not store.books.pins
            pins = [party.pin_of(held, owner_data.load_holding(settings, held)) for held in settings.held]
            changed = {data.study.name: changes for data in pins if (changes := store.pin(data, accept=True))}
            earlier_rows = {data.study.name: data.first for data in pins if data.first}
            ended = sorted(before - set(store.consents.open_runs()))
    if out.is_json:
        changes = [part for parts in changed.values() for part in parts]
        runs = [{"learner": learner, "run": run} for learner, run in ended]
        print_json_line({"changed": list(dict.fromkeys(changes)), "studies": changed, "ended": runs})
        return
    if not changed:
        typer.echo("the data are pinned for the first time" if is_first else "nothing has changed")
        return
    for study, changes in changed.items():
        typer.echo(f"accepted: of {study}, {', '.join(changes)} changed; what was charged stays charged")
        if first := earlier_rows.get(study):
            typer.echo(
                f"  its rows from {first + 1:,} on have a budget of their own, if none of them was asked about before"
            )
    for learner, run in ended:
        typer.echo(f"  run {run} of {learner} has ended")


def witnessed_command(
    name: Annotated[str | None, typer.Argument(help="A party or a key holder; all, if not given.")] = None,
    config: Config = DEFAULT_CONFIG,
    *,
    out: Printer,
) -> None:
    """Print the newest receipts that this party holds of others, one a line: for parley-party recover --receipt FILE.

    Learners hand them on; those are kept whose public key in [secure_sum] the owner has compared.
    """
    settings = party_settings.PartySettings.load(config)
    with quietly(), closing(party.open_witness(lambda: settings)) as witness:
        receipts = [
            receipt
            for receipt in map(protocol_receipts.read_receipt, witness.texts())
            if name in {None, receipt.signer}
        ]
    if out.is_json:
        print_json_line(
            [
                {"signer": item.signer, "key": item.key, "entries": item.head.count, "receipt": item.text}
                for item in receipts
            ]
        )
        return
    for item in receipts:
        typer.echo(item.text)
