"""The owner's data as a shard, loaded and checked before the service takes its first request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from common.data.hold_out import Rows, count_held_out
from common.data.loading import Loaded
from common.data.shard import Shard
from common.data.study import Study
from common.errors import InvalidDataError
from common.files.studies import read_study
from party.data.reader import load_apart, load_here
from party.settings import PartySettings


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What a party brings to every run: the study it agreed to, and its examples (n, d) in the study's terms.

    What else was ``loaded`` is for the owner alone. ``parts`` are the rows that runs are about.
    """

    study: Study
    loaded: Loaded
    parts: Mapping[Rows, Shard] = field(init=False)

    def __post_init__(self) -> None:
        """Part the rows once and without a copy; all are for training where the study holds none out."""
        parts: dict[Rows, Shard] = {"training": self.shard}
        if self.study.hold_out is not None:
            first = self.n_examples - int(count_held_out(self.n_examples, self.study.hold_out))
            parts = {"training": self.shard.view(slice(first)), "held_out": self.shard.view(slice(first, None))}
        object.__setattr__(self, "parts", parts)

    @property
    def shard(self) -> Shard:
        """All examples."""
        return self.loaded.shard

    @property
    def mended(self) -> dict[str, float]:
        """What had to be mended, in words, and its share; nothing where nothing was."""
        loaded = self.loaded
        columns = {f"values clipped in {name!r}": share for name, share in loaded.clipped.items()}
        shares = {"values clipped in all": loaded.clipped_share, **columns, "rows dropped": loaded.dropped_share}
        return {what: share for what, share in shares.items() if share > 0}

    @property
    def n_examples(self) -> int:
        """The declared, public size of the shard."""
        return int(self.shard.n_examples)


def load_holding(settings: PartySettings, *, apart: bool = False) -> Holding:
    """Read the study and the data, here or ``apart``, in a child process that leaves this one small.

    Raises InvalidInputError for a study that cannot be used, and InvalidDataError where the data does not fit it or has
    too few rows; both name what is wrong and never a value.
    """
    study = read_study(settings.study)
    path, clip = settings.data.path, settings.data.out_of_bounds == "clip"
    loaded = load_apart(path, settings.study, study, clip=clip) if apart else load_here(path, study, clip=clip)
    holding = Holding(study, loaded)
    if holding.n_examples < settings.policy.minimum_rows:
        raise InvalidDataError(f"the data has fewer rows than policy.minimum_rows = {settings.policy.minimum_rows}")
    return holding
