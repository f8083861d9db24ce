"""The learner's API, a call for each route that a user needs, with the type of its answer: written down once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

from pydantic import TypeAdapter

from parley.common.data.study import Study
from parley.common.encoding.number_lines import read_lines
from parley.common.errors import InvalidInputError
from parley.common.learning.description import Description
from parley.common.runs.model_document import ModelDocument
from parley.common.runs.specification import PublicRows
from parley.learner.api.schemas import OpenedRound, PartyView, Prediction, RunPage, RunView, StudySummary, UserView
from parley.learner.client.call import Call, run_path, upload_call
from parley.learner.client.rows import TableRows, bodies_of, records_of
from parley.learner.forecasting.views import ForecastView

_Answer = TypeVar("_Answer")
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


class Calls:
    """What a learner is asked; `Learner` and `AsyncLearner` have each as a method of the same name, but `predictions`.

    A ``run`` is its identifier. All methods of the two raise the exception that the learner's problem document names,
    and UnavailableError where no learner answers.
    """

    @staticmethod
    def user() -> Call[UserView]:
        """Whose token this is, and what it may do."""
        return _get("/v1/user", UserView.model_validate_json)

    @staticmethod
    def parties() -> Call[list[PartyView]]:
        """The parties of the roster: what they say of themselves, or the problem that keeps them from it."""
        return _get("/v1/parties", _PARTIES.validate_json)

    @staticmethod
    def studies() -> Call[list[StudySummary]]:
        """The studies that runs may name, in short."""
        return _get("/v1/studies", _STUDIES.validate_json)

    @staticmethod
    def study(name: str) -> Call[Study]:
        """One study: columns with their public bounds or values, label, loss."""
        if not isinstance(name, str):
            raise InvalidInputError(f"name a study by a text, not by a {type(name).__name__}")
        return _get(f"/v1/studies/{quote(name)}", Study.model_validate_json)

    @staticmethod
    def forecast(
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
        return _post("/v1/forecasts", ForecastView.model_validate_json, terms)

    @staticmethod
    def submit(
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
        return _post("/v1/runs", RunView.model_validate_json, terms, idempotency_key)

    @staticmethod
    def page(limit: int = 100, after: str | None = None) -> Call[RunPage]:
        """The newest runs, at most 1000, or those that follow on a page: ``after`` its ``next``."""
        query = urlencode({"limit": limit} | ({"after": after} if after else {}))
        return _get(f"/v1/runs?{query}", RunPage.model_validate_json)

    @staticmethod
    def run(run: str) -> Call[RunView]:
        """One run: its terms, state, rounds done, and why it failed or is paused."""
        return _get(run_path(run), RunView.model_validate_json)

    @staticmethod
    def cancel(run: str) -> Call[RunView]:
        """End a run; what its parties have been charged stays charged."""
        return _post(run_path(run, "cancel"), RunView.model_validate_json)

    @staticmethod
    def resume(run: str) -> Call[RunView]:
        """Have a paused run ask again at once."""
        return _post(run_path(run, "resume"), RunView.model_validate_json)

    @staticmethod
    def opened(run: str) -> Call[list[OpenedRound]]:
        """The sums of a run that key holders opened, with what each signed."""
        return _get(run_path(run, "receipts"), _OPENED.validate_json)

    @staticmethod
    def model(run: str) -> Call[ModelDocument]:
        """The document of a completed run's model: weights, study, guarantees, evaluation."""
        return _get(run_path(run, "model"), lambda content: _DOCUMENT.validate_python(read_lines(BytesIO(content))))

    @staticmethod
    def card(run: str) -> Call[str]:
        """A model's card, in Markdown: its purpose, data, training, privacy, evaluation, limits and certificate."""
        return _get(f"{run_path(run, 'card')}?to=markdown", bytes.decode)

    @staticmethod
    def description(run: str) -> Call[Description]:
        """What a run of the algorithm `describe` found of the study's columns."""
        return _get(run_path(run, "description"), Description.model_validate_json)

    @staticmethod
    def predictions(run: str, rows: TableRows) -> Iterator[Call[list[Prediction]]]:
        """What a run's model predicts for rows, asked for in pieces that a learner takes."""
        path, headers = run_path(run, "predictions"), {"Content-Type": "application/json"}
        for body in bodies_of(records_of(rows)):
            yield Call("POST", path, _PREDICTIONS.validate_json, headers=headers, content=body)

    @staticmethod
    def evaluate(  # noqa: PLR0913 -- a keyword each
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
        return _post(run_path(run, "evaluation"), RunView.model_validate_json, terms, idempotency_key)

    @staticmethod
    def upload_public_rows(
        study: str, table: Path | str, *, start: bool = False, labelled: bool = False
    ) -> Call[PublicRows]:
        """Keep the rows of a CSV or Parquet file, which are no secret, for runs to ask about; names them by digest.

        With ``start`` what is kept are weights that fit them, and ``labelled`` ones keep their labels.
        """
        query = urlencode({"study": study, "start": str(start).lower(), "labelled": str(labelled).lower()})
        return replace(upload_call(f"/v1/public?{query}", table), read=PublicRows.model_validate_json)


def _get(path: str, read: Callable[[bytes], _Answer]) -> Call[_Answer]:
    return Call("GET", path, read)


def _post(path: str, read: Callable[[bytes], _Answer], body: object = None, key: str | None = None) -> Call[_Answer]:
    return Call("POST", path, read, body, {"Idempotency-Key": key} if key else {})


def _terms(study: str | Study, epsilon: float, delta: float, options: RunOptions) -> dict[str, Any]:
    """A run's request."""
    named = study if isinstance(study, str) else study.model_dump(mode="json")
    return {"study": named, "epsilon": epsilon, "delta": delta, **options}
