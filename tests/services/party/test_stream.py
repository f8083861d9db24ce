"""An owner's stream: the command, what the ledger says of it, and what it refuses."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner, Result

from common.errors import BudgetExhaustedError, ConflictError, ForbiddenError, InvalidInputError, UnavailableError
from common.online import Leader
from common.privacy.account import limit
from common.privacy.mechanisms.leader_draws import COST_UNIT
from common.privacy.noise import SeededNoise
from party.api.app import create_party_app
from party.cli.main import party_app
from party.ledger.audit import export, verify
from party.ledger.books import OWNER
from party.ledger.ledger import Ledger
from party.ledger.records import Answered, Approved
from party.personal.stream import Action, Stream, StreamTerms, play, read_cost
from party.settings import PartySettings, Policy
from tests.support.cluster import Cluster
from tests.support.ledgers import make_ledger, open_ledger
from tests.support.toml import write

TERMS = StreamTerms(name="prices", actions=3, horizon=6, bound=2.0, epsilon=1.0, delta=1e-6)
POLICY = Policy(epsilon=3, delta=1e-5, max_epsilon_per_run=1.5, max_delta_per_run=1e-5)
COSTS = np.random.default_rng(6).uniform(-2, 2, (6, 3)).round(3).tolist()
LINES = [json.dumps(cost) for cost in COSTS]
DOCUMENT = Path(__file__).parents[3] / "docs" / "how-to" / "commands.md"
ACTION = re.compile(r'(?<="action": )\d')  # drawn with noise


def opened(ledger: Ledger, policy: Policy = POLICY, **terms: object) -> Stream:
    return Stream(ledger, policy, TERMS.model_copy(update=terms), lambda round: SeededNoise([3, round]))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(tmp_path / "ledger", limit(3, 1e-5)) as ledger:
        yield ledger


def actions_of_one() -> list[int]:
    """The actions of an uninterrupted leader with the same noise."""
    leader, actions = Leader(3, 6, 2.0, 1.0, 1e-6), []
    for round, cost in enumerate(COSTS, start=1):
        leader.noise = SeededNoise([3, round])
        actions.append(leader.act())
        leader.observe(cost)
    return actions


# ── the ledger ───────────────────────────────────────────────────────────────


def test_the_first_action_is_charged_for_all_and_each_is_stored_before_it_is_shown(ledger: Ledger) -> None:
    stream = opened(ledger)
    assert [entry.record for entry in ledger.entries() if isinstance(entry.record, Answered)] == []
    for done, action in enumerate(play(stream, LINES), start=1):
        answers = ledger.answers()
        assert len(answers) == action.round == done
        assert Action.read(ledger.attachment(len(ledger.entries()), "body")) == action
        charged = sum(answer.cost.epsilon for answer in answers) / 1e6
        assert charged == pytest.approx(stream.leader.guarantee.epsilon, abs=1e-6)
        assert all(answer.cost.units == (0, 0, 0, 0) for answer in answers[1:])
    assert ledger.account().reserved.units == (0, 0, 0, 0)
    assert [action["action"] for action in _bodies(ledger)] == actions_of_one()
    with pytest.raises(ConflictError, match="prices has ended"):
        opened(ledger)


def _bodies(ledger: Ledger) -> list[dict[str, int]]:
    return [
        json.loads(ledger.attachment(entry.number, "body"))
        for entry in ledger.entries()
        if isinstance(entry.record, Answered)
    ]


@pytest.mark.parametrize("stop", range(7))
def test_a_stream_that_is_taken_up_again_is_the_one_that_was_never_left(ledger: Ledger, stop: int) -> None:
    first = list(play(opened(ledger), LINES[:stop]))
    if stop < 6:
        again = opened(ledger)
        assert again.act() == first[-1], "what was stored is shown once more, for it may not have been seen"
        first += list(play(again, LINES[stop:]))[1:]
    assert [action.action for action in first] == actions_of_one()
    assert [action.round for action in first] == [1, 2, 3, 4, 5, 6]


def _raise(*_: object) -> None:
    raise UnavailableError("the ledger cannot be written: its disk is full")


def test_an_action_that_could_not_be_stored_is_drawn_again(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, found = opened(ledger), []
    for cost in COSTS:
        with monkeypatch.context() as broken:
            broken.setattr(ledger, "_append", _raise)
            with pytest.raises(UnavailableError):
                stream.act()
        found.append(stream.act().action)
        stream.observe(tuple(cost))
    assert found == actions_of_one()


@pytest.mark.parametrize("stop", [1, 40, 99])
def test_a_stream_that_draws_seldom_keeps_its_action_over_a_restart(ledger: Ledger, stop: int) -> None:
    terms = TERMS.model_copy(update={"horizon": 100, "adversary": "oblivious"})
    costs = np.random.default_rng(7).uniform(-2, 2, (100, 3)).round(3).tolist()
    leader, expected = terms.leader(), []
    assert leader.terms.board is not None
    for round, cost in enumerate(costs, start=1):
        leader.noise = SeededNoise([3, round])
        expected.append(leader.act())
        leader.observe(cost)
    lines = [json.dumps(cost) for cost in costs]

    def taken_up() -> Stream:
        return opened(ledger, name="seldom", horizon=100, adversary="oblivious")

    found = [action.action for action in play(taken_up(), lines[:stop])]
    draws = taken_up().leader.state.draws
    assert draws == sum(
        Action.read(ledger.attachment(each, "body")).drawn
        for each in ledger.books.runs[OWNER, "seldom"].answers.values()
    )
    found += [action.action for action in play(taken_up(), lines[stop:])][1:]
    assert found == expected
    assert sum(one != other for one, other in itertools.pairwise(found)) < 30


def test_two_processes_cannot_part(ledger: Ledger) -> None:
    one, other = opened(ledger), opened(ledger)
    assert one.act() == other.act()
    one.observe(tuple(COSTS[0]))
    other.observe(tuple(COSTS[0]))
    assert one.act() == other.act()
    other.observe(tuple(COSTS[1]))
    one.observe(tuple(COSTS[2]))
    other.act()
    with pytest.raises(ConflictError, match="another process has told round 2 of prices another cost"):
        one.act()


def test_other_terms_prices_and_owners_rules_are_refused_before_anything_is_reserved(ledger: Ledger) -> None:
    opened(ledger).act()
    spent = ledger.account()
    with pytest.raises(ConflictError, match="prices was begun with other terms, horizon 6, not 7: say"):
        opened(ledger, horizon=7)
    with pytest.raises(ConflictError, match=r"adversary adaptive, not oblivious, bound 2.0, not 3.0, horizon 6, not 5"):
        opened(ledger, horizon=5, bound=3.0, adversary="oblivious")
    with pytest.raises(ForbiddenError, match="costs epsilon 2 "):
        opened(ledger, name="dear", epsilon=2.0)
    with pytest.raises(ForbiddenError, match="protects all its data at once"):
        opened(ledger, POLICY.model_copy(update={"adjacency": "whole_party"}), name="narrow")
    with pytest.raises(InvalidInputError, match="actions must lie"):
        opened(ledger, name="single", actions=1)
    assert ledger.account() == spent
    fits = ledger.account().runs_left(spent.spent)
    for number in range(fits):
        opened(ledger, name=f"more-{number}")
    with pytest.raises(BudgetExhaustedError):
        opened(ledger, name="one-too-many")


def test_an_audit_tells_of_actions_and_never_of_costs(ledger: Ledger) -> None:
    list(play(opened(ledger), LINES[:4]))
    lines = list(export(ledger))
    attached = [name for line in lines[1:] for name in json.loads(line)["attachments"]]
    assert set(attached) == {"spec", "price", "body"}
    entries, _ = verify(lines, ledger.identity.key)
    assert sum(isinstance(entry.record, Answered) for entry in entries) == 5


def test_no_guess_of_a_cost_can_be_confirmed_by_an_audit(ledger: Ledger) -> None:
    """Of two costs that are 0 or 1 there are four guesses, and the records name what was told by its digest."""
    list(play(opened(ledger, actions=2, bound=1.0), ["[0, 1]", "[1, 1]"]))
    kept = [ledger.attachment(entry.number, "told") for entry in ledger.entries() if "told" in entry.attached]
    audit = "\n".join(export(ledger))
    (spec,) = [ledger.attachment(entry.number, "spec") for entry in ledger.entries() if "spec" in entry.attached]
    query, guesses = hashlib.sha256(spec).digest(), list[str]()
    for cost in itertools.product((0, 1), repeat=2):
        told = (np.array(cost) * COST_UNIT).astype("<i4").tobytes()
        assert any(told in each for each in kept) == (cost in {(0, 1), (1, 1)})
        guesses += [hashlib.sha256(told).hexdigest(), hashlib.sha256(query + told).hexdigest()]
    assert not [guess for guess in guesses if guess in audit]
    assert all(hashlib.sha256(each).hexdigest() in audit for each in kept)


def test_a_service_leaves_an_owners_streams_alone(cluster: Cluster) -> None:
    settings = make_ledger(cluster.party_settings("party-1"))
    from party.answering.party import open_store  # noqa: PLC0415

    with open_store(settings) as ledger:
        opened(ledger, epsilon=0.1).act()
        assert ledger.unended(10) == []
        assert ledger.books.runs[OWNER, "prices"].approved.rounds == 6
    with TestClient(create_party_app(settings)) as client:
        assert client.get("/readyz").status_code == 200


def test_an_own_run_is_no_learners(ledger: Ledger) -> None:
    opened(ledger)
    (approved,) = [entry.record for entry in ledger.entries() if isinstance(entry.record, Approved)]
    assert approved.learner == OWNER
    assert ledger.consent("prices", "prices") is None


# ── lines ────────────────────────────────────────────────────────────────────


def test_costs_are_lists_or_have_a_name() -> None:
    assert read_cost("[1, -0.5, 0]") == read_cost('{"cost": [1, -0.5, 0.0]}\n') == (1.0, -0.5, 0.0)
    assert str(Action(3, 1)) == '{"round": 3, "action": 1}'


SECRET = "4111"


@pytest.mark.parametrize(
    "line",
    [
        f"[{SECRET}",
        f'"{SECRET}"',
        SECRET,
        f'{{"costs": [{SECRET}]}}',
        f'{{"cost": [{SECRET}], "x": 1}}',
        f'["{SECRET}"]',
        f"[[{SECRET}]]",
        f"[true, {SECRET}]",
        f"[null, {SECRET}]",
        "[" * 100_000,
        "{}",
    ],
)
def test_a_line_that_is_no_cost_is_refused_and_not_repeated(line: str) -> None:
    with pytest.raises(InvalidInputError, match="a line") as error:
        read_cost(line)
    assert SECRET not in error.value.detail


# ── the command ──────────────────────────────────────────────────────────────


@pytest.fixture
def config(cluster: Cluster) -> Path:
    settings: PartySettings = make_ledger(cluster.party_settings("party-1"))
    dumped = settings.model_dump(mode="json", exclude_none=True, include={"name", "state", "study", "data", "learners"})
    policy = {"epsilon": 3.0, "delta": 1e-5, "max_epsilon_per_run": 1.5, "max_delta_per_run": 1e-5}
    return write(cluster.root / "party.toml", dumped | {"policy": policy})


def command(config: Path, lines: str, *more: str, status: int = 0, **terms: object) -> Result:
    given = {"name": "prices", "actions": 3, "horizon": 6, "bound": 2, "epsilon": 1, "delta": 1e-6} | terms
    options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    result = CliRunner().invoke(party_app, ["stream", "--config", str(config), *options, *more], input=lines)
    assert result.exit_code == status, result.output
    return result


def test_acts_and_goes_on(config: Path, tmp_path: Path) -> None:
    receipt = tmp_path / "receipt"
    first = command(config, "\n".join(LINES[:2]), "--receipt", str(receipt))
    rounds = [json.loads(line)["round"] for line in first.stdout.splitlines()]
    assert rounds == [1, 2, 3]
    assert "(1, 1e-06) transcript replace_one [tight], regret at most" in first.stderr
    assert "the input ended early, 2 of 6 rounds have their costs: the same command goes on" in first.stderr
    assert receipt.read_text().count("\n") == 1
    rest = command(config, "\n\n".join(LINES[2:]) + "\n")
    assert rest.stdout.splitlines()[0] == first.stdout.splitlines()[2]
    assert len(rest.stdout.splitlines()) == 4
    assert "early" not in rest.stderr
    assert "has ended" in command(config, "", status=3).stderr
    told = CliRunner().invoke(party_app, ["log", "--by-run", "--config", str(config)])
    assert "6 noisy answers (act)" in told.stdout
    spent = CliRunner().invoke(party_app, ["log", "--format", "json", "--config", str(config)])
    assert [json.loads(line)["epsilon"] for line in spent.stdout.splitlines()] == [1.0, 0, 0, 0, 0, 0]


def test_the_documents_show_what_it_prints(config: Path) -> None:
    block = DOCUMENT.read_text(encoding="utf-8").partition("$ printf '")[2].partition("```")[0]
    lines, _, shown = block.partition("' > costs.jsonl\n$ ")
    typed, *printed = shown.splitlines()
    asked = typed.removeprefix("parley-party ").removesuffix(" < costs.jsonl").split()
    result = CliRunner().invoke(party_app, [*asked, "--config", str(config)], input=lines.replace("\\n", "\n"))
    assert result.exit_code == 0, result.output
    told = [*result.stderr.splitlines()[:2], *result.stdout.splitlines(), *result.stderr.splitlines()[2:]]
    assert [ACTION.sub("", line) for line in told] == [ACTION.sub("", line) for line in printed]


def test_costs_after_the_horizon_are_refused(config: Path) -> None:
    refused = command(config, "\n".join([*LINES, LINES[0]]), status=3)
    assert len(refused.stdout.splitlines()) == 6
    assert "the horizon of 6 rounds is over" in refused.stderr


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"actions": 1}, "actions must lie between 2"),
        ({"horizon": 0}, "the horizon must lie between 1"),
        ({"bound": 0}, "the bound must be positive"),
        ({"bound": math.nan}, "bound: Input should be a finite number"),
        ({"epsilon": 2}, "the run costs epsilon 2"),
        ({"epsilon": 0}, "epsilon must be positive"),
        ({"delta": 1}, "delta must be 0, or at least 1e-18 and below 1"),
        ({"epsilon": 1e300}, "epsilon must lie between 1e-06 and 1e+12"),
        ({"calibration": "none"}, "calibration"),
        ({"adversary": "kind"}, "adversary"),
        ({"name": "two words"}, "name: String should match"),
    ],
)
def test_unfit_terms_cost_nothing(config: Path, terms: dict[str, object], words: str) -> None:
    misused = 2 if terms.keys() & {"calibration", "adversary"} else 3
    assert words in command(config, LINES[0], status=misused, **terms).stderr
    log = CliRunner().invoke(party_app, ["log", "--by-run", "--config", str(config)])
    assert "prices" not in log.stdout


def test_a_cost_that_is_none_stops_the_stream_where_it_stood(config: Path) -> None:
    for line, words in (("[0, 0, 3]", "action 2 is not a number within the bound of 2"), ("[0]", "3 numbers")):
        assert words in command(config, line, status=3).stderr
    assert json.loads(command(config, LINES[0]).stdout.splitlines()[-1])["round"] == 2


def test_an_action_that_cannot_be_told_is_a_foreseen_error_and_shown_again(config: Path, tmp_path: Path) -> None:
    refused = command(config, LINES[0], "--receipt", str(tmp_path / "absent" / "receipt"), status=3)
    assert refused.stderr.splitlines()[1:] == [f"parley-party: {tmp_path}/absent/receipt: No such file or directory"]
    assert not refused.stdout
    assert json.loads(command(config, "").stdout)["round"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code", "told"),
    [
        ("<&-", 0, "0 of 6 rounds have their costs"),
        (">&-", 3, "standard output is closed: nobody would see an action"),
        pytest.param(
            ">/dev/full", 3, "input or output: No space left on device",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full"),
        ),
    ],
)  # fmt: skip
def test_streams_that_are_closed_or_full_end_it_in_a_line(config: Path, redirected: str, code: int, told: str) -> None:
    terms = "--name prices --actions 3 --horizon 6 --bound 2 --epsilon 1 --delta 1e-6"
    tool = Path(sys.executable).parent / "parley-party"
    ended = subprocess.run(
        ["sh", "-c", f"{tool} stream --config {config} {terms} {redirected}"],
        input=LINES[0], capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)
    assert told in ended.stderr.splitlines()[-1]
