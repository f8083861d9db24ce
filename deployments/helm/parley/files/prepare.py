"""Before a service starts: its secrets as files that it alone may read, and on an empty volume the state to begin with.

A Secret is mounted readable by the pod's group, which services refuse for private keys: so they are copied to memory.
State is copied once. A volume that holds anything is left as it is, but for certificates that it lacks: an old ledger
must not take a newer one's place.
"""

import os
import sys
from pathlib import Path

UNFINISHED = ".begin"


def files_in(folder: Path) -> list[Path]:
    """List the keys of a mounted Secret, which may be absent; links to its versions begin with two dots."""
    return sorted(path for path in folder.glob("*") if path.is_file() and not path.name.startswith(".."))


def write(path: Path, content: bytes) -> None:
    """Write a file of mode 0600, on the disk when this returns."""
    with open(os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:  # noqa: PTH123 -- a mode
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def begin(source: Path, state: Path) -> None:
    """Copy what is to begin with to an empty volume; after an interruption, before which nothing has run, again."""
    held = [path for path in state.iterdir() if path.name != "lost+found"]
    if held and not any(path.suffix == UNFINISHED for path in held):
        add_certificates(source, state)
        return
    drafts = [state / f"{path.name}{UNFINISHED}" for path in files_in(source)]
    if held and not drafts:
        sys.exit(
            f"{state} was begun and not finished, and what it begins with is gone: empty the volume, and begin anew"
        )
    for path, draft in zip(files_in(source), drafts, strict=True):
        write(draft, path.read_bytes())
    mark = state / f"all{UNFINISHED}"  # until every draft has its name
    write(mark, b"")
    for draft in drafts:
        draft.replace(draft.with_suffix(""))
    mark.unlink()


def add_certificates(source: Path, state: Path) -> None:
    """Copy the certificates of further learners that a volume lacks; services renew those that it has."""
    for path in files_in(source):
        if path.suffix == ".pem" and not (state / path.name).exists():
            draft = state / f"{path.name}.draft"
            write(draft, path.read_bytes())
            draft.replace(state / path.name)


if __name__ == "__main__":
    secret, secrets, first, volume, further = map(Path, sys.argv[1:])
    for given in files_in(secret):
        write(secrets / given.name, given.read_bytes())
    for folder in sorted(further.glob("*")):  # of further learners
        (secrets / folder.name).mkdir(mode=0o700, exist_ok=True)
        for given in files_in(folder):
            write(secrets / folder.name / given.name, given.read_bytes())
    begin(first, volume)
