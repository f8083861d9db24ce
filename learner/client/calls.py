"""The learner's API as a program calls it: one `Call` for each route that a user needs, with the type of its answer.

`Calls` lists the calls once, for both `Learner` and `AsyncLearner`. Rows to predict for (`TableRows`) may be records,
columns by name, or a data frame of any library; they are sent as JSON records, in several requests if they are many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from parley.common.data.study import Study
from parley.common.encoding.number_lines import read_lines
from parley.common.errors import InvalidInputError
from parley.common.learning.description import Description
from parley.common.learning.threshold import NO_RULE, Threshold
from parley.common.runs.specification import PublicRows
from parley.learner.api import routes
from parley.learner.api.schemas import OpenedRound, PartyView, Prediction, RunPage, RunView, StudySummary, UserView
from parley.learner.client.connection import Call, api_call, body_bytes, key_header, upload_call
from parley.learner.client.fetched import FetchedModel
from parley.learner.forecasting.views import ForecastView

TableRows = Any
"""Records [{column: value}], columns {name: values}, or a data frame: pandas', polars', or a table of pyarrow."""

_MOST_BYTES, _MOST_RECORDS = 2**21, 100_000
"""Limits of one request; learners take twice as many bytes by default (``limits.run_bytes``)."""


def columns_of(rows: TableRows, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Return the columns ``names`` of rows, (n,) each; an array (n, m) must have its columns in that order.

    Raises InvalidInputError for rows that lack a column, are of unequal lengths, or are no table.
    """
    if isinstance(rows, np.ndarray | list | tuple):
        records = _holds_records(rows)
        rows = {name: [row.get(name) for row in rows] for name in names} if records else _columns_of_array(rows, names)
    available = _names_of(rows)
    if missing := [name for name in names if name not in available]:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""  # noqa: PLR2004
        raise InvalidInputError(f"the rows lack {', '.join(map(repr, missing[:5]))}{more}")
    columns = {name: _cells(rows[name], name) for name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInputError("the columns have unequal numbers of rows")
    return columns


def records_of(rows: TableRows) -> list[dict[str, Any]]:
    """Return rows as records of JSON values, None for a missing one; raises InvalidInputError for what is no table."""
    if isinstance(rows, Sequence) and _holds_records(rows):
        return [{str(name): _plain(value) for name, value in record.items()} for record in rows]
    names = _names_of(rows)
    lists = [column.tolist() for column in columns_of(rows, names).values()]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in zip(*lists, strict=True)]


def bodies_of(records: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Yield bodies with records in JSON, each short enough for one request; without records, one empty body."""
    piece: list[bytes] = []
    size = 0
    for spelt in map(body_bytes, records):
        length = len(spelt) + 2
        if piece and (size + length > _MOST_BYTES or len(piece) == _MOST_RECORDS):
            yield _body_of(piece)
            piece, size = [], 0
        piece.append(spelt)
        size += length
    yield _body_of(piece)


def _body_of(records: Sequence[bytes]) -> bytes:
    """Return the body of one request."""
    return b'{"records": [%b]}' % b", ".join(records)


@contextmanager
def counted_from(start: int) -> Iterator[None]:
    """Add the row at which a piece starts to an error about its records, which counts from the piece's first."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(
            f"of the rows from {start} on: {error.detail}" if start else error.detail, **error.facts
        ) from None


def _holds_records(rows: Sequence[Any] | npt.NDArray[Any]) -> bool:
    """Say whether all rows are records; an empty list counts as such, for a program may have filtered its records."""
    return (len(rows) > 0 or isinstance(rows, list | tuple)) and all(isinstance(row, Mapping) for row in rows)


def _names_of(rows: TableRows) -> tuple[str, ...]:
    """Return the names of the columns of rows; raises InvalidInputError for rows without names."""
    names = rows.keys() if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is None or not hasattr(rows, "__getitem__"):
        raise InvalidInputError("rows must be records, columns by name or a data frame: their columns need names")
    return tuple(map(str, names))


def _columns_of_array(rows: TableRows, names: Sequence[str]) -> dict[str, Any]:
    """Return the columns of an array (n, m) by name; raises InvalidInputError for another shape."""
    try:
        array = np.asarray(rows) if isinstance(rows, np.ndarray) else np.array(rows, dtype=object)
    except ValueError:
        raise InvalidInputError("the rows are of unequal lengths") from None
    if array.ndim != 2 or array.shape[1] != len(names):  # noqa: PLR2004
        raise InvalidInputError(
            f"an array must have {len(names)} columns, in the order of the study, not {array.shape}"
        )
    return dict(zip(names, array.T, strict=True))


def _cells(column: Any, name: str) -> npt.NDArray[Any]:  # noqa: ANN401 -- of any library
    """Return a column as an array (n,); texts and mixtures stay objects, so that no cell changes its type."""
    cells = column if isinstance(column, np.ndarray) else None
    if cells is None:
        cells = np.asarray(column, dtype=object) if isinstance(column, list | tuple) else np.asarray(column)
    if cells.ndim != 1:
        raise InvalidInputError(f"column {name!r} must be a list of values, not of shape {cells.shape}")
    return cells


