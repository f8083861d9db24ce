"""Which algorithms a simulation takes, and the one that it chooses where that is left open."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from parley.common.algorithms import AUTO, REGISTRY
from parley.common.errors import InvalidInputError
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.learner.cli.main import learner_app
from parley.learner.experiments import UNTRAINED, simulated_names
from parley.learner.experiments.datasets import WDBC, shard_sizes
from parley.learner.experiments.simulation import SimulationSettings, run_simulation
from parley.learner.forecasting.selection import candidates

OPEN = SimulationSettings("wdbc", algorithm=AUTO, repeat=1, seed=3)


def test_names_are_of_what_trains() -> None:
    assert {name for name, algorithm in REGISTRY.items() if not algorithm.trains} == set(UNTRAINED)
    assert set(simulated_names()) == {AUTO, *REGISTRY} - set(UNTRAINED)


@pytest.mark.parametrize("name", ["magic", "describe"])
def test_what_cannot_be_simulated_is_refused_with_what_help_lists(name: str) -> None:
    with pytest.raises(InvalidInputError, match=r"unknown algorithm 'magic'|describe trains no model") as caught:
        run_simulation(SimulationSettings("missing.csv", algorithm=name))
    listed = ", ".join(simulated_names())
    assert str(caught.value).endswith(f"; there are {listed}")
    stdout = CliRunner().invoke(learner_app, ["simulate", "--help"], env={"COLUMNS": "200"}).stdout
    assert listed in " ".join(stdout.replace("│", " ").split())


@pytest.mark.slow
def test_an_algorithm_that_is_left_open_is_chosen_as_for_a_run() -> None:
    simulation = run_simulation(OPEN)
    members = tuple(
        Member(name=f"party-{i}", n_examples=n, budget=Budget(epsilon=1.0, delta=1e-5))
        for i, n in enumerate(shard_sizes(simulation.n_train, 5))
    )
    spec = RunSpec(
        study=WDBC, algorithm="psgd", parameters={}, minimum_contributors=5, secure_sum="paillier", parties=members
    )
    way = next(candidates(spec, None, any_algorithm=True))
    done, why = way.spec, way.reasons
    name = simulation.settings.algorithm
    assert name == done.algorithm == simulation.choices["algorithm"].value
    assert simulation.choices["algorithm"].why.partition(",")[2] == why["algorithm"].partition(",")[2]
    named = run_simulation(SimulationSettings("wdbc", algorithm=name, repeat=1, seed=3))
    assert simulation.metrics == named.metrics


@pytest.mark.slow
def test_the_command_names_what_it_chose() -> None:
    words = ["simulate", "--algorithm", "auto", "--repeat", "1", "--seed", "3", "--no-baselines"]
    done = CliRunner().invoke(learner_app, words)
    assert done.exit_code == 0, done.output
    first, *lines = done.stdout.splitlines()
    name = first.partition(":")[0]
    assert name in REGISTRY
    assert any(line.startswith(f"  algorithm = {name}: an excess fitness of ") for line in lines)
    document = json.loads(CliRunner().invoke(learner_app, [*words, "--format", "json"]).stdout)
    assert (document["algorithm"], document["chosen"]["algorithm"]["value"]) == (name, name)


def test_parameters_need_the_algorithm_whose_they_are() -> None:
    with pytest.raises(InvalidInputError, match="parameters are those of an algorithm"):
        run_simulation(SimulationSettings("wdbc", algorithm=AUTO, parameters={"step": 1.0}))
