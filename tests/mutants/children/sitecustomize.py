"""Python runs this when a child process of a test begins: it notes which functions the child calls, as mutmut measures.

To mutmut a function's module is the one that is imported; the module that a child runs has the name ``__main__``.
`tests/mutants/quickest.py` puts this folder on the children's path, and reads the notes.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from pathlib import Path

_MODULE = next((name for flag, name in zip(sys.orig_argv, sys.orig_argv[1:], strict=False) if flag == "-m"), "__main__")
_MUTANT = os.environ.get("MUTANT_UNDER_TEST", "")

if _MUTANT.startswith(f"{_MODULE}."):
    os.environ["MUTANT_UNDER_TEST"] = _MUTANT.replace(_MODULE, "__main__", 1)

if _MUTANT == "stats" and "PARLEY_MUTANTS" in os.environ:
    from multiprocessing import util

    from mutmut.configuration import config
    from mutmut.state import state

    mutants, here = Path(os.environ["PARLEY_MUTANTS"]), Path.cwd()
    os.chdir(mutants)
    config()  # reads pyproject.toml
    os.chdir(here)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # by default the notes would be lost

    @atexit.register
    def note_calls() -> None:
        """Add what this process has called to what the test's processes have."""
        with (mutants / "called").open("a") as file:
            file.writelines(f"{name.replace('__main__', _MODULE, 1)}\n" for name in state()._stats)

    util.register_after_fork(note_calls, lambda note: util.Finalize(None, note, exitpriority=0))  # these skip atexit
