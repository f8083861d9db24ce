"""The files that a service touches while it is alive and ready, and the program that reads their age."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import pytest

from parley.common.errors import UnavailableError
from parley.common.service.heartbeat import ALIVE, READY, beat, heartbeat
from scripts.deployment.parley_is import FRESH, main

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("answer", "files"),
    [(None, {ALIVE, READY}), (UnavailableError("the disk is full"), {ALIVE}), ("nothing for long", {ALIVE})],
    ids=["ready", "not ready", "silent"],
)
async def test_a_service_is_alive_while_it_turns_and_ready_while_it_can_work(
    tmp_path: Path, answer: object, files: set[str]
) -> None:
    (tmp_path / READY).touch()

    async def ready() -> None:
        if isinstance(answer, Exception):
            raise answer
        if answer:
            await asyncio.sleep(60)

    await beat(tmp_path, ready, patience=0.01)
    assert names(tmp_path) == files


async def test_a_service_says_so_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise asyncio.CancelledError

    async def ready() -> None:
        pass

    monkeypatch.setattr("asyncio.sleep", pause)
    with pytest.raises(asyncio.CancelledError):
        await heartbeat(tmp_path, ready)(cast("Any", None))
    assert pauses == [10.0] * 3
    assert names(tmp_path) == {ALIVE, READY}


async def test_a_disk_that_refuses_the_files_is_seen_by_their_age(tmp_path: Path) -> None:
    await beat(tmp_path / "gone", cast("Any", None))
    assert not (tmp_path / "gone").exists()


def test_what_an_earlier_service_said_is_removed(tmp_path: Path) -> None:
    for name in (ALIVE, READY, "another"):
        (tmp_path / name).touch()
    heartbeat(tmp_path, cast("Any", None))
    assert names(tmp_path) == {"another"}


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError) as refused:
        heartbeat(tmp_path / "none", cast("Any", None))
    assert refused.value.detail == f"{tmp_path}/none cannot be written: No such file or directory"


@pytest.mark.parametrize(("age", "status"), [(0.0, 0), (FRESH - 5, 0), (FRESH + 1, 1), (-3600.0, 0)])
def test_a_file_is_believed_for_thirty_five_seconds(tmp_path: Path, age: float, status: int) -> None:
    (tmp_path / READY).touch()
    at = time.time() - age
    os.utime(tmp_path / READY, (at, at))
    assert main("ready", str(tmp_path)) == status
    assert main("alive", str(tmp_path)) == 1


def test_the_program_needs_no_package_and_says_what_it_found() -> None:
    program = ROOT / "scripts" / "deployment" / "parley_is.py"
    assert os.access(program, os.X_OK), "it is copied into the images as it is"
    asked = [sys.executable, "-IS", str(program), "no-such-state"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "not no-such-state\n", "")
