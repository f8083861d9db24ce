"""Writes a model as an ONNX graph of a table's raw columns; the graph contains the study's mapping of records to rows.

All numbers are double, and operations come in the order of `parley.common.data.layout` and of a shard. Rows lie on the
same grid as there, so scores are those of ``predict`` except for the last bits. An operator cannot raise an error: a
row that does not fit the study becomes NaN, and so do its probabilities and its number; its label is an empty text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import ModelProto, TensorProto, checker, helper, numpy_helper

from parley.common.arrays import FloatArray
from parley.common.data.cells import MISSING_TEXTS
from parley.common.data.class_weights import prior_offset
from parley.common.data.columns import Category, Feature, RealLabel
from parley.common.data.layout import DesignLayout, frequencies, matrix_and_offset
from parley.common.data.loading import NO_NORM
from parley.common.data.shard import INWARDS, OUTWARDS, SURELY_INSIDE
from parley.common.data.study import Projection, RowMap
from parley.common.encoding.fixed_point import FEATURE_BITS
from parley.common.encoding.texts import spelling
from parley.common.errors import InvalidInputError

if TYPE_CHECKING:
    from parley.common.runs.predictions import Predictor

PREDICTION, PROBABILITIES = "prediction", "probabilities"
"""The outputs of a graph."""
_OPSETS = {"": 17, "ai.onnx.ml": 3}
_IR_VERSION = 9
_UNFIT = -1
"""The code of a text that does not fit the study."""


def onnx_model(predictor: Predictor) -> ModelProto:
    """Make a checked graph with an input (n, 1) for each feature by name, double for numbers and string for categories.

    A missing value is NaN or an empty text. ``prediction`` (n,) is the label, a string or a double; ``probabilities``
    (n, K), if the loss fits them, are those of the label's values in order. Raises InvalidInputError for features that
    are sparse or have the name of an output.
    """
    study = predictor.study
    if taken := {PREDICTION, PROBABILITIES} & set(study.feature_names):
        raise InvalidInputError(f"the feature {min(taken)!r} cannot be exported: an output of the graph is called that")
    graph = _Graph({*study.feature_names, PREDICTION, PROBABILITIES})
    rows = _rows(graph, predictor)
    outputs = _outputs(graph, predictor, rows)
    made = helper.make_model(
        helper.make_graph(graph.nodes, "parley", graph.inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in _OPSETS.items()],
        ir_version=_IR_VERSION,
        producer_name="parley",
    )
    helper.set_model_props(made, {"study": study.name, "study_digest": study.digest})
    checker.check_model(made, full_check=True)
    return made


class _Graph:
    """Nodes, constants and inputs under construction; names made here differ from those of inputs and outputs."""

    def __init__(self, taken: set[str]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []
        self._taken = taken

    def take(self, feature: Feature | Category) -> str:
        """Add the input (n, 1) of a feature. Returns its name."""
        kind = TensorProto.STRING if isinstance(feature, Category) else TensorProto.DOUBLE
        self.inputs.append(helper.make_tensor_value_info(feature.name, kind, ["rows", 1]))
        return feature.name

    def add(
        self,
        operator: str,
        *inputs: str | float | npt.NDArray[Any],
        output: str = "",
        **attributes: Any,  # noqa: ANN401 -- numbers, texts and lists of them
    ) -> str:
        """Add an operator on names and constants. Returns the name of its output."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        output = output or self._name(operator)
        domain = "ai.onnx.ml" if operator == "LabelEncoder" else ""
        self.nodes.append(helper.make_node(operator, names, [output], domain=domain, **attributes))
        return output

    def joined(self, parts: list[str]) -> str:
        """Add columns side by side. Returns the name of the result."""
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=1)

    def on_grid(self, rows: str, factor: float = 1.0) -> str:
        """Add numbers times a factor, rounded toward zero to the grid of a shard. Returns the name of the result.

        The factor is multiplied into the grid's constant: ONNX Runtime joins two consecutive constants, and loses bits.
        """
        steps = self.add("Mul", rows, factor * 2.0**FEATURE_BITS)
        truncated = self.add("Mul", self.add("Sign", steps), self.add("Floor", self.add("Abs", steps)))
        return self.add("Mul", truncated, 2.0**-FEATURE_BITS)

    def norms(self, rows: str) -> str:
        """Add the norm (n, 1) of each row. Returns its name."""
        return self.add("Sqrt", self.squares(rows))

    def squares(self, rows: str) -> str:
        """Add the squared norm (n, 1) of each row. Returns its name."""
        return self.add("ReduceSumSquare", rows, axes=[1], keepdims=1)

    def _constant(self, value: float | npt.NDArray[Any]) -> str:
        name = self._name("constant")
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(np.asarray(value)), name))
        return name

    def _name(self, stem: str) -> str:
        name = f"{stem}_{len(self._taken)}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _rows(graph: _Graph, predictor: Predictor) -> str:
    """Add the rows (n, d) of the design, on the grid."""
    study = predictor.study
    layout = DesignLayout.of(study)
    parts: list[str] = []
    for is_category, features in groupby(study.named, lambda feature_map: isinstance(feature_map, Category)):
        if is_category:
            parts += [
                _one_hot(graph, feature_map, layout.unit)
                for feature_map in features
                if isinstance(feature_map, Category)
            ]
        else:
            parts.append(
                _scaled(
                    graph, [feature_map for feature_map in features if isinstance(feature_map, Feature)], layout.unit
                )
            )
    rows = graph.joined(parts)
    width = study.n_columns
    for feature_map in layout.maps:
        rows, width = _mapped(graph, feature_map, rows, width), feature_map.n_outputs
    if layout.maps:
        rows = graph.add("Mul", rows, layout.scale)
    if layout.intercept:
        zero = graph.add("Mul", graph.add("Slice", rows, np.array([0]), np.array([1]), np.array([1])), 0.0)  # or NaN
        rows = graph.joined([rows, graph.add("Add", zero, layout.intercept)])
    if layout.own:
        norms = graph.norms(rows)
        rows = graph.add("Mul", rows, graph.add("Div", 1 - 2.0**-30, _or_one(graph, norms)))
    elif study.norm == "euclidean":
        rows = _into_unit_ball(graph, rows)
    return graph.on_grid(rows)


