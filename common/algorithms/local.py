"""The floor: every party alone with its own data, no sharing and no noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from common.algorithms._parameters import algorithm
from common.algorithms.pooled import Pooled
from common.learning.model import Model
from common.protocol.algorithm import Program
from common.protocol.facts import FederationFacts
from common.protocol.messages import Query


@algorithm
class Local(Pooled):
    """What each owner learns from its own shard: one model a party, (K, d). Not private: simulated only."""

    curator: ClassVar[bool] = False
    no_forecast: ClassVar[str] = "every owner keeps a model of its own, so there is no common one to forecast"

    def program(self, facts: FederationFacts) -> Program:
        """Collect each party's own minimiser."""
        reply = yield Query(1, "minimise", np.zeros(0), reveal="each")
        return Model(reply.value)
