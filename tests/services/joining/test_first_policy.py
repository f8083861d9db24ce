"""The policy that `join` writes: something can be trained under it, or it says why nothing can."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.common.algorithms import build_algorithm
from parley.common.data.columns import Feature, Label, SparseFeatures
from parley.common.data.study import Study
from parley.common.files.sources import parse_source
from parley.common.learning.losses import build_loss
from parley.common.protocol.facts import FederationFacts
from parley.common.runs.certificate import SignedStudy
from parley.common.secure_sum.envelope import public_hex
from parley.common.wire.membership import Invitation, KnownKey
from parley.party.cli.join import _warned
from parley.party.invited import BUDGET, Addition, InvitedParty
from parley.party.policy import first_algorithms, refused_for_sums, trained_by_sums
from parley.party.settings import PartySettings

GRADIENTS, VOTES = ("dp_gd", "psgd", "wu_subgradient", "wu_strongly_convex"), ("ensemble_vote", "ensemble_soft")
SPARSE = (SparseFeatures(name="entries", columns=50, entries=5),)
DENSE = (Feature(name="x", lower=0, upper=1),)
KEY = Ed25519PrivateKey.generate()
HOLDER = KnownKey(name="notary", public_key=public_hex(Ed25519PrivateKey.generate()))


def study(**terms: Any) -> Study:  # noqa: ANN401 -- all that a study takes
    return Study(**({"name": "s", "features": DENSE, "label": Label(name="y", values=("0", "1"))} | terms))


def written(agreed: Study, root: Path, *key_holders: KnownKey) -> tuple[PartySettings, str]:
    """The settings that join writes, and their text."""
    learner = KnownKey(name="learner", public_key=public_hex(KEY))
    signed = SignedStudy.sign(agreed, learner.name, KEY)
    invited = Invitation(
        name="a", role="party", learner=learner, url="https://learner.example.org", secret="s" * 40,
        expires=datetime(2100, 1, 1, tzinfo=UTC), studies=(signed,), key_holders=key_holders,
    )  # fmt: skip
    joining = InvitedParty.find(invited, root, None)
    joining.folder.begin(invited)
    entry = joining.entry(agreed, parse_source("rows.parquet", ()), clip=False, people=None)
    text = joining.first_text([Addition(signed, entry)], BUDGET, (), None, (1, 2, 3))
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
