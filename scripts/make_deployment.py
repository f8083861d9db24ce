"""Write the Compose file of hospitals, a learner and a key holder: as many as you say, under TLS if you say so.

    python3 scripts/make_deployment.py --parties 7 --tls --compose seven.yml
    docker compose -f seven.yml up

It needs nothing but Python. docker-compose.yml is what it writes by itself; the first start makes all else, in volumes
(`scripts/deployment/setup.py`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from shlex import quote

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # it runs as a file too, without an installation

from scripts.deployment.compose import compose_yml  # noqa: E402
from scripts.deployment.sites import HOSPITALS, MOST_PARTIES, hospitals  # noqa: E402


def main() -> None:
    """Write the file, and print how to start what it describes."""
    parser = argparse.ArgumentParser(description="Write the Compose file of hospitals, a learner and a key holder.")
    parser.add_argument(
        "--parties",
        type=int,
        default=len(HOSPITALS),
        choices=range(1, MOST_PARTIES + 1),
        metavar="N",
        help=f"how many hospitals, 1 to {MOST_PARTIES}; default: %(default)s",
    )
    parser.add_argument("--tls", action="store_true", help="TLS everywhere, with client certificates between services")
    parser.add_argument("--compose", type=Path, default=ROOT / "docker-compose.yml", help="default: %(default)s")
    options = parser.parse_args()
    file: Path = options.compose
    file.write_text(compose_yml(hospitals(options.parties), tls=options.tls), encoding="utf-8")
    named = (
        ""
        if file.resolve() == ROOT / "docker-compose.yml"
        else f" -f {quote(str(file))} --project-directory {quote(str(ROOT))}"
    )
    print(f"wrote {file}: {options.parties} parties, a key holder and a learner. To start them:")
    print(f"  docker compose{named} up")


if __name__ == "__main__":
    main()
