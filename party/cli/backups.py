"""The commands of ``parley-party`` for a ledger that may be lost: ``backup``, ``restore`` and ``recover``.

``merge`` joins two ledgers that are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.errors import ConflictError
from parley.common.service.backups import BackupSource, BackupTarget, back_up, read_backup
from parley.common.service.commands import Printer, deferred
from parley.common.storage.handed_files import read_handed
from parley.party.commands import DEFAULT_CONFIG, Config, ReceiptFiles, config_words, quietly, read_text

with deferred():
    from parley.common.privacy import account as privacy_account
    from parley.common.storage import backups
    from parley.party import settings as party_settings
    from parley.party.answers import party
    from parley.party.ledger import ledger, merging, recovery

if TYPE_CHECKING:
    from parley.common.storage.backups import Backup, StateFolder
    from parley.party.ledger.recovery import Costs, Recovery
    from parley.party.settings import PartySettings

_LEDGER = "ledger.db"


def recover_command(
    config: Config = DEFAULT_CONFIG,
    receipt: ReceiptFiles = None,
    backup: Annotated[Path | None, typer.Option(help="A directory that parley-party backup wrote.")] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without it, the command only says what it would charge.")
    ] = False,
    *,
    out: Printer,
) -> None:
    """Begin a new ledger where the old one is lost, damaged or an old copy, and charge the worst that may be spent.

    Get from each learner the newest receipt it holds of this party (parley-learner receipts PARTY > FILE), from key
    holders and co-owners too. Without a receipt of each of your learners the whole budget counts as spent. What was
    there is put aside, runs in progress end.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        done = _recovered(settings, receipt, backup, commit=yes)
    _report(done, out, is_done=yes)
    if not yes:
        typer.echo("nothing was changed; say --yes to begin the new ledger", err=True)


def merge_command(
    other: Annotated[Path, typer.Argument(help="The settings file of the party whose ledger is joined to this one's.")],
    config: Config = DEFAULT_CONFIG,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without it, the command only says what it would charge.")
    ] = False,
    *,
    out: Printer,
) -> None:
    """Join the ledgers of two parties of yours that hold the same people, so that one budget counts all they lost.

    A new ledger takes the place of this party's, and charges what both have spent; the other party's ends and answers
    nothing any more. Runs in progress of both end, and what they had reserved is free. Stop both services first. If the
    command is interrupted, run it again.

    Only the ledgers are joined: to have the other party's study go on, add it to this party's [[studies]].
    """
    with quietly():
        ours, theirs = (party_settings.PartySettings.load(path) for path in (config, other))
        for settings in (ours, theirs):
            ledger.check_exists(settings.state)  # first, so that no identity is made where there is no ledger
        first, second = (merging.Owned(settings.state, settings.identity) for settings in (ours, theirs))
        done = merging.merge(first, second, ours.policy.adjacency, commit=yes)
    out.done(charges_in_words(done.costs, is_done=yes), **charges_by_people(done.costs), ledgers=done.ledgers)
    if not yes:
        typer.echo("nothing was changed; say --yes to merge the ledgers", err=True)
        return
    out.aside(f"the ledger of {theirs.name} has ended: its party answers nothing any more; its data were not moved")
    out.next(f"add the studies of {other} to {config} under [[studies]], then parley-party serve{config_words(config)}")


def backup_command(target: BackupTarget, config: Config = DEFAULT_CONFIG, *, out: Printer) -> None:
    """Copy all that the party keeps into a new folder or to standard output, while it runs too.

    A copy is old as soon as a round is answered: bring it back with parley-party restore, which charges for all answers
    that the copy may lack.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        ledger.check_exists(settings.state)
        back_up(_state(settings), target, out)


def restore_command(
    source: BackupSource,
    config: Config = DEFAULT_CONFIG,
    receipt: ReceiptFiles = None,
    yes: Annotated[bool, typer.Option("--yes", help="Go on without a receipt, at the whole budget.")] = False,
    *,
    out: Printer,
) -> None:
    """Bring a backup back: its identity key, and a new ledger that charges the worst that may be spent since.

    The same as parley-party recover, after the files were put back that are gone; the backup's ledger is put aside.
    Without a receipt of each of your learners the whole budget counts as spent: that is refused unless you say --yes.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        with read_backup(_state(settings), source) as backup:
            done = _restored(settings, backup, receipt, yes=yes)
    _report(done, out, is_done=True)


