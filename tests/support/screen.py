"""Commands on a terminal, as a person sees them."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
from contextlib import suppress

_TOOL = "import sys; from {tool}.cli.main import {tool}_app as app; app(sys.argv[1:], prog_name='parley-{tool}')"


def seen_on_a_terminal(tool: str, *arguments: str, columns: int = 80, **env: str) -> str:
    """All that ``parley-learner`` or ``parley-party`` writes to a terminal of so many columns, with these variables."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    environment = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}
    }
    process = subprocess.Popen(
        [sys.executable, "-c", _TOOL.format(tool=tool), *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm-256color"} | env,
    )
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # EIO: the last who had the other end has closed it
        while chunk := os.read(ours, 4096):
            printed += chunk
    os.close(ours)
    process.wait()
    return printed.decode().replace("\r\n", "\n")
