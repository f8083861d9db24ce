"""The commands ``parley-party keyholder``: for whoever runs a key holder."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from party.cli.health import end_by_readiness
from party.cli.output import LogFormat, Output, OutputFormat, print_json, print_table, refusing, spelt

if TYPE_CHECKING:
    from party.keyholder.settings import KeyHolderSettings

DEFAULT_KEY_HOLDER_CONFIG = Path("keyholder.toml")
KeyHolderConfig = Annotated[
    Path, typer.Option("--config", "-c", help="The settings file; PARLEY_KEYHOLDER_* variables override it.")
]

key_holder_app = typer.Typer(
    name="keyholder",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""Run a key holder: it lets a learner see only the sum of the parties' answers.

It must be run by somebody who does not collude with the learner; a party's owner may. To begin: write keyholder.toml,
give its public key (parley-party keyholder identity) to every party and to the learner, and start it.""",
)


@key_holder_app.command("serve")
def key_holder_serve(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, output: LogFormat = None) -> None:
    """Open sums until told to stop (SIGINT or SIGTERM).

    Exits with status 2 and one line on standard error if settings, keys or journal cannot be used.
    """
    from common.service import logs
    from common.service.serve import serve as run
    from party.keyholder.app import create_key_holder_app
    from party.keyholder.settings import KeyHolderSettings

    with refusing():
        settings = KeyHolderSettings.load(config)
        if output:
            settings = settings.model_copy(update={"log_format": output.value})
        logs.configure(settings.log_format)
        run(create_key_holder_app(settings), settings)


@key_holder_app.command("health")
def key_holder_health(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG) -> None:
    """Ask the key holder that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    from party.keyholder.settings import KeyHolderSettings

    end_by_readiness(KeyHolderSettings, config)


@key_holder_app.command("check")
def key_holder_check(config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, output: Output = OutputFormat.TEXT) -> None:
    """Load settings, identity and the keys of all sessions as "serve" would, and print what others must know.

    Exits with status 2 and one line on standard error if something cannot be used. Opens nothing.
    """
    from common.secure_sum.envelope import public_hex
    from common.secure_sum.paillier import require_gmpy2
    from party.keyholder.settings import KeyHolderSettings

    with refusing():
        require_gmpy2()
        settings = KeyHolderSettings.load(config)
        facts = {
            "name": settings.name,
            "public_key": public_hex(settings.signing_key()),
            "key_bits": settings.key_bits,
            "learners": list(settings.pins),
            "sessions": _check_keys(settings),
        }
    if output is OutputFormat.JSON:
        print_json(facts)
        return
    print_table([(name, spelt(value)) for name, value in facts.items()])


@key_holder_app.command("identity")
def key_holder_identity(
    config: KeyHolderConfig = DEFAULT_KEY_HOLDER_CONFIG, output: Output = OutputFormat.TEXT
) -> None:
    """Print the public key that this key holder signs with; it is made when first needed and stays.

    Give it to the learner and to every party, who pin it in [[key_holders]] and [secure_sum] as public_key.
    """
    from common.secure_sum.envelope import public_hex
    from party.keyholder.settings import KeyHolderSettings

    with refusing():
        key = public_hex(KeyHolderSettings.load(config).signing_key())
    if output is OutputFormat.JSON:
        print_json({"public_key": key})
        return
    typer.echo(key)


def _check_keys(settings: KeyHolderSettings) -> int:
    """How many sessions are open; raises OwnKeyError where the key of one cannot be used."""
    from party.keyholder.journal import Journal
    from party.keyholder.vault import Vault

    vault = Vault(settings.state / "keys", settings.secret.get_secret_value().encode())
    with closing(Journal(settings.state)) as journal:
        moduli = journal.active()
    for n in moduli:
        vault.load(n)
    return len(moduli)