def _or_one(graph: _Graph, norms: str) -> str:
    """Replace norms by 1 where they are 0 up to rounding."""
    return graph.add("Where", graph.add("Less", norms, NO_NORM), 1.0, norms)


def _into_unit_ball(graph: _Graph, rows: str) -> str:
    """Project rows onto the unit ball as a shard does it, step by step, so that they lie on the same grid points."""
    is_inside = graph.add("LessOrEqual", graph.squares(rows), SURELY_INSIDE)
    largest = graph.add("ReduceMax", graph.add("Abs", rows), axes=[1], keepdims=1)
    projected = graph.add("Div", rows, graph.add("Max", largest, 1.0))
    projected = graph.add("Div", projected, graph.add("Max", graph.norms(projected), 1.0))
    projected = graph.on_grid(projected, OUTWARDS)
    is_outside = graph.add("Greater", graph.squares(projected), 1.0)  # exact: the squares are integers of 2^-32
    inwards = graph.on_grid(projected, INWARDS)
    return graph.add("Where", is_inside, rows, graph.add("Where", is_outside, inwards, projected))


def _scaled(graph: _Graph, features: list[Feature], unit: float) -> str:
    """Add numbers clipped to their bounds, as columns in [-unit, unit]; NaN for a missing one without a fill value."""
    lower, upper = (np.array([[getattr(feature, side) for feature in features]]) for side in ("lower", "upper"))
    fill = np.array([[math.nan if feature.fill is None else feature.fill for feature in features]])
    numbers = graph.joined([graph.take(feature) for feature in features])
    within = graph.add("Min", graph.add("Max", numbers, lower), upper)
    filled = graph.add("Where", graph.add("IsNaN", numbers), fill, within)
    shares = graph.add("Div", graph.add("Sub", filled, lower), upper - lower)
    return graph.add("Sub", graph.add("Mul", shares, 2 * unit), unit)


