"""Whether a model's document is what was signed: checked offline, with public keys alone.

Each check names what does not hold, so that an altered weight, party, price, receipt or evaluation is called by its
name. What holds is who vouches for what; that the learner made the weights of the answers it got is its own word.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from parley.common.encoding.canonical_json import canonical_digest
from parley.common.errors import InvalidInputError, LedgerError, ParleyError
from parley.common.privacy.mechanisms.objective import ASSUMED
from parley.common.protocol.receipts import APPROVAL, read_receipt, verify_receipt
from parley.common.runs.certificate import Certificate, SignedApproval, SignedSums
from parley.common.runs.evaluation import EVALUATE
from parley.common.runs.model_document import (
    DOCUMENT_FIELDS,
    ModelDocument,
    Promise,
    model_of,
    read_document,
    specification_of,
    weights_of_document,
)
from parley.common.runs.pricing import ALWAYS, guarantees, is_of_sums
from parley.common.runs.secure_terms import check_roster
from parley.common.runs.specification import RunSpec, digest_of_rows
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Opened, Roster
from parley.common.strict import PublicKey, Strict
from parley.common.wire.party_api import Approval

_EQUAL = 1e-6  # epsilons of two machines agree to this, as a part
_SHOWN = 5
_SAID_SINCE = frozenset({*ALWAYS, *ASSUMED})
"""Assumptions that documents of older versions leave unsaid, which hold of any run, or of its algorithm."""


class PublicKeys(Strict):
    """Ed25519 public keys in hexadecimal: the learner's, and those of parties and key holders by name."""

    learner: PublicKey
    parties: dict[str, PublicKey]
    key_holders: dict[str, PublicKey] = Field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, str]:
        """Every key, by the name of who holds it."""
        return {"the learner": self.learner, **self.parties, **self.key_holders}


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found of a document: the ``faults``, in words; what ``holds``; the ``keys`` that it was signed with.

    Where the keys are ``assumed``, nobody gave any, and the document's author may have made them.
    """

    faults: tuple[str, ...]
    holds: tuple[str, ...]
    keys: PublicKeys
    assumed: bool


def verification_of(document: Mapping[str, Any]) -> Verification | None:
    """What holds of a document by the keys that it names; None of one without a certificate. Raises as below."""
    return verify_document(document) if document.get("certificate") else None


@dataclass(frozen=True, slots=True)
class _Claim:
    """A document, its certificate, and the specification that the certificate names."""

    read: ModelDocument
    certificate: Certificate
    spec: RunSpec


def verify_document(document: Mapping[str, Any], known: PublicKeys | None = None) -> Verification:
    """What holds of a model's document and its certificate; ``known`` are keys that the asker trusts.

    Raises InvalidInputError for what is no document, has no certificate, or one that cannot be read.
    """
    try:
        return _verified(document, known)
    except ValueError:  # of what has no spelling, and so no digest
        raise InvalidInputError("the document holds what no JSON can: NaN, an infinity or half a character") from None


def _verified(document: Mapping[str, Any], known: PublicKeys | None) -> Verification:
    """The same; raises ValueError too."""
    read = read_document(document)
    model_of(read)
    if (certificate := read.certificate) is None:
        raise InvalidInputError("the document has no certificate: its model was not made by a learner's run")
    claim, keys = _Claim(read, certificate, specification_of(certificate)), _keys_of(certificate)
    consents = tuple(_faults_of_consents(claim.spec, certificate, read.contributors))
    promised, unknown = _due_promises(claim.spec)
    checks: list[tuple[Sequence[str], str]] = [
        ((*_unsigned(document), *_changed(claim)), "the learner signed every field of the document"),
        (tuple(_contents(claim)), "study, algorithm, parameters and parties are those of the specification"),
        (unknown or tuple(_promises(claim, promised)), "the guarantees follow from the specification, derived again"),
        (consents, "" if consents else _prices(certificate)),
    ]
    if unsaid := "; ".join(_unsaid(read, promised)):
        checks.append(((), f"the guarantees hold only if too, which the document does not say: {unsaid}"))
    if claim.spec.secure_sum != "none" or certificate.sums:
        claimed = "everybody signed the roster of the secure sum, and each key holder the last sum that it opened"
        checks.append((tuple(_faults_of_sums(claim, keys)), claimed))
    if read.evaluation and read.evaluation.certificate:
        claimed = "the evaluation is of these weights, and was approved and signed for"
        checks.append((tuple(f"evaluation: {fault}" for fault in _faults_of_evaluation(claim)), claimed))
    if known:
        checks.append((tuple(_strangers(keys, known)), "the keys are those that you know"))
    faults = dict.fromkeys(fault for found, _ in checks for fault in found)
    return Verification(
        tuple(faults), tuple(claimed for failures, claimed in checks if not failures), keys, known is None
    )


def _keys_of(certificate: Certificate) -> PublicKeys:
    """The keys that a certificate's parts say they are signed with, as far as they can be read."""
    parties, holders = {}, {}
    for name, signed in certificate.approvals.items():
        try:
            parties[name] = read_receipt(signed.receipt).key
        except LedgerError:
            continue
    if certificate.sums is not None:
        try:
            holders = {it.name: it.key for it in Roster.parse(certificate.sums.roster.encode()).key_holders}
        except ParleyError:
            holders = {}
    return PublicKeys(learner=certificate.learner, parties=parties, key_holders=holders)


