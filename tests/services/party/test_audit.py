"""A ledger as a signed file: checked with the party's key alone, and any edit of it is noticed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from parley.common.errors import LedgerError
from parley.common.privacy.statement import SPENT_MEANS
from parley.party.answers.party import open_store
from parley.party.api.app import create_party_app
from parley.party.cli.main import party_app
from parley.party.ledger import audit
from tests.support.cluster import Cluster
from tests.support.rounds import ASKING, ask, propose, run_spec, weights

Lines = list[str]
Edit = Callable[[Lines], Lines]


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A party that has answered a run, refused one and ended one."""
    cluster = Cluster(tmp_path, n_parties=1)
    with TestClient(create_party_app(cluster.party_settings("party-1")), headers=ASKING) as client:
        for run in ("first", "second"):
            propose(client, run_spec(cluster), run).raise_for_status()
            for round in (1, 2, 3):
                ask(client, round, weights(cluster, round), run).raise_for_status()
        assert propose(client, run_spec(cluster, algorithm="pooled", parameters={}), "third").status_code == 403
        client.delete("/v1/runs/first").raise_for_status()
    return cluster


@pytest.fixture
def lines(cluster: Cluster) -> Lines:
    """The lines of the party's ledger as a file."""
    with open_store(cluster.party_settings("party-1")) as ledger:
        return list(audit.export(ledger))


@pytest.fixture
def key(cluster: Cluster) -> str:
    """The party's public key."""
    return cluster.party_settings("party-1").identity.key


def test_a_file_as_it_was_written_tells_the_whole_ledger(lines: Lines, key: str, cluster: Cluster) -> None:
    entries, receipt = audit.verify(lines, key)
    assert receipt.signer == "party-1"
    with open_store(cluster.party_settings("party-1")) as ledger:
        assert entries == ledger.entries()
    first, second, third = audit.by_run(entries)
    assert (first.ended, second.ended, third.approved) == ("learner", None, None)
    assert first.rounds == second.rounds == 3
    assert first.seen == "3 noisy answers (gradient)"
    assert dict(third.refusals) == {"algorithms": 1}


def record_with(**changes: object) -> Edit:
    """Change the first record that has these fields."""

    def edit(lines: Lines) -> Lines:
        for number, line in enumerate(lines[1:], 1):
            row = json.loads(line)
            record = json.loads(row["record"])
            if changes.keys() <= record.keys():
                row["record"] = json.dumps(record | changes, sort_keys=True, separators=(",", ":"))
                return [*lines[:number], json.dumps(row), *lines[number + 1 :]]
        raise AssertionError(changes)

    return edit


def other_attachment(name: str) -> Edit:
    """Change one byte of the first attachment of this name."""

    def edit(lines: Lines) -> Lines:
        for number, line in enumerate(lines[1:], 1):
            row = json.loads(line)
            if name in row["attachments"]:
                value = bytearray(base64.b64decode(row["attachments"][name]))
                value[-2] ^= 1
                row["attachments"][name] = base64.b64encode(value).decode()
                return [*lines[:number], json.dumps(row), *lines[number + 1 :]]
        raise AssertionError(name)

    return edit


