"""The examples of all of an owner's studies: those that are asked about are in memory.

Each study's examples are loaded apart (`parley.party.data.owner_data`), checked against what the ledger pins, and let
go when nobody has asked about them for a while, or when those of other studies need the room. They are loaded again
when they are needed. So a party of many studies takes little more memory than one of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock
from time import monotonic

import structlog

from parley.common.errors import ForbiddenError, InvalidInputError, ParleyError, UnavailableError
from parley.common.privacy.guarantee import Adjacency
from parley.common.service.http.tls import stamp_of
from parley.party.data.owner_data import Holding, load_holding, study_of
from parley.party.settings import PartySettings, Policy, StudySettings

_MEGABYTE = 10**6
_IDLE_MINUTES = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 3600.0  # seconds until a study that cannot be used is tried again: doubled
Check = Callable[[StudySettings, Holding], None]
"""Raises an error unless a study's examples are those that the ledger's answers are about."""


@dataclass(frozen=True, slots=True)
class HeldStudy:
    """A study in which the owner takes part, and what is known of its examples when they are not in memory.

    ``policy`` is the owner's for its runs; ``n_bytes`` is the memory that the examples take; ``stamp`` differs once the
    study's file has changed; ``unit`` is what counts as an example, a record or a person.
    """

    settings: StudySettings
    policy: Policy
    name: str
    digest: str
    n_examples: int
    n_bytes: int
    stamp: tuple[int, int] | None
    unit: Adjacency

    @property
    def people(self) -> str:
        """The owner's word for the people in the examples; empty for all."""
        return self.settings.people or ""

    def is_of(self, entry: StudySettings) -> bool:
        """Say whether settings name the same data for the same study."""
        mine = self.settings
        same = (mine.name, mine.study, mine.data, mine.people) == (entry.name, entry.study, entry.data, entry.people)
        return same and self.stamp == stamp_of(entry.study)


def held_study(
    entry: StudySettings, policy: Policy, holding: Holding, stamp: tuple[int, int] | None = None
) -> HeldStudy:
    """Return what is known of a study whose examples were loaded; ``policy`` is the owner's for its runs."""
    study = holding.study
    return HeldStudy(entry, policy, study.name, study.digest, holding.n_examples, holding.n_bytes, stamp, study.unit)


def _in_order(settings: PartySettings, studies: Iterable[HeldStudy]) -> dict[str, HeldStudy]:
    """Return studies by name, in the order of the settings."""
    places = {entry.study: place for place, entry in enumerate(settings.held)}
    return {held.name: held for held in sorted(studies, key=lambda held: places[held.settings.study])}


def _check_names(settings: PartySettings) -> None:
    """Raise InvalidInputError if the study that is named by its file alone has the name of another."""
    entry = settings.held[0]
    if entry.name:
        return
    try:
        name = study_of(settings, entry).name
    except ParleyError:  # loading it says so too
        return
    if name in {other.name for other in settings.studies}:
        raise InvalidInputError(f"studies: two are called {name}")


@dataclass(slots=True)
class _InMemory:
    """A study's examples, and when they were last asked about, by the monotonic clock."""

    holding: Holding
    last_asked: float


