"""What an owner is asked about a run that waits for its word, and how it hears of that."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from threading import Thread
from typing import Any

import httpx
import structlog

from common.privacy.account import DELTA_UNITS, MICRO, Price
from common.privacy.guarantee import Guarantee
from common.runs.pricing import guarantees
from common.wire.party_api import RunProposal
from party.settings import Notify

_SECONDS = 10.0


def question_of(learner: str, proposal: RunProposal, price: Price, expires: float) -> dict[str, Any]:
    """Who asks for what, at which price, with whom, what is promised: public facts, and the learner's words."""
    spec = proposal.spec
    secure = spec.secure_sum != "none"
    return {
        "learner": learner,
        "run": proposal.run,
        "user": proposal.user,
        "purpose": proposal.purpose,
        "study": spec.study.name,
        "about": " ".join(filter(None, (spec.study.title, spec.study.purpose))) or "the study does not say",
        "algorithm": spec.algorithm,
        "epsilon": price.whole.epsilon / MICRO,
        "delta": price.whole.delta / DELTA_UNITS,
        "rounds": len(price.epsilon),
        "contributors": list(spec.names[:1000]),
        "minimum_contributors": spec.minimum_contributors,
        "learner_sees": "sums of all contributors' noisy answers" if secure else "your noisy answers, one by one",
        "co_owners_see": "the questions of each round, and so what can be told from them; never your answers",
        "guarantee": [promise_in_words(each) for each in guarantees(spec.build(), spec.facts())],
        "until": datetime.fromtimestamp(expires, UTC).isoformat(timespec="minutes"),
    }


def promise_in_words(promise: Guarantee) -> str:
    """A guarantee as a sentence.

    >>> promise_in_words(Guarantee(1.0, 1e-5, "transcript", "tight"))
    'Of all that the learner sees nobody can tell one record of yours from another, but with (1, 1e-05).'
    """
    whose = "one record of yours from another" if promise.adjacency == "replace_one" else "your data from any other"
    seen = (
        "all that the learner sees" if promise.view == "transcript" else "the final model, if the learner is trusted,"
    )
    if not math.isfinite(promise.epsilon):
        return f"Of {seen} nothing is promised."
    assumed = "".join(f" It holds if {each}." for each in promise.assumptions)
    colluding = f", even together with {promise.trust} of the others" if promise.trust else ""
    return (
        f"Of {seen} nobody{colluding} can tell {whose}, but with ({promise.epsilon:.3g}, {promise.delta:.1g}).{assumed}"
    )


class Notifier:
    """Tells the owner by the means of the settings, in a thread of its own; what fails is logged, and stops nothing."""

    def __init__(self, means: Notify) -> None:
        self._means = means

    def __call__(self, question: Callable[[], Mapping[str, Any]]) -> None:
        """Begin to tell a question, which is made in the thread."""
        if self._means.command or self._means.url:
            Thread(target=self._tell, args=(question,), daemon=True).start()

    def _tell(self, question: Callable[[], Mapping[str, Any]]) -> None:
        text = json.dumps(question())
        try:
            if self._means.command:
                subprocess.run(self._means.command, input=text.encode(), timeout=_SECONDS, check=True)  # noqa: S603 -- the owner's
            if self._means.url:
                headers = {"Content-Type": "application/json"}
                with httpx.Client(trust_env=False, timeout=_SECONDS) as client:
                    client.post(str(self._means.url), content=text, headers=headers).raise_for_status()
        except (OSError, subprocess.SubprocessError, httpx.HTTPError) as error:
            structlog.get_logger().warning("notify", failed=type(error).__name__)
