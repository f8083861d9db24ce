"""The commands ``parley-party keyholder``, for the operator of a key holder."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from parley.common.encoding.texts import toml_value
from parley.common.errors import ConflictError
from parley.common.service.backups import BackupSource, BackupTarget, back_up, read_backup
from parley.common.service.commands import (
    CommandLine,
    Printer,
    deferred,
    without_rich,
)
from parley.common.storage.handed_files import read_handed
from parley.party.commands import (
    Explain,
    LogFormat,
    ReceiptFiles,
    as_text,
    end_by_readiness,
    print_table,
    quietly,
    read_text,
    show_settings,
    warn_unreachable,
)
from parley.party.joining import (
    ComposeOption,
    FolderOption,
    InvitationArgument,
    PortOption,
    ProxyOption,
    ReachOption,
    WordsOption,
    check_contained,
    check_learner,
    compare_learner,
    container_of,
    folder_for,
    free_ports,
    open_invitation,
    read_proxy,
    register,
    report_joined,
    service_toml,
)

with deferred():
    from parley.common.client import outbound
    from parley.common.encoding import key_words
    from parley.common.secure_sum import paillier, session
    from parley.common.service import logs, tokens
    from parley.common.service import serve as serving
    from parley.common.storage import backups, keys
    from parley.party import membership
    from parley.party.keyholder import app
    from parley.party.keyholder import journal as keyholder_journal
    from parley.party.keyholder import settings as keyholder_settings
    from parley.party.keyholder import vault as keyholder_vault

if TYPE_CHECKING:
    from parley.common.storage.backups import StateFolder
    from parley.common.storage.growth import Growth
    from parley.party.keyholder.settings import KeyHolderSettings

DEFAULT_KEY_HOLDER_CONFIG = Path("keyholder.toml")
KeyHolderConfig = Annotated[
    Path, typer.Option("--config", "-c", help="The settings file; PARLEY_KEYHOLDER_* variables override it.")
]

key_holder_app = CommandLine(
    name="keyholder",
    help="""Run a key holder: it lets a learner see only the sum of the parties' answers.

It must be run by somebody who does not collude with the learner; a party's owner may. To begin: write keyholder.toml,
give its public key (parley-party keyholder identity) to every party and to the learner, make its journal (parley-party
keyholder init), and start it.""",
)


@key_holder_app.command("join")
def key_holder_join(
    invitation: InvitationArgument,
    words: WordsOption = None,
    target: FolderOption = None,
    proxy: ProxyOption = None,
    port: PortOption = None,
    compose: ComposeOption = False,
    reach: ReachOption = None,
    *,
    out: Printer,
) -> None:
    """Join a learner as a key holder: makes keys, settings and journal, and registers.

    It must be run by somebody who does not collude with the learner.
    """
    with quietly():
        invited, on_the_way = open_invitation(invitation, "key_holder"), read_proxy(proxy)
        compare_learner(words, invited)
        check_contained(reach, in_container=compose)
        container = container_of(invited, on_the_way, reach) if compose else None
        folder, enrolment = folder_for(target, invited), membership.Enrolment(invited, on_the_way)
        if (path := folder.root / "keyholder.toml").exists():
            check_learner(path, keyholder_settings.KeyHolderSettings.load(path).pins.values(), invited)
        enrolment.check()
        folder.begin(invited)
        keys.write_private(folder.secrets / "vault.secret", tokens.new_token().encode())
        if not keyholder_journal.has_journal(folder.state):
            keyholder_journal.create_journal(folder.state, session.Identity(invited.name, folder.key()))
        specific = f"secret_file = {toml_value(folder.secrets / 'vault.secret')}\n"
        free, for_metrics = free_ports(2)
        text = (
            folder.with_token(path, read_text(path))
            if path.exists()
            else service_toml(invited, folder, specific, on_the_way, (port or free, for_metrics))
        )
        member = register(invited, folder, enrolment, folder.key(), path, text)
        listeners = keyholder_settings.KeyHolderSettings.load(member.settings).side_ports
        report_joined(out, member, container, listeners)


@key_holder_app.command("serve")
def key_holder_serve(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, output: LogFormat = None) -> None:
    """Open sums until told to stop (SIGINT or SIGTERM).

    Exits with status 3 and one line on standard error if settings, keys or journal cannot be used.
    """
    with without_rich():
        create, serve, connecting = app.create_key_holder_app, serving.serve, outbound.Outbound
    with quietly():
        settings = keyholder_settings.KeyHolderSettings.load(config)
        if output:
            settings = settings.model_copy(update={"log_format": output})
        logs.configure(settings.log_format)
        connections = connecting(settings.outbound)
        serve(create(settings), settings, [connections.keep], [connections.take_up])


@key_holder_app.command("init")
def key_holder_init(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, *, out: Printer) -> None:
    """Make a new key holder's journal, once: a key holder without it does not start, for it might open twice."""
    with quietly():
        settings = keyholder_settings.KeyHolderSettings.load(config)
        keyholder_journal.create_journal(settings.state, settings.identity)
    text = f"a new journal in {settings.state}: a copy of it that is put back ends all sessions"
    out.done(text, state=str(settings.state))
    out.next(f"parley-party keyholder serve --config {quote(str(config))}")


@key_holder_app.command("recover")
def key_holder_recover(
    config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG,
    receipt: ReceiptFiles = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do it. Without it, the command only says what it would do.")
    ] = False,
    *,
    out: Printer,
) -> None:
    """Begin a new journal where the old one is lost, damaged or an old copy; all sessions end, their keys destroyed.

    Run it also before you start a key holder whose storage was rolled back while its machine ran on, or whose machine
    was restored with its memory: a key holder cannot detect these.

    Where nothing of the old journal can be read, get from each learner the newest receipt that it holds of this key
    holder (parley-learner receipts NAME > FILE). The old files are put aside. Runs in progress fail, and cost only what
    their parties have answered.
    """
    with quietly():
        settings = keyholder_settings.KeyHolderSettings.load(config)
        if not yes:
            typer.echo("nothing was changed; say --yes to end all sessions and begin the new journal", err=True)
            return
        replaced = _recovered(settings, receipt)
    _report(replaced, config, out)


