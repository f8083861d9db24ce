"""``parley-learner forecast``: what a run would achieve, and who should take part, before anybody is asked to.

`outlook` has the lines that ``parley-learner submit`` and ``describe`` print before they ask for a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.common.encoding.texts import as_told, so_many
from parley.common.errors import InvalidInputError, ParleyError
from parley.common.privacy.guarantee import NEXT_TO_NOTHING
from parley.common.service.commands import Printer, deferred, split_pair
from parley.learner.api import routes
from parley.learner.cli.options import ExplainOption, LearnerOptions, TrainingOptions

with deferred():
    from parley.learner.cli import display
    from parley.learner.client import progress

if TYPE_CHECKING:
    from rich.table import Table

    from parley.learner.cli.client import LearnerClient

_NAMED = 5
_LONG = 10**5  # numbers of an answer beyond which its cost is shown
_NONSENSE = {400, 401, 403, 422}


def outlook(client: LearnerClient, body: Mapping[str, Any], *, explain: bool) -> Iterator[str]:
    """Yield lines about a run that is about to be asked for; without a forecast, a line gives the reason.

    Raises ParleyError for a request that makes no sense.
    """
    yield from hardly_private(body["epsilon"], *(budget["epsilon"] for budget in body["budgets"].values()))
    try:
        answer = client.ask(*routes.FORECAST.to(), body)
    except ParleyError as error:
        problem = error.facts.get("problem")
        if not isinstance(problem, dict) or problem["status"] in _NONSENSE:
            raise
        yield f"no forecast: {error.detail}"
        return
    if explain:
        yield from (f"{name} = {value}: {reason}" for name, value, reason in chosen(answer))
    yield from _asked(answer)
    yield from (f"warning: {line}" for line in (*_unused(answer), *_away(answer), *answer["key_holders"]))
    yield f"{so_many(answer['rounds'], 'round')}{_time(answer['run_time'])}"
    yield from _to_come(answer)
    yield from filter(None, (answer.get("shared"), answer["evaluation"]))
    yield from costly(answer)
    if answer["majority"] is not None:
        yield f"the commonest class makes up {answer['majority']:.3f}: to predict it always is right so often"
    yield from _expected(answer) if answer["outcome"] else (f"no forecast: {answer['no_forecast']}",)


def hardly_private(*epsilons: float) -> Iterator[str]:
    """Yield a warning if the largest of these epsilons protects nobody."""
    if (most := max(epsilons)) > NEXT_TO_NOTHING:
        yield f"warning: an epsilon of {most:g} promises next to nothing: 1 is a strong promise, 10 a weak one"


def refusals(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each reason to refuse a forecast's run, with the owners who answer and would."""
    reasons: dict[str, list[str]] = {}
    for owner in answer["owners"]:
        if owner["away"]:
            continue
        spent = [owner["exhausted"]] if owner["exhausted"] else []
        for reason in (*owner["objections"], *spent):
            reasons.setdefault(reason, []).append(owner["name"])
    for reason, names in reasons.items():
        yield f"by {_some(names)}: {reason}"


