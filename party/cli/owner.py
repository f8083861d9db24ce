"""``parley-party pending``, ``approve``, ``deny`` and ``owner``: the owner's word on runs that wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.service.commands import Printer, deferred, print_json_line
from parley.party.commands import (
    DEFAULT_CONFIG,
    Config,
    LearnerOption,
    LedgerRun,
    as_text,
    config_words,
    print_table,
    quietly,
)

with deferred():
    from parley.common import errors
    from parley.party import settings as party_settings
    from parley.party.answers import party
    from parley.party.owner import page
    from parley.party.owner import questions as owner_questions

if TYPE_CHECKING:
    from parley.party.ledger.ledger import Ledger


def pending_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Show the runs that wait for your word: who asks for what, with whom, at which price, and what is promised.

    Runs wait where policy.approval is "manual". What is shown of user and purpose are the learner's words.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        with party.open_store(settings) as store:
            questions = owner_questions.WaitingRuns(store, settings.known_parties_for).questions()
    if out.is_json:
        print_json_line(questions)
        return
    for question in questions:
        apart = {"guarantee", "cautions"}
        print_table([(name.replace("_", " "), as_text(value)) for name, value in question.items() if name not in apart])
        for caution in question["cautions"]:
            typer.echo(f"  caution: {caution}")
        for promise in question["guarantee"]:
            typer.echo(f"  {promise}")
        typer.echo(f"next: parley-party approve {question['run']}{config_words(config)}, or deny\n")
    if not questions:
        typer.echo("no run waits for your word")


def approve_command(
    run: LedgerRun, config: Config = DEFAULT_CONFIG, learner: LearnerOption = None, *, out: Printer
) -> None:
    """Take part in a run that waits: its whole price is reserved at once, and charged with its answers."""
    with quietly(), party.open_store(party_settings.PartySettings.load(config)) as store:
        whose = _whose(store, run, learner)
        consent = store.questions.allow(whose, run)
        payer = store.accounts.payer(consent.spec.study.name)
    pays = f"; {payer} pays for it" if payer else ""
    text = f"{run} of {whose} is approved{pays}; the learner asks again within a minute"
    out.done(text, learner=whose, run=run, state="approved", **({"paid_by": payer} if payer else {}))
    out.next(f"parley-party budget{config_words(config)}")


def deny_command(
    run: LedgerRun,
    config: Config = DEFAULT_CONFIG,
    learner: LearnerOption = None,
    reason: Annotated[str, typer.Option(help="What the learner is told.")] = "",
    *,
    out: Printer,
) -> None:
    """Take no part in a run; if it was approved, answer it no more. What was charged stays charged."""
    with quietly(), party.open_store(party_settings.PartySettings.load(config)) as store:
        whose = _whose(store, run, learner)
        withdrawn = store.questions.deny(whose, run, reason[:200])
    state = "ended" if withdrawn else "denied"
    out.done(f"{run} of {whose} is {state}", learner=whose, run=run, state=state)


def owner_command(config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Print the address of your page on this machine, where runs wait for your word; [owner] port turns it on.

    The address contains your token: anyone who has it can decide in your place.
    """
    with quietly():
        address = page.owner_address(party_settings.PartySettings.load(config))
    out.done(address, address=address)


def _whose(store: Ledger, run: str, learner: str | None) -> str:
    """Return the learner that has a run of this name. Raises NotFoundError, and InvalidInputError for several."""
    store.account()  # looks at what others have written
    keys = set(store.books.owner) | set(store.books.runs)
    owners = sorted(name for name, name_of_run in keys if name_of_run == run and learner in {None, name})
    if not owners:
        raise errors.NotFoundError(f"the owner was not asked about run {run}; parley-party pending shows what waits")
    if len(owners) > 1:
        raise errors.InvalidInputError(f"{', '.join(owners)} each have a run {run}: name one with --learner")
    return owners[0]
