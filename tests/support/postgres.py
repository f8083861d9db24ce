"""A real PostgreSQL in a temporary folder, from Debian's packages, reached by a socket alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

USER = "postgres"


def find_binaries() -> Path | None:
    """The folder of initdb, the newest there is."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return programs[-1].parent if programs else Path(on_path).parent if on_path else None


@contextmanager
def running_postgres(binaries: Path) -> Iterator[str]:
    """A connection string of a server that is stopped in the end; where we are root, the user postgres runs it."""
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        folder = Path(name)
        data = folder / "data"
        if as_user:
            shutil.chown(folder, USER, USER)
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}

        def run(program: str, *arguments: str) -> None:
            command = [*as_user, str(binaries / program), *arguments]
            subprocess.run(
                command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )

        run("initdb", "-D", str(data), "-U", USER, "-A", "trust", "--no-sync")
        options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
        run("pg_ctl", "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"host={folder} user={USER} dbname=postgres"
        finally:
            run("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
