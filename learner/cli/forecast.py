"""``parley-learner forecast``: what a run would achieve, and who should take part, before anybody is asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parley.common.client.cli_values import pair
from parley.common.encoding.spelling import so_many
from parley.common.errors import InvalidInputError
from parley.common.service.commands import FormatOption, print_json_line
from parley.learner.cli.options import (
    DEFAULT_URL,
    AdjacencyOption,
    AlgorithmOption,
    AnswerEveryOption,
    BudgetOption,
    CaOption,
    ColludersOption,
    DeltaOption,
    EpsilonOption,
    ExplainOption,
    MinimumOption,
    ParameterOption,
    PartyOption,
    PublicOption,
    SecondsOption,
    SecureSumOption,
    StudyArgument,
    TokenFileOption,
    UrlOption,
    open_client,
    read_terms,
)
from parley.learner.cli.outlook import chosen, costly, refusals

if TYPE_CHECKING:
    from rich.table import Table

EXAMPLES = (
    "Examples:\n\n"
    "parley-learner forecast biopsies --epsilon 1 --delta 1e-5   (the learner's own parties, as large as they say)\n\n"
    "parley-learner forecast fraud.json --algorithm wu_subgradient -p n_rounds=50 --epsilon 10 --delta 1e-5 "
    "--owner bank-a=2900 --owner bank-b=2900 --owner shop=200 --budget shop=0.1,1e-6   (owners who may join; nobody "
    "is asked)\n\n"
    "parley-learner forecast biopsies --epsilon 1 --delta 1e-5 --format json | jq .outcome.left_out"
)


_ANSWERS = {True: "yes", False: "[yellow]no[/]", None: "-"}


_LEGEND = """\
epsilon: what the run is charged at most. value: by how much the best coalition
is worse without the owner (below 0: with it). alone: the excess of the owner's
own model. worth it: whether the best coalition, the owner included, comes to
less than that. take part: whether the owner is in the best coalition."""


def forecast_command(
    study: StudyArgument,
    epsilon: EpsilonOption,
    delta: DeltaOption,
    algorithm: AlgorithmOption = "dp_gd",
    parameter: ParameterOption = None,
    owner: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=EXAMPLES", help="an owner who may take part; repeat; the roster's if not given"),
    ] = None,
    party: PartyOption = None,
    budget: BudgetOption = None,
    minimum_contributors: MinimumOption = None,
    answer_every: AnswerEveryOption = 1,
    colluders: ColludersOption = None,
    secure_sum: SecureSumOption = "none",
    adjacency: AdjacencyOption = "replace_one",
    public: PublicOption = None,
    seconds: SecondsOption = 60.0,
    explain: ExplainOption = False,
    url: UrlOption = DEFAULT_URL,
    token_file: TokenFileOption = None,
    ca: CaOption = None,
    output: FormatOption = "text",
) -> None:
    """Say what a run would achieve, what it would leave each owner, and who should be left out. Costs no privacy.

    From sizes and budgets alone, no data. *Excess fitness* is by how much the mean loss exceeds the least of any model;
    an owner's *value* is by how much it would be worse without the owner. *Alone* is the excess fitness of the owner's
    own model, of its own examples without noise: joining is worth it where the best coalition does better. The interval
    is of data like those that the forecast was made by.
    """
    body = read_terms(
        study,
        parameter,
        budget,
        algorithm=algorithm,
        epsilon=epsilon,
        delta=delta,
        parties=party,
        owners=dict(map(_owner, owner)) if owner else None,
        minimum_contributors=minimum_contributors,
        answer_every=answer_every,
        colluders=colluders,
        secure_sum=secure_sum,
        adjacency=adjacency,
        public=public,
        seconds=seconds,
    )
    with open_client(url, token_file, ca) as client:
        answer = client.ask("POST", "/v1/forecasts", body)
    if output == "json":
        print_json_line(answer)
        return
    from rich.markup import escape  # noqa: PLC0415 -- so that help comes at once

    from parley.learner.cli.display import new_grid  # noqa: PLC0415 -- as above
    from parley.learner.client.progress import terminal  # noqa: PLC0415 -- as above

    console = terminal(highlight=False)
    console.print(
        f"{answer['algorithm']}, {so_many(answer['rounds'], 'round')}, {so_many(len(answer['owners']), 'owner')}"
    )
    summary = new_grid()
    for line in (*_summary(answer), *(explained(answer) if explain else ())):
        summary.add_row(*map(escape, line))
    console.print(summary)
    console.print(_table(answer))
    if answer["outcome"]:
        console.print(escape(_LEGEND))


def _owner(given: str) -> tuple[str, int]:
    """A pair NAME=EXAMPLES."""
    name, value = pair(given)
    if not (value.isascii() and value.isdecimal()):
        raise InvalidInputError(f"the size of {name} must be a number of examples, not {value!r}")
    return name, int(value)


def explained(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The parameters that were chosen, and why."""
    for name, value, why in chosen(answer):
        yield f"{name} = {value}", why


