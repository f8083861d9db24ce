"""What was signed of a run, and all that was altered since: named, offline, by public keys alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from parley.common.encoding.canonical_json import canonical_digest
from parley.common.encoding.key_words import words_of
from parley.common.errors import InvalidInputError
from parley.common.learning.threshold import chosen_threshold
from parley.common.runs.certificate import signed_certificate
from parley.common.runs.model_document import Promise, read_document
from parley.common.runs.pricing import is_of_sums
from parley.common.secure_sum.envelope import public_hex
from parley.learner.cli.main import learner_app
from parley.learner.models import verification
from parley.learner.models.card import model_card
from parley.learner.models.verification import PublicKeys, verification_of, verify_document
from tests.support.cluster import Cluster, asgi_cluster, submit, train, watch
from tests.support.intercepted import learner_of
from tests.support.secure_cluster import SUMS, SecureCluster, secure_services, signing_key

EARLIER = "if an earlier version of Parley made it, that one can check it"

Document = dict[str, Any]
ORDER: Document = {"epsilon": 2.0, "delta": 1e-6}


async def _trained(folder: Path) -> Document:
    """The document of a run with a secure sum, evaluated by another."""
    cluster = SecureCluster(folder, n_parties=3, algorithms=("dp_gd", "evaluate"), hold_out=0.25)
    async with secure_services(cluster) as services, learner_of(cluster, services) as client:
        run = await submit(client, **SUMS)
        assert (await watch(client, run))[-1][1]["state"] == "completed"
        queued = (await client.post(f"/v1/runs/{run}/evaluation", json=ORDER)).raise_for_status().json()
        assert (await watch(client, queued["id"]))[-1][1]["state"] == "completed"
        document: Document = (await client.get(f"/v1/runs/{run}/model")).raise_for_status().json()
        return document


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Document:
    """A document whose every part is signed; not to be altered."""
    return asyncio.run(_trained(tmp_path_factory.mktemp("cluster")))


@pytest.fixture
def document(signed: Document) -> Document:
    """A copy of the signed document, which a test may alter."""
    return deepcopy(signed)


def known() -> PublicKeys:
    """Return the public keys of learner, parties and key holder."""
    keys = {name: public_hex(signing_key(name)) for name in ("party-1", "party-2", "party-3")}
    holders = {"key-holder-1": public_hex(signing_key("key-holder-1"))}
    return PublicKeys(learner=public_hex(signing_key("learner")), parties=keys, key_holders=holders)


def test_all_that_was_signed_holds(document: Document) -> None:
    verdict = verify_document(document, known())
    assert verdict.faults == ()
    assert verdict.holds == (
        "the learner signed every field of the document",
        "study, algorithm, parameters and parties are those of the specification",
        "the guarantees follow from the specification, derived again",
        "3 parties approved the specification and signed: each pays ε = 1, δ = 1e-05 at most",
        "everybody signed the roster of the secure sum, and each key holder the last sum that it opened",
        "the evaluation is of these weights, and was approved and signed for",
        "the keys are those that you know",
    )
    assert not verdict.assumed
    alone = verify_document(document)
    assert (alone.faults, alone.keys, alone.assumed) == ((), known(), True)


def test_a_document_of_a_version_that_said_less_holds_and_is_told_what_else_it_assumes(document: Document) -> None:
    for promise in document["guarantees"]:
        promise["assumptions"] = [words for words in promise["assumptions"] if not is_of_sums(words)]
    verdict = verify_document(document)
    assert verdict.faults == ("guarantees: not what the learner signed",), "by another version it would be"
    (assumed,) = (words for words in verdict.holds if "which the document does not say" in words)
    assert "the promise is computational" in assumed
    assert "if they do, epsilon" in assumed
    document["guarantees"][0]["assumptions"].append("the learner and all key holders do not collude: or do")
    assert "guarantees: not what follows from the specification" in verify_document(document).faults


def test_a_threshold_is_repeated_from_what_is_signed(document: Document) -> None:
    study = read_document(document).study
    for rule, from_what in (
        ("probability=0.2", "the rule probability=0.2 and the study"),
        ("f1", "the evaluation and"),
    ):
        document["threshold"] = chosen_threshold(rule, study, document["evaluation"]).model_dump(mode="json")
        verdict = verify_document(document, known())
        assert verdict.faults == ()
        assert any(f"the threshold follows from {from_what}" in words for words in verdict.holds)
        document["threshold"]["score"] += 0.01
        (fault,) = verify_document(document, known()).faults
        assert f"threshold: not what the rule {rule} chooses" in fault
    document["threshold"]["rule"] = "f2"
    assert "threshold 'f2' is no rule" in verify_document(document, known()).faults[0]


def _of(*path: str | int) -> Callable[[Document], Any]:
    def part(document: Document) -> Any:  # noqa: ANN401 -- a part of JSON
        for step in path:
            document = document[step]  # type: ignore[index]
        return document

    return part


def _altered(*path: str | int, by: Callable[[Any], Any]) -> Callable[[Document], None]:
    """Change a part of a document."""

    def alter(document: Document) -> None:
        holder = _of(*path[:-1])(document)
        holder[path[-1]] = by(holder[path[-1]])

    return alter


def _flipped(text: str) -> str:
    """A signature, receipt or digest with one character changed for another of its alphabet."""
    place = len(text) // 3
    return text[:place] + ("1" if text[place] != "1" else "2") + text[place + 1 :]


CERTIFICATE = ("certificate",)
APPROVALS = ("certificate", "approvals", "party-2")
SUMMED = ("certificate", "sums")
LATER = ("evaluation", "certificate")
ALTERATIONS: dict[str, tuple[Callable[[Document], None], str]] = {
    "weight": (_altered("weights", 1, by=lambda it: it + 1e-9), "weights: not what the learner signed"),
    "addition": (lambda document: document.update(approved_by="party-2"), "approved_by: not what the learner signed"),
    "contributor": (_altered("contributors", 0, by=lambda _: "party-9"), "does not name party-9"),
    "fewer contributors": (_altered("contributors", by=lambda it: it[1:]), "contributors: not what"),
    "epsilon": (_altered("guarantees", -1, "epsilon", by=lambda it: it / 2), "guarantees: not what follows"),
    "assumption": (_altered("guarantees", -1, "assumptions", by=lambda _: []), "guarantees: not what follows"),
    "rounds": (_altered("rounds", by=lambda it: it + 1), "and the specification asks"),
    "column": (_altered("column_names", 0, by=lambda _: "age"), "column_names: not what the specification says"),
    "adjacency": (_altered("adjacency", by=lambda _: "whole_party"), "adjacency: whole_party"),
    "algorithm": (_altered("algorithm", by=lambda _: "psgd"), "algorithm: not what the specification says"),
    "class weights": (
        lambda document: document.update(class_weights={"no": 0.5, "yes": 1.0}),
        "class_weights: not what the specification says",
    ),
    "study": (_altered("study_digest", by=_flipped), "study_digest: not what"),
    "specification": (
        _altered(*CERTIFICATE, "specification", "parameters", "n_rounds", by=lambda it: it + 1),
        "specification: not what party-1 approved",
    ),
    "run": (_altered(*CERTIFICATE, "run", by=_flipped), "receipt of party-1: it is of no approval of this run"),
    "receipt": (_altered(*APPROVALS, "receipt", by=_flipped), "receipt of party-2: a receipt that"),
    "price": (
        _altered(*APPROVALS, "approval", by=lambda it: it.replace('"epsilon":1.0', '"epsilon":0.1')),
        "approval of party-2: not what it signed",
    ),
    "no approval": (
        _altered(*CERTIFICATE, "approvals", by=lambda it: {"party-1": it["party-1"]}),
        "approvals: none of party-2, party-3",
    ),
    "another's approval": (
        _altered(*CERTIFICATE, "approvals", by=lambda it: it | {"party-2": it["party-1"]}),
        "receipt of party-2: ",
    ),
    "torn approval": (
        _altered(*APPROVALS, "approval", by=lambda it: it[:-1]),
        "approval of party-2: it cannot be read",
    ),
    "roster": (_altered(*SUMMED, "roster", by=lambda it: it.replace('"key_bits":2048', '"key_bits":2049')), "roster: "),
    "roster's signature": (_altered(*SUMMED, "signatures", "party-3", by=_flipped), "roster: not signed by party-3"),
    "no signature": (_altered(*SUMMED, "signatures", by=lambda _: {}), "roster: not signed by key-holder-1"),
    "sum": (_altered(*SUMMED, "opened", "key-holder-1", "signature", by=_flipped), "sum opened by key-holder-1"),
    "no sum": (_altered(*SUMMED, "opened", by=lambda _: {}), "sum opened by key-holder-1: it signed none"),
    "no sums": (_altered(*CERTIFICATE, "sums", by=lambda _: None), "nothing that its key holders signed is here"),
    "learner": (
        _altered(*CERTIFICATE, "learner", by=lambda _: public_hex(signing_key("mallory"))),
        "certificate: not what the learner signed",
    ),
    "date": (_altered(*CERTIFICATE, "issued", by=lambda it: it.replace("20", "21", 1)), "certificate: not what"),
    "accuracy": (_altered("evaluation", "accuracy", "estimate", by=lambda _: 0.99), "evaluation: not what the learner"),
    "evaluation's cost": (_altered("evaluation", "epsilon", by=lambda it: it / 2), "evaluation: its cost"),
    "evaluation's run": (_altered("evaluation", "run", by=lambda _: "another"), "evaluation: of another run"),
    "evaluation's receipt": (
        _altered(*LATER, "approvals", "party-1", "receipt", by=_flipped),
        "evaluation: receipt of party-1",
    ),
    "evaluation unsigned": (
        _altered("evaluation", by=lambda it: {k: it[k] for k in it if k != "certificate"}),
        "evaluation: not what the learner signed",
    ),
    "evaluation of another model": (
        _altered(*LATER, "specification", "public", "digest", by=_flipped),
        "evaluation: of other weights",
    ),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_every_alteration_is_named(document: Document, name: str) -> None:
    alter, fault = ALTERATIONS[name]
    alter(document)
    verdict = verify_document(document, known())
    assert any(fault in named for named in verdict.faults), verdict.faults


ALL_FAULTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("fewer contributors", "date", "accuracy", "addition"), ()),
    "weight": ("weights: not what the learner signed", "evaluation: of other weights"),
    "contributor": (
        "contributors: not what the learner signed",
        "contributors: the specification does not name party-9",
        "approvals: none of party-9",
    ),
    "epsilon": ("guarantees: not what the learner signed", "guarantees: not what follows from the specification"),
    "rounds": ("rounds: not what the learner signed", "rounds: 11, and the specification asks 10"),
    "column": ("column_names: not what the learner signed", "column_names: not what the specification says"),
    "adjacency": (
        "adjacency: not what the learner signed",
        "adjacency: whole_party, and the run's is replace_one",
    ),
    "algorithm": ("algorithm: not what the learner signed", "algorithm: not what the specification says"),
    "class weights": ("class_weights: not what the learner signed", "class_weights: not what the specification says"),
    "study": ("study_digest: not what the learner signed", "study_digest: not what the specification says"),
    "specification": (
        "certificate: not what the learner signed",
        "spec_digest: not what the specification says",
        "parameters: not what the specification says",
        "rounds: 10, and the specification asks 11",
        "specification: not what party-1 approved",
        "specification: not what party-2 approved",
        "specification: not what party-3 approved",
        "roster: the roster's session is not the approved run's",
    ),
    "run": (
        "certificate: not what the learner signed",
        "receipt of party-1: it is of no approval of this run",
        "receipt of party-2: it is of no approval of this run",
        "receipt of party-3: it is of no approval of this run",
        "roster: the roster's session is not the approved run's",
    ),
    "price": ("certificate: not what the learner signed", "approval of party-2: not what it signed"),
    "no approval": ("certificate: not what the learner signed", "approvals: none of party-2, party-3"),
    "another's approval": (
        "certificate: not what the learner signed",
        "receipt of party-2: a receipt of 'party-1', not of party-2",
        "roster: another key of party-2 than its receipt's",
        "key of party-2: not the one that you know",
    ),
    "torn approval": ("certificate: not what the learner signed", "approval of party-2: it cannot be read"),
    "roster's signature": ("certificate: not what the learner signed", "roster: not signed by party-3"),
    "no signature": (
        "certificate: not what the learner signed",
        "roster: not signed by party-1",
        "roster: not signed by party-2",
        "roster: not signed by party-3",
        "roster: not signed by key-holder-1",
    ),
    "no sum": ("certificate: not what the learner signed", "sum opened by key-holder-1: it signed none"),
    "no sums": (
        "certificate: not what the learner signed",
        "sums: the run was a secure sum, and nothing that its key holders signed is here",
    ),
    "learner": (
        "certificate: not what the learner signed",
        "roster: another learner's",
        "evaluation: its certificate is not what the learner signed",
        "key of the learner: not the one that you know",
    ),
    "evaluation's cost": (
        "evaluation: not what the learner signed",
        f"evaluation: its cost is not what follows from its specification ({EARLIER})",
    ),
    "evaluation's run": ("evaluation: of another run or study",),
    "evaluation of another model": (
        "evaluation: its certificate is not what the learner signed",
        "evaluation: of other weights",
        "evaluation: specification: not what party-1 approved",
        "evaluation: specification: not what party-2 approved",
        "evaluation: specification: not what party-3 approved",
    ),
}
"""All faults of an alteration, where none depends on which character was changed."""


@pytest.mark.parametrize("name", ALL_FAULTS)
def test_what_an_alteration_breaks_is_all_named_and_nothing_else(document: Document, name: str) -> None:
    alter, fault = ALTERATIONS[name]
    alter(document)
    faults = verify_document(document, known()).faults
    assert faults == ALL_FAULTS[name] or (not ALL_FAULTS[name] and len(faults) == 1 and fault in faults[0])


def test_an_approval_of_a_party_that_the_run_does_not_name_is_a_fault(document: Document) -> None:
    approvals = document["certificate"]["approvals"]
    approvals["party-9"] = approvals["party-1"]
    assert verify_document(document).faults == (
        "certificate: not what the learner signed",
        "approval of party-9: the specification does not name it",
        "receipt of party-9: a receipt of 'party-1', not of party-9",
    )


def test_five_parties_are_named_and_the_others_counted() -> None:
    assert verification._named([f"p{i}" for i in range(5)]) == "p0, p1, p2, p3, p4"
    assert verification._named([f"p{i}" for i in range(7)]) == "p0, p1, p2, p3, p4 and 2 more"


def test_costs_agree_up_to_a_millionth() -> None:
    assert verification._near(1.0, 1 + 0.9e-6)
    assert not verification._near(1.0, 1 + 1.1e-6)


@pytest.mark.parametrize(
    ("change", "agrees"),
    [
        ({}, True),
        ({"epsilon": 1.0 + 5e-7}, True),
        ({"epsilon": 1.1}, False),
        ({"delta": 2e-5}, False),
        ({"epsilon": None}, False),
        ({"view": "model"}, False),
        ({"trust": 1}, False),
        ({"owners": 2}, False),
        ({"assumptions": ("a", "b", "more")}, True),
        ({"assumptions": ("a",)}, False),
    ],
)
def test_a_promise_agrees_with_the_derived_one_up_to_rounding(change: Document, agrees: bool) -> None:  # noqa: FBT001
    terms = {
        "epsilon": 1.0, "delta": 1e-5, "view": "transcript", "calibration": "tight", "adjacency": "replace_one",
        "trust": 0, "assumptions": ("a", "b"),
    }  # fmt: skip
    derived, stated = Promise.model_validate(terms), Promise.model_validate(terms | change)
    assert verification._agree(derived, stated) == agrees
    nothing = Promise.model_validate(terms | {"epsilon": None})
    assert verification._agree(nothing, nothing)
    assert not verification._agree(nothing, derived)


def test_what_the_command_prints_of_a_document_is_complete(document: Document, tmp_path: Path) -> None:
    model, keys = tmp_path / "model.json", tmp_path / "keys.json"
    model.write_text(json.dumps(document), encoding="utf-8")
    claims = [f"holds    {claim}" for claim in verify_document(document).holds]
    names = ["the learner", "party-1", "party-2", "party-3", "key-holder-1"]
    asked = "assumed  these keys are theirs; ask each of them for its six words, and say --words NAME=WORDS:"
    assert verify(str(model), "--save-keys", str(keys))[0].splitlines() == [
        *claims, asked, *(f"  {name}" for name in names),
    ]  # fmt: skip
    assert keys.read_text() == known().model_dump_json(indent=2) + "\n"
    of_all = known().by_name
    spoken = [word for name in names for word in ("--words", f"{name}={' '.join(words_of(of_all[name]))}")]
    compared = [f"holds    the key of {name} has the words that were read out" for name in names]
    assert verify(str(model), *spoken)[0].splitlines() == [*claims, *compared]
    report = json.loads(verify(str(model), *spoken[:2], "--format", "json")[0])
    assert report == {
        "holds": [claim.removeprefix("holds    ") for claim in claims], "faults": [], "keys": known().model_dump(),
        "keys_assumed": True, "keys_compared": ["the learner"],
    }  # fmt: skip
    card = tmp_path / "card.md"
    assert CliRunner().invoke(learner_app, ["card", str(model), "--output", str(card)]).exit_code == 0
    assert card.read_text() == model_card(document, verification_of(document))
    assert "- the learner signed every field of the document" in card.read_text()
    document["rounds"] += 1
    model.write_text(json.dumps(document), encoding="utf-8")
    unsaved = tmp_path / "unsaved.json"
    out, err = verify(str(model), "--keys", str(keys), "--save-keys", str(unsaved), code=1)
    assert [line for line in out.splitlines() if line.startswith("ALTERED")] == [
        "ALTERED  rounds: not what the learner signed",
        "ALTERED  rounds: 11, and the specification asks 10",
    ]
    assert "assumed" not in out
    assert (err, unsaved.exists()) == ("", False)
    assert verify(str(model), "--keys", str(tmp_path / "none"), code=3)[1] == (
        f"parley-learner: keys {tmp_path / 'none'} cannot be read (FileNotFoundError)\n"
    )
    keys.write_text("{}")
    assert verify(str(model), "--keys", str(keys), code=3)[1].startswith(f"parley-learner: keys {keys}: learner: ")


def test_a_learner_cannot_vouch_for_what_no_party_approved(document: Document) -> None:
    document["guarantees"][-1]["epsilon"] = 0.01
    parts = {name: document["certificate"][name] for name in ("run", "specification", "approvals", "sums")}
    key, plain = signing_key("learner"), document | {"certificate": None}
    forged = signed_certificate(key, **parts, digests=read_document(plain).digests | {"evaluation": "0" * 64})
    verdict = verify_document(document | {"certificate": forged.model_dump(mode="json")}, known())
    assert verdict.faults == ("guarantees: not what follows from the specification",)


def test_strangers_keys_are_named(document: Document) -> None:
    mine = known()
    others = mine.model_copy(update={"parties": mine.parties | {"party-1": mine.learner}, "key_holders": {}})
    assert verify_document(document, others).faults == (
        "key of party-1: not the one that you know",
        "key of key-holder-1: not among those that you know",
    )


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (_altered("certificate", by=lambda _: None), "has no certificate"),
        (_altered("certificate", by=lambda it: {k: it[k] for k in it if k != "signature"}), "certificate.signature"),
        (_altered("certificate", "signature", by=lambda it: it[:-2]), "certificate.signature"),
        (_altered("certificate", "specification", by=lambda _: {}), "specification cannot be read"),
        (_altered("evaluation", "certificate", "specification", by=lambda _: {}), "specification cannot be read"),
        (_altered("weights", by=lambda it: it[1:]), "not of the shape"),
        (_altered("weights", by=lambda it: [float("nan"), *it[1:]]), "weights.*finite"),
        (_altered("certificate", "specification", "algorithm", by=lambda _: "\ud800"), "half a character"),
        (_altered("certificate", "sums", "roster", by=lambda _: "\ud800"), "half a character"),
        (_altered("certificate", "specification", "parameters", "step", by=lambda _: float("nan")), "NaN"),
    ],
)
def test_what_is_torn_is_refused(document: Document, alter: Callable[[Document], None], why: str) -> None:
    alter(document)
    with pytest.raises(InvalidInputError, match=why):
        verify_document(document)


@pytest.mark.parametrize("algorithm", ["dp_gd", "average", "release", "ftrl", "describe"])
async def test_a_run_without_a_secure_sum_is_certified_too(tmp_path: Path, algorithm: str) -> None:
    async with asgi_cluster(Cluster(tmp_path, n_parties=2, algorithms=(algorithm,))) as client:
        verdict = verify_document(await train(client, algorithm=algorithm, parameters={}, epsilon=5))
        (run,) = [view["id"] for view in (await client.get("/v1/runs")).json()["runs"]]
        page = await client.get(f"/v1/runs/{run}/card")
        text = await client.get(f"/v1/runs/{run}/card", params={"to": "markdown"})
        assert page.headers["Content-Type"] == "text/html; charset=utf-8"
        assert text.headers["Content-Type"] == "text/markdown; charset=utf-8"
        assert "<h1>made-up: model card</h1>" in page.text
        assert text.text.startswith("# made-up: model card")
        assert (await client.get("/v1/runs/none/card")).status_code == 404
    assert verdict.faults == ()
    assert len(verdict.holds) == 4
    assert verdict.keys.key_holders == {}


def verify(*arguments: str, code: int = 0) -> tuple[str, str]:
    """Standard output and error of the command."""
    result = CliRunner().invoke(learner_app, ["verify", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout, result.stderr


def test_the_command_pins_keys_and_tells_what_was_altered(document: Document, tmp_path: Path) -> None:
    model, keys = tmp_path / "model.json", tmp_path / "keys.json"
    model.write_text(json.dumps(document, indent=2), encoding="utf-8")
    out, err = verify(str(model), "--save-keys", str(keys))
    pinned_words = " ".join(words_of(known().parties["party-2"]))
    assert pinned_words not in out, "party-2 reads them out"
    assert "assumed" in out
    assert "  party-2\n" in out
    assert err == f"next: parley-learner verify {model} --keys {keys}\n"
    out, _ = verify(str(model), "--words", f"party-2={pinned_words}")
    assert "holds    the key of party-2 has the words that were read out" in out
    assert "  party-2\n" not in out
    assert "do not go on" in verify(str(model), "--words", f"party-1={pinned_words}", code=3)[1]
    assert "the document names no key of party-9" in verify(str(model), "--words", f"party-9={pinned_words}", code=3)[1]
    out, _ = verify(str(model), "--keys", str(keys))
    assert "the keys are those that you know" in out
    assert "assumed" not in out
    document["weights"][0] += 1
    model.write_text(json.dumps(document), encoding="utf-8")
    assert "ALTERED  weights: not what the learner signed" in verify(str(model), code=1)[0]
    report = json.loads(verify(str(model), "--format", "json", code=1)[0])
    assert "weights: not what the learner signed" in report["faults"]
    assert report["keys_assumed"]
    keys.write_text("{}")
    assert "learner" in verify(str(model), "--keys", str(keys), code=3)[1]
    assert "cannot be read" in verify(str(model), "--keys", str(tmp_path / "none"), code=3)[1]
    text = model.read_text()
    for one in (text.replace('"epsilon": ', '"epsilon": 0.1, "epsilon": ', 1), text.replace("party-1", "\\ud800", 1)):
        model.write_text(one)
        assert "has a name twice in an object or half a character" in verify(str(model), code=3)[1]
    model.write_text(text[:-100])
    assert "cut short" in verify(str(model), code=3)[1]


def test_the_card_tells_whose_rows_what_cost_and_what_was_checked(document: Document) -> None:
    card = model_card(document, verification_of(document))
    assert (
        "93 rows for training, of 3 owners, who keep them. Beside them, 30 are held out, 25% of each owner's rows."
        in card
    )
    assert "| party-3 | 42 | 1 | 1e-05 | yes |" in card
    assert "the learner saw no single one" in card
    for words in (
        "promise is computational",
        "compared the keys",
        "was set back",
        "do not collude: if they do, epsilon",
    ):
        assert words in card
    assert "| step | " in card
    assert document["chosen"]["step"] in card
    assert "- the learner signed every field of the document" in card
    assert f"| party-2 | {known().parties['party-2']} |" in card
    document["weights"][0] += 1
    assert "- **Altered:** weights: not what the learner signed" in model_card(document, verification_of(document))


def test_digests_do_not_depend_on_how_a_file_is_spelt(document: Document) -> None:
    digests = read_document(json.loads(json.dumps(document, indent=2, sort_keys=True))).digests
    assert digests == read_document(document).digests
    assert digests["weights"] == canonical_digest(document["weights"])