def _restored(settings: PartySettings, backup: Backup, receipts: Sequence[Path] | None, *, yes: bool) -> Recovery:
    """Put back what is gone of a backup, and begin the new ledger. Raises ConflictError without a learner's receipt.

    The identity key comes back first, because receipts are read as those of its holder.
    """
    if "identity.key" in backup.paths():
        backup.put("identity.key", settings.state / "identity.key")
    planned = _recovered(settings, receipts, backup.folder, commit=False)
    if planned.missing and not yes:
        raise ConflictError(
            f"no receipt of {', '.join(planned.missing)}: the whole budget would count as spent, so no ledger was "
            "begun; get the newest (parley-learner receipts PARTY > FILE) and say --receipt FILE, or --yes"
        )
    is_empty = not ledger.has_ledger(settings.state)
    for name in backup.paths():
        is_ledger = name in {_LEDGER, "ledger.head"}
        if not is_ledger and not (settings.state / name).exists():
            backup.put(name, settings.state / name)
    if is_empty:  # without its head file: should this end here, the party does not start on it
        backup.put(_LEDGER, settings.state / _LEDGER)
    return _recovered(settings, receipts, None if is_empty else backup.folder, commit=True)


def _recovered(
    settings: PartySettings, receipts: Sequence[Path] | None, backup: Path | None, *, commit: bool
) -> Recovery:
    """Return what a new ledger charges by these receipts; with ``commit``, begin it."""
    texts = [line for path in receipts or () for line in read_text(path, read_handed).split()]
    names = [learner.name for learner in settings.learners]
    budget = party.budget_of(settings.policy)
    people = {terms.people for terms in party.terms_of(settings).values()}
    return recovery.recover(
        settings.state, settings.identity, budget, names, texts, people=people, backup=backup, commit=commit
    )


def _report(done: Recovery, out: Printer, *, is_done: bool) -> None:
    """Print what a new ledger charges."""
    text = charges_in_words(done.costs, is_done=is_done)
    out.done(
        text,
        **charges_by_people(done.costs),
        accounted=done.recovered,
        without_receipt_of=done.missing,
        unreadable_receipts_of=done.unreadable,
    )
    for name in done.unreadable:
        typer.echo(
            f"the receipt of {name} says what was spent in a part that is sealed with another identity key than this "
            "party has now: it counts as not shown",
            err=True,
        )
    if done.missing:
        typer.echo(f"no receipt of {', '.join(done.missing)}: the whole budget counts as spent", err=True)


def charges_in_words(costs: Costs, *, is_done: bool) -> str:
    """Say what a new ledger charges to each account."""
    lines = (
        f"epsilon {cost.epsilon / privacy_account.MICRO:g}, delta {cost.delta / privacy_account.DELTA_UNITS:g}"
        + (f" to the account of the people {people!r}" if people else "")
        for people, cost in costs.items()
    )
    return f"{'charged' if is_done else 'to be charged'}: {'; '.join(lines)}"


def charges_by_people(costs: Costs) -> dict[str, object]:
    """Return the units that a new ledger charges, as JSON values: to the account of all, and to each other."""
    return {
        "spent": list(costs[""].units),
        "people": {people: list(cost.units) for people, cost in costs.items() if people},
    }


def _state(settings: PartySettings) -> StateFolder:
    return backups.StateFolder("party", settings.name, settings.state)