@key_holder_app.command("backup")
def key_holder_backup(
    target: BackupTarget, config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, *, out: Printer
) -> None:
    """Copy identity key, journal and others' receipts into a new folder or to standard output, while it runs too.

    The keys of its sessions are left out: they end by deletion, which no copy may undo. Bring the copy back with
    parley-party keyholder restore, which ends all sessions.
    """
    with quietly():
        settings = keyholder_settings.KeyHolderSettings.load(config)
        keyholder_journal.check_journal(settings.state)
        back_up(_state(settings), target, out)


@key_holder_app.command("restore")
def key_holder_restore(
    source: BackupSource,
    config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG,
    receipt: ReceiptFiles = None,
    *,
    out: Printer,
) -> None:
    """Bring a backup back into an empty state: its identity key, and a new journal in the place of the backup's.

    All sessions end, for the backup may lack sums that were opened since: runs in progress fail, and cost only what
    their parties have answered. The backup's journal is put aside.
    """
    with quietly():
        settings = keyholder_settings.KeyHolderSettings.load(config)
        with read_backup(_state(settings), source) as backup:
            if keyholder_journal.has_journal(settings.state):
                raise ConflictError(
                    f"there is a journal in {settings.state}, and a backup goes into an empty state: parley-party "
                    "keyholder recover replaces a journal that is there"
                )
            journal = "keyholder.db"  # without its head file: should this end here, no key holder starts on it
            for name in backup.paths():
                if name not in {journal, "keyholder.head"}:
                    backup.put(name, settings.state / name)
            backup.put(journal, settings.state / journal)
        replaced = _recovered(settings, receipt)
    _report(replaced, config, out)


def _state(settings: KeyHolderSettings) -> StateFolder:
    return backups.StateFolder("key holder", settings.name, settings.state, left_out={"keys", "anchor"})


def _recovered(settings: KeyHolderSettings, receipts: ReceiptFiles) -> list[str]:
    """Begin a new journal and destroy the keys of all sessions; returns the journals that it replaces."""
    texts = [line for path in receipts or () for line in read_text(path, read_handed).split()]
    replaced = keyholder_journal.recover_journal(settings.state, settings.identity, texts)
    keyholder_vault.Vault(settings.state / "keys", settings.secret.get_secret_value().encode()).keep_only(())
    return replaced


def _report(replaced: list[str], config: Path, out: Printer) -> None:
    """Print what a new journal replaces."""
    text = f"a new journal, which replaces {len(replaced)} that others may hold receipts of"
    out.done(text, replaced=replaced)
    out.next(f"parley-party keyholder serve --config {quote(str(config))}")


@key_holder_app.command("health")
def key_holder_health(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, *, out: Printer) -> None:
    """Ask the key holder that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    end_by_readiness(keyholder_settings.KeyHolderSettings, config, out)


@key_holder_app.command("config")
def key_holder_config(
    config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, explain: Explain = False, *, out: Printer
) -> None:
    """Print the settings in effect, and whether file or environment says so; secrets are hidden.

    With --explain, every setting there is with type, default and meaning.
    """
    show_settings(keyholder_settings.KeyHolderSettings, config, explain=explain, out=out)


@key_holder_app.command("check")
def key_holder_check(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, *, out: Printer) -> None:
    """Load settings, identity and, if there is a journal, the keys of all sessions; print what others must know.

    Exits with status 3 and one line on standard error if something cannot be used. Opens nothing.
    """
    with quietly():
        paillier.require_gmpy2()
        settings = keyholder_settings.KeyHolderSettings.load(config)
        n_sessions, growth = _check_keys(settings)
        facts: dict[str, object] = {
            "name": settings.name,
            "public_key": settings.identity.key,
            "key_bits": settings.key_bits,
            "learners": list(settings.pins),
            "sessions": n_sessions,
        }
        if growth is not None:
            facts["journal"] = growth.facts if out.is_json else str(growth)
    warn_unreachable(settings.outbound)
    out.result(facts, lambda: print_table([(name, as_text(value)) for name, value in facts.items()]))


@key_holder_app.command("identity")
def key_holder_identity(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, *, out: Printer) -> None:
    """Print the public key that this key holder signs with; it is made when first needed and stays.

    Give it to the learner and to every party, who pin it in [[key_holders]] and [secure_sum] as public_key.
    """
    with quietly():
        key = keyholder_settings.KeyHolderSettings.load(config).identity.key
    out.done(key, public_key=key, words=key_words.words_of(key))
    out.aside(f"words: {' '.join(key_words.words_of(key))}")


def _check_keys(settings: KeyHolderSettings) -> tuple[int, Growth | None]:
    """Load the keys of all open sessions; return how many there are, and how the journal grows if there is one.

    Raises LedgerError, OwnKeyError.
    """
    if not (settings.state / "keyholder.db").exists():
        typer.echo("parley-party: there is no journal yet: make it with parley-party keyholder init", err=True)
        return 0, None
    vault = keyholder_vault.Vault(settings.state / "keys", settings.secret.get_secret_value().encode())
    with closing(keyholder_journal.Journal(settings.state, settings.identity)) as journal:
        moduli, growth = journal.active(), journal.chain.growth()
    for n in moduli:
        vault.load(n)
    return len(moduli), growth
