"""Processes that write to one chain and move its log into the database at once lose nothing and wait for each other."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from parley.common.storage.chain import Chain, chain_schema

KIND = chain_schema("log of tests", 0x7E57)
WRITERS, WRITES, DOOMED = 5, 60, 3


def opened(directory: Path) -> Chain:
    return Chain(directory / "log", KIND, lambda _number, _record: None)


def write(directory: Path, writer: int) -> int:
    """Append records, look whether there is room, and open the files again now and then; how many were appended."""
    rng, written = random.Random(writer), 0
    while written < WRITES:
        chain = opened(directory)
        with chain._database.reading() as connection:
            connection.execute("PRAGMA wal_autocheckpoint = 4")  # so that every few commits start the log again
        for _ in range(min(rng.randint(1, 20), WRITES - written)):
            with chain.transaction() as appending:
                appending.append({"writer": writer, "written": written}, {"x": rng.randbytes(rng.randint(1, 20_000))})
            written += 1
            if rng.random() < 0.2:
                chain.probe(0)
        chain.close()
    return written


def die(directory: Path, number: int) -> None:
    """Append a record, and be killed within the next transaction."""
    chain = opened(directory)
    with chain.transaction() as appending:
        appending.append({"doomed": number})
    with chain.transaction() as appending:
        appending.append({"never": number}, {"x": bytes(10**6)})
        os.kill(os.getpid(), signal.SIGKILL)


def test_processes_that_write_and_move_the_log_at_once(tmp_path: Path) -> None:
    opened(tmp_path).close()
    context = multiprocessing.get_context("forkserver")
    doomed = [context.Process(target=die, args=(tmp_path, number)) for number in range(DOOMED)]
    with context.Pool(WRITERS) as pool:
        written = pool.starmap_async(write, [(tmp_path, number) for number in range(WRITERS)], chunksize=1)
        for process in doomed:
            process.start()
        for process in doomed:
            process.join()
        appended = written.get()
    with closing(sqlite3.connect(tmp_path / "log.db")) as connection:
        verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
    chain = opened(tmp_path)
    n_records = sum(1 for number, _ in chain.records() if chain.record(number))
    chain.close()
    print(
        f"{WRITERS} processes of {WRITES} writes each, {DOOMED} killed in a transaction: {n_records} records, "
        f"integrity_check says {verdict}"
    )
    assert (appended, n_records, verdict) == ([WRITES] * WRITERS, WRITERS * WRITES + DOOMED, "ok")
