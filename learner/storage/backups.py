"""What a learner's backup holds, and how it is brought back.

A learner that is set back asks parties and key holders for what they have answered already: they give the same answers
at no cost, or refuse. Three things in a backup may claim too much. They are held back, or the operator is shown them:

- Receipts. Later ones may have been lost, so those of the backup are given to nobody (`RunStore.copied`).
- Invitations. One that was used since would work a second time: none is put back.
- The roster. A member that was removed since is there again, and a token that was rotated since counts again: the
  operator is shown who the members are.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from parley.common.errors import ConflictError, InvalidInputError, NotFoundError
from parley.common.storage.backups import ELSEWHERE, Backup, StateFolder
from parley.learner.storage.run_store import RunStore

if TYPE_CHECKING:
    from parley.learner.settings import LearnerSettings

STORE = "learner.sqlite"
_INVITED, _MEMBERS = "roster/invited/", "roster/members/"


@dataclass(frozen=True, slots=True)
class BroughtBack:
    """What a learner has again: runs that go on when it starts, members; and the invitations that it has no more."""

    unfinished: tuple[str, ...]
    members: tuple[str, ...]
    invitations: tuple[str, ...]


def learner_state(settings: LearnerSettings) -> StateFolder:
    """Return what a learner keeps: its state, and its authority's files, which may lie elsewhere."""
    return StateFolder("learner", settings.name, settings.state, elsewhere=_authority(settings))


def check_has_runs(settings: LearnerSettings) -> None:
    """Raise NotFoundError where no learner has written to the state folder."""
    if not (settings.state / STORE).exists():
        raise NotFoundError(f"there is no learner's state in {settings.state}")


def bring_back(settings: LearnerSettings, backup: Backup) -> BroughtBack:
    """Put a backup into an empty state; its database comes last, so that an interrupted restore can be repeated.

    Raises ConflictError where there is a database, or another file in the place of one of the backup's.
    """
    if (settings.state / STORE).exists():
        raise ConflictError(f"there is a learner's state in {settings.state}: a backup goes into an empty one")
    names = backup.paths()
    if STORE not in names:
        raise InvalidInputError(f"the backup has no {STORE}")
    with closing(RunStore(backup.folder / STORE)) as store:  # which also migrates it
        store.mark_copied()
        unfinished = tuple(store.unfinished())
    places = {f"{ELSEWHERE}/{name}": path for name, path in _authority_places(settings).items()}
    for name in names:
        is_elsewhere = name.startswith(f"{ELSEWHERE}/")
        if name != STORE and not name.startswith(_INVITED) and (name in places or not is_elsewhere):
            backup.put(name, places.get(name, settings.state / name))
    backup.put(STORE, settings.state / STORE)
    return BroughtBack(unfinished, _stems(names, _MEMBERS), _stems(names, _INVITED))


def _authority_places(settings: LearnerSettings) -> dict[str, Path]:
    """Return where the settings have the authority's certificate and key, by their names in a backup."""
    joining = settings.joining
    places = {"authority.pem": joining and joining.authority, "authority.key": joining and joining.authority_key}
    return {name: path for name, path in places.items() if path}


def _authority(settings: LearnerSettings) -> dict[str, Path]:
    """Return the authority's files that lie outside of the state."""
    state = settings.state.resolve()
    return {
        name: path
        for name, path in _authority_places(settings).items()
        if path.exists() and not path.resolve().is_relative_to(state)
    }


def _stems(names: list[str], beneath: str) -> tuple[str, ...]:
    return tuple(PurePosixPath(name).stem for name in names if name.startswith(beneath))
