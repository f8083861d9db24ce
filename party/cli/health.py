"""``parley-party health``, and what ``parley-party keyholder health`` shares with it: for health checks."""
# ruff: noqa: PLC0415 -- help comes faster without what only commands need

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from parley.common.service.commands import Format, FormatOption, print_result, refusal_is_no
from parley.party.cli.output import DEFAULT_CONFIG, Config

if TYPE_CHECKING:
    from parley.common.service.settings import ServiceSettings


def party_health_command(config: Config = DEFAULT_CONFIG, output: FormatOption = "text") -> None:
    """Ask the party that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    from parley.party.settings import PartySettings

    end_by_readiness(PartySettings, config, output)


def end_by_readiness(kind: type[ServiceSettings], config: Path, output: Format) -> None:
    """Ask the service that runs with a settings file whether it is ready, and end the command with what it says."""
    from parley.common.client.health import ask_ready

    settings = kind.load(config)
    with refusal_is_no():
        ask_ready(settings)
    print_result(output, "ready", ready=True)
