"""A learner for programs that wait for its answers: `Learner`.

The calls of the API as methods: one that waits for the answer, and one to await.

What a run came to, for who waited for its end.

A learner for programs with an event loop: `AsyncLearner`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec

from parley.common.errors import ConflictError
from parley.learner.api.schemas import Prediction, RunView
from parley.learner.client.calls import Calls, TableRows, counted_from
from parley.learner.client.connection import AsyncConnection, BlockingConnection, Call, Reading, refusal_by
from parley.learner.client.progress import RunBar

_Given = ParamSpec("_Given")


def blocking(
    call: Callable[_Given, Call[Reading]],
) -> Callable[Concatenate[BlockingConnection, _Given], Reading]:
    """A method that sends a call and returns its answer; its words and its arguments are the call's."""

    def method(self: BlockingConnection, /, *args: _Given.args, **options: _Given.kwargs) -> Reading:
        return self.send(call(*args, **options))

    _sign(method, call)
    return method


def awaited(
    call: Callable[_Given, Call[Reading]],
) -> Callable[Concatenate[AsyncConnection, _Given], Awaitable[Reading]]:
    """The same as a coroutine."""

    async def method(self: AsyncConnection, /, *args: _Given.args, **options: _Given.kwargs) -> Reading:
        return await self.send(call(*args, **options))

    _sign(method, call)
    return method


def _sign(method: Any, call: Callable[..., object]) -> None:  # noqa: ANN401 -- a function that is to have a signature
    """Give a method the call's words and signature, behind ``self`` and with its answer, for help and editors."""
    update_wrapper(method, call)
    signature = inspect.signature(call)
    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    answer = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    parameters = [this, *signature.parameters.values()]
    method.__signature__ = signature.replace(parameters=parameters, return_annotation=answer)


def completed_run(run: RunView) -> RunView:
    """A run that completed; raises the exception of a failed one's problem, and ConflictError for any other."""
    if run.problem is not None:
        raise refusal_by(run.problem.model_dump())
    if run.state != "completed":
        raise ConflictError(f"run {run.id} is {run.state}", state=run.state)
    return run


class Learner(BlockingConnection):
    """A learner, as the user whose token this is: studies, forecasts, runs and models.

    >>> with Learner("https://learner.example", token="a-token") as learner:
    ...     learner
    Learner('https://learner.example')
    """

    user = blocking(Calls.user)
    parties = blocking(Calls.parties)
    studies = blocking(Calls.studies)
    study = blocking(Calls.study)
    forecast = blocking(Calls.forecast)
    submit = blocking(Calls.submit)
    page = blocking(Calls.page)
    run = blocking(Calls.run)
    cancel = blocking(Calls.cancel)
    resume = blocking(Calls.resume)
    opened = blocking(Calls.opened)
    model = blocking(Calls.model)
    card = blocking(Calls.card)
    description = blocking(Calls.description)
    evaluate = blocking(Calls.evaluate)
    upload_public_rows = blocking(Calls.upload_public_rows)

    def runs(self) -> Iterator[RunView]:
        """All runs, newest first, asked for page by page as they are taken."""
        page = self.page()
        yield from page.runs
        while page.next is not None:
            page = self.page(after=page.next)
            yield from page.runs

    def predict(self, run: str, rows: TableRows) -> list[Prediction]:
        """What a run's model predicts for rows in the study's columns: records, columns by name or a data frame.

        Many rows are sent in several requests.
        """
        found: list[Prediction] = []
        for call in Calls.predictions(run, rows):
            with counted_from(len(found)):
                piece = self.send(call)
                found += piece
        return found

    def wait(self, run: str, *, progress: bool = True) -> RunView:
        """Watch a run to its end, with a bar on a terminal or in a notebook; the run as it is then.

        Raises the exception of a failed run's problem, and ConflictError for one that was cancelled.
        """
        with RunBar(shown=progress) as bar:
            for event in self.watch(run):
                bar.show(event)
        return completed_run(self.run(run))


class AsyncLearner(AsyncConnection):
    """As `Learner`, with coroutines for methods."""

    user = awaited(Calls.user)
    parties = awaited(Calls.parties)
    studies = awaited(Calls.studies)
    study = awaited(Calls.study)
    forecast = awaited(Calls.forecast)
    submit = awaited(Calls.submit)
    page = awaited(Calls.page)
    run = awaited(Calls.run)
    cancel = awaited(Calls.cancel)
    resume = awaited(Calls.resume)
    opened = awaited(Calls.opened)
    model = awaited(Calls.model)
    card = awaited(Calls.card)
    description = awaited(Calls.description)
    evaluate = awaited(Calls.evaluate)
    upload_public_rows = awaited(Calls.upload_public_rows)

    async def runs(self) -> AsyncIterator[RunView]:
        """All runs, newest first, asked for page by page as they are taken."""
        page = await self.page()
        while True:
            for run in page.runs:
                yield run
            if page.next is None:
                return
            page = await self.page(after=page.next)

    async def predict(self, run: str, rows: TableRows) -> list[Prediction]:
        """What a run's model predicts for rows in the study's columns: records, columns by name or a data frame.

        Many rows are sent in several requests.
        """
        found: list[Prediction] = []
        for call in Calls.predictions(run, rows):
            with counted_from(len(found)):
                piece = await self.send(call)
                found += piece
        return found

    async def wait(self, run: str, *, progress: bool = True) -> RunView:
        """Watch a run to its end, as `Learner.wait`."""
        with RunBar(shown=progress) as bar:
            async for event in self.watch(run):
                bar.show(event)
        return completed_run(await self.run(run))
