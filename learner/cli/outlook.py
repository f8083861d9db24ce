"""What ``parley-learner submit`` says before it asks for a run: what to expect of it, beside what costs less."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from parley.common.encoding.spelling import as_told, so_many
from parley.common.errors import ParleyError
from parley.common.privacy.guarantee import NEXT_TO_NOTHING

if TYPE_CHECKING:
    from parley.learner.cli.client import LearnerClient

_NAMED = 5
_LONG = 10**5  # numbers of an answer beyond which its cost is told
_NONSENSE = {400, 401, 403, 422}


def outlook(client: LearnerClient, body: Mapping[str, Any], *, explain: bool) -> Iterator[str]:
    """Lines on a run that is about to be asked for; one that says why where there is no forecast.

    Raises ParleyError for a request that makes no sense.
    """
    yield from hardly_private(body["epsilon"], *(each["epsilon"] for each in body["budgets"].values()))
    try:
        answer = client.ask("POST", "/v1/forecasts", body)
    except ParleyError as error:
        problem = error.facts.get("problem")
        if not isinstance(problem, dict) or problem["status"] in _NONSENSE:
            raise
        yield f"no forecast: {error.detail}"
        return
    if explain:
        yield from (f"{name} = {value}: {why}" for name, value, why in chosen(answer))
    yield from (f"warning: refused {line}" for line in refusals(answer))
    yield from (f"warning: {line}" for line in answer["key_holders"])
    yield f"{so_many(answer['rounds'], 'round')}{_time(answer['run_time'])}"
    yield from costly(answer)
    if answer["majority"] is not None:
        yield f"the commonest class makes up {answer['majority']:.3f}: so often to predict it for all is right"
    yield from _expected(answer) if answer["outcome"] else (f"no forecast: {answer['no_forecast']}",)


def hardly_private(*epsilons: float) -> Iterator[str]:
    """A warning where a budget is so large that it protects nobody."""
    if (most := max(epsilons)) > NEXT_TO_NOTHING:
        yield f"warning: an epsilon of {most:g} promises next to nothing: 1 is a strong promise, 10 a weak one"


def refusals(answer: Mapping[str, Any]) -> Iterator[str]:
    """By whom a forecast's run would be refused, a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for owner in answer["owners"]:
        spent = [owner["exhausted"]] if owner["exhausted"] else []
        for reason in (*owner["objections"], *spent):
            reasons.setdefault(reason, []).append(owner["name"])
    for reason, names in reasons.items():
        yield f"by {_some(names)}: {reason}"


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def chosen(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What was chosen of a forecast's run: its name, its value and why."""
    for name, why in answer["chosen"].items():
        yield name, answer["algorithm"] if name == "algorithm" else as_told(answer["parameters"][name]), why


def costly(answer: Mapping[str, Any]) -> Iterator[str]:
    """What a run with long answers costs to carry, and where it does not fit; nothing of one with short answers."""
    if (costs := answer["costs"])["answered"] <= _LONG:
        return
    yield (
        f"an answer has {costs['answered']:,} numbers: {_size(costs['round_bytes'])} on the wire a party and round, "
        f"{_size(costs['all_bytes'])} in all; at a party {_size(costs['memory_bytes'])} of memory beside its rows, and "
        f"about {costs['noise_seconds']:.2g} s of noise; at the learner about {_size(costs['learner_bytes'])} of memory"
    )
    if not costs["fits"]:
        yield f"warning: a party's {costs['limit']} must be {costs['longest']:,} or more, which its default is not"


def _size(count: int) -> str:
    """A number of bytes for people.

    >>> _size(25_855_816)
    '25.9 MB'
    """
    return f"{count / 1e9:.3g} GB" if count >= 10**9 else f"{count / 1e6:.3g} MB"


def _time(run_time: Mapping[str, Any]) -> str:
    return "" if run_time["seconds"] is None else f", about {run_time['seconds']:.3g} s ({run_time['basis']})"


def _expected(answer: Mapping[str, Any]) -> Iterator[str]:
    """The excess to expect together, what each owner would get alone, and a warning where that is no worse."""
    excess = answer["outcome"]["excess"]
    yield f"excess fitness to expect {excess['estimate']:.3g} (from {excess['low']:.3g} to {excess['high']:.3g})"
    if warning := answer["outcome"]["warning"]:
        yield f"warning: {warning}"
    alone = sorted(each["alone"]["estimate"] for each in answer["owners"])
    yield f"an owner alone, without noise: {alone[0]:.3g} to {alone[-1]:.3g}"
    better_off = [each["name"] for each in answer["owners"] if not each["worth_joining"]]
    if better_off:
        yield f"warning: joining is not worth it for {_some(better_off)}: alone they are expected to do better"