def _changed(claim: _Claim) -> Iterator[str]:
    """The learner signed the certificate, and by it each field of the document."""
    if not claim.certificate.is_signed:
        yield "certificate: not what the learner signed"
    digests, signed, evaluation = claim.read.digests, claim.certificate.digests, claim.read.evaluation
    for name in sorted(digests.keys() | signed.keys()):
        came_later = name == "evaluation" and evaluation is not None and evaluation.certificate is not None
        if digests.get(name) != signed.get(name) and not came_later:
            yield f"{name}: not what the learner signed"


def _unsigned(document: Mapping[str, Any]) -> Iterator[str]:
    """What somebody has added that no document says, and that is read by nobody but people."""
    for name in sorted(document.keys() - DOCUMENT_FIELDS):
        yield f"{name[:100]}: not what the learner signed"


def _contents(claim: _Claim) -> Iterator[str]:
    """The document says what the specification says."""
    read, spec = claim.read, claim.spec
    told: dict[str, tuple[object, object]] = {
        "study": (read.study, spec.study),
        "study_digest": (read.study_digest, spec.study.digest),
        "spec_digest": (read.spec_digest, spec.digest),
        "algorithm": (read.algorithm, spec.algorithm),
        "parameters": (read.parameters, spec.parameters),
        "public": (read.public, spec.public),
        "column_names": (read.column_names, spec.study.column_names),
    }
    for name, (here, approved) in told.items():
        if here != approved:
            yield f"{name}: not what the specification says"
    if strangers := sorted(set(read.contributors) - set(spec.names)):
        yield f"contributors: the specification does not name {_shown(strangers)}"


def _due_promises(spec: RunSpec) -> tuple[list[Promise], tuple[str, ...]]:
    """The guarantees that follow from a specification; or why there are none, in words."""
    try:
        return [Promise.model_validate(guarantee.to_json()) for guarantee in guarantees(spec.build(), spec.facts())], ()
    except ParleyError as error:
        return [], (f"specification: {error.detail}",)


def _unsaid(read: ModelDocument, due: Sequence[Promise]) -> dict[str, None]:
    """What guarantees assume by this version of Parley, and a document does not say: versions before said less."""
    stated = {words for promise in read.guarantees for words in promise.assumptions}
    return dict.fromkeys(words for promise in due for words in promise.assumptions if words not in stated)


def _promises(claim: _Claim, due: Sequence[Promise]) -> Iterator[str]:
    """The guarantees follow from the specification, derived again."""
    read, spec = claim.read, claim.spec
    algorithm, rounds = spec.build(), len(spec.questions())
    if len(due) != len(read.guarantees) or not all(map(_agree, due, read.guarantees)):
        yield "guarantees: not what follows from the specification"
    if read.rounds != rounds:
        yield f"rounds: {read.rounds}, and the specification asks {rounds}"
    if read.adjacency != algorithm.adjacency:
        yield f"adjacency: {read.adjacency}, and the algorithm's is {algorithm.adjacency}"


def _agree(due: Promise, said: Promise) -> bool:
    """Whether a promise of a document is the due one but for the last digits of a machine, and words: see `_unsaid`."""
    figures = {"epsilon", "delta", "assumptions"}
    if due.model_dump(exclude=figures) != said.model_dump(exclude=figures):
        return False
    if not {words for words in due.assumptions if not _is_new(words)} <= set(said.assumptions):
        return False
    if not {words for words in said.assumptions if is_of_sums(words)} <= set(due.assumptions):
        return False
    if due.epsilon is None or said.epsilon is None:
        return due.epsilon is said.epsilon
    return _near(due.epsilon, said.epsilon) and _near(due.delta, said.delta)


def _is_new(assumption: str) -> bool:
    """Whether documents of older versions leave an assumption unsaid: it holds of any such run, or of its algorithm."""
    return is_of_sums(assumption) or assumption in _SAID_SINCE


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_EQUAL)


def _faults_of_consents(spec: RunSpec, certificate: Certificate, contributors: Sequence[str]) -> Iterator[str]:
    """Every contributor approved this specification, at a price, and signed that; so did who else is said to have."""
    for name, signed in certificate.approvals.items():
        if name not in spec.names:
            yield f"approval of {name}: the specification does not name it"
        try:
            yield from _faults_of_consent(name, signed, certificate.run, spec.digest)
        except LedgerError as error:
            yield f"receipt of {name}: {error.detail}"
        except ValidationError:
            yield f"approval of {name}: it cannot be read"
    if missing := [name for name in contributors if name not in certificate.approvals]:
        yield f"approvals: none of {_shown(missing)}"


