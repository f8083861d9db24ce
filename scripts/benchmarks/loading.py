"""The cost of loading a party's table: memory beside the shard's, and processor time beside pyarrow's alone.

    python -m scripts.benchmarks.loading [--rows 1000000] [--features 50]

One JSON line a kind of file, alone and as the table of a query; one query sorts and some join two files: features
and their labels, or halves of the features. ``peak_to_X`` is the largest resident memory of a process that loads it,
interpreter and libraries counted, as a multiple of the design matrix; ``beyond_base_to_X`` is the same without what the
process takes before it loads, with its libraries in memory; ``cpu_s`` its processor time in loading, beside
``floor_s``, that of a process in which pyarrow reads the same files by batches into nothing, and the ratio of the two.

The goal at 1,000,000 rows is a peak of 1.5; the exit status is 1 when a line misses it, with one exception: a query
that sorts all rows holds them once more. (So it is where two Parquet files of half the features each are joined, which
takes 1.6: of all their columns a page is in memory beside the half that DuckDB holds.) DuckDB would spill to the disk
in the clear. Its `temp_file_encryption` refuses without the extension httpfs, which is not in its package, and with
`force_mbedtls_unsafe` it writes what it itself calls not securely encrypted (`tests/unit/test_loading.py` tries it). So
these keep to the goal only where the owner names a folder on an encrypted disk, `data.spill`: the lines with
``spills``. A smaller table leaves more of the peak to libraries.

The lines ``apart`` are about a party's service, which has a child process load: ``together_to_X`` is the most that both
hold at one time, what they share counted once, with ``base_mb`` of the service's process before.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.files.sources import TableAt
from parley.common.service.child import MEMORY

GOAL = 1.5
REPEAT = 3
QUERY, SORTED = "SELECT * FROM t", "SELECT * FROM t ORDER BY x0"
JOINED = "SELECT t.*, u.* EXCLUDE (id) FROM t JOIN u USING (id)"


def main() -> None:
    """Write the files, load each in processes of their own, and print."""
    parser = argparse.ArgumentParser(description="Measure memory and time of loading a table.")
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: %(default)s")
    parser.add_argument("--features", type=int, default=50, help="default: %(default)s")
    parser.add_argument(
        "--child", nargs=5, metavar=("WHAT", "FILES", "STUDY", "QUERY", "SPILL"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    if options.child:
        kind, table_path, study, query, spill = options.child
        files = table_path.split(os.pathsep)
        if kind == "floor":
            print(json.dumps(floor(files)))
        else:
            print(json.dumps((load_apart if kind == "apart" else load)(files, Path(study), query, spill)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        *files, features, labels, left_path, right_path = written(folder, options.rows, options.features)
        peaks = [measured([path], options.rows) for path in files]
        peaks += [measured([path], options.rows, QUERY) for path in files]
        peaks += [measured(paths, options.rows, JOINED) for paths in ([features, labels], [left_path, right_path])]
        measured(files[1:], options.rows, SORTED)
        peaks += [measured(files[1:], options.rows, SORTED, spill=folder)]
        for path, query in itertools.product(files, ["", QUERY]):
            measured_apart(path, options.rows, query)
    sys.exit(max(peaks) > GOAL)


def written(folder: Path, rows: int, features: int) -> list[Path]:
    """A table of numbers and a label of two values, and its study.

    In a file of each kind; as features and labels; and as halves of the features.
    """
    rng = np.random.default_rng(1)
    columns = {f"x{j}": rng.uniform(-1, 1, rows) for j in range(features)}
    names, half = list(columns), features // 2
    labels = np.where(rng.random(rows) < 0.5, "no", "yes")  # noqa: PLR2004 -- evenly
    table = pa.table({**columns, "y": labels, "id": np.arange(rows)})
    study = Study(
        name="benchmark",
        features=tuple(Feature(name=name, lower=-1, upper=1) for name in columns),
        label=Label(name="y", values=("no", "yes")),
    )
    (folder / "study.json").write_text(study.model_dump_json())
    files = {
        "data.csv": [*names, "y"], "data.parquet": [*names, "y"],
        "features.parquet": ["id", *names], "labels.csv": ["id", "y"],
        "left.parquet": ["id", *names[:half]], "right.csv": ["id", *names[half:], "y"],
    }  # fmt: skip
    for name, picked in files.items():
        (csv.write_csv if name.endswith("csv") else parquet.write_table)(table.select(picked), folder / name)
    return [folder / name for name in files]


def measured(paths: Sequence[Path], rows: int, query: str = "", spill: Path | None = None) -> float:
    """Print a kind of source, the least processor times of a few; give the peak, as multiple of the matrix."""
    loads = [child("load", paths, query, spill) for _ in range(REPEAT)]
    floors = [child("floor", paths, query, spill) for _ in range(REPEAT)]
    peak = max(one["peak"] for one in loads) / loads[0]["size"]
    beyond = max(one["peak"] - one["base"] for one in loads) / loads[0]["size"]
    cpu, bare = (min(one["cpu"] for one in runs) for runs in (loads, floors))
    figures = {
        "benchmark": "loading", "kind": " and ".join(path.suffix[1:] for path in paths),
        "query": query, "spills": spill is not None, "rows": rows,
        "X_mb": round(loads[0]["size"] / 1e6),
        "peak_to_X": round(peak, 2), "beyond_base_to_X": round(beyond, 2), "goal": GOAL,
        "cpu_s": round(cpu, 2), "floor_s": round(bare, 2),
        "ratio_to_floor": round(cpu / bare, 2),
    }  # fmt: skip
    print(json.dumps(figures))
    return peak


def measured_apart(path: Path, rows: int, query: str) -> None:
    """Print what a party's service and the process that loads for it hold together."""
    runs = [child("apart", [path], query, None) for _ in range(REPEAT)]
    figures = {
        "benchmark": "loading", "apart": True, "kind": path.suffix[1:], "query": query, "rows": rows,
        "base_mb": round(runs[0]["base"] / 1e6),
        "together_to_X": round(max(run["peak"] for run in runs) / runs[0]["size"], 2),
    }  # fmt: skip
    print(json.dumps(figures))


