"""``parley-learner serve``: runs the learner's service."""

from __future__ import annotations

from parley.common.service.commands import deferred, without_rich
from parley.learner.cli.options import ConfigOption

with deferred():
    from parley.common.service import logs
    from parley.common.service import serve as serving
    from parley.learner import settings
    from parley.learner.api import app, membership

SERVICES = "Example: parley-learner serve --config learner/learner.toml"
"""The command's example, for its help."""


def serve_command(config: ConfigOption = None) -> None:
    """Run the learner's service, and take up every run that an earlier stop or crash interrupted."""
    with without_rich():
        service_settings = settings.LearnerSettings.load(config)
        create, renewals, serve = app.create_learner_app, membership.renewals, serving.serve
        logs.configure(service_settings.log_format)
    if service_settings.tls:
        serving.tls_context(service_settings.tls)  # refuses before the store is opened
    serve(create(service_settings), service_settings, renewals(service_settings))