def _faults_of_consent(name: str, signed: SignedApproval, run: str, digest: str) -> Iterator[str]:
    """A party's receipt binds its approval to run and specification; raises LedgerError, ValidationError."""
    receipt = verify_receipt(signed.receipt, name, read_receipt(signed.receipt).key)
    approval, bound = Approval.model_validate_json(signed.approval), receipt.answer
    if bound is None or (bound.run, bound.round, approval.run) != (run, APPROVAL, run):
        yield f"receipt of {name}: it is of no approval of this run"
        return
    if bound.body != sha256(signed.approval.encode()).hexdigest():
        yield f"approval of {name}: not what it signed"
    if (bound.query, approval.spec_digest) != (digest, digest):
        yield f"specification: not what {name} approved"


def _prices(certificate: Certificate) -> str:
    """What the parties signed that they pay at most."""
    paid = [Approval.model_validate_json(signed.approval) for signed in certificate.approvals.values()]
    signers = "1 party" if len(paid) == 1 else f"{len(paid)} parties"
    epsilon, delta = max(price.epsilon for price in paid), max(price.delta for price in paid)
    return f"{signers} approved the specification and signed: each pays ε = {epsilon:.6g}, δ = {delta:.3g} at most"


def _faults_of_sums(claim: _Claim, keys: PublicKeys) -> Iterator[str]:
    """Everybody signed the roster of the secure sum, and each key holder the last sum."""
    if (sums := claim.certificate.sums) is None:
        yield "sums: the run was a secure sum, and nothing that its key holders signed is here"
        return
    try:
        roster = Roster.parse(sums.roster.encode())
        check_roster(roster, claim.certificate.run, claim.spec)
    except ParleyError as error:
        yield f"roster: {error.detail}"
        return
    if roster.learner != claim.certificate.learner:
        yield "roster: another learner's"
    for member in (*roster.parties, *roster.key_holders):
        signed = Signed(sums.roster.encode(), _bytes(sums.signatures.get(member.name)))
        if not signed.is_by(Roster.TAG, member.key):
            yield f"roster: not signed by {member.name}"
    for party in roster.parties:
        if keys.parties.get(party.name, party.key) != party.key:
            yield f"roster: another key of {party.name} than its receipt's"
    for holder in roster.key_holders:
        if fault := _fault_of_opening(sums, holder.name, holder.key, roster):
            yield f"sum opened by {holder.name}: {fault}"


def _fault_of_opening(sums: SignedSums, name: str, key: str, roster: Roster) -> str | None:
    """What is wrong with what a key holder signed of the last sum."""
    if (opened := sums.opened.get(name)) is None:
        return "it signed none"
    signed = Signed(opened.statement.encode(), _bytes(opened.signature))
    try:
        signed.verify(Opened.TAG, key)
        Opened.parse(signed.body).check_session(roster.session, roster.digest)
    except ParleyError as error:
        return error.detail
    return None


def _faults_of_evaluation(claim: _Claim) -> Iterator[str]:
    """An evaluation that came after the model is of this model, and was signed for as the model was."""
    evaluation, read = claim.read.evaluation, claim.read
    assert evaluation is not None and evaluation.certificate is not None  # noqa: S101, PT018 -- as the caller saw
    certificate = evaluation.certificate
    spec = specification_of(certificate)
    plain = evaluation.model_copy(update={"run": None, "certificate": None})
    if not certificate.is_signed or certificate.learner != claim.certificate.learner:
        yield "its certificate is not what the learner signed"
    if certificate.digests.get("evaluation") != canonical_digest(plain.stated()):
        yield "not what the learner signed"
    if (evaluation.run, spec.algorithm, spec.study.digest) != (certificate.run, EVALUATE, read.study.digest):
        yield "of another run or study"
    if spec.public is None or spec.public.digest != digest_of_rows(np.atleast_2d(weights_of_document(read))):
        yield "of other weights"
    try:
        promise = guarantees(spec.build(), spec.facts())[0]
    except ParleyError as error:
        yield error.detail
    else:
        if not (_near(promise.epsilon, evaluation.epsilon) and _near(promise.delta, evaluation.delta)):
            yield "its cost is not what follows from its specification"
    yield from _faults_of_consents(spec, certificate, evaluation.contributors)


def _strangers(keys: PublicKeys, known: PublicKeys) -> Iterator[str]:
    """The keys are those that the asker knows."""
    trusted = known.by_name
    for name, key in keys.by_name.items():
        if name not in trusted:
            yield f"key of {name}: not among those that you know"
        elif trusted[name] != key:
            yield f"key of {name}: not the one that you know"


def _bytes(signature: str | None) -> bytes:
    return bytes.fromhex(signature or "")


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
