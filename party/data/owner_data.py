"""The owner's data as a shard, loaded and checked before the service takes its first request.

A child process may read them (`parley.party.data.loader`). This process adopts the arrays that it receives, and the
child frees each array that it has sent, so that the shard is in memory once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.sparse import csr_array

from parley.common.data.loading import Loaded
from parley.common.data.shard import Shard
from parley.common.data.sparse import Matrix, SparseShard
from parley.common.data.study import Rows, Study, count_held_out
from parley.common.data.weighing import Weighing
from parley.common.errors import InvalidDataError, InvalidInputError
from parley.common.extras import require_extra
from parley.common.files.studies import read_study
from parley.common.privacy.guarantee import EXAMPLE_NAMES
from parley.common.service.child import receive_arrays
from parley.party.data.loader import Task
from parley.party.settings import Data, PartySettings, StudySettings

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What a party brings to every run: the study it agreed to, and its examples (n, d) in the study's terms.

    Everything in ``loaded`` beyond the shard is for the owner alone. ``parts`` are the rows that runs are about.
    """

    study: Study
    loaded: Loaded
    parts: Mapping[Rows, Shard] = field(init=False)

    def __post_init__(self) -> None:
        """Split the examples into those for training and those held out, without a copy; a study may hold out none."""
        parts: dict[Rows, Shard] = {"training": self.shard}
        if self.study.hold_out is not None:
            first = self.n_examples - int(count_held_out(self.n_examples, self.study.hold_out))
            parts = {"training": self.shard.examples(0, first), "held_out": self.shard.examples(first)}
        object.__setattr__(self, "parts", parts)

    @property
    def shard(self) -> Shard:
        """All examples."""
        return self.loaded.shard

    @property
    def mended(self) -> dict[str, float]:
        """The shares of values and rows that had to be mended, by what they are in words; only those above 0."""
        loaded = self.loaded
        columns = {f"values clipped in {name!r}": share for name, share in loaded.clipped.items()}
        others = {f"values of {name!r} that the study does not name": share for name, share in loaded.others.items()}
        clipped = {"values clipped in all": loaded.clipped_share, **columns}
        shares = {**clipped, **others, "rows dropped": loaded.dropped_share}
        return {mending: share for mending, share in shares.items() if share > 0}

    @property
    def n_bytes(self) -> int:
        """The memory that the examples take."""
        shard = self.shard
        of_weights = 0 if shard.weighing is None else 2 * shard.y.nbytes
        if isinstance(shard, SparseShard):
            rows = shard.rows
            return int(rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes + shard.y.nbytes + of_weights)
        return int(shard.X.nbytes + shard.y.nbytes + of_weights)

    @property
    def n_examples(self) -> int:
        """The declared, public size of the shard."""
        return int(self.shard.n_examples)


def load_holding(settings: PartySettings, held: StudySettings | None = None, *, apart: bool = False) -> Holding:
    """Read a study (the first if None) and its data, here or ``apart``, in a child process that leaves this one small.

    Raises InvalidInputError for a study that cannot be used, and InvalidDataError where the data does not fit it or has
    too few rows; both name what is wrong and never a value. MissingExtraError without the extra ``files``.
    """
    require_extra("files", "reading a party's data")
    entry = held or settings.held[0]
    study = study_of(settings, entry)
    if entry.name not in {"", study.name}:
        raise InvalidInputError(f"studies: {entry.name}: {entry.study} is the study {study.name!r}")
    loaded = load_apart(entry.data, study) if apart else load_here(entry.data, study)
    holding = Holding(study, loaded)
    if holding.n_examples < settings.policy.minimum_rows:
        examples = EXAMPLE_NAMES[study.unit]
        raise InvalidDataError(
            f"the data has fewer {examples} than policy.minimum_rows = {settings.policy.minimum_rows}"
        )
    return holding


def study_of(settings: PartySettings, entry: StudySettings) -> Study:
    """Read the study of an entry in the settings. Raises InvalidInputError for one that cannot be used."""
    return read_study(entry.study, [learner.public_key for learner in settings.learners if learner.public_key])


def load_here(data: Data, study: Study) -> Loaded:
    """Load the rows after the earlier ones as `load_source` does, in this process.

    It keeps the libraries that reading needs in memory.
    """
    from parley.common.files.examples import load_source  # noqa: PLC0415 -- pyarrow, for as long as the process lives
    from parley.common.files.tables import table_contents  # noqa: PLC0415

    loaded = load_source(data, study, clip=data.out_of_bounds == "clip", places=(data.earlier_rows, None))
    return replace(loaded, contents=table_contents(data))


def load_apart(data: Data, study: Study, places: tuple[int, int | None] | None = None) -> Loaded:
    """Load the rows after the earlier ones, or those at other ``places``, as `load_source` does, in a child process.

    Raises InvalidDataError as `load_source` does, and ParleyError if the child dies.
    """
    first, end = places or (data.earlier_rows, None)
    task = Task(study=study, source=data, clip=data.out_of_bounds == "clip", first=first, end=end)
    *rows, y, begins, weights, shares, clips, strangers, contents, notes = receive_arrays(
        "parley.party.data.loader", input_bytes=task.model_dump_json().encode()
    )
    clipped, others = (
        {name: float(share) for name, share in zip(study.table_names, column, strict=True) if share}
        for column in (clips, strangers)
    )
    whose, counts = (begins if study.person else None), (weights if study.row_weights else None)
    if study.sparse:
        matrix: Matrix = csr_array((rows[0], rows[1], rows[2]), shape=(len(y), study.n_features))
        shard: Shard = SparseShard(matrix, y, norm=study.norm, begins=whose, row_weights=counts)
    else:
        shard = Shard.adopt(rows[0], y, study.norm, Weighing.of(np.ones(len(y), np.bool_), whose, counts))
    clipped_share, dropped_share = shares.tolist()
    return Loaded(
        shard,
        clipped,
        clipped_share,
        dropped_share,
        others=others,
        notes=tuple(json.loads(notes.tobytes())),
        contents=tuple(content.tobytes() for content in contents.reshape(-1, _DIGEST_BYTES)),
    )