def child(kind: str, paths: Sequence[Path], query: str, spill: Path | None) -> dict[str, float]:
    """Run a case in a separate process, and return its figures."""
    files = os.pathsep.join(map(str, paths))
    arguments = [kind, files, str(paths[0].with_name("study.json")), query, str(spill or "")]
    command = [sys.executable, "-m", "scripts.benchmarks.loading", "--child", *arguments]
    environment = {**MEMORY, **os.environ} if kind == "load" else None  # as of the process that loads for a party
    run = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)  # noqa: S603 -- itself
    figures: dict[str, float] = json.loads(run.stdout)
    return figures


def named(files: Sequence[str]) -> dict[str, TableAt]:
    """Return the tables of a query by name."""
    return dict(zip("tu", files, strict=False))


def load(files: Sequence[str], study: Path, query: str, spill: str) -> dict[str, float]:
    """Load a table as a party does."""
    from parley.common.files.examples import load_source  # noqa: PLC0415 -- counted in this process alone
    from parley.common.files.sources import DataSource, Spill  # noqa: PLC0415 -- as above
    from parley.common.files.studies import read_study  # noqa: PLC0415 -- as above

    if query:
        import parley.common.files.query  # noqa: F401, PLC0415 -- DuckDB is part of the base
    base, terms, start = resident_bytes("VmRSS"), read_study(study), time.process_time()
    where = Spill(folder=Path(spill)) if spill else None
    data = DataSource(source=query, tables=named(files), spill=where) if query else DataSource(source=files[0])
    shard = load_source(data, terms).shard
    return {"cpu": time.process_time() - start, "size": shard.X.nbytes, "peak": resident_bytes("VmHWM"), "base": base}


def load_apart(files: Sequence[str], study: Path, query: str, _: str) -> dict[str, float]:
    """Have a child load, as a party's service does, and look every 10 ms at what both hold."""
    from parley.common.files.studies import read_study  # noqa: PLC0415 -- counted in this process alone
    from parley.party.data import owner_data  # noqa: PLC0415 -- as above
    from parley.party.settings import Data  # noqa: PLC0415 -- as above

    data = Data(source=query, tables=named(files)) if query else Data(source=files[0])
    terms, base, peak, done = read_study(study), resident_bytes("VmRSS"), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, together_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    shard = owner_data.load_apart(data, terms).shard
    done.set()
    watcher.join()
    return {"size": shard.X.nbytes, "peak": peak, "base": base}


def together_bytes() -> int:
    """The memory of this process and its children now; shared memory counts once."""
    size = 0
    for process in ["self", *Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()]:
        with suppress(OSError):  # it has ended meanwhile
            lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii").splitlines()
            size += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return size


def floor(files: Sequence[str]) -> dict[str, float]:
    """Let pyarrow read the files by batches, and drop them."""
    start, rows = time.process_time(), 0
    for path in files:
        if path.endswith(".csv"):
            with csv.open_csv(path, csv.ReadOptions(use_threads=False)) as batches:
                rows += sum(batch.num_rows for batch in batches)
        else:
            with parquet.ParquetFile(path, pre_buffer=False) as file:
                rows += sum(batch.num_rows for batch in file.iter_batches(use_threads=False))
    return {"cpu": time.process_time() - start, "rows": rows}


def resident_bytes(which: str) -> int:
    """Resident memory of this process: VmRSS now, VmHWM at most; getrusage's may be of the process that forked it."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line for line in status if line.startswith(which)).split()[1]) * 1024


if __name__ == "__main__":
    main()
