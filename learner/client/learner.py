"""A learner for programs that wait for its answers: `Learner`."""

from __future__ import annotations

from collections.abc import Iterator

from parley.learner.api.schemas import Prediction, RunView
from parley.learner.client.calls import Calls
from parley.learner.client.connection import BlockingConnection
from parley.learner.client.methods import blocking
from parley.learner.client.outcome import completed_run
from parley.learner.client.progress import RunBar
from parley.learner.client.rows import TableRows, counted_from


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
