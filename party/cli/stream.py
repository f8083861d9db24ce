"""The command ``parley-party stream``, which makes an owner's decisions privately."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from parley.common.errors import InvalidInputError, LedgerError
from parley.common.service.commands import Printer, deferred
from parley.common.storage.handed_files import read_handed
from parley.party.commands import DEFAULT_CONFIG, Config, quietly, read_text

with deferred():
    import pydantic

    from parley.common import strict
    from parley.party import policy as party_policy
    from parley.party import settings as party_settings
    from parley.party.answers import party
    from parley.party.owner import stream as owner_stream

if TYPE_CHECKING:
    from parley.party.ledger.ledger import Ledger
    from parley.party.owner.stream import Stream, StreamTerms

STREAMS = "Example: parley-party stream --name prices --actions 3 --horizon 1000 --epsilon 1 --delta 1e-6 < costs.jsonl"
_WORTH_SAYING = 0.9


def stream_command(
    name: Annotated[str, typer.Option(help="What the ledger calls the stream; the same command goes on with it.")],
    actions: Annotated[int, typer.Option(help="p: how many actions there are, 2 or more.")],
    horizon: Annotated[int, typer.Option(help="T: how many rounds there are, 1 or more; all are charged at once.")],
    epsilon: Annotated[float, typer.Option(help="What all rounds together may cost.")],
    delta: Annotated[float, typer.Option(help="What all rounds together may cost; 0 for pure privacy.")],
    bound: Annotated[float, typer.Option(help="R: no cost is larger, or less than -R.")] = 1.0,
    calibration: Annotated[
        Literal["tight", "paper"],
        typer.Option(help="How lambda is set: tight, by this project's proof, or as in the paper."),
    ] = "tight",
    adversary: Annotated[
        Literal["adaptive", "oblivious"],
        typer.Option(help="Costs may depend on the actions of earlier rounds, or (less regret) on no action at all."),
    ] = "adaptive",
    begins: Annotated[
        Literal["whole", "rest"],
        typer.Option("--input", help="Whose cost the first line is: round 1's, or (rest) that of the round to come."),
    ] = "whole",
    study: Annotated[
        str, typer.Option(help="The study whose people the costs are about; not given: the account of all pays.")
    ] = "",
    receipt: Annotated[
        Path | None,
        typer.Option(help="A file for the ledger's newest receipt, with which recover knows of the charge."),
    ] = None,
    config: Config = DEFAULT_CONFIG,
    *,
    out: Printer,
) -> None:
    """Pick an action each round before its costs are known: by the costs of the rounds before, and privately.

    Writes {"round": 1, "action": 2} on standard output, an action a line, counted from 0, and reads costs on standard
    input, a round a line, [0.5, -1, 0] or {"round": 1, "cost": [0.5, -1, 0]}, one number an action; the round may be
    left out. The first action comes before any cost is read. What the guarantee hides, even from someone who sees all
    actions, is one round's costs, replaced by any others within the bound. Choose a round's costs without looking at
    its action, or the bound on regret does not hold. If costs depend on no action at all, such as those of a finished
    file, an action can be kept for many rounds: with --adversary oblivious the same privacy costs several times less
    regret.

    All rounds are charged with the first action, and each action is stored before it is shown. After an interruption
    the same command goes on: it shows the last stored action again, and reads the input from its beginning. Costs of
    earlier rounds must be the same as before, and are skipped: no row counts twice. If the input begins with the round
    of the action that is shown again, say --input rest, or state the round in each line, as a program should. Costs are
    stored in the ledger's file: a round takes about 0.6 kB, and 4 bytes an action.
    """
    if sys.stdout is None:
        raise InvalidInputError("standard output is closed: nobody would see an action")
    with quietly():
        settings = party_settings.PartySettings.load(config)
        try:
            terms = owner_stream.StreamTerms(
                name=name, actions=actions, horizon=horizon, bound=bound, epsilon=epsilon, delta=delta,
                calibration=calibration, adversary=adversary, study=study,
            )  # fmt: skip
        except pydantic.ValidationError as error:
            raise InvalidInputError(f"the stream's terms: {strict.faults(error)}") from None
        policy = party_policy.own_policy(settings, study)
        with party.open_store(settings) as ledger:
            if receipt is not None and receipt.exists():
                _check_own(ledger, receipt)
            stream = owner_stream.Stream(ledger, policy, terms)
            for words in _beforehand(stream, terms, from_start=begins == "whole"):
                out.aside(f"{name}: {words}")
            for place, action in enumerate(owner_stream.play(stream, _lines(stream), from_start=begins == "whole")):
                if receipt is not None and not place:
                    receipt.write_text(ledger.chain.receipt() + "\n", encoding="utf-8")
                typer.echo(str(action))
            out.aside(f"{name}: {_afterwards(stream, from_start=begins == 'whole')}")


def _beforehand(stream: Stream, terms: StreamTerms, *, from_start: bool) -> Iterator[str]:
    """Yield what the stream promises, and where it goes on."""
    leader = stream.leader
    yield f"{leader.guarantee}, regret at most {leader.regret:.4g} on average"
    oblivious_regret = terms.model_copy(update={"adversary": "oblivious"}).leader().regret
    if oblivious_regret < _WORTH_SAYING * leader.regret:
        yield f"{oblivious_regret:.4g} with --adversary oblivious, if costs depend on no action"
    if leader.state.acted:
        round = leader.state.rounds + 1
        yield f"goes on at round {round}; the first line is taken as the cost of round {1 if from_start else round}"


def _afterwards(stream: Stream, *, from_start: bool) -> str:
    """Say where the stream stands at the end of the input."""
    horizon = stream.leader.terms.horizon
    if stream.is_over:
        return f"the horizon is over, all {horizon} rounds have their costs"
    progress = f"{stream.leader.state.rounds} of {horizon} rounds have their costs"
    how = "the same lines, and more" if from_start else "the lines after these"
    return f"the input ended early, {progress}: the same command goes on with {how}"


def _check_own(ledger: Ledger, receipt: Path) -> None:
    """Raise InvalidInputError unless a file has only a receipt of this ledger: other content would be lost."""
    try:
        ledger.chain.check_receipt(read_text(receipt, read_handed).strip())
    except LedgerError as error:
        raise InvalidInputError(f"{receipt} is there, and is not replaced: {error.detail}") from None


def _lines(stream: Stream) -> Iterator[str]:
    """Yield the lines of standard input. After the horizon, wait for no more, but still read the rest of a file."""
    if sys.stdin is None:  # closed
        return
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")  # so that the line which is no text is known
    for line in sys.stdin:
        yield line
        if stream.is_over and not sys.stdin.seekable():
            return
