"""A learner for programs that wait for its answers, `Learner`, and for programs with an event loop, `AsyncLearner`.

`Calls` has the methods of one request that both share; those here send several requests, or show progress.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from parley.common.errors import ConflictError
from parley.learner.api.schemas import Prediction, RunView
from parley.learner.client.calls import Calls, TableRows, counted_from, prediction_calls
from parley.learner.client.connection import AsyncConnection, BlockingConnection, refusal_by
from parley.learner.client.progress import RunBar


def completed_run(run: RunView) -> RunView:
    """Return a completed run; raises the exception of a failed run's problem, and ConflictError for any other state."""
    if run.problem is not None:
        raise refusal_by(run.problem.model_dump())
    if run.state != "completed":
        raise ConflictError(f"run {run.id} is {run.state}", state=run.state)
    return run


class Learner(Calls, BlockingConnection):
    """A learner, as the user whose token this is: studies, forecasts, runs and models.

    >>> with Learner("https://learner.example", token="a-token") as learner:
    ...     learner
    Learner('https://learner.example')
    """

    def runs(self) -> Iterator[RunView]:
        """Yield all runs, newest first; pages are asked for as they are needed."""
        page = self.page()
        yield from page.runs
        while page.next is not None:
            page = self.page(after=page.next)
            yield from page.runs

    def predict(self, run: str, rows: TableRows) -> list[Prediction]:
        """Return what a run's model predicts for rows in the study's columns: records, columns by name or a data frame.

        Many rows are sent in several requests.
        """
        predictions: list[Prediction] = []
        for call in prediction_calls(run, rows):
            with counted_from(len(predictions)):
                piece = self.send(call)
                predictions += piece
        return predictions

    def wait(self, run: str, *, progress: bool = True) -> RunView:
        """Watch a run to its end, with a bar on a terminal or in a notebook; returns the run as it is then.

        Raises the exception of a failed run's problem, and ConflictError for one that was cancelled.
        """
        with RunBar(shown=progress) as bar:
            for event in self.watch(run):
                bar.show(event)
        return completed_run(self.run(run))


class AsyncLearner(Calls, AsyncConnection):
    """A `Learner` for an event loop: its methods are coroutines."""

    async def runs(self) -> AsyncIterator[RunView]:
        """Yield all runs, newest first; pages are asked for as they are needed."""
        page = await self.page()
        while True:
            for run in page.runs:
                yield run
            if page.next is None:
                return
            page = await self.page(after=page.next)

    async def predict(self, run: str, rows: TableRows) -> list[Prediction]:
        """Return what a run's model predicts for rows in the study's columns: records, columns by name or a data frame.

        Many rows are sent in several requests.
        """
        predictions: list[Prediction] = []
        for call in prediction_calls(run, rows):
            with counted_from(len(predictions)):
                piece = await self.send(call)
                predictions += piece
        return predictions

    async def wait(self, run: str, *, progress: bool = True) -> RunView:
        """Watch a run to its end, as `Learner.wait` does."""
        with RunBar(shown=progress) as bar:
            async for event in self.watch(run):
                bar.show(event)
        return completed_run(await self.run(run))
