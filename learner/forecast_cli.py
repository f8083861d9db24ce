"""``parley-learner forecast``: what a run would achieve, and who should take part, before anybody is asked to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from common.errors import InvalidInputError
from common.service.asking.spelling import pair
from learner.options import (
    DEFAULT_URL,
    AlgorithmOption,
    AnswerEveryOption,
    BudgetOption,
    ColludersOption,
    DeltaOption,
    EpsilonOption,
    FormatOption,
    MinimumOption,
    ParameterOption,
    PartyOption,
    SecureSumOption,
    StudyArgument,
    TokenFileOption,
    TokenOption,
    UrlOption,
    open_client,
    print_json,
    read_terms,
)

EXAMPLES = (
    "Examples:\n\n"
    "parley-learner forecast wdbc --epsilon 1 --delta 1e-5   (the learner's own parties, as large as they say)\n\n"
    "parley-learner forecast fraud.json --algorithm wu_subgradient -p n_rounds=50 --epsilon 10 --delta 1e-5 "
    "--owner bank-a=2900 --owner bank-b=2900 --owner shop=200 --budget shop=0.1,1e-6   (owners who may join; nobody "
    "is asked)\n\n"
    "parley-learner forecast wdbc --epsilon 1 --delta 1e-5 --format json | jq .outcome.left_out"
)


_ANSWERS = {True: "yes", False: "[yellow]no[/]", None: "-"}


def forecast(
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
    colluders: ColludersOption = 0,
    secure_sum: SecureSumOption = "none",
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    output: FormatOption = "text",
) -> None:
    """Say what a run would achieve, what it would leave each owner, and who should be left out. Costs no privacy.

    From sizes and budgets alone, no data. *Excess fitness* is by how much the mean loss exceeds that of the best model;
    an owner's *value* is by how much it would be worse without the owner. *Alone* is the excess fitness of the owner's
    own model, of its own examples without noise: joining is worth it where the best coalition does better.
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
    )
    with open_client(url, token, token_file) as client:
        answer = client.ask("POST", "/v1/forecasts", body)
    if output == "json":
        print_json(answer)
        return
    console = Console(highlight=False)
    for line in _lines(answer):
        console.print(escape(line))
    console.print(_table(answer))


def _owner(given: str) -> tuple[str, int]:
    """A pair NAME=EXAMPLES."""
    name, value = pair(given)
    if not (value.isascii() and value.isdecimal()):
        raise InvalidInputError(f"the size of {name} must be a number of examples, not {value!r}")
    return name, int(value)


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """What is to be said of the run as a whole."""
    yield f"{answer['algorithm']}, {answer['rounds']} rounds, {len(answer['owners'])} owners"
    if (outcome := answer["outcome"]) is None:
        yield f"no forecast: {answer['no_forecast']}"
    else:
        yield f"excess fitness with all   {_interval(outcome['excess'])}, in {outcome['rate']:.0%} of runs"
        yield f"with the best coalition   {_interval(outcome['best'])}: {', '.join(outcome['coalition'])}"
        yield f"leave out                 {', '.join(outcome['left_out']) or 'nobody'}"
        yield f"proven                    {_bound(outcome['mended'])}"
        if outcome["printed"]:
            yield f"as the paper prints it    {_bound(outcome['printed'])}; it drops the dimension"
        yield f"assumes that              {'; '.join(outcome['assumptions'])}"
    took = answer["run_time"]
    seconds = "" if took["seconds"] is None else f"{took['seconds']:.3g} s, {took['ms_per_round']:.3g} ms a round: "
    yield f"time                      {seconds}{took['basis']}"


def _table(answer: Mapping[str, Any]) -> Table:
    """The owners, one a line."""
    headings = ("owner", "examples", "epsilon", "delta", "left now", "left after", "value", "alone", "worth joining")
    table = Table(*headings, "take part")
    for each in answer["owners"]:
        worth, part = (_ANSWERS[each[name]] for name in ("worth_joining", "recommended"))
        if each["epsilon_left"] is not None and each["epsilon_left"] < 0:
            part = "[red]would refuse[/]"
        figures = [_figure(each[name]) for name in ("epsilon", "delta", "epsilon_now", "epsilon_left", "value")]
        alone = each["alone"] and each["alone"]["estimate"]
        table.add_row(escape(each["name"]), str(each["n_examples"]), *figures, _figure(alone), worth, part)
    return table


def _interval(interval: Mapping[str, float | None]) -> str:
    return f"{_figure(interval['estimate'])} (from {_figure(interval['low'])} to {_figure(interval['high'])})"


def _bound(bound: Mapping[str, float | None]) -> str:
    excess = "nothing" if bound["excess"] is None else f"at most {_figure(bound['excess'])}"
    return f"{excess} on the owners' own examples, noise energy {_figure(bound['noise_energy'])} a round"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
