"""Algorithm 1 of Hamm, Cao & Belkin 2016: a global classifier from the majority's votes on public rows."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from parley.common.algorithms._ensemble import Ensemble
from parley.common.algorithms._parameters import algorithm
from parley.common.arrays import FloatArray
from parley.common.learning.soft_labels import fit_votes
from parley.common.protocol.facts import FederationFacts
from parley.common.protocol.messages import Reply


@algorithm
class EnsembleVote(Ensemble):
    """The minimiser of the risk of the rows under the class of most votes: of two in a tie the second, else the first.

    The paper finds votes too sensitive, as one party may turn over the label of every row: true of noise on the model.
    With noise on the counts, taking the largest share removes noise.
    """

    part_moved: ClassVar[Literal["vote", "share"]] = "vote"

    def learn(self, rows: FloatArray, reply: Reply, facts: FederationFacts) -> FloatArray:
        """The minimiser under the largest shares, ties as in eq. 6."""
        shares = self.shares(rows, reply, facts)
        k = shares.shape[1]
        winners = (shares[:, 1] >= shares[:, 0]).astype(np.int64) if k == 2 else shares.argmax(axis=1)  # noqa: PLR2004
        return fit_votes(facts.loss, rows, np.eye(k)[winners], self.regularization)
