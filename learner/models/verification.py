"""Checks offline, with public keys alone, whether a model's document is what was signed.

A check is a claim with its failures. Each failure names the altered part: a weight, a party, a price, a receipt or an
evaluation. The claims that hold say who signed what. That the learner computed the weights from the answers it received
is not proven: it is the learner's own statement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from parley.common.encoding.canonical_json import canonical, canonical_digest
from parley.common.errors import InvalidInputError, LedgerError, ParleyError
from parley.common.learning.threshold import chosen_threshold
from parley.common.privacy.guarantee import no_less
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
from parley.common.runs.pricing import ALWAYS, IN_PLACE, guarantees, is_of_sums
from parley.common.runs.secure_terms import check_roster
from parley.common.runs.specification import RunSpec, digest_as_written, digest_of_rows
from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.messages import Opened, Roster
from parley.common.strict import PublicKey, Strict
from parley.common.wire.party_api import Approval, assumptions_of, is_of_people

_EQUAL = 1e-6  # epsilons of two machines agree up to this relative difference
_MOST_NAMED = 5
_BY_ANOTHER_VERSION = "if an earlier version of Parley made it, that one can check it"
_STATED_LATER = frozenset({*ALWAYS, *ASSUMED, IN_PLACE})
"""Assumptions of every run, or of its algorithm, that documents of older versions do not state."""


class PublicKeys(Strict):
    """Ed25519 public keys in hexadecimal: the learner's, and those of parties and key holders by name."""

    learner: PublicKey
    parties: dict[str, PublicKey]
    key_holders: dict[str, PublicKey] = Field(default_factory=dict)

    @property
    def by_name(self) -> dict[str, str]:
        """Every key, by the name of its holder."""
        return {"the learner": self.learner, **self.parties, **self.key_holders}


@dataclass(frozen=True, slots=True)
class Verification:
    """The result for a document: its ``faults`` and what ``holds``, in words, and the ``keys`` that signed it.

    If the keys are ``assumed``, they are those that the document names, and its author may have made them.
    """

    faults: tuple[str, ...]
    holds: tuple[str, ...]
    keys: PublicKeys
    assumed: bool


def verification_of(document: Mapping[str, Any]) -> Verification | None:
    """Verify a document by the keys that it names; return None for one without a certificate.

    Raises the errors of `verify_document`.
    """
    return verify_document(document) if document.get("certificate") else None


@dataclass(frozen=True, slots=True)
class _SignedModel:
    """A document, its certificate, and the specification that the certificate names."""

    read: ModelDocument
    certificate: Certificate
    spec: RunSpec


@dataclass(frozen=True, slots=True)
class _Check:
    """A claim in words, and why it does not hold; it holds without failures."""

    claim: str
    failures: tuple[str, ...] = ()


def verify_document(document: Mapping[str, Any], trusted: PublicKeys | None = None) -> Verification:
    """Check a model's document and its certificate, with ``trusted`` keys if the caller has some.

    Raises InvalidInputError if this is no document, has no certificate, or has one that cannot be read.
    """
    try:
        return _verified(document, trusted)
    except ValueError:  # a value that JSON cannot write has no digest
        raise InvalidInputError("the document holds what no JSON can: NaN, an infinity or half a character") from None


