"""``parley-learner health``: for the health checks of whoever runs a learner."""
# ruff: noqa: PLC0415

from __future__ import annotations

from parley.common.service.commands import FormatOption, print_result, refusal_is_no
from parley.learner.cli.options import ConfigOption

HEALTH_CHECKS = "Example: parley-learner health --config learner.toml   (as the container's health check does)"
"""How the command is used."""


def learner_health_command(config: ConfigOption = None, output: FormatOption = "text") -> None:
    """Ask the learner that runs with these settings whether it is ready, from this machine and under the same TLS.

    Exit status 0 if it is ready; 1, with the reason on standard error, if not.
    """
    from parley.common.client.health import ask_ready
    from parley.learner.settings import LearnerSettings

    settings = LearnerSettings.load(config)
    with refusal_is_no():
        ask_ready(settings)
    print_result(output, "ready", ready=True)