def _plain(value: Any) -> Any:  # noqa: ANN401 -- a cell, and a JSON value
    """Return a cell as a JSON value."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    return (
        value if isinstance(value, bool | int | float | str | list | tuple) or value is None else _foreign_text(value)
    )


def _foreign_text(value: object) -> str | None:
    """Return a cell of another type as text; None for a library's missing value, which is not equal to itself."""
    equal = value == value  # noqa: PLR0124 -- pandas' NA and NaT
    return str(value) if equal is True else None


_STUDIES = TypeAdapter(list[StudySummary])
_PARTIES = TypeAdapter(list[PartyView])
_THRESHOLD: TypeAdapter[Threshold | None] = TypeAdapter(Threshold | None)
_OPENED = TypeAdapter(list[OpenedRound])
_PREDICTIONS = TypeAdapter(list[Prediction])
_MODEL: TypeAdapter[FetchedModel] = TypeAdapter(FetchedModel)


class RunOptions(TypedDict, total=False):
    """The terms of a run beside its study and budget: see `parley.learner.api.requests.RunRequest`."""

    algorithm: str
    parameters: Mapping[str, Any]
    budgets: Mapping[str, Mapping[str, float]]
    parties: Sequence[str]
    minimum_contributors: int
    colluders: int
    secure_sum: str
    adjacency: str
    overlap: int
    public: str
    answer_every: int
    class_weights: Mapping[str, float] | str
    cohort: Mapping[str, Any]
    evaluate: float | Literal["auto"]
    threshold: str
    purpose: str
    seconds: float


def prediction_calls(run: str, rows: TableRows) -> Iterator[Call[list[Prediction]]]:
    """Yield the calls that ask for a model's predictions, each with a piece of the rows."""
    headers = {"Content-Type": "application/json"}
    for body in bodies_of(records_of(rows)):
        yield Call(*routes.PREDICT.to(run=run), _PREDICTIONS.validate_json, headers=headers, content=body)


def _read_model(content: bytes) -> FetchedModel:
    return _MODEL.validate_python(read_lines(BytesIO(content)))


def _terms(study: str | Study, epsilon: float, delta: float, options: RunOptions) -> dict[str, Any]:
    """Return the body of a request for a run or a forecast."""
    named = study if isinstance(study, str) else study.model_dump(mode="json")
    return {"study": named, "epsilon": epsilon, "delta": delta, **options}


