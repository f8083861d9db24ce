"""Matrix perturbation: noise in the regulariser. Experimental: without a proof, hence without a guarantee.

Xie's thesis, Section 6.2.1. Objective perturbation (Chaudhuri et al. 2011) tilts the risk by a random linear term; here
its ridge is bent by a random quadratic one instead,

    F(w) = sum loss(w.x, y) + (n lambda / 2) |w|^2 + w^T A A^T w / (2 epsilon),

A (d, d) of independent standard normals, which is our choice, for no bound on what such noise hides is known. No ledger
accepts it, so it is only simulated. With C C^T the whole quadratic form over n lambda, w = C^-T v makes it a ridge
again, of rows C^-1 x, which are no longer than x.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from parley.common.algorithms._parameters import Regularization, algorithm
from parley.common.algorithms._regularization import ask_minimiser
from parley.common.arrays import IntArray
from parley.common.data.shard import Shard
from parley.common.encoding.fixed_point import MAX_NORM, to_integers
from parley.common.learning.erm import minimise
from parley.common.learning.losses import check_single_score
from parley.common.learning.model import Model
from parley.common.privacy.events import Event, NonPrivateEvent
from parley.common.privacy.noise import Noise
from parley.common.protocol.algorithm import Algorithm, Program
from parley.common.protocol.facts import FederationFacts, OwnFacts
from parley.common.protocol.messages import Query, Question


@algorithm
class MatrixPerturbation(Algorithm):
    """Each site's minimiser under a randomly bent ridge, one model for each site; nothing is promised."""

    regularization: Regularization = 0.01
    persons: ClassVar[bool] = True

    @property
    def makes_one_model(self) -> bool:
        """Each party gets a model of its own."""
        return False

    def questions(self, facts: FederationFacts) -> tuple[Question, ...]:
        """Ask each site one question, for its model."""
        check_single_score(facts.loss)
        return (ask_minimiser(facts, "each")[0],)

    def program(self, facts: FederationFacts) -> Program:
        """Collect the models."""
        reply = yield ask_minimiser(facts, "each")[1]
        return Model(reply.value.reshape(-1, *facts.shape), "members")

    def local(self, query: Query, prepared: Shard, facts: OwnFacts, noise: Noise) -> IntArray:
        """Return the minimisers (..., d)."""
        d, strength = facts.n_features, self.regularization * np.maximum(facts.own_examples, 1)
        bend = noise.gaussian(1.0, (*strength.shape, d, d))
        scale = (facts.own_epsilon * strength)[..., None, None]
        root = np.linalg.cholesky(np.eye(d) + bend @ np.swapaxes(bend, -1, -2) / scale)
        rows = np.swapaxes(np.linalg.solve(root, np.swapaxes(prepared.X, -1, -2)), -1, -2)
        bent_weights = minimise(facts.loss, prepared.replaced(rows), strength)
        weights = np.linalg.solve(np.swapaxes(root, -1, -2), bent_weights[..., None])[..., 0]
        return to_integers(np.clip(np.asarray(weights, dtype=np.float64), -MAX_NORM, MAX_NORM))

    def sensitivity(self, query: Query, facts: OwnFacts) -> float:
        """Return infinity: nothing is proven."""
        return np.inf

    def proof(self, query: Query, facts: OwnFacts) -> None:
        """Return None: the algorithm claims nothing."""

    def event(self, round: int, facts: OwnFacts) -> Event:
        """Return the event of an answer without any proven privacy."""
        return NonPrivateEvent()
