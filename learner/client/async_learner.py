"""A learner for programs with an event loop: `AsyncLearner`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from parley.learner.api.schemas import Prediction, RunView
from parley.learner.client.async_connection import AsyncConnection
from parley.learner.client.calls import Calls
from parley.learner.client.methods import awaited
from parley.learner.client.outcome import completed_run
from parley.learner.client.progress import RunBar
from parley.learner.client.rows import TableRows, counted_from


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
