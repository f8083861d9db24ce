"""What root writes into a user's folder, as a command beside a container does, is that user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parley.common.storage.keys import replace_private

USER = 10_001


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes for others")
def test_root_writes_for_the_folders_owner(tmp_path: Path) -> None:
    folder, path = tmp_path / "party", tmp_path / "party" / "studies" / "loans.json"
    folder.mkdir()
    os.chown(folder, USER, USER)
    for content in (b"new", b"replaced"):
        replace_private(path, content)
        for made in (path, path.parent):
            assert (made.stat().st_uid, made.stat().st_gid) == (USER, USER)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"replaced", 0o600)
