"""Points are computed side by side, by processes of this machine or of a Dask cluster, and each result is kept as JSON.

A run that was killed goes on where it was: what has a file in the cache is not computed again. A file appears whole or
not at all. How many processes there are changes nothing: each point has its seeds, and one thread.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from rich.console import Console
from rich.progress import track

from scripts.figures.point import Point, computed

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of results, a JSON file each, named by the key of its point."""

    folder: Path

    def __contains__(self, point: Point) -> bool:
        return self._path(point).exists()

    def result(self, point: Point) -> Any:  # noqa: ANN401 -- any JSON value
        """Return the result of a point from the cache; raises FileNotFoundError."""
        return self._document(point)["result"]

    def seconds(self, point: Point) -> float:
        """Return the processor seconds that a point took when it was computed; raises FileNotFoundError."""
        return float(self._document(point)["seconds"])

    def _document(self, point: Point) -> dict[str, Any]:
        return json.loads(self._path(point).read_text(encoding="utf-8"))  # type: ignore[no-any-return]

    def keep(self, point: Point, result: str) -> None:
        """Write what `computed` returned beside what it is of: all of the file, or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(point)
        partial = path.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(json.dumps({"specification": point.specification, **json.loads(result)}), encoding="utf-8")
        partial.replace(path)

    def _path(self, point: Point) -> Path:
        return self.folder / f"{point.key}.json"


def complete(cache: Cache, points: Iterable[Point], executor: Executor) -> int:
    """Compute the points that the cache lacks, each once, the longest first; how many those were.

    What a point raises is raised, and points that have not begun are left; results that came before are kept.
    """
    missing = sorted((point for point in dict.fromkeys(points) if point not in cache), key=lambda point: -point.seconds)
    futures = {executor.submit(computed, point, point.key): point for point in missing}
    try:
        for future in track(as_completed(tuple(futures)), "measuring", len(futures), console=Console(stderr=True)):
            cache.keep(futures.pop(future), future.result())
    finally:
        for future, point in futures.items():
            if not future.cancel() and future.done() and not future.exception():
                cache.keep(point, future.result())
    return len(missing)


@contextmanager
def processes(jobs: int) -> Iterator[Executor]:
    """So many processes of this machine, of one thread each."""
    os.environ.update(ONE_THREAD)  # for them: this one's libraries have read theirs
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _begin) as executor:
        yield executor


@contextmanager
def dask_cluster(address: str) -> Iterator[Executor]:
    """The workers of a Dask cluster, which have this tree, its libraries and ``$PARLEY_DATA``.

    By Dask's default each has one thread.
    """
    try:
        from distributed import Client  # noqa: PLC0415 -- an extra
    except ImportError:
        sys.exit("--dask needs the extra of that name: pip install 'parley-learning[dask]'")
    with Client(address) as client:  # type: ignore[no-untyped-call]
        yield client.get_executor()


def _begin() -> None:
    """Have a process of the pool end with the one that made it, however that ends, and at Ctrl-C without a word."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)
