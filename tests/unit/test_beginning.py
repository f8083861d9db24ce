"""A ledger begins wholly or not at all, wherever its beginning is killed or finds no room."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest

from parley.common.errors import LedgerError, UnavailableError
from parley.common.privacy.account import Account, Cost
from parley.common.secure_sum.session import Identity
from parley.common.storage import chain
from parley.common.storage.chain import Chain, has_begun
from parley.party.keyholder.journal import create_journal, recover_journal
from parley.party.ledger.ledger import Ledger, check_exists, create_ledger
from parley.party.ledger.recovery import recover
from tests.support.interrupting import KILLED, ended_before
from tests.support.ledgers import KEY
from tests.support.nightly import repeats

pytestmark = pytest.mark.long

ME = Identity("party", KEY)
LIMIT = Account(1, 0, composition="basic")
STRIDE = repeats(3, 1)
"""By so many steps the next kill is later."""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_beginning_has_begun_nothing_or_all(tmp_path: Path) -> None:
    begun, ended = list[bool](), KILLED
    while ended == KILLED:
        step = STRIDE * len(begun) + 1
        ended = ended_before(step, partial(create_ledger, tmp_path / str(step), ME, "replace_one"))
        begun.append(has_begun(tmp_path / str(step) / "ledger"))
        if not begun[-1]:
            with pytest.raises(LedgerError, match="there is no ledger"):
                check_exists(tmp_path / str(step))
            create_ledger(tmp_path / str(step), ME, "replace_one")
        Ledger(tmp_path / str(step), ME, LIMIT).close()
        with pytest.raises(LedgerError, match="already"):
            create_ledger(tmp_path / str(step), ME, "replace_one")
    assert begun == sorted(begun), "once it has begun it stays so"
    assert 10 < STRIDE * begun.count(False) < STRIDE * len(begun) - 3


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_killed_replacement_leaves_the_old_ledger_or_the_new_one_that_records_it(tmp_path: Path) -> None:
    create_ledger(tmp_path / "old", ME, "replace_one")
    spent, told, ended = Cost(7, 0), list[bool](), KILLED
    while ended == KILLED:
        directory = tmp_path / str(len(told))
        shutil.copytree(tmp_path / "old", directory)
        ended = ended_before(
            STRIDE * len(told) + 1,
            partial(create_ledger, directory, ME, "replace_one", costs={"": spent}, recovered={}),
        )
        check_exists(directory)
        with Ledger(directory, ME, LIMIT) as store:
            told.append(store.account().spent == spent)
        aside = sorted(path.name for path in directory.glob("replaced-*/*"))
        assert aside == (["ledger.db", "ledger.head"] if told[-1] else [])
    assert told == sorted(told)
    assert 10 < STRIDE * told.count(False) < STRIDE * len(told) - 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_the_receipts_shown_to_a_killed_recovery_are_charged_by_the_next(tmp_path: Path) -> None:
    create_ledger(tmp_path / "old", ME, "replace_one", costs={"": Cost(7, 0)}, recovered={})
    ended, steps = KILLED, count(1, STRIDE)
    while ended == KILLED:
        step = next(steps)
        directory = tmp_path / str(step)
        shutil.copytree(tmp_path / "old", directory)
        ended = ended_before(step, partial(recover, directory, ME, LIMIT, [], []))
        assert recover(directory, ME, LIMIT, [], []).costs[""] == Cost(7, 0), step


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_journal_that_a_killed_recovery_replaced_is_reported_by_the_next(tmp_path: Path) -> None:
    create_journal(tmp_path / "old", ME)
    shutil.copytree(tmp_path / "old", tmp_path / "whole")
    (first,) = recover_journal(tmp_path / "whole", ME)
    ended, steps = KILLED, count(1, STRIDE)
    while ended == KILLED:
        step = next(steps)
        directory = tmp_path / str(step)
        shutil.copytree(tmp_path / "old", directory)
        ended = ended_before(step, partial(recover_journal, directory, ME))
        assert first in recover_journal(directory, ME), step


def logged(close: Callable[[Chain], None]) -> Callable[[Chain], None]:
    """To close a chain where there is no room to move what was logged into the database."""

    def close_and_leave(chain: Chain) -> None:
        close(chain)
        chain._database.path.with_suffix(".db-wal").touch()

    return close_and_leave


def test_a_beginning_without_room_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path) -> NoReturn:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(chain, "Chain", lambda stem, *_: full(stem))
        with pytest.raises(UnavailableError, match="the ledger cannot be written: No space left on device"):
            create_ledger(tmp_path, ME, "replace_one")
    assert not list(tmp_path.iterdir())
    with monkeypatch.context() as patched:
        patched.setattr(Chain, "close", logged(Chain.close))
        with pytest.raises(UnavailableError, match="the ledger cannot be written: its disk is full"):
            create_ledger(tmp_path, ME, "replace_one")
    assert not list(tmp_path.iterdir())
    create_ledger(tmp_path, ME, "replace_one")
    with monkeypatch.context() as patched:
        patched.setattr(chain, "Chain", lambda stem, *_: full(stem))
        with pytest.raises(UnavailableError):
            create_ledger(tmp_path, ME, "replace_one", costs={"": Cost(1, 0)}, recovered={})
    Ledger(tmp_path, ME, LIMIT).close()
    assert sorted(path.name for path in tmp_path.iterdir() if "-" not in path.name) == ["ledger.db", "ledger.head"]


def test_a_ledger_is_in_a_folder_that_is_shut_to_others(tmp_path: Path) -> None:
    create_ledger(tmp_path / "deep" / "state", ME, "replace_one")
    assert (tmp_path / "deep" / "state").stat().st_mode & 0o777 == 0o700


def test_a_beginning_that_cannot_be_ended_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(_path: Path) -> NoReturn:
        raise OSError(30, "Read-only file system")

    (tmp_path / ".ledger.written").mkdir()
    monkeypatch.setattr(chain, "locked", read_only)
    with pytest.raises(UnavailableError, match=r"ledger cannot be written: Read-only file system$"):
        has_begun(tmp_path / "ledger")
