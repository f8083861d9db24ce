"""A study: what is to be learnt, in public terms that every owner agrees on.

Columns are scaled by the study's declared bounds alone, never by statistics of private data. A feature x with bounds
(lower, upper) becomes (2x - lower - upper) / (upper - lower), in [-1, 1]; the row is divided by sqrt(d), so that it
lies in the unit ball; an intercept is folded in as (x, 1) / sqrt(2), so that it is regularised and clipped with the
rest.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from common.arrays import FloatArray
from common.data.columns import AnyLabel, Columns, Feature, RealLabel, _numbers, _scaled, _spelling
from common.data.losses import AnyLoss, LogisticLoss
from common.data.shard import Shard
from common.encoding.canonical_json import canonical_digest
from common.errors import InvalidDataError, InvalidInputError
from common.strict import Name, Strict


class Study(Strict):
    """What is to be learnt: features and a label with public bounds or values, loss, clip norm, intercept."""

    name: Name
    features: Annotated[tuple[Feature, ...], Field(min_length=1, max_length=100_000)]
    label: AnyLabel
    loss: AnyLoss = LogisticLoss()
    clip_norm: Annotated[float, Field(gt=0, le=1)] = 1.0
    intercept: bool = True

    @model_validator(mode="after")
    def _no_name_twice(self) -> Self:
        names = [*self.feature_names, self.label.name]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"columns named twice: {', '.join(twice[:5])}")
        return self

    @model_validator(mode="after")
    def _loss_fits_label(self) -> Self:
        if isinstance(self.label, RealLabel) and self.loss.kind != "squared":
            raise ValueError(f"label {self.label.name!r} is a real number: its loss must be 'squared'")
        return self

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features in order."""
        return tuple(feature.name for feature in self.features)

    @property
    def n_features(self) -> int:
        """The number of weights of a model: one a feature, and one for the intercept if there is one."""
        return len(self.features) + self.intercept

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the study's canonical JSON."""
        return canonical_digest(self.model_dump(mode="json"))

    def design(self, raw: FloatArray) -> FloatArray:
        """Raw values (..., len(features)), clipped to their bounds, as rows (..., n_features) of the unit ball."""
        lower = np.array([feature.lower for feature in self.features])
        upper = np.array([feature.upper for feature in self.features])
        scaled = _scaled(np.clip(raw, lower, upper), lower, upper) / math.sqrt(len(self.features))
        if not self.intercept:
            return np.asarray(scaled)
        return np.concatenate([scaled, np.ones((*scaled.shape[:-1], 1))], axis=-1) / math.sqrt(2)

    def shard(self, columns: Columns, *, clip: bool = False) -> Shard:
        """An owner's columns as a shard.

        Values beyond a feature's bounds are refused, or clipped to them where the owner chose ``clip``. Raises
        InvalidDataError, naming the column and never a value, when a column is missing or not numeric, a value is
        missing, not finite or beyond its bounds, a label is not one of the study's, or there is no row.
        """
        missing = [name for name in (*self.feature_names, self.label.name) if name not in columns]
        if missing:
            raise InvalidDataError(f"columns missing from the data: {', '.join(missing[:5])}")
        if len(columns[self.label.name]) == 0:
            raise InvalidDataError("the data has no row")
        raw = np.stack([_numbers(columns[feature.name], feature, clip=clip) for feature in self.features], axis=-1)
        return Shard(self.design(raw), self.labels(columns[self.label.name], clip=clip))

    def labels(self, column: npt.NDArray[np.generic], *, clip: bool = False) -> FloatArray:
        """A label column (n,) in [-1, 1], classes as -1 and +1; raises InvalidDataError for a value not the study's."""
        if isinstance(self.label, RealLabel):
            lower, upper = np.array(self.label.lower), np.array(self.label.upper)
            return _scaled(np.clip(_numbers(column, self.label, clip=clip), lower, upper), lower, upper)
        if len(self.label.values) != 2:  # noqa: PLR2004
            raise InvalidInputError(
                f"label {self.label.name!r} has {len(self.label.values)} values; two are needed here"
            )
        text = np.array([_spelling(value) for value in column.tolist()])
        negative, positive = self.label.values
        if not bool(np.isin(text, [negative, positive]).all()):
            raise InvalidDataError(f"column {self.label.name!r} holds a value that is not one of the label's")
        return np.where(text == positive, 1.0, -1.0)

    def rows(self, records: Sequence[Mapping[str, float]]) -> FloatArray:
        """Records {feature: value} as rows (n, n_features); raises InvalidInputError for a missing or unfit value."""
        for record in records:
            if missing := [name for name in self.feature_names if name not in record]:
                raise InvalidInputError(f"features missing from a record: {', '.join(missing[:5])}")
        raw = np.array([[record[name] for name in self.feature_names] for record in records], dtype=np.float64)
        raw = raw.reshape(len(records), len(self.features))
        if not bool(np.isfinite(raw).all()):
            raise InvalidInputError("feature values must be finite")
        return self.design(raw)
