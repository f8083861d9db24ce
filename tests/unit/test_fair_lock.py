"""Threads get the lock of a database in the order in which they asked, and what is brief in turn with what is not."""

from __future__ import annotations

import threading
import time

from parley.common.storage.sqlite import FairLock


def test_who_takes_it_again_and_again_keeps_nobody_out() -> None:
    lock, taken, over = FairLock(), [0], threading.Event()

    def take_again() -> None:
        while not over.is_set():
            with lock, lock:
                taken[0] += 1
                time.sleep(0.001)  # others ask meanwhile

    writers = [threading.Thread(target=take_again) for _ in range(3)]
    for writer in writers:
        writer.start()
    for _ in range(20):
        asked = taken[0]
        with lock:
            assert taken[0] <= asked + 2 * len(writers), "at most those that asked before, and those between two lines"
    over.set()
    for writer in writers:
        writer.join()


def test_a_brief_one_waits_for_one_or_two_of_the_others() -> None:
    lock, order = FairLock(), list[str]()

    def take(name: str) -> None:
        with lock.briefly if name.startswith("reader") else lock:
            order.append(name)

    names = ["writer 1", "writer 2", "writer 3", "reader 1", "reader 2"]
    threads = [threading.Thread(target=take, args=(name,)) for name in names]
    with lock:
        for waiting, thread in enumerate(threads, 1):
            thread.start()
            while sum(map(len, lock._lines)) < waiting:
                time.sleep(0.001)
    for thread in threads:
        thread.join()
    assert order == ["writer 1", "reader 1", "writer 2", "reader 2", "writer 3"]


def test_it_is_one_threads_at_a_time() -> None:
    lock, inside, total = FairLock(), [0], [0]

    def count() -> None:
        for _ in range(500):
            with lock, lock.briefly:
                inside[0] += 1
                assert inside[0] == 1
                total[0] += 1
                inside[0] -= 1

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == [4000]
