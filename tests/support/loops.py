"""A party without its web side as a process: it answers over a pipe, and starts in a few milliseconds."""

from __future__ import annotations

import json
import multiprocessing
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import numpy as np

from parley.common.protocol.messages import Query
from parley.common.wire.party_api import RunProposal
from parley.party.answers.party import NoiseFactory, Party
from parley.party.settings import PartySettings

LEARNER = "learner"


class PartyLoop:
    """A party's process and the pipe to it. Raises ConnectionError or EOFError when the process is gone."""

    def __init__(self, settings: PartySettings, noise: NoiseFactory) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("forkserver")
        self.process: BaseProcess = context.Process(target=_answer_over, args=(settings, noise, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def propose(self, proposal: RunProposal) -> None:
        """Have a run approved."""
        self._exchange({"proposal": proposal.model_dump(mode="json")})

    def ask(self, run: str, round: int, message: list[float]) -> bytes:
        """The answer of a round, as it would be sent."""
        return self._exchange({"run": run, "round": round, "message": message})

    def close(self) -> None:
        """Close the pipe."""
        self._pipe.close()

    def _exchange(self, request: dict[str, object]) -> bytes:
        self._pipe.send_bytes(json.dumps(request).encode())
        return self._pipe.recv_bytes()


def _answer_over(settings: PartySettings, noise: NoiseFactory, pipe: Connection) -> None:
    with Party(settings, noise) as party:
        while True:
            request = json.loads(pipe.recv_bytes())
            if "proposal" in request:
                party.approve(LEARNER, RunProposal.model_validate(request["proposal"]))
                pipe.send_bytes(b"approved")
            else:
                query = Query(request["round"], "gradient", np.array(request["message"]))
                pipe.send_bytes(party.answer(LEARNER, request["run"], query).body)
