"""The best model that looks at no feature, where the study tells what is known of its label.

It predicts each class by its share, or the label's mean, for every row. What that gains on weights of zero is learnt at
once, for all rows ask for it; what is left is all that features can tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from parley.common.data.study import Study


@dataclass(frozen=True, slots=True)
class BestConstant:
    """Its mean ``loss``, and by how much that is less than the loss at the weights that a run starts from, ``gain``.

    ``bend`` is the loss's mean curvature there in units of that at zero: where a class is rare, few rows are in doubt.
    A regression starts there, for its study tells the mean: from the ``intercept``, where an example's loss is
    ``most`` at most; classes start from zero, and have neither.
    """

    loss: float
    gain: float = 0.0
    bend: float = 1.0
    intercept: float = 0.0
    most: float | None = None


def best_constant(study: Study | None) -> BestConstant | None:
    """That of a study's label, by its loss; None where nothing is known, or no weights are that constant.

    >>> from parley.common.data.columns import Feature, Label
    >>> from parley.common.data.study import Study
    >>> label = Label(name="fraud", values=("no", "yes"), shares=(0.95, 0.05))
    >>> known = best_constant(Study(name="s", features=(Feature(name="x", lower=0, upper=1),), label=label))
    >>> round(known.loss, 3), round(known.gain, 3), round(known.bend, 3)
    (0.199, 0.495, 0.19)
    """
    if study is None:
        return None
    if (usual := study.usual_label) is not None:
        return BestConstant(usual.deviation**2 / 2, intercept=usual.intercept, most=(1 + abs(usual.mean)) ** 2 / 2)
    if study.class_shares is None or not study.intercept or study.loss.kind not in {"logistic", "softmax"}:
        return None
    shares = np.array(study.class_shares)
    entropy = -float(shares @ np.log(shares))
    bend = (1 - float(shares @ shares)) / (1 - 1 / len(shares))
    return BestConstant(entropy, max(0.0, math.log(len(shares)) - entropy), bend)
