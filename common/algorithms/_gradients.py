"""What the algorithms that descend on sums of gradients share."""

from __future__ import annotations

from common.arrays import FloatArray
from common.protocol.facts import FederationFacts
from common.protocol.messages import Question, Reply


def ask_gradients(facts: FederationFacts, n_rounds: int) -> tuple[Question, ...]:
    """The questions of so many rounds, each for the sum of gradients at weights of the model's shape."""
    return (Question("gradient", facts.shape, facts.n_weights),) * n_rounds


def mean_gradient(reply: Reply, facts: FederationFacts) -> FloatArray:
    """The sum of gradients that a round was answered, over the examples of those who contributed; of weights' shape."""
    return reply.value.reshape(facts.shape) / facts.examples(reply.contributors)
