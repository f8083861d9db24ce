"""The policy that `join` writes: something can be trained under it, or it says why nothing can."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.algorithms import build_algorithm
from parley.common.data.columns import Feature, Label, SparseFeatures
from parley.common.data.study import Person, Study
from parley.common.files.sources import parse_source
from parley.common.learning.losses import build_loss
from parley.common.privacy.guarantee import Adjacency
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import public_hex
from parley.common.wire.membership import Invitation, KnownKey
from parley.party.answers.party import open_store
from parley.party.cli.join import _warned
from parley.party.invited import BUDGET, Addition, InvitedParty
from parley.party.ledger.ledger import create_ledger
from parley.party.policy import first_algorithms, person_cautions, refused_for_sums, trained_by_sums
from parley.party.settings import PartySettings

GRADIENTS, VOTES = ("dp_gd", "psgd", "wu_subgradient", "wu_strongly_convex"), ("ensemble_vote", "ensemble_soft")
SPARSE = (SparseFeatures(name="entries", columns=50, entries=5),)
DENSE = (Feature(name="x", lower=0, upper=1),)
NOTHING: Adjacency = "whole_party"
KEY = Ed25519PrivateKey.generate()
HOLDER = KnownKey(name="notary", public_key=public_hex(Ed25519PrivateKey.generate()))


def study(**terms: Any) -> Study:  # noqa: ANN401 -- all that a study takes
    return Study(**({"name": "s", "features": DENSE, "label": Label(name="y", values=("0", "1"))} | terms))


def written(agreed: Study, root: Path, *key_holders: KnownKey, more: Sequence[Study] = ()) -> tuple[PartySettings, str]:
    """The settings that join writes for a study, and more of the same table, and their text."""
    learner = KnownKey(name="learner", public_key=public_hex(KEY))
    signed = tuple(SignedStudy.sign(each, learner.name, KEY) for each in (agreed, *more))
    invited = Invitation(
        name="a", role="party", learner=learner, url="https://learner.example.org", secret="s" * 40,
        expires=datetime(2100, 1, 1, tzinfo=UTC), studies=signed, key_holders=key_holders,
    )  # fmt: skip
    joining = InvitedParty.find(invited, root, None)
    joining.folder.begin(invited)
    table = parse_source("rows.parquet", ())
    additions = []
    for each in signed:
        person = None if each.study.person is None else each.study.person.column
        entry = joining.entry(each.study, table, clip=False, people=None, person=person)
        additions.append(Addition(each, entry))
    text = joining.first_text(additions, BUDGET, (), None, (1, 2, 3))
    (root / "party.toml").write_text(text)
    return PartySettings.load(root / "party.toml"), text


@pytest.mark.parametrize(
    ("terms", "algorithms"),
    [
        ({}, (*GRADIENTS, "release", "average", *VOTES, "evaluate", "describe")),
        ({"features": SPARSE}, (*GRADIENTS, "release", "average", "evaluate")),
        ({"norm": "max"}, ("simplex", "evaluate", "describe")),
        ({"features": SPARSE, "norm": "max"}, ("simplex", "evaluate")),
    ],
)
def test_a_policy_lists_what_takes_the_rows_of_the_study(
    terms: dict[str, Any], algorithms: tuple[str, ...], tmp_path: Path
) -> None:
    settings, text = written(study(**terms), tmp_path)
    assert settings.studies[0].policy.over(settings.policy).algorithms == algorithms
    assert not settings.policy.require_secure_sum
    assert "refused" not in text


@pytest.mark.parametrize(("norm", "refused"), [("euclidean", "release"), ("max", "simplex")])
def test_a_policy_that_requires_sums_says_what_that_refuses(norm: str, refused: str, tmp_path: Path) -> None:
    settings, text = written(study(norm=norm), tmp_path, HOLDER)
    assert settings.policy.require_secure_sum
    assert f"require_secure_sum = true  # so {refused} is refused" in text
    assert trained_by_sums(study(norm=norm)) == ((*GRADIENTS, "average", *VOTES) if norm == "euclidean" else ())
    warnings = [*_warned(settings.policy, study(norm=norm), None, 100)]
    assert "only simplex trains" in warnings[0] if norm == "max" else not warnings
    assert "published whole" in next(_warned(settings.policy, study(norm=norm), None, 10**5)), "of a delta of 2e-5"


@pytest.mark.parametrize("norm", ["euclidean", "max"])
def test_what_is_refused_for_sums_is_what_shows_each_answer(norm: Any) -> None:  # noqa: ANN401 -- a norm
    agreed = study(norm=norm)
    facts = FederationFacts.uniform(
        np.array([500, 500]), epsilon=1.0, delta=1e-5, n_features=agreed.n_features, loss=build_loss(agreed),
        norm=norm, study=agreed, secure_sum=True, public_shape=(1, agreed.n_features),
    )  # fmt: skip
    showing = [
        name
        for name in first_algorithms(agreed)
        if any(question.reveal == "each" for question in build_algorithm(name).questions(facts))
    ]
    assert tuple(showing) == refused_for_sums(agreed)


def test_an_owner_of_studies_of_persons_and_of_rows_is_told_what_its_account_can_never_promise(tmp_path: Path) -> None:
    persons, rows = study(name="stays", person=Person(column="patient")), study(name="visits")
    settings, _ = written(persons, tmp_path / "persons")
    assert (settings.policy.adjacency, person_cautions(settings, NOTHING)) == ("person", ())
    settings, _ = written(rows, tmp_path / "rows")
    assert (settings.policy.adjacency, person_cautions(settings, NOTHING)) == ("replace_one", ())
    settings, text = written(persons, tmp_path / "both", more=(rows,))
    (caution,) = person_cautions(settings, NOTHING)
    assert "hides single rows only, since visits hides one row each" in caution
    assert "it can never promise to persons, also of stays" in caution
    assert f'write adjacency = "person" into [policy] of {settings.source} now' in caution
    assert "now" in person_cautions(settings, "person")[0]
    (late,) = person_cautions(settings, "replace_one")
    assert "has answered runs that hide single rows: it can never promise to persons, also of stays" in late
    assert "write adjacency" not in late, "a ledger that has hidden rows does not start with it"
    create_ledger(settings.state, settings.identity, settings.policy.adjacency)
    path = tmp_path / "both" / "party.toml"
    path.write_text(text.replace("[policy]", '[policy]\nadjacency = "person"', 1))
    settings = PartySettings.load(path)
    assert person_cautions(settings, NOTHING) == ()
    open_store(settings).close()  # as a service opens it