def _summary(answer: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What is to be said of the run as a whole, and under which heading."""
    yield from (("refused", line) for line in refusals(answer))
    yield from (("warning", line) for line in answer["key_holders"])
    if (outcome := answer["outcome"]) is None:
        yield "no forecast", answer["no_forecast"]
    else:
        yield (
            "excess fitness with all",
            f"{_interval(outcome['excess'])}, in {outcome['rate']:.0%} of runs on data like those it was made by",
        )
        yield from _lost(outcome)
        if outcome["constant"]:
            yield "without any feature", f"{_interval(outcome['constant'])}, of the best model that looks at none"
        if outcome["warning"]:
            yield "warning", outcome["warning"]
        yield "with the best coalition", f"{_interval(outcome['best'])}: {', '.join(outcome['coalition'])}"
        yield "leave out", ", ".join(outcome["left_out"]) or "nobody"
        yield "proven", _bound(outcome["proven"])
        if outcome["printed"]:
            yield "as the paper prints it", f"{_bound(outcome['printed'])}; it drops the dimension"
        yield "assumes that", "; ".join(outcome["assumptions"])
    took = answer["run_time"]
    seconds = "" if took["seconds"] is None else f"{took['seconds']:.3g} s, {took['ms_per_round']:.3g} ms a round: "
    yield "time", f"{seconds}{took['basis']}"
    for line in costly(answer):
        yield "carries", line


def _lost(outcome: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the high end of the excess means for the label, where a bound on that says anything."""
    if (error := outcome["error_lost"]) is not None:
        yield "accuracy", f"at most {error:.1%} below the best possible, if a linear model has the right probabilities"
    if (rmse := outcome["rmse_lost"]) is not None:
        yield "root mean squared error", f"at most {_figure(rmse)} above the least, the label's bounds being -1 and 1"
    if (share := outcome["r_squared_lost"]) is not None:
        yield "R²", f"at most {_figure(share)} below the largest possible"


def _table(answer: Mapping[str, Any]) -> Table:
    """The owners, one a line; the ledgers of those who were asked."""
    from rich.markup import escape  # noqa: PLC0415 -- so that help comes at once

    from parley.learner.cli.display import new_table  # noqa: PLC0415 -- as above

    asked = any(each["epsilon_now"] is not None for each in answer["owners"])
    ledger = ("left now", "left after") if asked else ()
    table = new_table("owner", "examples", "epsilon", *ledger, "value", "alone", "worth it", "take part")
    for each in answer["owners"]:
        worth, part = (_ANSWERS[each[name]] for name in ("worth_joining", "recommended"))
        if each["fits"] is False or each["objections"]:
            part = "[red]refuses[/]"
        left = [_figure(each[name]) for name in ("epsilon_now", "epsilon_left")] if asked else []
        shown = [_figure(each["value"]), _figure(each["alone"] and each["alone"]["estimate"]), worth, part]
        table.add_row(escape(each["name"]), str(each["n_examples"]), _figure(each["epsilon"]), *left, *shown)
    return table


def _interval(interval: Mapping[str, float | None]) -> str:
    return f"{_figure(interval['estimate'])} (from {_figure(interval['low'])} to {_figure(interval['high'])})"


def _bound(bound: Mapping[str, float | None]) -> str:
    excess = "nothing" if bound["excess"] is None else f"at most {_figure(bound['excess'])}"
    return f"{excess} on the owners' own examples, noise energy {_figure(bound['noise_energy'])} a round"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
