"""How long the help of the two commands takes, started in turns in one run, and that of every command under them.

    python -m scripts.benchmarks.help [--times 10]

One JSON line: the median milliseconds of ``parley-learner --help`` and ``parley-party --help``, and their ratio; then
of how many commands each was asked for its help, the median, and the slowest with its milliseconds, the best of three.
The goals are a ``ratio`` of at most 1.2, and at most 600 ms for the slowest.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from typer.main import get_command

from parley.learner.cli.main import learner_app
from parley.party.cli.main import party_app
from scripts.loopback import COMMANDS

APPS = {"learner": learner_app, "party": party_app}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description="How long the help of the two commands takes.")
    parser.add_argument("--times", type=int, default=10, help="starts of each command (default: %(default)s)")
    times: int = parser.parse_args().times
    started = [{service: milliseconds(service) for service in APPS} for _ in range(times + 1)][1:]
    medians = {service: median(seconds[service] for seconds in started) for service in APPS}
    measured = {f"{service}_ms": round(value) for service, value in medians.items()}
    of_each = {
        f"parley-{service} {' '.join(words)}": min(milliseconds(service, *words) for _ in range(3))
        for service, app in APPS.items()
        for words in commands(get_command(app))
    }
    slowest = max(of_each, key=of_each.__getitem__)
    measured |= {"commands": len(of_each), "median_ms": round(median(of_each.values()))}
    measured |= {"slowest_ms": round(of_each[slowest])}
    ratio = {"ratio": round(medians["party"] / medians["learner"], 2)}
    print(json.dumps({"benchmark": "help"} | ratio | measured | {"slowest": slowest}))


def milliseconds(service: str, *words: str) -> float:
    """Return the milliseconds that a command's help takes, from the start of its process to its end."""
    command: list[str | Path] = [COMMANDS / f"parley-{service}", *words, "--help"]
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 -- our own commands
    return (time.perf_counter() - started) * 1000


def commands(command: object, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command under one."""
    for name, child in getattr(command, "commands", {}).items():
        yield (*words, name)
        yield from commands(child, (*words, name))


if __name__ == "__main__":
    main()
