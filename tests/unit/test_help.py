"""Help comes at once: no command's help loads what only the commands' work needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {
    "cryptography",
    "dp_accounting",
    "fastapi",
    "httpx",
    "markdown_it",
    "numpy",
    "onnx",
    "phe",
    "pyarrow",
    "pygments",
    "scipy",
    "sklearn",
    "structlog",
}
HELP = """
import sys
from {service}.cli.main import {service}_app
try:
    {service}_app([*sys.argv[1:], "--help"])
finally:
    loaded = (name for name, module in sys.modules.items() if type(module).__name__ != "_LazyModule")
    print(*{{name.partition(".")[0] for name in loaded}}, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("service", "command"),
    [
        ("learner", []),
        ("learner", ["submit"]),
        ("party", []),
        ("party", ["keyholder", "serve"]),
        *(
            pytest.param(*each, marks=pytest.mark.slow)
            for each in (
                ("learner", ["describe"]),
                ("learner", ["export"]),
                ("learner", ["health"]),
                ("learner", ["predict"]),
                ("learner", ["simulate"]),
                ("learner", ["study", "init"]),
                ("learner", ["roster", "list"]),
                ("party", ["health"]),
                ("party", ["keyholder", "health"]),
            )
        ),
    ],
)
@pytest.mark.long
def test_help_loads_no_library_of_the_services(service: str, command: list[str]) -> None:
    child = subprocess.run(
        [sys.executable, "-c", HELP.format(service=service), *command], capture_output=True, text=True, check=True
    )
    assert "Usage" in child.stdout
    loaded = HEAVY & set(child.stderr.split())
    assert not loaded, f"parley-{service} {' '.join(command)} --help loads {', '.join(sorted(loaded))}"
