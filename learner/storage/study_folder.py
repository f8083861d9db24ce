"""The studies of a learner: the JSON files of a folder, which are read again when they change, also while it serves."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, ValuesView
from pathlib import Path
from threading import Lock

import structlog

from parley.common.data.study import Study
from parley.common.errors import InvalidInputError, ParleyError
from parley.common.files.studies import read_study
from parley.common.service.http.tls import stamp_of
from parley.learner.settings import load_studies

_Stamp = tuple[int, int] | None


class StudyFolder(Mapping[str, Study]):
    """The studies by name, as the folder has them now; none without a folder. Any thread may ask.

    Where a file that is new or has changed cannot be used, the log and ``faults`` say why, and what it held before
    stays. At first, and in another folder, each must be usable: raises InvalidInputError that names the file.
    """

    def __init__(self, directory: Path | None) -> None:
        self._lock = Lock()
        self._check: Callable[[Mapping[str, Study]], None] = lambda _: None
        self.take_up(directory)

    def guard(self, check: Callable[[Mapping[str, Study]], None]) -> None:
        """Let ``check`` raise for studies, by name, that must not be served: for those here, and whenever one is read.

        Raises what it raises.
        """
        check(self)
        self._check = check

    def take_up(self, directory: Path | None) -> None:
        """Read the studies of a folder from now on."""
        stamps: Mapping[Path, _Stamp] = _stamps(directory)
        studies = load_studies(directory)
        self._check(studies)
        with self._lock:
            self._directory, self._stamps, self._studies = directory, stamps, studies
            self._files = dict(zip(stamps, studies.values(), strict=True))
            self.faults: Mapping[str, str] = {}

    def __getitem__(self, name: str) -> Study:
        return self._current()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._current())

    def __len__(self) -> int:
        return len(self._current())

    def items(self) -> ItemsView[str, Study]:
        """Return the studies of one look, by name: a file that is removed meanwhile takes none away."""
        return self._current().items()

    def values(self) -> ValuesView[Study]:
        """Return the studies of one look."""
        return self._current().values()

    def unused_change(self, name: str) -> str | None:
        """Return why the file of a study has changed and is not used, so that runs are on what it held before."""
        self._current()
        with self._lock:
            return next((self.faults.get(path.name) for path, study in self._files.items() if study.name == name), None)

    def _current(self) -> Mapping[str, Study]:
        """Return the studies, after a look at which files have changed."""
        with self._lock:
            if (stamps := _stamps(self._directory)) != self._stamps:
                self._read_changed(stamps)
            return self._studies

    def _read_changed(self, stamps: Mapping[Path, _Stamp]) -> None:
        files: dict[Path, Study] = {}
        studies: dict[str, Study] = {}
        faults: dict[str, str] = {}
        for path, stamp in stamps.items():
            study = self._files.get(path)
            if stamp != self._stamps.get(path) or path.name in self.faults:
                try:
                    read = read_study(path)
                    self._check({read.name: read})
                    study = read
                except ParleyError as error:
                    faults[path.name] = error.detail
            if study is None:
                continue
            files[path] = study
            if study.name in studies:
                faults[path.name] = f"two studies are named {study.name!r}; the second is {path}"
            else:
                studies[study.name] = study
        for file, reason in faults.items():
            structlog.get_logger().warning("study", file=file, usable=False, reason=reason)
        for name in studies.keys() - self._studies.keys():
            structlog.get_logger().info("study", name=name, usable=True)
        self._stamps, self._files, self._studies, self.faults = stamps, files, studies, faults


def find_study(studies: Mapping[str, Study], name: str) -> Study:
    """Return the study of a name; raises InvalidInputError that names the studies, and files that cannot be used."""
    if (study := studies.get(name)) is not None:
        return study
    faults = studies.faults if isinstance(studies, StudyFolder) else {}
    words = f"unknown study {name!r}; there are {', '.join(sorted(studies)) or 'none'}"
    raise InvalidInputError("; ".join([words, *faults.values()]))


def _stamps(directory: Path | None) -> dict[Path, _Stamp]:
    """Return what differs once a file has changed, by file, in order."""
    return {path: stamp_of(path) for path in sorted(directory.glob("*.json"))} if directory else {}
