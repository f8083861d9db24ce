"""An exported ledger is checked with a public key alone: whole, in order, and charged as it was approved."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.data.columns import Feature, Label
from parley.common.data.study import Study
from parley.common.encoding.canonical_json import canonical
from parley.common.errors import LedgerError
from parley.common.privacy.account import Account, Cost, Price
from parley.common.protocol.receipts import Head, write_receipt
from parley.common.runs.specification import Budget, Member, RunSpec
from parley.common.secure_sum.session import Identity
from parley.common.storage.chain import next_link
from parley.common.wire.party_api import RunProposal
from parley.party.ledger import audit
from parley.party.ledger.audit import AUDIT_FORMAT, RunSummary, by_run, export, lines_of, verify
from parley.party.ledger.ledger import Ask, Ledger
from parley.party.ledger.records import (
    Answered,
    Approved,
    Ended,
    EndReason,
    Entry,
    Joined,
    LedgerRecord,
    Refused,
    from_json,
    to_json,
)
from tests.support.ledgers import KEY, open_ledger

PARTY = Identity("party", KEY)
LIMIT = Account(100, 12, composition="basic")
PRICE = Price((1, 3, 6), (5, 5, 5), (0, 0, 0), (0, 0, 0))
SPEC = RunSpec(
    study=Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=Label(name="y", values=("no", "yes"))),
    algorithm="dp_gd",
    parameters={},
    parties=(Member(name="party", n_examples=1, budget=Budget(epsilon=1, delta=1e-5)),),
    minimum_contributors=1,
)
MEMBERS = (*SPEC.parties, SPEC.parties[0].model_copy(update={"name": "other"}))
SUM = RunSpec.model_validate(
    SPEC.model_dump() | {"parties": MEMBERS, "minimum_contributors": 2, "secure_sum": "paillier"}
)
Rows = list[dict[str, Any]]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger of two runs, and three answers; entries 3 and 4 approve, 5 to 7 answer."""
    store = open_ledger(tmp_path, LIMIT)
    for run in ("one", "two"):
        store.consents.approve("ann", RunProposal(run=run, spec=SPEC), PRICE)
    for run, round in (("one", 1), ("two", 2), ("one", 3)):
        store.rounds.answer(Ask("ann", run, round, "query", "gradient"), lambda kept: (b"secret", kept))
    return store


def rows_of(ledger: Ledger) -> Rows:
    return [json.loads(line) for line in export(ledger)]


def signed_again(rows: Rows) -> list[str]:
    """The lines of a file whose records were changed by who holds the key: links and receipt fit again."""
    link = bytes(32)
    for number, row in enumerate(rows[1:], 1):
        row["number"] = number
        link = next_link(link, row["record"].encode())
    head = Head(len(rows) - 1, link.hex())
    rows[0]["receipt"] = write_receipt(KEY, signer="party", ledger="ab" * 32, head=head).text
    return [json.dumps(row) for row in rows]


def with_record(rows: Rows, number: int, change: Callable[[Entry], Any]) -> list[str]:
    """The same with one record replaced, its attachments kept."""
    entry = from_json(number, json.loads(rows[number]["record"]))
    values = to_json(change(entry), entry.at)
    whole = values | {"attached": dict(entry.attached)} if entry.attached else values
    rows[number]["record"] = canonical(whole).decode()
    return signed_again(rows)


def test_a_file_gives_back_the_entries_and_the_receipt(ledger: Ledger) -> None:
    lines = list(export(ledger))
    entries, receipt = verify(lines, PARTY.key)
    assert entries == ledger.entries()
    assert (receipt.head, receipt.signer, len(lines)) == (ledger.chain.head, "party", 8)
    first, *rows = map(json.loads, lines)
    assert {key: first[key] for key in ("format", "party", "key")} == {
        "format": AUDIT_FORMAT,
        "party": "party",
        "key": PARTY.key,
    }
    assert first["receipt"] == receipt.text
    assert [row["number"] for row in rows] == list(range(1, 8))
    assert rows[4]["attachments"] == {"body": base64.b64encode(b"secret").decode()}
    assert sorted(rows[2]["attachments"]) == ["price", "spec"]
    assert verify(signed_again(rows_of(ledger)), PARTY.key)[0] == entries


def test_without_bodies_a_file_holds_no_answer_and_is_as_good(ledger: Ledger) -> None:
    lines = list(export(ledger, bodies=False))
    assert base64.b64encode(b"secret").decode() not in "".join(lines)
    assert [sorted(json.loads(line)["attachments"]) for line in lines[3:6]] == [["price", "spec"]] * 2 + [[]]
    assert verify(lines, PARTY.key)[0] == ledger.entries()


@pytest.mark.parametrize(("most", "written"), [(6, True), (5, False)])
def test_an_answer_is_written_out_up_to_the_longest(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, most: int, *, written: bool
) -> None:
    """Of longer ones the digest is enough; a specification and a price are needed, however long."""
    monkeypatch.setattr(audit, "_MOST_BODY_BYTES", most)
    lines = list(export(ledger))
    attached = [sorted(json.loads(line)["attachments"]) for line in lines[3:6]]
    assert attached == [["price", "spec"]] * 2 + [["body"] if written else []]
    assert verify(lines, PARTY.key)[0] == ledger.entries()