def _asked(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line that says who is asked, where some parties hold other studies."""
    if others := answer["without"]:
        names = [owner["name"] for owner in answer["owners"]]
        yield f"asks {_some(names)}; {_some(others)} {'holds' if len(others) == 1 else 'hold'} other studies"


def _to_come(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield how many more such runs the budgets hold, what they do not pay for, and what a delta would buy."""
    if instead := answer.get("instead"):
        yield instead
    if (more := answer.get("more_runs")) is not None:
        least = [owner["name"] for owner in answer["owners"] if owner["more_runs"] == more]
        at = "" if len(least) == len(answer["owners"]) else f" at {_some(least)}"
        yield f"{more:,} more like this would fit afterwards{at}, as far as your own runs go: others may spend too"
    if buys := answer.get("delta_buys"):
        yield buys


def _unused(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line if the study's file has changed and is not used."""
    if answer.get("unused_file"):
        yield f"the study's file has changed and is not used: {answer['unused_file']}"


def _away(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each owner that is away, with what it objected to before."""
    for owner in answer["owners"]:
        if owner["away"]:
            objects = f", which may refuse it: {'; '.join(owner['objections'])}" if owner["objections"] else ""
            yield f"{owner['away']}: the run waits for {owner['name']}{objects}, unless you name others by --party"


def _some(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def chosen(answer: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield name, value and reason of each parameter that the forecast chose."""
    for name, reason in answer["chosen"].items():
        yield name, answer["algorithm"] if name == "algorithm" else as_told(answer["parameters"][name]), reason


def costly(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a run with long answers costs to carry, and whether it fits; nothing if its answers are short."""
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
    """Return a number of bytes as people read it.

    >>> _size(25_855_816)
    '25.9 MB'
    """
    return f"{count / 1e9:.3g} GB" if count >= 10**9 else f"{count / 1e6:.3g} MB"


def _time(run_time: Mapping[str, Any]) -> str:
    return "" if run_time["seconds"] is None else f", about {run_time['seconds']:.3g} s ({run_time['basis']})"


def _expected(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the excess to expect together and alone, and a warning for owners who do better alone."""
    for title, words in (*_figures(answer["outcome"]), *_lost(answer["outcome"])):
        yield f"{title}: {words}"
    if warning := answer["outcome"]["warning"]:
        yield f"warning: {warning}"
    excess = answer["outcome"]["excess"]
    yield f"excess fitness to expect {excess['estimate']:.3g} (from {excess['low']:.3g} to {excess['high']:.3g})"
    alone = sorted(owner["alone"]["estimate"] for owner in answer["owners"])
    yield f"excess fitness of an owner alone, without noise: {alone[0]:.3g} to {alone[-1]:.3g}"
    better_off = [owner["name"] for owner in answer["owners"] if not owner["worth_joining"]]
    if better_off:
        kind = "note" if answer["outcome"]["figures"] else "warning"
        yield (
            f"{kind}: by excess fitness joining is not worth it for {_some(better_off)}: alone, without noise, they "
            "are expected to do better, if all owners' data are alike"
        )


EXAMPLES = (
    "Examples:\n\n"
    "parley-learner forecast biopsies --epsilon 1 --delta 1e-5   (the learner's own parties, as large as they say)\n\n"
    "parley-learner forecast fraud.json --algorithm wu_subgradient -p n_rounds=50 --epsilon 10 --delta 1e-5 "
    "--owner bank-a=2900 --owner bank-b=2900 --owner shop=200 --budget shop=0.1,1e-6   (owners who may join; nobody "
    "is asked)\n\n"
    "parley-learner forecast biopsies --epsilon 1 --delta 1e-5 --format json | jq .outcome.left_out"
)


_ANSWERS = {True: "yes", False: "[yellow]no[/]", None: "-"}


_OWN_VIEW = """\
left: as far as your own runs go; other learners may have spent more. A run may
take less off it than its epsilon: Gaussian answers together cost less than the
sum of theirs."""
_LEGEND = """\
epsilon: what the run is charged at most. value: by how much the best coalition
is worse without the owner (below 0: with it). alone: the excess of the owner's
own model. worth it: whether the best coalition, the owner included, comes to
less than that. take part: whether the owner is in the best coalition."""


def forecast_command(
    terms: TrainingOptions,
    *,
    owner: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXAMPLES", help="an owner who may take part; repeat; the roster's if not given"),
    ] = None,
    rows_per_person: Annotated[
        float | None,
        typer.Option(
            "--rows-per-person", min=1, help="a guess, where the study names persons: the time of a round depends on it"
        ),
    ] = None,
    explain: ExplainOption = False,
    learner: LearnerOptions,
    out: Printer,
) -> None:
    """Print what a run would achieve, what it would leave each owner, and who should be left out. Costs no privacy.

    The forecast uses sizes and budgets alone, no data. *Excess fitness* is by how much the mean loss exceeds the least
    of any model; an owner's *value* is by how much it would be worse without the owner. *Alone* is the excess fitness
    of a model of the owner's own examples, without noise: joining is worth it if the best coalition does better.
    Intervals hold for data like those that the forecasts were calibrated on.
    """
    guess = {} if rows_per_person is None else {"rows_per_person": rows_per_person}
    body = terms.body(owners=dict(map(_parse_owner, owner)) if owner else None, **guess)
    with learner.open() as client:
        answer = client.ask(*routes.FORECAST.to(), body)
    out.result(answer, lambda: _show(answer, explain=explain))


def _show(answer: Mapping[str, Any], *, explain: bool) -> None:
    """Print a forecast as tables."""
    console = progress.terminal(highlight=False)
    console.print(
        f"{answer['algorithm']}, {so_many(answer['rounds'], 'round')}, {so_many(len(answer['owners']), 'owner')}"
    )
    summary = display.new_grid()
    for line in (*_summary(answer), *(explained(answer) if explain else ())):
        summary.add_row(*map(display.plain, line))
    console.print(summary)
    console.print(_table(answer))
    if _asked_ledgers(answer):
        console.print(display.plain(_OWN_VIEW))
    if answer["outcome"]:
        console.print(display.plain(_LEGEND))


def _parse_owner(text: str) -> tuple[str, int]:
    """Parse NAME=EXAMPLES; raises InvalidInputError."""
    name, value = split_pair(text)
    if not (value.isascii() and value.isdecimal()):
        raise InvalidInputError(f"the size of {name} must be a number of examples, not {value!r}")
    return name, int(value)


def explained(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each parameter that was chosen, with its reason, as the cells of a row."""
    for name, value, reason in chosen(answer):
        yield f"{name} = {value}", reason


def _summary(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield a heading and a text for each line of the summary."""
    yield from (("refused", line) for line in refusals(answer))
    if answer["helps"]:
        yield "what helps", ", or ".join(answer["helps"])
    yield from (("of the parties", line) for line in _asked(answer))
    yield from (("warning", line) for line in (*_unused(answer), *_away(answer)))
    yield from (("warning", line) for line in answer["key_holders"])
    if shared := answer.get("shared"):
        yield "with several owners", shared
    if answer["evaluation"]:
        yield "evaluation", answer["evaluation"]
    yield from (("runs to come", line) for line in _to_come(answer))
    if (outcome := answer["outcome"]) is None:
        yield "no forecast", answer["no_forecast"]
    else:
        yield from _figures(outcome)
        yield (
            "excess fitness with all",
            f"{_interval(outcome['excess'])}, in {outcome['rate']:.0%} of runs on data like those of its fit",
        )
        yield from _lost(outcome)
        if outcome["constant"]:
            yield "without any feature", f"{_interval(outcome['constant'])}, of the best model that looks at none"
        if outcome["warning"]:
            yield "warning", outcome["warning"]
        yield "with the best coalition", f"{_interval(outcome['best'])}: {', '.join(outcome['coalition'])}"
        yield "leave out", ", ".join(outcome["left_out"]) or "nobody"
        yield "proven", _bound(outcome["proven"])
        yield from _printed(outcome["printed"])
        yield from _likely(outcome["likely"])
        yield "assumes that", "; ".join(outcome["assumptions"])
    yield "time", _duration(answer["run_time"])
    yield from (("carries", line) for line in costly(answer))


def _duration(took: Mapping[str, Any]) -> str:
    """Return how long a run takes, and from what that follows."""
    seconds = "" if took["seconds"] is None else f"{took['seconds']:.3g} s, {took['ms_per_round']:.3g} ms a round: "
    return f"{seconds}{took['basis']}"


def _figures(outcome: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what to expect in the label's own terms beside its baselines, or what the study lacks for it."""
    for figure in outcome["figures"]:
        unit = f" {figure['unit']}" if figure["unit"] else ""
        beside = (
            f"without any feature {_figure(figure['constant'])}, the largest owner alone {_figure(figure['alone'])}"
        )
        ends = f"from {_figure(figure['low'])} to {_figure(figure['high'])}"
        yield figure["title"], f"{_figure(figure['estimate'])}{unit} ({ends}); {beside}"
    if outcome["figures"]:
        yield "all data pooled", "without privacy they reach what nobody knows: nobody has seen the data"
    if outcome["unstated"]:
        yield "note", outcome["unstated"]


def _lost(outcome: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the high end of the excess means for the label, if it bounds anything."""
    if (error := outcome["error_lost"]) is not None:
        yield "accuracy", f"at most {error:.1%} below the best possible, if a linear model has the right probabilities"
    if (rmse := outcome["rmse_lost"]) is not None:
        yield "root mean squared error", f"at most {_figure(rmse)} above the least, the label's bounds being -1 and 1"
    if (share := outcome["r_squared_lost"]) is not None:
        yield "R²", f"at most {_figure(share)} below the largest possible"


def _table(answer: Mapping[str, Any]) -> Table:
    """Return the table of the owners, with their ledgers if the forecast asked them."""
    has_ledgers = _asked_ledgers(answer)
    ledger = ("left now", "left after") if has_ledgers else ()
    examples = "persons" if answer.get("unit") == "person" else "examples"
    table = display.new_table("owner", examples, "epsilon", *ledger, "value", "alone", "worth it", "take part")
    for owner in answer["owners"]:
        worth, part = (_ANSWERS[owner[name]] for name in ("worth_joining", "recommended"))
        if owner["away"]:
            part = "[yellow]away[/]"
        elif owner["fits"] is False or owner["objections"]:
            part = "[red]refuses[/]"
        ledger_cells = [_figure(owner[name]) for name in ("epsilon_now", "epsilon_left")] if has_ledgers else []
        figures = [_figure(owner["value"]), _figure(owner["alone"] and owner["alone"]["estimate"]), worth, part]
        table.add_row(
            display.plain(owner["name"]), str(owner["n_examples"]), _figure(owner["epsilon"]), *ledger_cells, *figures
        )
    return table


def _asked_ledgers(answer: Mapping[str, Any]) -> bool:
    """Return whether an owner's party said what its ledger has left."""
    return any(owner["epsilon_now"] is not None for owner in answer["owners"])


def _interval(interval: Mapping[str, float | None]) -> str:
    return f"{_figure(interval['estimate'])} (from {_figure(interval['low'])} to {_figure(interval['high'])})"


def _bound(bound: Mapping[str, float | None]) -> str:
    excess = "nothing" if bound["excess"] is None else f"at most {_figure(bound['excess'])}"
    return f"{excess} on the owners' own examples, noise energy {_figure(bound['noise_energy'])} a round"


def _printed(bound: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield what the algorithm's paper prints, and what is proven without the dimension, which that drops."""
    if bound:
        yield "as the paper prints it", f"{bound['stated']}; it drops the dimension"
        yield "without the dimension", _bound(bound)


def _likely(bound: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield what Theorem 5.1 says of the exact minimiser of a tilted risk, if the run looks for one."""
    if bound is None:
        return
    excess, printed, at_zero = (_figure(bound[name]) for name in ("excess", "printed", "at_zero"))
    beside = "" if bound["printed"] is None else f" (as the paper prints it, {printed})"
    vacuous = (
        f"; that says nothing: weights of 0 are at most {at_zero} off" if bound["excess"] >= bound["at_zero"] else ""
    )
    words = f"at most {excess}{beside} more than the best regularised risk on the owners' own examples"
    yield f"in {bound['chance']:.0%} of draws", f"{words}, if the model is the exact minimiser{vacuous}"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
