"""Five hospitals, a key holder and a learner on this machine, for a notebook to try a client on."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from scripts.demo import begin, commands, deploy, held_out
from scripts.loopback import processes, wait_until_ready


@dataclass(frozen=True, slots=True)
class Hospitals:
    """Services that run until they are stopped: the learner's ``url``, a user's ``token``, and rows to predict for.

    ``records`` are public biopsies {feature: value} that no hospital holds, and ``diagnoses`` their labels.
    """

    url: str
    token: str
    services: tuple[str, ...]
    records: list[dict[str, float]]
    diagnoses: list[str]
    _running: ExitStack

    @classmethod
    def start(cls) -> Self:
        """Make settings, keys and data in a temporary folder, start all services, and wait until they are ready."""
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-hospitals-")))
            deployment = deploy(root)
            begin(deployment, root)
            stack.enter_context(processes(commands(deployment), root))
            urls = {name: service.url for name, service in deployment.services.items()}
            wait_until_ready(urls)
            records, diagnoses = held_out(root)
            return cls(urls["learner"], deployment.user_token, tuple(urls), records, diagnoses, stack.pop_all())

    def stop(self) -> None:
        """Stop all services, and leave nothing behind."""
        self._running.close()