EDITS: dict[str, Edit] = {
    "another algorithm": record_with(algorithm="gop"),
    "another limit": record_with(epsilon=10**9),
    "another cost": record_with(cost=[1, 0, 1, 0], round=1),
    "another learner": record_with(learner="nobody", round=1),
    "another time": record_with(at=1),
    "another answer": other_attachment("body"),
    "another specification": other_attachment("spec"),
    "another price": other_attachment("price"),
    "another order": lambda lines: [*lines[:5], lines[6], lines[5], *lines[7:]],
    "an entry less": lambda lines: [*lines[:5], *lines[6:]],
    "a tail cut off": lambda lines: lines[:-1],
    "all but the beginning cut off": lambda lines: lines[:1],
    "an entry twice": lambda lines: [*lines, lines[-1]],
    "another party": lambda lines: [lines[0].replace('"party-1"', '"party-2"'), *lines[1:]],
    "no beginning": lambda lines: lines[1:],
    "nothing": lambda _: [],
    "no price": lambda lines: [line.replace('"price"', '"prize"') if '"approved' in line else line for line in lines],
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_any_edit_is_noticed(lines: Lines, key: str, edit: Edit) -> None:
    edited = edit(list(lines))
    assert edited != lines
    with pytest.raises(LedgerError):
        audit.verify(edited, key)


def test_any_flipped_bit_is_noticed(lines: Lines, key: str) -> None:
    rng, text, noticed = np.random.default_rng(1), "\n".join(lines).encode(), 0
    for at in rng.integers(0, len(text), 300):
        flipped = bytearray(text)
        flipped[at] ^= 1 << int(rng.integers(0, 7))
        try:
            entries, _ = audit.verify(flipped.decode(errors="replace").splitlines(), key)
        except LedgerError:
            noticed += 1
        else:
            assert entries == audit.verify(lines, key)[0], "nothing that is told was changed"
    print(f"300 flipped bits in an audit: {noticed} noticed, the rest in what says nothing")
    assert noticed > 250


def test_no_more_is_read_than_was_signed_for(lines: Lines, key: str) -> None:
    def endless() -> Iterator[str]:
        yield from lines
        yield lines[-1]
        raise AssertionError("a line is read that stands after the signed end")

    with pytest.raises(LedgerError, match="after the last signed entry"):
        audit.verify(endless(), key)


def test_a_line_of_more_values_than_any_is_not_parsed(lines: Lines, key: str) -> None:
    row = json.loads(lines[1])
    many = "[" + "0," * 2**16 + "0]"
    for bomb in (many, json.dumps(row | {"record": many}), json.dumps(row)[:-1] + f', "more": {many}}}'):
        with pytest.raises(LedgerError, match="line 2 cannot be read"):
            audit.verify([lines[0], bomb], key)
        with pytest.raises(LedgerError, match="does not begin as an audit file does"):
            audit.verify([bomb], key)


def test_a_line_longer_than_any_is_not_read_to_its_end(key: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    with path.open("wb") as file:
        file.truncate(2**34)
    with pytest.raises(LedgerError, match="line 1 is longer than 67,108,864 bytes"):
        audit.verify(audit.lines_of(path), key)
    command = ["audit", "verify", str(path), "--key", key]
    assert CliRunner().invoke(party_app, command).exit_code == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_file_is_read_as_it_was_saved(lines: Lines, key: str, encoding: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "ledger.json"
    path.write_bytes(end.join([*lines, ""]).encode(encoding))
    assert audit.verify(audit.lines_of(path), key) == audit.verify(lines, key)
    path.write_bytes(path.read_bytes() + "\u00e9".encode(encoding))
    with pytest.raises(LedgerError, match=f"line {len(lines) + 1} cannot be read"):
        list(audit.lines_of(path))


def test_an_answer_too_long_for_a_line_is_named_by_its_digest(
    cluster: Cluster, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_MOST_BODY_BYTES", 16)
    with open_store(cluster.party_settings("party-1")) as ledger:
        short = list(audit.export(ledger))
    assert not any("body" in json.loads(line).get("attachments", {}) for line in short)
    assert len(audit.verify(short, key)[0]) == len(short) - 1


def test_another_key_did_not_write_it(lines: Lines) -> None:
    for wrong in ("0" * 64, "not a key"):
        with pytest.raises(LedgerError):
            audit.verify(lines, wrong)


def test_the_commands_write_and_check_it(cluster: Cluster, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = cluster.root / "party.toml"
    settings.write_text(
        f'name = "party-1"\nstate = "{cluster.root}/party-1"\nstudy = "{cluster.study_path}"\n'
        f'[data]\nsource = "{cluster.root}/party-1.csv"\n'
        "[policy]\nepsilon = 100\ndelta = 0.1\nmax_epsilon_per_run = 100\nmax_delta_per_run = 0.1\n"
        f'[[learners]]\nname = "learner"\ntoken_hash = "sha256:{"0" * 64}"\n'
    )

    def run(*words: object) -> str:
        result = CliRunner().invoke(party_app, [*map(str, words)])
        assert result.exit_code == 0, result.output
        return result.stdout

    file = cluster.root / "audit.jsonl"
    assert key in run("audit", "export", file, "--config", settings)
    lines = run("audit", "verify", file, "--key", key, "--format", "json").splitlines()
    *rows, account = [json.loads(line) for line in lines]
    with_ledger = json.loads(run("budget", "--config", settings, "--format", "json"))
    assert account == {"people": "", "budget": with_ledger["accounts"][0]["budget"]}
    assert account["budget"]["units"]["spent"][0] == 2e6
    assert SPENT_MEANS in run("audit", "verify", file, "--key", key)
    assert [(row["run"], row["refusals"]) for row in rows] == [
        ("first", {}),
        ("second", {}),
        ("third", {"algorithms": 1}),
    ]
    by_run = run("log", "--by-run", "--config", settings, "--format", "json").splitlines()
    assert [json.loads(line) for line in by_run] == rows
    assert "3 noisy answers (gradient)" in run("log", "--by-run", "--config", settings)
    small = cluster.root / "small.jsonl"
    run("audit", "export", small, "--no-bodies", "--config", settings)
    assert small.stat().st_size < file.stat().st_size
    run("audit", "verify", small, "--key", key)
    file.write_text(file.read_text().replace("dp_gd", "wu_x", 1))
    assert CliRunner().invoke(party_app, ["audit", "verify", str(file), "--key", key]).exit_code == 1