def test_lines_are_read_whole_up_to_the_longest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In pieces; a file may end without a line's end."""
    monkeypatch.setattr(audit, "_PIECE", 3)
    monkeypatch.setattr(audit, "_LONGEST_LINE", 8)
    path = tmp_path / "file"
    path.write_bytes(b"one\n1234567\n\nlast")
    assert list(lines_of(path)) == ["one\n", "1234567\n", "\n", "last"]
    path.write_bytes(b"one\n12345678\n")
    with pytest.raises(LedgerError, match=r"^line 2 is longer than 8 bytes: no export has such a line$"):
        list(lines_of(path))
    path.write_bytes(b"")
    assert list(lines_of(path)) == []
    for content, line in (("one\ntwo é\n".encode(), 2), (b"two \xff\n", 1)):
        path.write_bytes(content)
        with pytest.raises(LedgerError, match=f"^line {line} cannot be read"):
            list(lines_of(path))


def test_a_file_holds_no_one_time_noise_and_no_answer_to_a_secure_sum(ledger: Ledger) -> None:
    """Noise that is drawn once hides all rounds; and a contribution has its pad's seed, a key holder's other half."""
    ledger.rounds.answer(Ask("ann", "two", 3, "query", "gradient"), lambda _: (b"answer", {"eta": np.ones(2)}))
    ledger.consents.approve("ann", RunProposal(run="sum", spec=SUM), Price((1,), (1,), (0,), (0,)))
    ledger.rounds.answer(Ask("ann", "sum", 1, "query", "gradient"), lambda kept: (b"seed and ciphertexts", kept))
    lines = list(export(ledger))
    attached = [sorted(json.loads(line)["attachments"]) for line in lines[-3:]]
    assert attached == [["body"], ["price", "spec"], []]
    assert verify(lines, PARTY.key)[0] == ledger.entries()
    assert {"once:eta", "body"} == ledger.entries()[-3].attached.keys()


def test_a_run_of_another_learner_is_another_though_it_has_the_name_of_a_secure_sum(ledger: Ledger) -> None:
    price = Price((1,), (1,), (0,), (0,))
    for learner, terms in (("ann", SUM), ("bob", SPEC)):
        ledger.consents.approve(learner, RunProposal(run="sum", spec=terms), price)
    for learner, run, round in (("ann", "sum", 1), ("bob", "sum", 1), ("ann", "two", 3)):
        ledger.rounds.answer(Ask(learner, run, round, "query", "gradient"), lambda kept: (b"answer", kept))
    attached = [sorted(json.loads(line)["attachments"]) for line in list(export(ledger))[-3:]]
    assert attached == [[], ["body"], ["body"]]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda rows: rows.pop(), "an entry was changed, removed or added"),
        (lambda rows: rows.append(rows[-1] | {"number": 8}), "line 9 comes after the last signed entry"),
        (lambda rows: rows.pop(3), "entry 3 or its order was changed"),
        (lambda rows: rows.insert(5, rows.pop(6)), "entry 5 or its order was changed"),
        (lambda rows: rows[5].update(number=6), "entry 5 or its order was changed"),
        (lambda rows: rows[5]["attachments"].update(body="c2VjcmV0Cg=="), "entry 5 or its order was changed"),
        (lambda rows: rows[5]["attachments"].update(more=""), "entry 5 or its order was changed"),
        (lambda rows: rows[5]["attachments"].update(body="c2Vj!cmV0"), "line 6 cannot be read"),
        (lambda rows: rows[5].update(record="{"), "line 6 cannot be read"),
        (lambda rows: rows[5].update(record=5), "line 6 cannot be read"),
        (lambda rows: rows[5].pop("record"), "line 6 cannot be read"),
        (lambda rows: rows[5].update(attachments=[]), "line 6 cannot be read"),
        (lambda rows: rows.__setitem__(5, []), "line 6 cannot be read"),
        (lambda rows: rows[5].update(record=rows[5]["record"].replace(':"query"', ':"quern"')), "the last link is not"),
        (lambda rows: rows[3]["attachments"].pop("spec"), "entry 3 comes without its specification"),
        (lambda rows: rows[3]["attachments"].pop("price"), "the price list cannot be read"),
        (lambda rows: rows[0].update(format="parley-audit-2"), "not of the format parley-audit-1"),
        (lambda rows: rows[0].update(party="other"), "a receipt of 'party', not of other"),
        (lambda rows: rows[0].pop("receipt"), "does not begin as an audit file does"),
        (lambda rows: rows[0].update(receipt="no"), "cannot be read"),
        (lambda rows: rows.__setitem__(0, 5), "does not begin as an audit file does"),
        (lambda rows: rows.clear(), "does not begin as an audit file does"),
    ],
)
def test_every_change_is_noticed(ledger: Ledger, damage: Callable[[Rows], object], words: str) -> None:
    rows = rows_of(ledger)
    damage(rows)
    with pytest.raises(LedgerError, match=words):
        verify(map(json.dumps, rows), PARTY.key)