class Holdings:
    """The studies that settings name, and their examples as far as they are in memory. Any thread may ask.

    ``check`` is called when examples were loaded; ``is_current`` says by a study's name whether those that were loaded
    last are still those that the ledger pins: if not, they are loaded again. ``forget`` is called with the name of a
    study whose examples leave memory.
    """

    def __init__(
        self, check: Check, is_current: Callable[[str], bool], forget: Callable[[str], None], *, apart: bool
    ) -> None:
        self._forget = forget
        self._check, self._is_current, self._apart = check, is_current, apart
        self._settings: PartySettings | None = None
        self._loaded: dict[str, _InMemory] = {}
        self._loading = Lock()
        self._n_pins, self._again, self._pause = 0, math.inf, _FIRST_PAUSE
        self.studies: Mapping[str, HeldStudy] = {}
        """The studies that can be asked about, by their names."""
        self.unusable: Mapping[str, str] = {}
        """Why others of the settings' studies cannot be used, by their names, or their files if these are not known."""

    def take_up(self, settings: PartySettings) -> None:
        """Take up the studies of new or changed settings, and load those that are new or whose data have changed.

        A study that cannot be used is left out, and the log says why. Raises InvalidInputError for two studies of one
        name, and the first study's error if none can be used; then nothing has changed.
        """
        _check_names(settings)
        with self._loading:
            studies: dict[str, HeldStudy] = {}
            unusable: dict[str, str] = {}
            first: ParleyError | None = None
            for entry in settings.held:
                try:
                    held = self._kept(settings, entry) or self._begun(settings, entry)
                except ParleyError as error:
                    first = first or error
                    unusable[entry.label] = error.detail
                    continue
                studies[held.name] = held
            if first is not None and not studies:
                raise first
            self._settings, self.studies, self.unusable = settings, studies, unusable
            self._again, self._pause = monotonic() + _FIRST_PAUSE, 2 * _FIRST_PAUSE
            for name in [*self._loaded]:
                if name not in studies:
                    self._let_go(name)
        for name, reason in unusable.items():
            structlog.get_logger().warning("study", name=name, usable=False, reason=reason)

    @property
    def names(self) -> frozenset[str]:
        """The names of the studies in the settings, as far as they are known: also of those that cannot be used."""
        entries = self._settings.studies if self._settings else ()
        return frozenset({*self.studies, *(entry.name for entry in entries)})

    @property
    def has_unnamed(self) -> bool:
        """Whether a study of the settings cannot be used, and is not known by name."""
        named = {entry.name for entry in self._settings.studies} if self._settings else set()
        return any(name not in named for name in self.unusable)

    def open_to(self, learner: str) -> Iterator[HeldStudy]:
        """Yield the studies that a learner may ask about, in the order of the settings."""
        return (held for held in self.studies.values() if held.settings.is_open_to(learner))

    def find(self, learner: str, digest: str) -> HeldStudy:
        """Return the study with this digest. Raises ForbiddenError unless the owner takes part in it with the learner.

        A learner is told the same of a study that it may not ask about and of one that is not there.
        """
        for held in self.open_to(learner):
            if held.digest == digest:
                return held
        raise ForbiddenError("the study is not one that the owner agreed to with this learner", rule="study")

    def is_loaded(self, name: str) -> bool:
        """Say whether a study's examples are in memory."""
        return name in self._loaded

    def holding(self, name: str) -> Holding:
        """Return a study's examples, which may have to be loaded. Raises what `take_up` says of one that is unusable.

        Raises ForbiddenError if the owner has withdrawn from the study.
        """
        if (loaded := self._loaded.get(name)) is not None and self._is_current(name):
            loaded.last_asked = monotonic()
            return loaded.holding
        with self._loading:
            if (loaded := self._loaded.get(name)) is not None and self._is_current(name):
                return loaded.holding
            if (held := self.studies.get(name)) is not None and self._settings is not None:
                begun = self._begun(self._settings, held.settings)
                others = (other for other in self.studies.values() if other is not held)
                self.studies = _in_order(self._settings, [*others, begun])
            if name not in self.studies:
                raise ForbiddenError(f"the owner takes part in the study {name} no more", rule="study")
            return self._loaded[name].holding

    def tend(self, n_pins: int) -> None:
        """Let go of the examples that nobody has asked about for long, and load those again that the owner changed.

        Studies that could not be used are tried again: as soon as ``n_pins``, how often the owner has accepted data,
        grows, and otherwise after a pause that doubles up to an hour, because a database may be away for a while.
        """
        long_ago = monotonic() - 60 * self._idle_minutes
        for name, loaded in [*self._loaded.items()]:
            if loaded.last_asked < long_ago:
                self._let_go(name)
        for name in [*self.studies]:
            if not self._is_current(name):
                try:
                    self.holding(name)
                except ParleyError as error:
                    structlog.get_logger().warning("study", name=name, usable=False, reason=error.detail)
        if n_pins > self._n_pins:
            self._pause = _FIRST_PAUSE
        if self.unusable and (n_pins > self._n_pins or monotonic() >= self._again):
            self._try_again()
        self._n_pins = n_pins

    def _try_again(self) -> None:
        """Load the examples of the studies that could not be used, if they can be by now."""
        self._again, self._pause = monotonic() + self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        with self._loading:
            if (settings := self._settings) is None:
                return
            for entry in settings.held:
                if entry.label not in self.unusable:
                    continue
                try:
                    held = self._begun(settings, entry)
                except ParleyError as error:
                    self.unusable = {**self.unusable, entry.label: error.detail}
                    continue
                self.studies = _in_order(settings, [*self.studies.values(), held])
                self.unusable = {name: reason for name, reason in self.unusable.items() if name != entry.label}
                structlog.get_logger().info("study", name=held.name, usable=True)

    @property
    def _idle_minutes(self) -> float:
        """How many minutes examples stay in memory that nobody asks about."""
        set_by_owner = self._settings.shards.idle_minutes if self._settings else None
        return set_by_owner or (_IDLE_MINUTES if len(self.studies) > 1 else math.inf)

    def _kept(self, settings: PartySettings, entry: StudySettings) -> HeldStudy | None:
        """Return a study that is held already, under the present policy; None if it is new, or its data may differ."""
        held = next((held for held in self.studies.values() if held.is_of(entry)), None)
        if held is None or not self._is_current(held.name):
            return None
        return replace(held, settings=entry, policy=entry.policy.over(settings.policy))

    def _begun(self, settings: PartySettings, entry: StudySettings) -> HeldStudy:
        """Load a study's examples, check them and keep them in memory; return the study."""
        policy, stamp = entry.policy.over(settings.policy), stamp_of(entry.study)
        before = next((held for held in self.studies.values() if held.settings.study == entry.study), None)
        if before is not None:
            self._let_go(before.name)
            self._make_room(settings, before.n_bytes)
        try:
            holding = load_holding(settings, entry, apart=self._apart)
        except OSError as error:
            raise UnavailableError(f"the data of {entry.label} cannot be loaded: {error.strerror}") from None
        self._check(entry, holding)
        name = holding.study.name
        self._loaded[name] = _InMemory(holding, monotonic())
        self._make_room(settings, 0, name)
        return held_study(entry, policy, holding, stamp)

    def _let_go(self, name: str) -> None:
        """Let a study's examples go, and all that was made of them."""
        self._loaded.pop(name, None)
        self._forget(name)

    def _make_room(self, settings: PartySettings, n_bytes: int, keep: str = "") -> None:
        """Let examples go, those asked about longest ago first, until so many bytes fit beside the others."""
        room = settings.shards.megabytes * _MEGABYTE - n_bytes
        for name, _ in sorted(self._loaded.items(), key=lambda item: item[1].last_asked):
            if sum(loaded.holding.n_bytes for loaded in [*self._loaded.values()]) <= room:
                return
            if name != keep:
                self._let_go(name)
