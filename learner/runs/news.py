"""The news of a run: the events that watchers get, each kind with the type of its data.

The learner writes its events by these types, its OpenAPI document describes them, and the client's events have them.
All values are public.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, WithJsonSchema
from typing_extensions import TypedDict  # pydantic takes that of typing from Python 3.12 on

from parley.learner.runs.states import RunEvent, RunState


def _documented_as(schema: str) -> WithJsonSchema:
    """Return the schema of a value that a response of the learner has too, by the name of that schema."""
    return WithJsonSchema({"allOf": [{"$ref": f"#/components/schemas/{schema}"}]})


class Measures(TypedDict):
    """How good weights are on the learner's public examples, if it has some of the study."""

    objective: NotRequired[Annotated[float, Field(description="the mean loss")]]
    accuracy: NotRequired[float]
    r_squared: NotRequired[float]
    rmse: NotRequired[Annotated[float, Field(description="in units in which the label's bounds are -1 and +1")]]


class StateNews(Measures):
    """The run has entered a state, and why."""

    state: RunState
    rounds: NotRequired[Annotated[int, Field(ge=0, description="running: how many rounds there will be")]]
    epsilon: NotRequired[Annotated[dict[str, float], Field(description="running: by party, the price of the run")]]
    absent: NotRequired[Annotated[dict[str, str], Field(description="running: by party, why it takes no part")]]
    key_holders: NotRequired[Annotated[list[str], Field(description="running: who signed the secure sum's roster")]]
    reason: NotRequired[Annotated[str, Field(description="paused or recruiting: why the run stands still")]]
    who: NotRequired[Annotated[list[str], Field(description="the parties and key holders that it waits for")]]
    since: NotRequired[Annotated[str, Field(description="since when; ISO 8601, UTC")]]
    problem: NotRequired[Annotated[dict[str, Any], _documented_as("ProblemDocument")]]
    evaluation: NotRequired[Annotated[dict[str, Any], _documented_as("RunEvaluation")]]
    evaluated_by: NotRequired[Annotated[str, Field(description="completed: the run that evaluates its model")]]


class RoundNews(Measures):
    """A round is done: who contributed, and what the run has cost them so far. Measures are of the round's weights."""

    round: Annotated[int, Field(ge=1)]
    of: Annotated[int, Field(ge=1, description="how many rounds the run has")]
    ms: Annotated[float, Field(ge=0, description="how long it took, in milliseconds")]
    contributors: list[str]
    stragglers: Annotated[list[str], Field(description="parties whose answers came too late")]
    missed: Annotated[list[str], Field(description="parties that did not answer, and will be asked again")]
    epsilon: Annotated[dict[str, float], Field(description="by contributor: what the run has cost it so far")]
    opened_by: NotRequired[Annotated[list[str], Field(description="the key holders that opened the round's sum")]]


class DroppedNews(TypedDict):
    """A party takes no part in the run any more."""

    party: str
    round: Annotated[int, Field(ge=1)]
    reason: str
    epsilon: Annotated[float, Field(description="what the run has cost it at most")]


NEWS: Mapping[str, Any] = {"state": StateNews, "round": RoundNews, "dropped": DroppedNews}
"""The type of an event's data, by the event's kind."""

StateEvent = RunEvent[Literal["state"], StateNews]
RoundEvent = RunEvent[Literal["round"], RoundNews]
DroppedEvent = RunEvent[Literal["dropped"], DroppedNews]
AnyEvent = StateEvent | RoundEvent | DroppedEvent
"""An event whose ``kind`` says which news it has, also to a type checker."""
