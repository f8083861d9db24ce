"""The cost of loading rows that lie by person, beside the same rows each for itself.

    python -m scripts.benchmarks.person_loading [--rows 10000000]

One JSON line a kind of identifier: whole numbers, and texts. The table has six numbers and a label, in Parquet, and the
rows of 2.8 each of persons are scattered over it; some have hundreds. ``cpu_ratio`` is the processor time of a process
that loads it by person over that of one that loads it plainly, the median of pairs in turn, and ``ratio_of_least`` that
of the least of each. ``beyond_mb`` is how much more memory it takes at most. The exit status is 1 if the memory is
beyond 400 MB, or the ratio above 1.6 for whole numbers: the goals at ten million rows. Half of what is beyond a plain
load is to find where rows go, and the rest is to write them there, to places all over the shard. Texts have no such
goal: their bytes are hashed, and a column of them takes longer to read.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Person, Study
from parley.common.service.child import MEMORY, do_without_pandas
from scripts.benchmarks.loading import resident_bytes

MOST_RATIO, MOST_BEYOND = 1.6, 400
REPEAT = 7
ROWS_A_PERSON = 2.8
_PART = 2**20
_FEATURES = 6

Run = dict[str, float]
"""The processor time, bytes and persons of one load."""


def main() -> None:
    """Write the table, load it in processes of their own, and print."""
    parser = argparse.ArgumentParser(description="Measure what it takes to load rows by person.")
    parser.add_argument("--rows", type=int, default=10_000_000, help="default: %(default)s")
    parser.add_argument("--child", nargs=2, metavar=("FILE", "STUDY"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(load(*map(Path, options.child))))
        return
    with tempfile.TemporaryDirectory() as name:
        table = written(Path(name), options.rows)
        runs: dict[str | None, list[Run]] = {None: [], "number": [], "text": []}
        for kind in [*runs] * REPEAT:  # in turn, so that a neighbour's load falls on all
            runs[kind].append(child(table, kind))
        missed = [measured(kind, runs[kind], runs[None], options.rows) for kind in ("number", "text")]
    sys.exit(any(missed))


def written(folder: Path, rows: int) -> Path:
    """A table in Parquet, written some rows at a time."""
    rng, path = np.random.default_rng(1), folder / "visits.parquet"
    n_persons = max(int(rows / ROWS_A_PERSON), 1)
    names = [f"x{j}" for j in range(_FEATURES)]
    writer = None
    for start in range(0, rows, _PART):
        n = min(_PART, rows - start)
        persons = np.where(rng.random(n) < 0.001, rng.integers(0, 30, n), rng.integers(0, n_persons, n))  # noqa: PLR2004 -- a few come often
        columns = {name: rng.uniform(-1, 1, n) for name in names}
        columns |= {"y": np.where(rng.random(n) < 0.5, "no", "yes")}  # noqa: PLR2004 -- evenly
        numbers = pa.array(persons * 7919 + 10**9)
        part = pa.table({**columns, "number": numbers, "text": pa.array([f"P{number}" for number in persons.tolist()])})
        writer = writer or parquet.ParquetWriter(path, part.schema)
        writer.write_table(part)
    assert writer is not None  # noqa: S101 -- there is a row
    writer.close()
    return path


def measured(kind: str, by_person: Sequence[Run], plain: Sequence[Run], rows: int) -> bool:
    """Print what loading by person takes beside a plain load, and return whether it misses a goal."""
    cpu, plain_cpu = ([run["cpu"] for run in runs] for runs in (by_person, plain))
    ratio = statistics.median(its_cpu / its_plain for its_cpu, its_plain in zip(cpu, plain_cpu, strict=True))
    beyond = (most_memory(by_person) - most_memory(plain)) / 1e6
    figures = {
        "benchmark": "person_loading", "identifier": kind, "rows": rows, "persons": by_person[0]["persons"],
        "most_rows": by_person[0]["most_rows"], "shard_mb": round(plain[0]["size"] / 1e6),
        "plain_cpu_s": round(statistics.median(plain_cpu), 2), "cpu_s": round(statistics.median(cpu), 2),
        "cpu_ratio": round(ratio, 2), "ratio_of_least": round(min(cpu) / min(plain_cpu), 2),
        "most_ratio": MOST_RATIO if kind == "number" else None,
        "plain_peak_mb": round(most_memory(plain) / 1e6), "peak_mb": round(most_memory(by_person) / 1e6),
        "beyond_mb": round(beyond), "most_beyond_mb": MOST_BEYOND,
    }  # fmt: skip
    print(json.dumps(figures))
    return (kind == "number" and ratio > MOST_RATIO) or beyond > MOST_BEYOND


def most_memory(runs: Sequence[Run]) -> float:
    """The most bytes that a run held."""
    return max(run["peak"] for run in runs)


def child(table: Path, kind: str | None) -> Run:
    """Load a table in a process of its own, by person where a ``kind`` of identifier is named."""
    study = Study(
        name="benchmark",
        features=tuple(Feature(name=f"x{j}", lower=-1, upper=1) for j in range(_FEATURES)),
        label=Label(name="y", values=("no", "yes")),
        person=None if kind is None else Person(column=kind),
    )
    path = table.with_name(f"study-{kind}.json")
    path.write_text(study.model_dump_json())
    command = [sys.executable, "-m", "scripts.benchmarks.person_loading", "--child", str(table), str(path)]
    environment = {**MEMORY, **os.environ}  # as of the process that loads for a party
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)  # noqa: S603 -- itself
    return dict(json.loads(run.stdout))


def load(table: Path, study: Path) -> Run:
    """Load a table as a party does."""
    from parley.common.files.examples import load_examples  # noqa: PLC0415 -- counted in this process alone
    from parley.common.files.studies import read_study  # noqa: PLC0415 -- as above

    do_without_pandas()
    terms, start = read_study(study), time.process_time()
    loaded = load_examples(table, terms)
    cpu = time.process_time() - start
    persons = {} if loaded.persons is None else {"persons": loaded.persons.persons, "most_rows": loaded.persons.most}
    return {"cpu": cpu, "size": loaded.shard.X.nbytes, "peak": resident_bytes("VmHWM"), **persons}


if __name__ == "__main__":
    main()