def _verified(document: Mapping[str, Any], trusted: PublicKeys | None) -> Verification:
    """Check a document as `verify_document` does; raises ValueError for a value that JSON cannot write."""
    read = read_document(document)
    model_of(read)
    if (certificate := read.certificate) is None:
        raise InvalidInputError("the document has no certificate: its model was not made by a learner's run")
    model, keys = _SignedModel(read, certificate, specification_of(certificate)), _keys_of(certificate)
    refused = tuple(_faults_of_consents(model.spec, certificate, read.contributors))
    derived, no_guarantees = _derived_promises(model.spec)
    checks = [
        _Check("the learner signed every field of the document", (*_unsigned(document), *_changed(model))),
        _Check("study, algorithm, parameters and parties are those of the specification", tuple(_contents(model))),
        _Check(
            "the guarantees follow from the specification, derived again",
            no_guarantees or tuple(_promises(model, derived)),
        ),
        _Check("" if refused else _prices(certificate), refused),
    ]
    if not refused:
        checks.extend(_of_people(read, assumptions_of(certificate.approvals)))
    if unstated := "; ".join(_unstated(read, derived)):
        checks.append(
            _Check(f"the guarantees hold only under further assumptions, which the document does not say: {unstated}")
        )
    if model.spec.secure_sum != "none" or certificate.sums:
        claim = "everybody signed the roster of the secure sum, and each key holder the last sum that it opened"
        checks.append(_Check(claim, tuple(_faults_of_sums(model, keys))))
    if read.evaluation and read.evaluation.certificate:
        claim = "the evaluation is of these weights, and was approved and signed for"
        checks.append(_Check(claim, tuple(f"evaluation: {fault}" for fault in _faults_of_evaluation(model))))
    if read.threshold:
        claim = f"the threshold follows from the evaluation and the rule {read.threshold.rule}: repeated, not signed"
        if not read.threshold.estimated:
            claim = f"the threshold follows from the rule {read.threshold.rule} and the study: repeated, not signed"
        checks.append(_Check(claim, tuple(_faults_of_threshold(read))))
    if trusted:
        checks.append(_Check("the keys are those that you know", tuple(_strangers(keys, trusted))))
    faults = dict.fromkeys(fault for check in checks for fault in check.failures)
    holds = tuple(check.claim for check in checks if not check.failures)
    return Verification(tuple(faults), holds, keys, trusted is None)


def _keys_of(certificate: Certificate) -> PublicKeys:
    """Return the keys with which a certificate's parts say they are signed, as far as the parts can be read."""
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


def _changed(model: _SignedModel) -> Iterator[str]:
    """Yield the certificate and the document's fields that the learner did not sign as they are."""
    if not model.certificate.is_signed:
        yield "certificate: not what the learner signed"
    digests, signed, evaluation = model.read.digests, model.certificate.digests, model.read.evaluation
    for name in sorted(digests.keys() | signed.keys()):
        came_later = name == "evaluation" and evaluation is not None and evaluation.certificate is not None
        if digests.get(name) != signed.get(name) and not came_later:
            yield f"{name}: not what the learner signed"


