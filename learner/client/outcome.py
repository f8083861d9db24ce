"""What a run came to, for who waited for its end."""

from __future__ import annotations

from parley.common.errors import ConflictError
from parley.learner.api.schemas import RunView
from parley.learner.client.refusals import refusal_by


def completed_run(run: RunView) -> RunView:
    """A run that completed; raises the exception of a failed one's problem, and ConflictError for any other."""
    if run.problem is not None:
        raise refusal_by(run.problem.model_dump())
    if run.state != "completed":
        raise ConflictError(f"run {run.id} is {run.state}", state=run.state)
    return run