def _one_hot(graph: _Graph, category: Category, unit: float) -> str:
    """Add a column for each value, ``unit`` in the rows that have it; NaN in all for a text that does not fit."""
    codes = _codes(category)
    default = _UNFIT if category.other_code is None else category.other_code
    code = graph.add(
        "LabelEncoder",
        graph.take(category),
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=default,
    )
    chosen = graph.add("Equal", code, np.arange(category.n_columns)[None])
    columns = graph.add("Mul", graph.add("Cast", chosen, to=TensorProto.DOUBLE), unit)
    return graph.add("Where", graph.add("Equal", code, np.array(_UNFIT)), math.nan, columns)


def _codes(category: Category) -> Mapping[str, int]:
    """Return the code of each text that the study declares, and of the texts for a missing value."""
    missing = _UNFIT if category.fill is None else category.codes[spelling(category.fill)]
    declared = {value: code for code, value in enumerate(category.column_values)}
    return dict.fromkeys(("", *sorted(MISSING_TEXTS)), missing) | declared


def _mapped(graph: _Graph, row_map: RowMap, rows: str, width: int) -> str:
    """Map rows into the unit ball. A cosine is a sine shifted by a quarter turn, because every runtime has sines."""
    if isinstance(row_map, Projection):
        matrix, offset = matrix_and_offset(row_map.mean, row_map.components)
        centred = graph.add("Sub", graph.add("MatMul", graph.on_grid(rows), matrix.T), offset[None])
        return graph.add("Div", centred, graph.add("Max", graph.norms(centred), row_map.radius))
    angles = graph.add("MatMul", rows, frequencies(row_map, width).T)
    waves = [graph.add("Sin", graph.add("Add", angles, math.pi / 2)), graph.add("Sin", angles)]
    return graph.add("Mul", graph.joined(waves), math.sqrt(2 / row_map.n))


def _outputs(graph: _Graph, predictor: Predictor, rows: str) -> list[Any]:
    """Add the prediction, and the probabilities if the loss fits them; of two classes the first has score 0."""
    weights, label = predictor.model.weights, predictor.study.label
    if isinstance(label, RealLabel):
        _number(graph, label, graph.add("MatMul", rows, weights))
        return [helper.make_tensor_value_info(PREDICTION, TensorProto.DOUBLE, ["rows"])]
    both = weights if weights.ndim > 1 else np.stack([np.zeros_like(weights), weights])
    scores = graph.add("MatMul", rows, both.T)
    beyond = graph.add("Sub", scores, np.array([[0.0, predictor.threshold]])) if predictor.threshold else scores
    best = graph.add("ArgMax", beyond, axis=1, keepdims=0)
    unfit = graph.add("IsNaN", graph.add("ReduceSum", scores, np.array([1]), keepdims=0))
    place = graph.add("Where", unfit, np.array(len(label.values)), best)
    graph.add("Gather", np.array([*label.values, ""], dtype=object), place, output=PREDICTION)
    outputs = [helper.make_tensor_value_info(PREDICTION, TensorProto.STRING, ["rows"])]
    if predictor.probabilities(_no_scores(weights)) is not None:
        if predictor.class_weights:
            scores = graph.add("Sub", scores, prior_offset(predictor.class_weights, len(label.values))[None])
        graph.add("Softmax", scores, axis=1, output=PROBABILITIES)
        shape: list[str | int | None] = ["rows", len(label.values)]
        outputs.append(helper.make_tensor_value_info(PROBABILITIES, TensorProto.DOUBLE, shape))
    return outputs


def _number(graph: _Graph, label: RealLabel, scores: str) -> None:
    """Add the prediction of a real label, within its bounds and in its unit."""
    within = graph.add("Min", graph.add("Max", scores, -1.0), 1.0)
    share = graph.add("Mul", graph.add("Add", within, 1.0), (label.upper - label.lower) / 2)
    graph.add("Where", graph.add("IsNaN", scores), math.nan, graph.add("Add", share, label.lower), output=PREDICTION)


def _no_scores(weights: FloatArray) -> FloatArray:
    """Return an array of scores without rows."""
    return np.zeros((0, *weights.shape[:-1]))
