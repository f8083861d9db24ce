"""How much sooner two processes have a figure's points than one: Rajkumar & Agarwal's first, reduced, from nothing.

One JSON line: the seconds with ``--jobs 1`` and with ``--jobs 2``, starting the processes, drawing and all, in turn in
one run; the ratio of their medians; and whether the tables are the same to the byte. The goal is 1.7 on two idle cores;
the exit status is 1 when it is missed or the tables differ.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.figures.__main__ import main as redraw

FIGURE = "rajkumar_fig1_shares"
REPEAT = 3
GOAL = 1.7


def main() -> None:
    """Measure, and print the figures."""
    seconds: dict[int, list[float]] = {1: [], 2: []}
    tables = set()
    for _ in range(REPEAT):  # in turn, so that other work on the machine is shared alike
        for jobs, times in seconds.items():
            took, table = drawn(jobs)
            times.append(took)
            tables.add(table)
    one, two = map(statistics.median, seconds.values())
    figures = {
        "benchmark": "figures", "figure": FIGURE, "cores": os.cpu_count(), "seconds_by_one": round(one, 1),
        "seconds_by_two": round(two, 1), "speedup": round(one / two, 2), "goal": GOAL, "same_tables": len(tables) == 1,
    }  # fmt: skip
    print(json.dumps(figures))
    sys.exit(one / two < GOAL or len(tables) > 1)


def drawn(jobs: int) -> tuple[float, bytes]:
    """The seconds that a run with an empty cache takes, and its table."""
    with TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        out = Path(folder)
        start = time.perf_counter()
        redraw([FIGURE, "--quick", "--jobs", str(jobs), "--out", folder, "--reproduction", str(out)])
        return time.perf_counter() - start, (out / f"{FIGURE}.csv").read_bytes()


if __name__ == "__main__":
    main()
