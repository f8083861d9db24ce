"""What the feature methods share: the span of sites' models, and a second level of learning within it.

Xie's thesis, Chapter 5: the models f_1, ..., f_N that sites release are the rows of M (N, d); a second level learns
from what they make of a row x, and its weights w (N,) say how much each site counts for: the model is B^T w, B being M
over a number, so that B x is about 1 long.

What they make of x is its view x' = B x / |B x|, of length 1 whatever x: which side of a hyperplane through 0 a row
lies on does not hang on its length, and noise is as large whether views are long or short. The thesis divides all views
by the longest of the second level's own rows instead, which tells of them. Dividing by |M|_op, which is safe too, left
views so short that noise drowned them: of threes and sevens at ten sites of epsilon = .1 (`scripts.figures.xie`) an
aggregator's model was wrong in .44 of test rows, now in .32; of KDD99's connections in .24, now in .10. The choice was
made by looking at these, and is no claim for others.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import numpy as np
from pydantic import Field
from scipy.linalg import qr

from parley.common.arrays import FloatArray, IntArray
from parley.common.data.shard import Shard
from parley.common.errors import InvalidInputError
from parley.common.learning.erm import minimise
from parley.common.learning.losses import Loss
from parley.common.learning.model import Model
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Question, Reply

_RANK = 1e-9
"""A model that adds less than this to the span of others, in parts of the longest, adds nothing."""

Selected = Literal["all", "independent", "best"]
Selection = Annotated[
    Selected,
    Field(description="which sites' models span the second level: all, linearly independent ones, or the best"),
]


def spanned(models: FloatArray) -> FloatArray:
    """B = sqrt(d) M / |M|_F of models (K, d), those without a part zero.

    Of rows of length 1 whose directions are all alike, the mean of |B x|^2 is 1: so scores are about those of views.
    """
    norm = float(np.linalg.norm(models))
    return models * (math.sqrt(models.shape[1]) / norm) if norm > 0 else models


def fitted(basis: FloatArray, rows: Shard) -> FloatArray:
    """B over the mean of |B x|, by rows that are no secret."""
    mean = float(np.linalg.norm(rows.X @ basis.T, axis=1).mean())
    return basis / mean if mean > 0 else basis


def ask_models(step: str, message: tuple[int, ...], facts: FederationFacts) -> Question:
    """The question for sites' models: for each, or under a secure sum for their stack, in which each has a row."""
    if facts.secure_sum:
        return Question(step, message, len(facts.parties) * facts.n_features)
    return Question(step, message, facts.n_features, "each")


def placed(models: IntArray, facts: OwnFacts) -> IntArray:
    """Answers to `ask_models` of models (..., d): as they are, or in their rows of the stack."""
    if not facts.secure_sum:
        return models
    rows = np.eye(len(facts.parties), dtype=np.int64)[facts.index]
    return np.asarray(rows[..., None] * models[..., None, :]).reshape(*models.shape[:-1], -1)


def collected(reply: Reply, facts: FederationFacts) -> FloatArray:
    """The models (K, d) of a reply to `ask_models`; zero of who did not answer."""
    k = len(facts.parties)
    if reply.value.ndim == 1:
        return reply.value.reshape(k, facts.n_features)
    models = np.zeros((k, facts.n_features))
    models[list(reply.contributors)] = reply.value
    return models


def selected(models: FloatArray, selection: Selected, rows: Shard | None, most: int) -> FloatArray:
    """The models of a selection, the rest zero; the best by public ``rows``."""
    if selection == "independent":
        return independent(models)
    return models if selection == "all" or rows is None else best(models, rows, most)


def independent(models: FloatArray) -> FloatArray:
    """The models that add most to the span of others, at most d of them; the rest zero (Section 6.2)."""
    _, triangle, order = qr(models.T, mode="economic", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    kept = order[: int((sizes > _RANK * sizes.max(initial=0.0)).sum())].astype(np.int64)
    return _only(models, kept)


def best(models: FloatArray, rows: Shard, most: int) -> FloatArray:
    """The ``most`` models that are right most often on public rows; the rest zero (Section 6.2)."""
    present = np.flatnonzero(np.abs(models).max(axis=1) > 0)
    right = ((rows.X @ models[present].T > 0) == (rows.y > 0)[:, None]).mean(axis=0)
    return _only(models, present[np.argsort(-right, kind="stable")[:most]])


def labelled(rows: FloatArray) -> Shard:
    """Public rows (n, d + 1) as examples, the last column their labels; raises InvalidInputError for one class."""
    shard = Shard(rows[:, :-1], rows[:, -1])
    if len(np.unique(shard.y > 0)) < 2:  # noqa: PLR2004
        raise InvalidInputError("the public rows are all of one class: nothing is to be learnt from them")
    return shard


def check_labelled(facts: FederationFacts) -> None:
    """Raise InvalidInputError unless the run's public rows are of the parties' features and a label."""
    _, width = facts.public_size
    if width != facts.n_features + 1:
        raise InvalidInputError(
            f"the public rows have {width} columns: they must be the {facts.n_features} features and a label"
        )


def in_span(basis: FloatArray, shard: Shard) -> Shard:
    """The examples x' = B x / |B x| of a shard (n, d), in N features; 0 where B x is."""
    views = shard.X @ basis.T
    lengths = np.linalg.norm(views, axis=-1, keepdims=True)
    return Shard(np.divide(views, lengths, out=np.zeros_like(views), where=lengths > 0), shard.y, shard.mask)


def weigh(loss: Loss, basis: FloatArray, rows: Shard, regularization: float) -> FloatArray:
    """The second level's weights (N,) without noise, for rows that are no secret."""
    return minimise(loss, in_span(basis, rows), regularization * len(rows.y))


def combined(basis: FloatArray, weights: FloatArray) -> Model:
    """B^T w, with what it is made of."""
    return Model(basis.T @ weights, made_of={"span": basis, "site_weights": weights})


def _only(models: FloatArray, kept: IntArray) -> FloatArray:
    some = np.zeros_like(models)
    some[kept] = models[kept]
    return some
