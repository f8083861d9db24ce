"""``parley-party pending``, ``approve`` and ``deny``: the owner's word on runs, where the policy asks for it."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from party.cli.output import DEFAULT_CONFIG, Config, Output, OutputFormat, print_json, print_table, refusing, spelt

if TYPE_CHECKING:
    from party.ledger.ledger import Ledger

LearnerOption = Annotated[
    str | None, typer.Option(help="The learner whose run it is, where two have one of that name.")
]


def pending_command(config: Config = DEFAULT_CONFIG, output: Output = OutputFormat.TEXT) -> None:
    """Show the runs that wait for your word: who asks for what, with whom, at which price, and what is promised.

    Runs wait where policy.approval is "manual". What is shown of user and purpose are the learner's words.
    """
    from common.errors import BudgetExhaustedError
    from common.privacy.account import MICRO
    from party.answering.party import open_store
    from party.policy.questions import question_of
    from party.settings import PartySettings

    with refusing(), open_store(PartySettings.load(config)) as store:
        questions: list[dict[str, Any]] = []
        for learner, proposal, price, book in store.pending():
            question = question_of(learner, proposal, price, book.expires)
            try:
                left = store.account().reserve(price.whole)
                question["epsilon_left_after_it"] = (
                    left.epsilon_limit - left.spent.epsilon - left.reserved.epsilon
                ) / MICRO
            except BudgetExhaustedError as error:
                question["epsilon_left_after_it"] = None
                question["cannot_be_approved"] = error.detail
            questions.append(question)
    if output is OutputFormat.JSON:
        print_json(questions)
        return
    for question in questions:
        print_table([(name.replace("_", " "), spelt(value)) for name, value in question.items() if name != "guarantee"])
        for promise in question["guarantee"]:
            typer.echo(f"  {promise}")
        typer.echo(f"next: parley-party approve {question['run']}, or deny\n")
    if not questions:
        typer.echo("no run waits for your word")


def approve_command(run: str, config: Config = DEFAULT_CONFIG, learner: LearnerOption = None) -> None:
    """Take part in a run that waits: its whole price is reserved at once, and charged round by round."""
    from party.answering.party import open_store
    from party.settings import PartySettings

    with refusing(), open_store(PartySettings.load(config)) as store:
        whose = _whose(store, run, learner)
        store.allow(whose, run)
    typer.echo(f"{run} of {whose} is approved; the learner asks again within a minute")


def deny_command(
    run: str,
    config: Config = DEFAULT_CONFIG,
    learner: LearnerOption = None,
    reason: Annotated[str, typer.Option(help="What the learner is told.")] = "",
) -> None:
    """Take no part in a run; of one that was approved: answer it no more. What was charged stays charged."""
    from party.answering.party import open_store
    from party.settings import PartySettings

    with refusing(), open_store(PartySettings.load(config)) as store:
        whose = _whose(store, run, learner)
        withdrawn = store.deny(whose, run, reason[:200])
    typer.echo(f"{run} of {whose} is {'ended' if withdrawn else 'denied'}")


def _whose(store: Ledger, run: str, learner: str | None) -> str:
    """The learner that has a run of this name."""
    from common.errors import InvalidInputError, NotFoundError

    store.account()  # looks at what others have written
    keys = {*store.books.owner, *store.books.runs}
    owners = sorted(name for name, known in keys if known == run and learner in {None, name})
    if not owners:
        raise NotFoundError(f"nothing was asked about run {run}")
    if len(owners) > 1:
        raise InvalidInputError(f"{', '.join(owners)} each have a run {run}: name one with --learner")
    return owners[0]
