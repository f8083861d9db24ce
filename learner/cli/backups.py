"""``parley-learner backup`` and ``restore``: all that a learner keeps, copied while it runs and brought back."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from shlex import quote

from parley.common.service.backups import BackupSource, BackupTarget, back_up, read_backup
from parley.common.service.commands import Printer, deferred
from parley.learner.cli.options import ConfigOption

with deferred():
    from parley.common.service import logs
    from parley.learner import settings as learner_settings
    from parley.learner.storage import backups


BACKUPS = (
    "Examples:\n\nparley-learner backup /backups/monday --config learner.toml\n\n"
    "docker compose exec -T learner parley-learner backup - --config learner.toml > monday.tar"
)
RESTORES = (
    "Example: parley-learner restore /backups/monday --config learner.toml   (a tar, or - for standard input, too)"
)
"""The commands' examples, for their help."""


def backup_learner_command(target: BackupTarget, config: ConfigOption = None, *, out: Printer) -> None:
    """Copy all that the learner keeps into a new folder or to standard output, while it runs too.

    That is its state, with runs, receipts, members, public rows and identity key, and its authority's certificate and
    key. Keep settings, studies and other secrets yourself: the learner does not change them.
    """
    with _quietly():
        settings = learner_settings.LearnerSettings.load(config)
        backups.check_has_runs(settings)
        back_up(backups.learner_state(settings), target, out)


def restore_learner_command(source: BackupSource, config: ConfigOption = None, *, out: Printer) -> None:
    """Bring a backup back into an empty state, before the learner is started.

    Runs in progress go on from the backup's round: parties give the same answers again at no cost. A secure sum whose
    later rounds were opened cannot go on; such a run fails and says so. Runs that began after the backup are gone.
    """
    with _quietly():
        settings = learner_settings.LearnerSettings.load(config)
        with read_backup(backups.learner_state(settings), source) as backup:
            done = backups.bring_back(settings, backup)
            assert backup.manifest is not None  # noqa: S101 -- every learner's has one
            taken = backup.manifest.taken
    out.done(
        f"the learner {settings.name} as of {taken:%Y-%m-%d %H:%M:%S}Z; {len(done.unfinished)} of its runs go on",
        taken=taken.isoformat(),
        unfinished=done.unfinished,
        members=done.members,
        invitations=done.invitations,
    )
    if done.members:
        out.aside(
            f"members: {', '.join(done.members)}; remove those that left since (parley-learner roster remove), and "
            "rotate again those that were rotated since (roster rotate): their old tokens count again"
        )
    if done.invitations:
        out.aside(f"invite again, for the old invitations count no more: {', '.join(done.invitations)}")
    out.next("parley-learner serve" + (f" --config {quote(str(config))}" if config else ""))


@contextmanager
def _quietly() -> Iterator[None]:
    """Log only warnings and errors: standard output may be a backup."""
    logs.configure("text", logging.WARNING)
    yield