def _unsigned(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield fields that no document has: Parley ignores them, but people would read them."""
    for name in sorted(document.keys() - DOCUMENT_FIELDS):
        yield f"{name[:100]}: not what the learner signed"


def _contents(model: _SignedModel) -> Iterator[str]:
    """Yield the fields of the document that differ from the specification."""
    read, spec = model.read, model.spec
    compared: dict[str, tuple[object, object]] = {
        "study": (read.study, spec.study),
        "study_digest": (read.study_digest, spec.study.digest),
        "spec_digest": (read.spec_digest, _digest_of(spec, model.certificate, read.spec_digest)),
        "algorithm": (read.algorithm, spec.algorithm),
        "parameters": (_without_overlap(model), spec.parameters),
        "class_weights": (read.class_weights, spec.named_class_weights),
        "public": (read.public, spec.public),
        "column_names": (read.column_names, spec.study.column_names),
    }
    for name, (stated, approved) in compared.items():
        if stated != approved:
            yield f"{name}: not what the specification says"
    if strangers := sorted(set(read.contributors) - set(spec.names)):
        yield f"contributors: the specification does not name {_named(strangers)}"


def _without_overlap(model: _SignedModel) -> dict[str, Any]:
    """Return the document's parameters, without an overlap, which earlier versions stated among Wu et al.'s."""
    parameters = dict(model.read.parameters)
    if parameters.get("overlap") == model.spec.overlap:
        del parameters["overlap"]
    return parameters


def _is_overlap_a_parameter(model: _SignedModel) -> bool:
    """Return whether an earlier version stated the guarantees, which promised a shared record less in other words."""
    words = f"no person's record is in more than {model.spec.overlap} shards"
    return any(words in promise.assumptions for promise in model.read.guarantees)


def _derived_promises(spec: RunSpec) -> tuple[list[Promise], tuple[str, ...]]:
    """Return the guarantees that follow from a specification, and the faults for which there are none."""
    try:
        return [Promise.model_validate(guarantee.to_json()) for guarantee in guarantees(spec.build(), spec.facts())], ()
    except ParleyError as error:
        return [], (f"specification: {error.detail} ({_BY_ANOTHER_VERSION})",)


def _unstated(read: ModelDocument, derived: Sequence[Promise]) -> dict[str, None]:
    """Return the assumptions of derived guarantees that a document does not state: older versions stated fewer."""
    stated = {words for promise in read.guarantees for words in promise.assumptions}
    return dict.fromkeys(words for promise in derived for words in promise.assumptions if words not in stated)


def _of_people(read: ModelDocument, assumed: Sequence[str]) -> Iterator[_Check]:
    """Yield the check that each guarantee states what owners ``assumed`` of their people when they approved the run."""
    stated = [{words for words in promise.assumptions if is_of_people(words)} for promise in read.guarantees]
    if assumed or any(stated):
        differs = any(words != set(assumed) for words in stated)
        fault = "guarantees: not what owners signed about the people in their rows"
        yield _Check("the guarantees state what owners signed about the people in their rows", (fault,) * differs)


def _promises(model: _SignedModel, derived: Sequence[Promise]) -> Iterator[str]:
    """Yield how the document's guarantees, rounds and adjacency differ from those of the specification."""
    read, spec = model.read, model.spec
    rounds, hidden = len(spec.questions()), spec.build().adjacency_of(spec.study.unit)
    if is_earlier := _is_overlap_a_parameter(model):  # it did not say what is promised to who is with one owner
        algorithm, facts = spec.build(), spec.facts().of(0)
        alone = len(algorithm.claims(facts)) + 1
        derived = [promise for place, promise in enumerate(derived) if place != alone]
    if len(derived) != len(read.guarantees) or not all(
        _agree(one, stated, in_other_words=is_earlier) for one, stated in zip(derived, read.guarantees, strict=True)
    ):
        earlier = f" ({_BY_ANOTHER_VERSION})" if is_earlier else ""
        yield f"guarantees: not what follows from the specification{earlier}"
    if read.rounds != rounds:
        yield f"rounds: {read.rounds}, and the specification asks {rounds}"
    if read.adjacency != hidden:
        yield f"adjacency: {read.adjacency}, and the run's is {hidden}"


def _agree(derived: Promise, stated: Promise, *, in_other_words: bool = False) -> bool:
    """Return whether a document's guarantee is the derived one, up to rounding and to assumptions as in `_unstated`.

    If it is ``in_other_words``, all assumptions are only as in `_unstated`.
    """
    figures = {"epsilon", "delta", "assumptions"} | ({"owners"} if in_other_words else set())
    if derived.model_dump(exclude=figures) != stated.model_dump(exclude=figures):
        return False
    others = {words for words in derived.assumptions if not _is_new(words)}
    if not in_other_words and not others <= set(stated.assumptions):
        return False
    if not {words for words in stated.assumptions if is_of_sums(words)} <= set(derived.assumptions):
        return False
    if derived.epsilon is None or stated.epsilon is None:
        return derived.epsilon is stated.epsilon
    return _near(derived.epsilon, stated.epsilon) and _near(derived.delta, stated.delta)


def _is_new(assumption: str) -> bool:
    """Return whether older versions' documents leave an assumption out: it holds for any such run, or its algorithm."""
    return is_of_sums(assumption) or assumption in _STATED_LATER


def _near(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_EQUAL)


def _digest_of(spec: RunSpec, certificate: Certificate, stated: str) -> str:
    """Return the digest of a certificate's specification: the ``stated`` one if the text had it for who wrote it."""
    written = digest_as_written(canonical(certificate.specification).decode())
    return stated if stated == written else spec.digest


def _faults_of_consents(spec: RunSpec, certificate: Certificate, contributors: Sequence[str]) -> Iterator[str]:
    """Yield the faults of signed approvals: every contributor must have one, and all must be of this specification."""
    for name, signed in certificate.approvals.items():
        if name not in spec.names:
            yield f"approval of {name}: the specification does not name it"
        try:
            yield from _faults_of_consent(name, signed, spec, certificate)
        except LedgerError as error:
            yield f"receipt of {name}: {error.detail}"
        except ValidationError:
            yield f"approval of {name}: it cannot be read"
    if missing := [name for name in contributors if name not in certificate.approvals]:
        yield f"approvals: none of {_named(missing)}"


def _faults_of_consent(name: str, signed: SignedApproval, spec: RunSpec, certificate: Certificate) -> Iterator[str]:
    """Yield the faults of one approval, which its receipt binds to run and specification.

    Raises LedgerError for a receipt that cannot be verified, ValidationError for an approval that cannot be read.
    """
    receipt = verify_receipt(signed.receipt, name, read_receipt(signed.receipt).key)
    approval, bound, run = Approval.model_validate_json(signed.approval), receipt.answer, certificate.run
    digest = _digest_of(spec, certificate, approval.spec_digest)
    if bound is None or (bound.run, bound.round, approval.run) != (run, APPROVAL, run):
        yield f"receipt of {name}: it is of no approval of this run"
        return
    if bound.body != sha256(signed.approval.encode()).hexdigest():
        yield f"approval of {name}: not what it signed"
    if (bound.query, approval.spec_digest) != (digest, digest):
        yield f"specification: not what {name} approved"


def _prices(certificate: Certificate) -> str:
    """Return how many parties signed, and the largest price that one of them signed, in words."""
    paid = [Approval.model_validate_json(signed.approval) for signed in certificate.approvals.values()]
    signers = "1 party" if len(paid) == 1 else f"{len(paid)} parties"
    epsilon, delta = max(price.epsilon for price in paid), max(price.delta for price in paid)
    price = f"ε = {no_less(epsilon, 6)}, δ = {no_less(delta)} at most"
    return f"{signers} approved the specification and signed: each pays {price}"


def _faults_of_sums(model: _SignedModel, keys: PublicKeys) -> Iterator[str]:
    """Yield the faults of a secure sum: all must have signed its roster, and each key holder its last sum."""
    if (sums := model.certificate.sums) is None:
        yield "sums: the run was a secure sum, and nothing that its key holders signed is here"
        return
    try:
        roster = Roster.parse(sums.roster.encode())
        check_roster(roster, model.certificate.run, model.spec)
    except ParleyError as error:
        earlier = f" ({_BY_ANOTHER_VERSION})" if _is_overlap_a_parameter(model) else ""
        yield f"roster: {error.detail}{earlier}"
        return
    if roster.learner != model.certificate.learner:
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
    """Return the fault of a key holder's signed statement of the last sum, or None."""
    if (opened := sums.opened.get(name)) is None:
        return "it signed none"
    signed = Signed(opened.statement.encode(), _bytes(opened.signature))
    try:
        signed.verify(Opened.TAG, key)
        Opened.parse(signed.body).check_session(roster.session, roster.digest)
    except ParleyError as error:
        return error.detail
    return None


def _faults_of_evaluation(model: _SignedModel) -> Iterator[str]:
    """Yield the faults of an evaluation run after the model: it must be of this model, and signed as the model is."""
    evaluation, read = model.read.evaluation, model.read
    assert evaluation is not None and evaluation.certificate is not None  # noqa: S101, PT018 -- the caller checked it
    certificate = evaluation.certificate
    spec = specification_of(certificate)
    plain = evaluation.model_copy(update={"run": None, "certificate": None})
    if not certificate.is_signed or certificate.learner != model.certificate.learner:
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
        yield f"{error.detail} ({_BY_ANOTHER_VERSION})"
    else:
        if not (_near(promise.epsilon, evaluation.epsilon) and _near(promise.delta, evaluation.delta)):
            yield f"its cost is not what follows from its specification ({_BY_ANOTHER_VERSION})"
    yield from _faults_of_consents(spec, certificate, evaluation.contributors)


def _faults_of_threshold(read: ModelDocument) -> Iterator[str]:
    """Yield that a document's threshold is not the one that its rule chooses, up to rounding."""
    stated = read.threshold
    assert stated is not None  # noqa: S101 -- the caller checked it
    try:
        evaluation = None if read.evaluation is None else read.evaluation.model_dump(mode="json")
        repeated = chosen_threshold(stated.rule, read.study, evaluation, dict(read).get("class_weights"))
    except InvalidInputError as error:
        yield error.detail
        return
    if repeated != stated.model_copy(update={"score": repeated.score}) or not _near(repeated.score, stated.score):
        yield f"threshold: not what the rule {repeated.rule} chooses: that is {repeated.score:.6g}"


def _strangers(keys: PublicKeys, trusted: PublicKeys) -> Iterator[str]:
    """Yield the keys that are not among the trusted ones."""
    key_of = trusted.by_name
    for name, key in keys.by_name.items():
        if name not in key_of:
            yield f"key of {name}: not among those that you know"
        elif key_of[name] != key:
            yield f"key of {name}: not the one that you know"


def _bytes(signature: str | None) -> bytes:
    return bytes.fromhex(signature or "")


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
