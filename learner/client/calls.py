"""The learner's API, a call for each route that a user needs, with the type of its answer: written down once.

TableRows to predict for, as people have them: records, columns by name, or a data frame of any library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter

from parley.common.data.study import Study
from parley.common.encoding.number_lines import read_lines
from parley.common.errors import InvalidInputError
from parley.common.learning.description import Description
from parley.common.runs.model_document import ModelDocument
from parley.common.runs.specification import PublicRows
from parley.learner.api import routes
from parley.learner.api.schemas import OpenedRound, PartyView, Prediction, RunPage, RunView, StudySummary, UserView
from parley.learner.client.connection import Call, asked, body_bytes, key_header, upload_call
from parley.learner.forecasting.views import ForecastView

TableRows = Any
"""Records [{column: value}], columns {name: values}, or a data frame: pandas', polars', or a table of pyarrow."""

_MOST_BYTES, _MOST_RECORDS = 2**21, 100_000
"""Of a request; learners take twice as many bytes unless their operators say otherwise (``limits.run_bytes``)."""


def columns_of(rows: TableRows, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """The columns ``names`` of rows, (n,) each; of an array (n, m) its columns in that order.

    Raises InvalidInputError for rows that lack a column, are of unequal lengths, or are no table.
    """
    if isinstance(rows, np.ndarray | list | tuple):
        records = _are_records(rows)
        rows = {name: [row.get(name) for row in rows] for name in names} if records else _named(rows, names)
    found = _names_of(rows)
    if missing := [name for name in names if name not in found]:
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""  # noqa: PLR2004
        raise InvalidInputError(f"the rows lack {', '.join(map(repr, missing[:5]))}{more}")
    columns = {name: _cells(rows[name], name) for name in names}
    if len({len(column) for column in columns.values()}) > 1:
        raise InvalidInputError("the columns have unequal numbers of rows")
    return columns


def records_of(rows: TableRows) -> list[dict[str, Any]]:
    """TableRows as records of JSON values; what is missing is None. Raises InvalidInputError for what is no table."""
    if isinstance(rows, Sequence) and _are_records(rows):
        return [{str(name): _plain(value) for name, value in record.items()} for record in rows]
    names = _names_of(rows)
    lists = [column.tolist() for column in columns_of(rows, names).values()]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in zip(*lists, strict=True)]


def bodies_of(records: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Records as JSON in bodies that a learner takes in one request each; of no record one that holds none."""
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
    """The body of one request."""
    return b'{"records": [%b]}' % b", ".join(records)


@contextmanager
def counted_from(start: int) -> Iterator[None]:
    """Say of a piece's records that are refused, whose numbers are the piece's, where it begins."""
    try:
        yield
    except InvalidInputError as error:
        raise type(error)(
            f"of the rows from {start} on: {error.detail}" if start else error.detail, **error.facts
        ) from None


def _are_records(rows: Sequence[Any] | npt.NDArray[Any]) -> bool:
    """Whether each is one: of none so is a list, as of records that a program filtered."""
    return (len(rows) > 0 or isinstance(rows, list | tuple)) and all(isinstance(row, Mapping) for row in rows)


def _names_of(rows: TableRows) -> tuple[str, ...]:
    """The columns that there are."""
    names = rows.keys() if isinstance(rows, Mapping) else getattr(rows, "column_names", getattr(rows, "columns", None))
    if names is None or not hasattr(rows, "__getitem__"):
        raise InvalidInputError("rows must be records, columns by name or a data frame: their columns need names")
    return tuple(map(str, names))


def _named(rows: TableRows, names: Sequence[str]) -> dict[str, Any]:
    """The columns of an array (n, m)."""
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
    """A column (n,); texts and mixtures as objects, so that none becomes another."""
    cells = column if isinstance(column, np.ndarray) else None
    if cells is None:
        cells = np.asarray(column, dtype=object) if isinstance(column, list | tuple) else np.asarray(column)
    if cells.ndim != 1:
        raise InvalidInputError(f"column {name!r} must be a list of values, not of shape {cells.shape}")
    return cells


def _plain(value: Any) -> Any:  # noqa: ANN401 -- a cell, and a JSON value
    """A cell as JSON has it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, bool | int | float | str | list | tuple) or value is None else _odd(value)


def _odd(value: object) -> str | None:
    """A cell of another type in words; None for what its library calls missing, which is not equal to itself."""
    equal = value == value  # noqa: PLR0124 -- pandas' NA and NaT
    return str(value) if equal is True else None


_STUDIES = TypeAdapter(list[StudySummary])
_PARTIES = TypeAdapter(list[PartyView])
_OPENED = TypeAdapter(list[OpenedRound])
_PREDICTIONS = TypeAdapter(list[Prediction])
_DOCUMENT: TypeAdapter[ModelDocument] = TypeAdapter(ModelDocument)


class RunOptions(TypedDict, total=False):
    """What a run may be asked for beside its study and budget, as `parley.learner.api.requests.RunRequest` says it."""

    algorithm: str
    parameters: Mapping[str, Any]
    budgets: Mapping[str, Mapping[str, float]]
    parties: Sequence[str]
    minimum_contributors: int
    colluders: int
    secure_sum: str
    adjacency: str
    public: str
    answer_every: int
    cohort: Mapping[str, Any]
    evaluate: float
    purpose: str
    seconds: float


def prediction_calls(run: str, rows: TableRows) -> Iterator[Call[list[Prediction]]]:
    """What a run's model predicts for rows, asked for in pieces that a learner takes."""
    headers = {"Content-Type": "application/json"}
    for body in bodies_of(records_of(rows)):
        yield Call(*routes.PREDICT.to(run=run), _PREDICTIONS.validate_json, headers=headers, content=body)


