"""``parley-learner config``, which prints settings, and ``check``, which says whether a learner would start."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.common.errors import InvalidInputError, ParleyError, UnavailableError
from parley.common.extras import require_extra
from parley.common.service.commands import ExitCode, Printer, deferred
from parley.learner.api import routes
from parley.learner.cli.options import ConfigOption, LearnerOptions

with deferred():
    from parley.common.client import party, peer
    from parley.common.secure_sum import envelope
    from parley.common.service import serve
    from parley.common.service import settings as explaining
    from parley.common.storage import growth
    from parley.learner import settings as learner_settings
    from parley.learner.api.sign_in import provider as identity
    from parley.learner.client import token
    from parley.learner.secure_sum import key_holder_client
    from parley.learner.storage import roster_store

if TYPE_CHECKING:
    from parley.learner.settings import LearnerSettings


_PATIENCE = 5.0  # seconds for which a party is tried

CHECKS = "Example: parley-learner check --config learner.toml"
"""The command's example, for its help."""
CONFIGURATIONS = "Example: parley-learner config --explain   (every setting; without it, those in effect)"
"""The command's example, for its help."""


def learner_config_command(
    config: ConfigOption = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="every setting there is: type, default, meaning; reads no file")
    ] = False,
    *,
    out: Printer,
) -> None:
    """Print the settings in effect, and whether file or environment says so; secrets are hidden."""
    if explain:
        settings = list(explaining.explain_settings(learner_settings.LearnerSettings))
        lines, rows = [f"{one.head}\n    {one.meaning}" for one in settings], [asdict(one) for one in settings]
    else:
        in_effect = list(explaining.settings_in_effect(learner_settings.LearnerSettings.load(config)))
        lines, rows = [one.line for one in in_effect], [asdict(one) for one in in_effect]
    out.result(rows, lines)


def learner_check_command(
    config: ConfigOption = None,
    *,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Check whether this learner would start, with its settings, studies, tokens and certificates, and whom it reaches.

    The command asks each party and key holder that has a URL, and the identity provider, if people sign in at one. It
    asks the learner whether those that connect themselves have, if the learner runs and a user's token is given.

    Exit status 0 if it would start and all answer; 1 if one does not answer or has not connected; 3, with one line on
    standard error, if a setting or a file cannot be used.
    """
    settings = learner_settings.LearnerSettings.load(config)
    facts, reached = _check_settings(settings), _ask_peers(settings) | _ask_provider(settings)
    if learner.token_file is not None or token.has_token():
        try:
            with learner.open() as client:
                members = client.ask(*routes.SHOW_ROSTER.to())
        except UnavailableError as error:  # it need not run yet
            typer.echo(f"parley-learner: whether members have connected is not known: {error.detail}", err=True)
            members = []
        reached |= {
            member["name"]: None if member["connected"] else "it has not connected"
            for member in members
            if member["connected"] is not None
        }
    lines = [f"{name}  {', '.join(value) if isinstance(value, list) else value}" for name, value in facts.items()]
    lines += [f"{name}: {reason or 'reached'}" for name, reason in reached.items()]
    out.result(facts | {"reached": {name: reason or "yes" for name, reason in reached.items()}}, lines)
    if any(reached.values()):
        raise typer.Exit(ExitCode.NO)


def _ask_peers(settings: LearnerSettings) -> dict[str, str | None]:
    """Ask each party and key holder that has a URL; returns by name the reason why it does not answer, or None.

    Raises InvalidInputError for a token or a certificate that cannot be read.
    """
    seconds = min(settings.deadline_seconds, _PATIENCE)

    async def ask() -> dict[str, str | None]:
        parties = [
            party.PartyClient(entry.name, peer.Line(entry), None, entry.public_key)
            for entry in settings.parties
            if entry.url
        ]
        holders = [
            key_holder_client.KeyHolderClient(entry.name, peer.Line(entry), entry.public_key)
            for entry in settings.key_holders
            if entry.url
        ]
        answers = [
            *await peer.ask_all(parties, party.PartyClient.facts, seconds),
            *await peer.ask_all(holders, key_holder_client.KeyHolderClient.facts, seconds),
        ]
        for client in (*parties, *holders):
            await client.close()
        return {
            client.name: answer.detail if isinstance(answer, ParleyError) else None
            for client, answer in zip((*parties, *holders), answers, strict=True)
        }

    import asyncio  # noqa: PLC0415 -- a second deferred `import` of one module would load it

    return asyncio.run(ask())


def _ask_provider(settings: LearnerSettings) -> dict[str, str | None]:
    """Ask the identity provider, if there is one; returns the reason why people could not sign in, or None.

    Raises InvalidInputError for a secret or an authority that cannot be read.
    """
    if settings.sign_in is None:
        return {}
    provider = identity.Provider(settings.sign_in)

    async def ask() -> str | None:
        try:
            await provider.check()
        except ParleyError as error:
            return error.detail
        finally:
            await provider.close()
        return None

    import asyncio  # noqa: PLC0415 -- as above

    return {"sign_in": asyncio.run(ask())}


def _check_settings(settings: LearnerSettings) -> dict[str, Any]:
    """Return what others should know of the learner; raises ParleyError for settings that it could not start with."""
    if settings.tls:
        serve.tls_context(settings.tls)
    if settings.tracing:
        require_extra("tracing", "settings: tracing")
    studies = learner_settings.load_studies(settings.studies)
    if settings.studies and not settings.studies.is_dir():
        raise InvalidInputError(f"studies: {settings.studies} is no directory")
    roster_store.check_agreed(studies, roster_store.RosterStore(settings.state / "roster").members.values())
    for name, path in settings.public_data.items():
        if name not in studies:
            raise InvalidInputError(f"public_data: there is no study {name!r}")
        _readable(f"public_data.{name}", path)
    for kind, peers in (("parties", settings.parties), ("key_holders", settings.key_holders)):
        for entry in peers:
            entry.token_text()
            for key in ("ca", "certificate", "key"):
                _readable(f"{kind}: {entry.name!r}: {key}", getattr(entry, key))
    if settings.joining:
        _readable("joining.authority", settings.joining.authority)
        _readable("joining.authority_key", settings.joining.authority_key)
    store = settings.state / "learner.sqlite"
    has_key = settings.identity_key is not None or (settings.state / "identity.key").exists()
    return {
        "name": settings.name,
        "public_key": envelope.public_hex(settings.signing_key()) if has_key else "made at the first start",
        "parties": [peer.name for peer in settings.parties],
        "key_holders": [peer.name for peer in settings.key_holders],
        "users": [user.name for user in settings.users],
        "studies": sorted(studies),
        "tls": "yes" if settings.tls else "no",
        **({"store": growth.store_size(store)} if store.exists() else {}),
    }


def _readable(key: str, path: Path | None) -> None:
    """Raise InvalidInputError, which names the setting, for a file that cannot be read."""
    if path is None:
        return
    try:
        with path.open("rb"):
            return
    except OSError as error:
        raise InvalidInputError(f"{key}: {path}: {error.strerror}") from None
