"""Stop a key holder while it writes: a request that its learner gave up goes on in its thread, and must not crash."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from parley.common.errors import UnavailableError
from parley.party.keyholder.journal import Journal, create_journal
from tests.support.keyholder import LEARNER

STOPS = 300


@pytest.mark.slow
def test_a_journal_closes_under_a_thread_that_writes(tmp_path: Path) -> None:
    """SQLite's connection, closed by one thread while another steps a statement, ends the process with a signal."""
    create_journal(tmp_path, LEARNER)
    for stop in range(STOPS):
        journal = Journal(tmp_path, LEARNER)
        writing = Thread(target=write, args=(journal,))
        writing.start()
        time.sleep(stop % 10 * 2e-4)
        journal.close()
        writing.join()
        with pytest.raises(UnavailableError):
            journal.active()
    print(f"{STOPS} journals closed while a thread wrote: 0 crashes, all later requests refused")


def write(journal: Journal) -> None:
    """Begin one session after the other until the journal is closed."""
    with suppress(UnavailableError):
        for number in range(10_000):
            journal.add("learner", f"{number:032x}", number)
