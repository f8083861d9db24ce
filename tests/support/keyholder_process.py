"""Key holders in processes that tests kill; forked from one that has imported everything, so a start takes no time."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from phe import PaillierPrivateKey, PaillierPublicKey

from parley.common.secure_sum.envelope import Signed
from parley.common.secure_sum.in_process import LocalSession
from parley.common.secure_sum.paillier import private_key
from parley.common.secure_sum.session import Identity
from parley.common.service.serve import serve
from parley.party.keyholder.app import create_key_holder_app
from parley.party.keyholder.journal import Journal, create_journal
from parley.party.keyholder.sessions import Sessions
from parley.party.keyholder.settings import KeyHolderSettings
from tests.support import processes
from tests.support.keyholder import KEY_BITS, FreshKeys

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["__main__", processes.__name__, __name__])


class KnownKey(FreshKeys):
    """A source and a vault of one key: unsealing one takes longer than all else that a child does."""

    def __init__(self, p: int, q: int) -> None:
        self._key = private_key(p, q)

    def take(self) -> PaillierPrivateKey:
        return self._key

    def store(self, key: PaillierPrivateKey) -> None:
        pass

    def load(self, n: int) -> PaillierPrivateKey:
        return self._key

    def keep_only(self, moduli: Sequence[int]) -> None:
        pass

    def retry(self) -> None:
        pass


class SameObfuscators:
    """The same obfuscators again and again: nothing is secret here."""

    def __init__(self, obfuscators: Sequence[int]) -> None:
        self._obfuscators = obfuscators

    def take(self, key: PaillierPublicKey, count: int) -> Sequence[int]:
        return self._obfuscators[:count]


@dataclass(frozen=True)
class Holder:
    """All that makes the key holder of one session, in whichever process."""

    root: Path
    p: int
    q: int
    signing_key: bytes
    learner: str
    session: str

    @classmethod
    def of(cls, session: LocalSession, key: PaillierPrivateKey, root: Path) -> Holder:
        """The key holder of a session in this process, moved to a journal."""
        signing_key = session.identities["key-holder-1"].signing_key.private_bytes_raw()
        holder = cls(root, key.p, key.q, signing_key, session.roster.learner, session.roster.session)
        create_journal(root, holder.identity)
        sessions = holder.sessions()
        sessions.begin("learner", holder.session, KEY_BITS)
        sessions.sign("learner", holder.session, session.learner.propose())
        sessions.close()
        return holder

    @property
    def identity(self) -> Identity:
        """Who the key holder is."""
        return Identity("key-holder-1", Ed25519PrivateKey.from_private_bytes(self.signing_key))

    def sessions(self) -> Sessions:
        """As after a start of the service."""
        keys = KnownKey(self.p, self.q)
        return Sessions(
            self.identity,
            pins={"learner": self.learner},
            key_bits=KEY_BITS,
            idle_seconds=86_400,
            most_a_day=1000,
            most_bytes=2**26,
            journal=Journal(self.root, self.identity),
            vault=keys,  # type: ignore[arg-type]
            keys=keys,
        )


def start_opening(holder: Holder, requests: Sequence[tuple[int, bytes]]) -> tuple[BaseProcess, Connection]:
    """A process that opens round after round, and where its answers come out; first it says that it is ready."""
    ours, theirs = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_open_all, args=(holder, requests, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def _open_all(holder: Holder, requests: Sequence[tuple[int, bytes]], out: Connection) -> None:
    sessions = holder.sessions()
    out.send_bytes(b"ready")
    for number, request in requests:
        answer = sessions.open("learner", holder.session, number, Signed.from_bytes(request))
        out.send_bytes(number.to_bytes(4) + answer)
    signal.pause()  # until killed


def start_keyholder(settings: KeyHolderSettings) -> BaseProcess:
    """The whole service."""
    process = _CONTEXT.Process(target=_serve, args=(settings,), daemon=True)
    process.start()
    return process


def _serve(settings: KeyHolderSettings) -> None:
    serve(create_key_holder_app(settings, FreshKeys()), settings)
