"""``parley-party learn``: an owner's own model."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated

import typer

from parley.common.encoding.texts import so_many
from parley.common.errors import InvalidInputError
from parley.common.service.commands import (
    Printer,
    deferred,
    print_json_line,
    read_budgets,
    read_parameters,
)
from parley.party.commands import DEFAULT_CONFIG, Config, quietly

with deferred():
    import asyncio

    from parley.common.encoding import number_lines
    from parley.party import settings as party_settings
    from parley.party.data import owner_data
    from parley.party.owner import training as learning


OWN_MODELS = (
    "Examples:\n\n"
    "parley-party learn --epsilon 1 --delta 1e-5 --save model.json\n\n"
    "parley-party learn --algorithm wu_subgradient -p n_rounds=50 --epsilon 10 --delta 1e-5 --budget shop=0.1,1e-6"
)


def learn_command(
    epsilon: Annotated[float, typer.Option(help="What the run may cost each of the others.")],
    delta: Annotated[float, typer.Option(help="What the run may cost each of the others.")],
    config: Config = DEFAULT_CONFIG,
    algorithm: Annotated[str, typer.Option(help="dp_gd, wu_strongly_convex, wu_subgradient or feature.")] = "dp_gd",
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", metavar="NAME=VALUE", help="Of the algorithm; repeat.")
    ] = None,
    party: Annotated[list[str] | None, typer.Option(help="One to ask; repeat; all [[peers]] if not given.")] = None,
    budget: Annotated[
        list[str] | None, typer.Option(metavar="PARTY=EPSILON,DELTA", help="Another budget for one party; repeat.")
    ] = None,
    minimum_contributors: Annotated[
        int | None, typer.Option(min=1, help="Least number of others in each round; all if not given.")
    ] = None,
    deadline: Annotated[float, typer.Option(min=0.01, help="Seconds that a silent party is waited for.")] = 5.0,
    study: Annotated[
        str | None, typer.Option(help="The study of the examples, where the settings have several.")
    ] = None,
    run: Annotated[str | None, typer.Option(help="The name of a run that failed, to take it up again.")] = None,
    save: Annotated[Path | None, typer.Option(help="File for the model; standard output if not given.")] = None,
    *,
    out: Printer,
) -> None:
    """Train a model of your own: on your examples as they are, and on the other owners' noisy answers.

    The others are the parties in [[peers]] of party.toml (name, url, token or token_file, ca); they must know you as
    one of their [[learners]], and they keep every promise and budget that they have made. Your own answers carry no
    noise and never leave this process, but the weights that the others are asked about are computed from them:
    YOUR OWN EXAMPLES ARE NOT PROTECTED FROM THE PARTIES THAT YOU ASK. `--algorithm feature` is the exception: it
    asks them for models of theirs, and shows them nothing.
    """
    with quietly():
        settings = party_settings.PartySettings.load(config)
        names = [peer.name for peer in settings.peers] if party is None else party
        if not names:
            raise InvalidInputError("there is nobody to ask: the settings have no [[peers]]")
        budgets = {name: (terms["epsilon"], terms["delta"]) for name, terms in read_budgets(budget).items()}
        if unknown := sorted(set(budgets) - set(names)):
            raise InvalidInputError(f"a budget is given for unknown parties: {', '.join(unknown)}")
        order = learning.Order(
            run=run or uuid.uuid4().hex,
            algorithm=algorithm,
            parameters=read_parameters(parameter),
            budgets={name: budgets.get(name, (epsilon, delta)) for name in names},
            minimum_contributors=minimum_contributors,
            deadline=deadline,
        )
        holding = owner_data.load_holding(settings, settings.study_named(study))
        typer.echo(
            f"run {order.run}; of your own examples: {learning.protection(order, settings.name, holding)}", err=True
        )
        model = asyncio.run(learning.learn(order, settings.name, holding, settings.peers))
    if save is not None:
        with save.open("w", encoding="utf-8") as file:
            file.writelines(number_lines.document_lines(model))
    if save is None or out.is_json:
        print_json_line(model)
    else:
        typer.echo(f"{save}: {algorithm}, {so_many(model['rounds'], 'round')}, with {', '.join(model['contributors'])}")