def _read_document(content: bytes) -> ModelDocument:
    return _DOCUMENT.validate_python(read_lines(BytesIO(content)))


def _terms(study: str | Study, epsilon: float, delta: float, options: RunOptions) -> dict[str, Any]:
    """A run's request."""
    named = study if isinstance(study, str) else study.model_dump(mode="json")
    return {"study": named, "epsilon": epsilon, "delta": delta, **options}


class Calls:
    """What a learner can be asked: methods of `Learner`, which return the answer, and of `AsyncLearner`, to await.

    A ``run`` is its identifier. All methods raise the exception that the learner's problem document names, and
    UnavailableError if no learner answers.
    """

    @asked
    def user(self) -> Call[UserView]:
        """Whose token this is, and what it may do."""
        return Call(*routes.SHOW_USER.to(), UserView.model_validate_json)

    @asked
    def parties(self) -> Call[list[PartyView]]:
        """The parties of the roster: what they say of themselves, or the problem that keeps them from it."""
        return Call(*routes.LIST_PARTIES.to(), _PARTIES.validate_json)

    @asked
    def studies(self) -> Call[list[StudySummary]]:
        """The studies that runs may name, in short."""
        return Call(*routes.LIST_STUDIES.to(), _STUDIES.validate_json)

    @asked
    def study(self, name: str) -> Call[Study]:
        """One study: columns with their public bounds or values, label, loss."""
        return Call(*routes.SHOW_STUDY.to(study=name), Study.model_validate_json)

    @asked
    def forecast(
        self,
        study: str | Study,
        *,
        epsilon: float,
        delta: float,
        owners: Mapping[str, int] | None = None,
        **options: Unpack[RunOptions],
    ) -> Call[ForecastView]:
        """What a run would achieve and cost each owner, at no cost of privacy.

        Among ``owners`` of so many examples each, by name; else among the parties of the roster, who are asked.
        """
        terms = _terms(study, epsilon, delta, options) | ({} if owners is None else {"owners": dict(owners)})
        return Call(*routes.FORECAST.to(), ForecastView.model_validate_json, terms)

    @asked
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

        What is asked again with the same ``idempotency_key`` is the same run.
        """
        terms = _terms(study, epsilon, delta, options)
        return Call(*routes.SUBMIT.to(), RunView.model_validate_json, terms, key_header(idempotency_key))

    @asked
    def page(self, limit: int = 100, after: str | None = None) -> Call[RunPage]:
        """The newest runs, at most 1000, or those that follow on a page: ``after`` its ``next``."""
        query = {"limit": limit} | ({"after": after} if after else {})
        return Call(*routes.LIST_RUNS.to(query), RunPage.model_validate_json)

    @asked
    def run(self, run: str) -> Call[RunView]:
        """One run: its terms, state, rounds done, and why it failed or is paused."""
        return Call(*routes.SHOW_RUN.to(run=run), RunView.model_validate_json)

    @asked
    def cancel(self, run: str) -> Call[RunView]:
        """End a run; what its parties have been charged stays charged."""
        return Call(*routes.CANCEL.to(run=run), RunView.model_validate_json)

    @asked
    def resume(self, run: str) -> Call[RunView]:
        """Have a paused run ask again at once."""
        return Call(*routes.RESUME.to(run=run), RunView.model_validate_json)

    @asked
    def opened(self, run: str) -> Call[list[OpenedRound]]:
        """The sums of a run that key holders opened, with what each signed."""
        return Call(*routes.LIST_OPENED.to(run=run), _OPENED.validate_json)

    @asked
    def model(self, run: str) -> Call[ModelDocument]:
        """The document of a completed run's model: weights, study, guarantees, evaluation."""
        return Call(*routes.SHOW_MODEL.to(run=run), _read_document)

    @asked
    def card(self, run: str) -> Call[str]:
        """A model's card, in Markdown: its purpose, data, training, privacy, evaluation, limits and certificate."""
        return Call(*routes.SHOW_CARD.to({"to": "markdown"}, run=run), bytes.decode)

    @asked
    def description(self, run: str) -> Call[Description]:
        """What a run of the algorithm `describe` found of the study's columns."""
        return Call(*routes.SHOW_DESCRIPTION.to(run=run), Description.model_validate_json)

    @asked
    def evaluate(  # noqa: PLR0913 -- a keyword each
        self,
        run: str,
        *,
        epsilon: float,
        delta: float,
        budgets: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
        parameters: Mapping[str, Any] = MappingProxyType({}),
        purpose: str = "",
        idempotency_key: str | None = None,
    ) -> Call[RunView]:
        """Ask for a run that tells how good a model is on the rows that the owners hold out; see `model` then."""
        terms = {
            "epsilon": epsilon,
            "delta": delta,
            "budgets": {name: dict(budget) for name, budget in budgets.items()},
            "parameters": dict(parameters),
            "purpose": purpose,
        }
        return Call(*routes.EVALUATE_RUN.to(run=run), RunView.model_validate_json, terms, key_header(idempotency_key))

    @asked
    def upload_public_rows(
        self, study: str, table: Path | str, *, start: bool = False, labelled: bool = False
    ) -> Call[PublicRows]:
        """Keep the rows of a CSV or Parquet file, which are no secret, for runs to ask about; names them by digest.

        With ``start`` what is kept are weights that fit them, and ``labelled`` ones keep their labels.
        """
        query = {"study": study, "start": str(start).lower(), "labelled": str(labelled).lower()}
        return replace(upload_call(routes.UPLOAD_PUBLIC_ROWS.at(query), table), read=PublicRows.model_validate_json)