class Calls:
    """The calls of the learner's API: methods of `Learner`, which return the answer, and of `AsyncLearner`, to await.

    A ``run`` is its identifier. All methods raise the exception that the learner's problem document names, and
    UnavailableError if no learner answers.
    """

    @api_call
    def user(self) -> Call[UserView]:
        """Return the user whose token this is, and what it may do."""
        return Call(*routes.SHOW_USER.to(), UserView.model_validate_json)

    @api_call
    def parties(self, within: float | None = None) -> Call[list[PartyView]]:
        """Return the parties of the roster: the facts that each reports, or the problem that keeps it from doing so.

        ``within`` so many seconds, parties that have not answered are ``awaited``, with what they stated last.
        """
        return Call(*routes.LIST_PARTIES.to({} if within is None else {"within": within}), _PARTIES.validate_json)

    @api_call
    def studies(self) -> Call[list[StudySummary]]:
        """Return the studies that runs may name, in short."""
        return Call(*routes.LIST_STUDIES.to(), _STUDIES.validate_json)

    @api_call
    def study(self, name: str) -> Call[Study]:
        """Return one study: columns with their public bounds or values, label, loss."""
        return Call(*routes.SHOW_STUDY.to(study=name), Study.model_validate_json)

    @api_call
    def forecast(
        self,
        study: str | Study,
        *,
        epsilon: float,
        delta: float,
        owners: Mapping[str, int] | None = None,
        rows_per_person: float | None = None,
        **options: Unpack[RunOptions],
    ) -> Call[ForecastView]:
        """Forecast what a run would achieve and cost each owner, at no cost of privacy.

        ``owners`` gives the numbers of examples by name; without it, the parties of the roster are asked for theirs.
        ``rows_per_person`` is a guess, where examples are persons, by which the time of a round is estimated.
        """
        terms = _terms(study, epsilon, delta, options) | ({} if owners is None else {"owners": dict(owners)})
        terms |= {} if rows_per_person is None else {"rows_per_person": rows_per_person}
        return Call(*routes.FORECAST.to(), ForecastView.model_validate_json, terms)

    @api_call
    def submit(
        self,
        study: str | Study,
        *,
        epsilon: float,
        delta: float,
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> Call[RunView]:
        """Ask for a run on a study, by its name or itself, that may cost each party (epsilon, delta).

        A repeated call with the same ``idempotency_key`` returns the same run.
        """
        terms = _terms(study, epsilon, delta, options)
        return Call(*routes.SUBMIT.to(), RunView.model_validate_json, terms, key_header(idempotency_key))

    @api_call
    def page(self, limit: int = 100, after: str | None = None) -> Call[RunPage]:
        """Return a page of the newest runs, at most 1000; ``after`` is the ``next`` of the page before."""
        query = {"limit": limit} | ({"after": after} if after else {})
        return Call(*routes.LIST_RUNS.to(query), RunPage.model_validate_json)

    @api_call
    def run(self, run: str) -> Call[RunView]:
        """Return one run: its terms, state, rounds done, and why it failed or is paused."""
        return Call(*routes.SHOW_RUN.to(run=run), RunView.model_validate_json)

    @api_call
    def cancel(self, run: str) -> Call[RunView]:
        """End a run; what its parties have been charged stays charged."""
        return Call(*routes.CANCEL.to(run=run), RunView.model_validate_json)

    @api_call
    def delete(self, run: str, *, only_log: bool = False) -> Call[None]:
        """Delete a run that has ended, or its log alone; what its parties were charged stays charged."""
        query = {"only_log": "true"} if only_log else {}
        return Call(*routes.DELETE_RUN.to(query, run=run), lambda _: None)

    @api_call
    def resume(self, run: str) -> Call[RunView]:
        """Make a paused run ask its parties again at once."""
        return Call(*routes.RESUME.to(run=run), RunView.model_validate_json)

    @api_call
    def opened(self, run: str) -> Call[list[OpenedRound]]:
        """Return the sums of a run that key holders opened, with what each signed."""
        return Call(*routes.LIST_OPENED.to(run=run), _OPENED.validate_json)

    @api_call
    def model(self, run: str) -> Call[FetchedModel]:
        """Return the document of a completed run's model: weights, study, guarantees, evaluation.

        Its method ``log_mlflow`` logs it in MLflow.
        """
        return Call(*routes.SHOW_MODEL.to(run=run), _read_model)

    @api_call
    def card(self, run: str) -> Call[str]:
        """Return a model's card in Markdown: purpose, data, training, privacy, evaluation, limits and certificate."""
        return Call(*routes.SHOW_CARD.to({"to": "markdown"}, run=run), bytes.decode)

    @api_call
    def export(self, run: str, to: Literal["onnx", "sklearn"]) -> Call[bytes]:
        """Return a file that predicts from raw columns without Parley: an ONNX graph, or a scikit-learn pipeline."""
        return Call(*routes.EXPORT_MODEL.to({"to": to}, run=run), bytes)

    @api_call
    def description(self, run: str) -> Call[Description]:
        """Return the description of a study's columns, from a run of the algorithm `describe`."""
        return Call(*routes.SHOW_DESCRIPTION.to(run=run), Description.model_validate_json)

    @api_call
    def evaluate(  # noqa: PLR0913 -- a keyword each
        self,
        run: str,
        *,
        epsilon: float,
        delta: float,
        budgets: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
        parameters: Mapping[str, Any] = MappingProxyType({}),
        threshold: str | None = None,
        purpose: str = "",
        idempotency_key: str | None = None,
    ) -> Call[RunView]:
        """Ask for a run that measures a model on the rows that the owners hold out; `model` has the result later.

        A ``threshold`` is the rule for that of the model, as in `threshold`.
        """
        terms = {
            "epsilon": epsilon,
            "delta": delta,
            "budgets": {name: dict(budget) for name, budget in budgets.items()},
            "parameters": dict(parameters),
            "purpose": purpose,
        } | ({} if threshold is None else {"threshold": threshold})
        return Call(*routes.EVALUATE_RUN.to(run=run), RunView.model_validate_json, terms, key_header(idempotency_key))

    @api_call
    def threshold(self, run: str, rule: str | None) -> Call[Threshold | None]:
        """Choose by a rule above which score a model of two classes predicts the positive one; None takes it back.

        It costs no privacy; `parley.common.learning.threshold` says which rules there are.
        """
        return Call(*routes.SET_THRESHOLD.to(run=run), _THRESHOLD.validate_json, {"rule": rule or NO_RULE})

    @api_call
    def upload_public_rows(
        self, study: str, table: Path | str, *, start: bool = False, labelled: bool = False
    ) -> Call[PublicRows]:
        """Upload the rows of a CSV or Parquet file, which must be public, for runs to use; returns their digest.

        With ``start`` the learner keeps weights that fit the rows instead; with ``labelled`` it keeps labels too.
        """
        query = {"study": study, "start": str(start).lower(), "labelled": str(labelled).lower()}
        return replace(upload_call(routes.UPLOAD_PUBLIC_ROWS.at(query), table), read=PublicRows.model_validate_json)
