"""How long the help of the two commands takes, started in turns in one run.

    python scripts/benchmarks/help.py [--times 10]

One JSON line: the median milliseconds of ``parley-learner --help`` and ``parley-party --help``, and their ratio. The
goal is a ``ratio`` of at most 1.2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from statistics import median

from scripts.loopback import COMMANDS

SERVICES = ("learner", "party")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="How long the help of the two commands takes.")
    parser.add_argument("--times", type=int, default=10, help="starts of each command (default: %(default)s)")
    times: int = parser.parse_args().times
    started = [{service: milliseconds(service) for service in SERVICES} for _ in range(times + 1)][1:]
    medians = {service: median(each[service] for each in started) for service in SERVICES}
    measured = {f"{service}_ms": round(value) for service, value in medians.items()}
    print(json.dumps({"benchmark": "help"} | measured | {"ratio": round(medians["party"] / medians["learner"], 2)}))


def milliseconds(service: str) -> float:
    """How long a command's help takes, from the start of its process to its end."""
    started = time.perf_counter()
    subprocess.run([COMMANDS / f"parley-{service}", "--help"], check=True, stdout=subprocess.DEVNULL)  # noqa: S603
    return (time.perf_counter() - started) * 1000


if __name__ == "__main__":
    main()
