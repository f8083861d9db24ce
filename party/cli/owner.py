"""``parley-party pending``, ``approve``, ``deny`` and ``owner``: the owner's word on runs that wait for it."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.service.commands import FormatOption, print_json_line, print_next, print_result
from parley.party.commands import DEFAULT_CONFIG, Config, LearnerOption, config_words, print_table, quietly, spelt

if TYPE_CHECKING:
    from parley.party.ledger.ledger import Ledger


def pending_command(config: Config = DEFAULT_CONFIG, output: FormatOption = "text") -> None:
    """Show the runs that wait for your word: who asks for what, with whom, at which price, and what is promised.

    Runs wait where policy.approval is "manual". What is shown of user and purpose are the learner's words.
    """
    from parley.party.answers.party import open_store
    from parley.party.owner.questions import WaitingRuns
    from parley.party.settings import PartySettings

    with quietly():
        settings = PartySettings.load(config)
        with open_store(settings) as store:
            questions = WaitingRuns(store, settings.known_parties).questions()
    if output == "json":
        print_json_line(questions)
        return
    for question in questions:
        apart = {"guarantee", "cautions"}
        print_table([(name.replace("_", " "), spelt(value)) for name, value in question.items() if name not in apart])
        for caution in question["cautions"]:
            typer.echo(f"  caution: {caution}")
        for promise in question["guarantee"]:
            typer.echo(f"  {promise}")
        typer.echo(f"next: parley-party approve {question['run']}, or deny\n")
    if not questions:
        typer.echo("no run waits for your word")


def approve_command(
    run: str, config: Config = DEFAULT_CONFIG, learner: LearnerOption = None, output: FormatOption = "text"
) -> None:
    """Take part in a run that waits: its whole price is reserved at once, and charged with its answers."""
    from parley.party.answers.party import open_store
    from parley.party.settings import PartySettings

    with quietly(), open_store(PartySettings.load(config)) as store:
        whose = _whose(store, run, learner)
        store.questions.allow(whose, run)
    text = f"{run} of {whose} is approved; the learner asks again within a minute"
    print_result(output, text, learner=whose, run=run, state="approved")
    print_next(output, f"parley-party budget{config_words(config)}")


def deny_command(
    run: str,
    config: Config = DEFAULT_CONFIG,
    learner: LearnerOption = None,
    reason: Annotated[str, typer.Option(help="What the learner is told.")] = "",
    output: FormatOption = "text",
) -> None:
    """Take no part in a run; of one that was approved: answer it no more. What was charged stays charged."""
    from parley.party.answers.party import open_store
    from parley.party.settings import PartySettings

    with quietly(), open_store(PartySettings.load(config)) as store:
        whose = _whose(store, run, learner)
        withdrawn = store.questions.deny(whose, run, reason[:200])
    state = "ended" if withdrawn else "denied"
    print_result(output, f"{run} of {whose} is {state}", learner=whose, run=run, state=state)


def owner_command(config: Config = DEFAULT_CONFIG, output: FormatOption = "text") -> None:
    """Print the address of your page on this machine, where runs wait for your word; [owner] port turns it on.

    The address holds your token: whoever has it says yes and no in your place.
    """
    from parley.party.owner.page import owner_address
    from parley.party.settings import PartySettings

    with quietly():
        address = owner_address(PartySettings.load(config))
    print_result(output, address, address=address)


def _whose(store: Ledger, run: str, learner: str | None) -> str:
    """The learner that has a run of this name."""
    from parley.common.errors import InvalidInputError, NotFoundError

    store.account()  # looks at what others have written
    keys = set(store.books.owner) | set(store.books.runs)
    owners = sorted(name for name, known in keys if known == run and learner in {None, name})
    if not owners:
        raise NotFoundError(f"nothing was asked about run {run}")
    if len(owners) > 1:
        raise InvalidInputError(f"{', '.join(owners)} each have a run {run}: name one with --learner")
    return owners[0]