def test_a_file_is_its_partys_alone(ledger: Ledger) -> None:
    other = Identity("party", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    with pytest.raises(LedgerError, match="not signed with the key of party"):
        verify(export(ledger), other.key)


@pytest.mark.parametrize(
    ("number", "change"),
    [
        (5, lambda answer: replace(answer, cost=Cost(2, 5))),
        (5, lambda answer: replace(answer, round=2)),
        (5, lambda answer: replace(answer, run="three")),
        (7, lambda answer: replace(answer, cost=Cost(4, 0))),
        (7, lambda answer: replace(answer, round=2)),
        (7, lambda answer: replace(answer, round=1, cost=Cost(0, 0))),  # a round that was answered, for nothing
    ],
)
def test_a_charge_that_was_not_approved_is_noticed_though_it_is_signed(
    ledger: Ledger, number: int, change: Callable[[Answered], Answered]
) -> None:
    lines = with_record(rows_of(ledger), number, lambda entry: change(cast("Answered", entry.record)))
    with pytest.raises(LedgerError, match=f"entry {number} was not charged what was approved"):
        verify(lines, PARTY.key)


@pytest.mark.parametrize("by", ["learner", "failed"])
def test_what_a_run_costs_at_its_end_is_what_was_left_if_it_failed_and_nothing_else(
    ledger: Ledger, by: EndReason
) -> None:
    ledger.consents.fail("ann", "two") if by == "failed" else ledger.consents.end("ann", "two")
    rows = rows_of(ledger)
    entries, _ = verify(signed_again(rows), PARTY.key)
    ended = cast("Ended", entries[-1].record)
    assert ended.by == by
    assert ended.cost == (Cost(3, 0) if by == "failed" else Cost(0, 0))
    other = replace(ended, cost=ended.cost + Cost(1, 0))
    with pytest.raises(LedgerError, match=f"entry {len(entries)} was not charged what was approved"):
        verify(with_record(rows, len(entries), lambda _: other), PARTY.key)
    if by == "failed":
        with pytest.raises(LedgerError, match="was not charged"):
            verify(with_record(rows, len(entries), lambda _: replace(ended, cost=Cost(0, 0))), PARTY.key)


def test_a_specification_that_was_not_approved_is_noticed_though_it_is_signed(ledger: Ledger) -> None:
    rows = rows_of(ledger)
    rows[3]["attachments"]["spec"] = base64.b64encode(b"{}").decode()
    values = json.loads(rows[3]["record"])
    values["attached"]["spec"] = hashlib.sha256(b"{}").hexdigest()
    rows[3]["record"] = canonical(values).decode()
    assert verify(signed_again(rows), PARTY.key), "its digest is signed for"
    values["attached"]["spec"] = "00"
    rows[3]["record"], rows[3]["attachments"] = canonical(values).decode(), {"price": rows[3]["attachments"]["price"]}
    with pytest.raises(LedgerError, match="entry 3 comes without its specification"):
        verify(signed_again(rows), PARTY.key)


# ── a run as its owner looks back on it ──────────────────────────────────────

APPROVED = Approved(
    "ann", "run", "user", "purpose", "study", "dp_gd", "digest", "none", 3, Cost(9, 9), "replace_one", 50
)


def answered(round: int, step: str) -> Answered:
    return Answered("ann", "run", round, "query", step, Cost(round, 2), "replace_one")


def test_runs_are_summed_up_in_the_order_in_which_they_came() -> None:
    records: list[LedgerRecord] = [
        Refused("bob", "run", "gop", "algorithms", "no"),
        APPROVED,
        answered(1, "gradient"),
        Joined("ann", "run"),
        answered(3, "labels"),
        Ended("ann", "run", "owner", Cost(7, 1)),
        Refused("bob", "run", "gop", "algorithms", "no"),
        Refused("bob", "run", "gop", "max_rounds", "no"),
    ]
    refused, run = by_run(Entry(number, 100 + number, record) for number, record in enumerate(records, 1))
    assert (refused.learner, refused.run, refused.approved, refused.rounds) == ("bob", "run", None, 0)
    assert (refused.first, refused.last, refused.ended) == (101, 108, None)
    assert refused.refusals == {"algorithms": 2, "max_rounds": 1}
    assert run == RunSummary(
        "ann", "run", APPROVED, Cost(11, 5), Cost(0, 0), 2, {"gradient", "labels"}, 102, 106, "owner"
    )
    assert refused.seen == "nothing"
    assert run.seen == "2 noisy answers (gradient, labels)"
    run.ended = "failed"
    assert run.seen == "2 noisy answers (gradient, labels); that work on the data failed"
    run.ended, run.approved = "owner", replace(APPROVED, secure_sum="paillier")
    assert run.seen == "only sums of 2 noisy answers (gradient, labels) and of other owners' answers"
