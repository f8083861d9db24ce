"""Five hospitals, a key holder and a learner on this machine, to try page, commands and client on: `make hospitals`.

They run until they are interrupted, and leave nothing behind.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from parley.common.data.study import Study
from parley.learner.experiments.datasets import BIOPSIES
from scripts.demo import begin, commands, deploy, held_out, held_out_file
from scripts.loopback import processes, wait_until_ready

STUDY = Study.model_validate(
    BIOPSIES.model_dump() | {"hold_out": 0.2, "label": BIOPSIES.label.model_dump() | {"shares": (0.63, 0.37)}}
)
"""That of the demonstration, with a fifth of the rows held out to evaluate models by, and the shares of the set."""


@dataclass(frozen=True, slots=True)
class Hospitals:
    """Services that run until they are stopped: the learner's ``url``, a user's ``token``, and rows to predict for.

    ``processes`` are the services by name. ``records`` are public biopsies {feature: value} that no hospital holds,
    ``diagnoses`` their labels, ``table`` is a file of both, and ``root`` the folder of all that was made.
    """

    root: Path
    url: str
    token: str
    processes: Mapping[str, subprocess.Popen[bytes]]
    records: list[dict[str, float]]
    diagnoses: list[str]
    _running: ExitStack

    @classmethod
    def start(cls) -> Self:
        """Make settings, keys and data in a temporary folder, start all services, and wait until they are ready."""
        with ExitStack() as stack:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="parley-hospitals-")))
            deployment = deploy(root)
            for path in (*root.glob("*/data/study.json"), *root.glob("*/data/studies/*.json")):
                path.write_text(STUDY.model_dump_json(indent=2) + "\n", encoding="utf-8")
            begin(deployment, root)
            started = stack.enter_context(processes(commands(deployment), root))
            urls = {name: service.url for name, service in deployment.services.items()}
            wait_until_ready(urls, started)
            records, diagnoses = held_out(root)
            return cls(root, urls["learner"], deployment.user_token, started, records, diagnoses, stack.pop_all())

    def stop(self) -> None:
        """Stop all services, and remove their files."""
        self._running.close()

    @property
    def services(self) -> tuple[str, ...]:
        """The names of all services."""
        return tuple(self.processes)

    @property
    def table(self) -> Path:
        """The CSV file of the public biopsies and their diagnoses."""
        return held_out_file(self.root)


def main() -> None:
    """Start them, say how to reach them, and stop them at Ctrl-C."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    hospitals = None
    try:
        hospitals = Hospitals.start()
        output = f"""\
five hospitals, a key holder and a learner run on this machine until Ctrl-C
in a browser: {hospitals.url}/   and sign in with the token {hospitals.token}
in another terminal:
  export PARLEY_URL={hospitals.url} PARLEY_TOKEN={hospitals.token}
  .venv/bin/parley-learner forecast biopsies --epsilon 3 --delta 1e-5
public biopsies that no hospital holds: {hospitals.table}"""
        print(output, flush=True)
        signal.pause()
    except KeyboardInterrupt:
        print()
    finally:
        if hospitals is not None:
            hospitals.stop()
        print("nothing is left running")


if __name__ == "__main__":
    main()
