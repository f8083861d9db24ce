"""A study: what is to be learnt, in public terms that every owner agrees on.

Columns are scaled by the study's declared bounds and values alone, never by statistics of private data:
`common.data.layout` says how a row becomes one of the unit ball, `common.data.loading` how a table becomes a shard.

    {"format": "parley-study-2", "name": "loans", "missing": "drop",
     "features": [{"name": "age", "lower": 17, "upper": 90},
                  {"name": "work", "values": ["private", "state"], "other": true}],
     "label": {"name": "repaid", "values": ["no", "yes"]}}
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from common.arrays import FloatArray
from common.data.cells import MISSING, UNKNOWN, as_codes, as_numbers
from common.data.columns import AnyFeature, AnyLabel, Category, Columns, Feature, Label, Missing, missing_policy
from common.data.layout import Layout
from common.data.loading import BLOCK_ROWS, Loaded, Loading
from common.data.losses import AnyLoss, default_loss
from common.data.shard import Shard
from common.encoding.canonical_json import canonical_digest
from common.errors import InvalidInputError
from common.learning.losses import Loss
from common.strict import Name, Strict

Kind = Literal["binary", "multiclass", "regression"]

_MOST_COLUMNS = 100_000


class Study(Strict):
    """What is to be learnt: features and a label with public bounds or values, loss, clip norm, intercept.

    Without a ``loss`` it is the label's own: logistic for two classes, softmax for more, squared for a real number.
    ``row_norm`` is a public bound of the norm of rows before they are divided by it, where it is smaller than the one
    that all rows keep; rows beyond it are projected.
    """

    format: Literal["parley-study-2"] = "parley-study-2"
    name: Name
    features: Annotated[tuple[AnyFeature, ...], Field(min_length=1, max_length=_MOST_COLUMNS)]
    label: AnyLabel
    loss: AnyLoss = Field(default_factory=lambda read: default_loss(read.get("label")))
    clip_norm: Annotated[float, Field(gt=0, le=math.sqrt(2))] = 1.0
    intercept: bool = True
    missing: Missing = "refuse"
    row_norm: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @model_validator(mode="after")
    def _columns_fit(self) -> Self:
        names = [*self.feature_names, self.label.name]
        if twice := [name for name, count in Counter(names).items() if count > 1]:
            raise ValueError(f"columns named twice: {', '.join(twice[:5])}")
        if self.n_features > _MOST_COLUMNS + 1:
            raise ValueError(f"the features make {self.n_features} columns; at most {_MOST_COLUMNS} are possible")
        filled = [each for each in self.features if missing_policy(each, self.missing) == "value"]
        if unfilled := [each.name for each in filled if each.fill is None]:
            raise ValueError(f'missing = "value" needs a fill for each feature; none for {", ".join(unfilled[:5])}')
        return self

    @model_validator(mode="after")
    def _loss_fits(self) -> Self:
        kind, classes = self.loss.kind, self.n_classes
        if not classes and kind != "squared":
            raise ValueError(f"label {self.label.name!r} is a real number: its loss must be 'squared'")
        if classes > 2 and kind != "softmax":  # noqa: PLR2004
            raise ValueError(f"label {self.label.name!r} has {classes} values: its loss must be 'softmax'")
        if self.clip_norm > 1 and kind != "softmax":
            raise ValueError(f"clip_norm must be at most 1 for the loss {kind!r}, not {self.clip_norm:g}")
        return self

    @property
    def kind(self) -> Kind:
        """What is predicted: one of two classes, one of more, or a real number."""
        return "regression" if not self.n_classes else "binary" if self.n_classes == 2 else "multiclass"  # noqa: PLR2004

    @property
    def n_classes(self) -> int:
        """The number K of classes; 0 of a real label."""
        return len(self.label.values) if isinstance(self.label, Label) else 0

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the features in order: the columns of an owner's table."""
        return tuple(feature.name for feature in self.features)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of the design in order, such as ``workclass=Private``; the intercept last."""
        names = tuple(name for feature in self.features for name in feature.column_names)
        return (*names, "intercept") if self.intercept else names

    @property
    def n_features(self) -> int:
        """The number of columns of the design, d: one a numeric feature, one a value of a category, the intercept."""
        widths = (len(each.values) + each.other if isinstance(each, Category) else 1 for each in self.features)
        return sum(widths) + self.intercept

    @property
    def text_names(self) -> frozenset[str]:
        """The names of the columns whose values are told apart by their spelling: categories, a label of classes."""
        label = (self.label,) if isinstance(self.label, Label) else ()
        return frozenset(each.name for each in (*self.features, *label) if not isinstance(each, Feature))

    @property
    def layout(self) -> Layout:
        """Where each feature stands in the design; made anew each time."""
        return Layout.of(self.features, self.missing, self.row_norm, intercept=self.intercept)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the study's canonical JSON."""
        return canonical_digest(self.model_dump(mode="json"))

    def build_loss(self) -> Loss:
        """The loss, of as many scores as it needs for the label's classes."""
        return self.loss.build(self.n_classes)

    def loading(self, n_rows: int, *, clip: bool = False) -> Loading:
        """An empty shard for at most ``n_rows`` rows, to be filled in blocks."""
        return Loading(self.layout, self.label, self.missing, n_rows, clip=clip)

    def load(self, columns: Columns, *, clip: bool = False) -> Loaded:
        """An owner's columns, (n,) each, as a shard, and what was mended.

        Values beyond a feature's bounds are refused, or clipped to them where the owner chose ``clip``. Raises
        InvalidDataError, naming each column that does not fit and never a value.
        """
        names = [name for name in (*self.feature_names, self.label.name) if name in columns]
        n_rows = max((len(columns[name]) for name in names), default=0)
        loading = self.loading(n_rows, clip=clip)
        loading.expect(names)
        for start in range(0, max(n_rows, 1), BLOCK_ROWS):
            loading.add(start, {name: columns[name][start : start + BLOCK_ROWS] for name in names})
        return loading.finish(n_rows)

    def shard(self, columns: Columns, *, clip: bool = False) -> Shard:
        """An owner's columns as a shard; raises what `load` raises."""
        return self.load(columns, clip=clip).shard

    def rows(self, records: Sequence[Mapping[str, Any]]) -> FloatArray:
        """Records {feature: number, text or None} as rows (n, n_features) of the design, clipped to the bounds.

        Raises InvalidInputError that names the record and the feature where a value is missing and none stands in, is
        no number, or is not one of the feature's.
        """
        columns: dict[str, npt.NDArray[np.generic]] = {}
        for feature in self.features:
            cells = np.empty(len(records), dtype=object)
            cells[:] = [record.get(feature.name) for record in records]
            self._check_cells(feature, cells)
            columns[feature.name] = cells
        loading = self.loading(len(records), clip=True)
        loading.add(0, columns)
        return Shard(loading.design(), np.ones(len(records))).X

    def _check_cells(self, feature: Feature | Category, cells: npt.NDArray[np.object_]) -> None:
        """Raise InvalidInputError for the first cell that the study's rules have no place for."""
        if isinstance(feature, Category):
            codes = as_codes(cells, feature.codes, len(feature.values) if feature.other else None)
            empty, strange, words = codes == MISSING, codes == UNKNOWN, "is not one of its values"
        else:
            values, bad = as_numbers(cells)
            strange, words = np.zeros(len(cells), dtype=np.bool_) if bad is None else bad, "is not a number"
            empty = np.isnan(values) & ~strange
        if missing_policy(feature, self.missing) != "value" and empty.any():
            raise InvalidInputError(f"record {int(empty.argmax())}: feature {feature.name!r} is missing")
        if strange.any():
            raise InvalidInputError(f"record {int(strange.argmax())}: feature {feature.name!r} {words}")
