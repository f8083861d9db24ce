"""Run an application on uvicorn, with TLS 1.3 by its settings, until it is told to stop.

Meanwhile the settings file and the TLS files are watched (`Upkeep`): new tokens and certificates become valid without a
restart, and so does what else the service can take up of its settings. Connections stay, but for those to a learner
that is gone. SIGHUP makes it read the settings file at once.

It also schedules Python's collector of cyclic garbage (`FullCollections`), which stops all threads while it examines
all objects. A run of 70,000 columns has a million objects while it is read, compared and written, and the collector
would examine them again and again meanwhile. So the service runs it every half minute, but not while there are many
more objects than at the least: these may be gone in a moment.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import resource
import signal
import ssl
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits

from parley.common.errors import InvalidInputError, ParleyError
from parley.common.extras import require_extra
from parley.common.service import logs
from parley.common.service.heartbeat import heartbeat
from parley.common.service.http.connections import Beside, BoundedServer, connections_allowed
from parley.common.service.http.tls import FreshContext, certificate_expiry, load_chain, read_authority, stamp_of
from parley.common.service.prometheus import Metrics
from parley.common.service.secret_files import is_readable_by_all
from parley.common.service.settings import MetricsListener, ServiceSettings, Tls
from parley.common.service.side_listeners import MOST_CONNECTIONS, create_metrics_app, listener
from parley.common.service.tokens import Tokens
from parley.common.service.tracing import Tracing, trace_with

_AFTER = (50_000, 1, 2**31 - 1)
"""The collector examines new objects after this many, not after 700, which took most of the time of a large JSON body.
It examines them once more, after as many others, and never all objects by itself."""
_EVERY, _AT_LATEST = 30.0, 600.0  # seconds
_MANY = 2**20  # pieces of memory, which the collector examines within some 50 ms


class FullCollections:
    """Collects garbage among all objects made from now on, when `tend` is called at a good time."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, count: Callable[[], int] = sys.getallocatedblocks
    ) -> None:
        self._clock, self._count = clock, count
        self._last, self._least = -math.inf, sys.maxsize

    def begin(self) -> None:
        """Take over the collector's schedule; objects that exist now are never examined again."""
        gc.freeze()  # examining them again and again costs a tenth of a round
        gc.set_threshold(*_AFTER)
        self._last, self._least = self._clock(), self._count()

    def tend(self) -> None:
        """Collect garbage among all objects if it is time, and they are not many or have been many for long."""
        now, count = self._clock(), self._count()
        self._least = min(self._least, count)
        if now - self._last >= (_EVERY if count < self._least + _MANY else _AT_LATEST):
            gc.collect()
            self._last = self._clock()


_WARNING_DAYS = 30
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGE = 2**23
"""Bytes from which on the memory of an array is returned to the system as soon as it is free."""
_SWITCH_SECONDS = 0.0005
"""How long a thread of Python makes another wait, not 0.005: a short request waits several times."""


TakeUp = Callable[[Any], Collection[str]]
"""Has a running service take up changed settings, which are of its own class; called in a thread.

Returns the keys of the top level that it has taken up, changed or not. Raises ParleyError if it took up nothing.
"""


def serve(
    app: FastAPI, settings: ServiceSettings, beside: Sequence[Beside] = (), followers: Sequence[TakeUp] = ()
) -> None:
    """Serve until SIGINT or SIGTERM, then exit with status 0; open requests get ``limits.stop_seconds`` to finish.

    ``beside`` runs for as long, such as code that opens connections to others. Changed settings are taken up as
    `Upkeep` says: by ``app.state.take_up``, if the application has it, and by the ``followers``.

    Raises InvalidInputError where the certificate or its key cannot be used, tracing is not installed, or the process
    may have too few files open; UnavailableError where the heartbeat's directory cannot be written.
    """
    logs.configure(settings.log_format)
    begin_tracing(settings.tracing, settings.name)
    tls = settings.tls
    context = tls_context(tls) if tls else None
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        ssl_context_factory=(lambda *_: context) if context else None,
        access_log=False,  # the metrics count requests; a line for each would cost more than a round
        log_config=None,
        server_header=False,
        timeout_graceful_shutdown=settings.limits.stop_seconds,
        ws="none",
    )
    _allow_connections()
    if settings.metrics:
        beside = [*beside, _metrics_beside(settings, settings.metrics, app)]
    others = settings.peer_connections + MOST_CONNECTIONS * len(settings.side_ports)
    most = connections_allowed(settings.limits, others)
    structlog.get_logger().info(
        "serving", name=settings.name, host=settings.host, port=settings.port, tls=bool(tls), connections=most
    )
    _warn_of_open(settings.secret_files)
    take_up = getattr(app.state, "take_up", take_up_nothing)
    upkeep = Upkeep(settings, app.state.tokens, app.state.metrics, take_up, followers)
    beside = [upkeep.keep, *beside]
    for stop in (signal.SIGINT, signal.SIGTERM):  # uvicorn handles these, and raises them again at its end
        signal.signal(stop, lambda *_: sys.exit(0))
    signal.signal(signal.SIGHUP, lambda *_: upkeep.look_again())
    _give_memory_back()
    if settings.heartbeat:
        beside = [*beside, heartbeat(settings.heartbeat, app.state.ready)]
    collections = FullCollections()
    collections.begin()

    async def tend() -> None:
        collections.tend()

    sys.setswitchinterval(_SWITCH_SECONDS)
    with threadpool_limits(settings.blas_threads, user_api="blas"):
        BoundedServer(config, settings.limits, tend, beside, most, settings.shares.connections).run()


def _metrics_beside(settings: ServiceSettings, where: MetricsListener, app: FastAPI) -> Beside:
    """Return what serves the metrics on a listener of their own."""
    context = tls_context(where.tls) if where.tls else None
    return listener("metrics", where.host, where.port, lambda: create_metrics_app(settings, where, app), context)


def begin_tracing(settings: Tracing | None, service: str) -> None:
    """Trace from now on, as the service of this name, if there are settings for it.

    Raises MissingExtraError without the extra ``tracing``.
    """
    if settings is not None:
        require_extra("tracing", "settings: tracing")
        from parley.common.service.spans import Spans  # noqa: PLC0415 -- costs nobody who does not trace

        trace_with(Spans.sent_to(str(settings.endpoint), service))


def _warn_of_open(secrets: Iterable[Path]) -> None:
    """Warn of files of secrets that every user of this machine can read."""
    for file in filter(is_readable_by_all, sorted(set(secrets))):
        structlog.get_logger().warning("secret", file=str(file), readable_by="every user of this machine")


def _allow_connections() -> None:
    """Raise the limit on open files as far as allowed: each connected party needs one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _give_memory_back() -> None:
    """Make the GNU C library return large free memory at once; other C libraries are left as they are."""
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _LARGE)
        mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Return a server's TLS 1.3 context, which requests clients' certificates if it has an authority to verify them."""
    return FreshContext.of(lambda: _make_context(tls), tls.certificate, tls.key, tls.client_ca)


def _make_context(tls: Tls) -> ssl.SSLContext:
    """Make a context from the files as they are now."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        load_chain(context, tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(cadata=read_authority(tls.client_ca))
            context.verify_mode = ssl.CERT_REQUIRED if tls.clients == "required" else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError, UnicodeDecodeError):
        raise InvalidInputError(f"tls: {tls.certificate}, {tls.key} or the client authority cannot be used") from None
    return context


def take_up_nothing(_: ServiceSettings) -> Collection[str]:
    """Leave a service as it is; what it may take up is the tokens alone."""
    return ()


class Upkeep:
    """Maintains a running service: takes up what has changed in its settings file, and warns of what will soon expire.

    First the application takes the settings up, by ``take_up``. If it refuses them, everything stays as it was. Then
    the tokens are replaced; those of new callers count if the application has taken the callers up. Last come the
    ``followers``, which refuse nothing, so that the connections that they open find callers and tokens in place. A
    change of any other setting needs a restart, and the log says so.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        tokens: Tokens,
        metrics: Metrics,
        take_up: TakeUp = take_up_nothing,
        followers: Sequence[TakeUp] = (),
    ) -> None:
        self._path, self._kind = settings.source, type(settings)
        # from the file again: the options of a command may have changed the settings
        self._in_use = self._kind.load(self._path) if self._path else settings
        self._tokens, self._metrics = tokens, metrics
        self._take_up, self._followers = take_up, followers
        self._stamp = self._read_stamp()
        self._warned_on: date | None = None

    def look_again(self) -> None:
        """Have the settings file read the next time, even if it has not changed."""
        self._stamp = None

    async def keep(self, _: BoundedServer) -> None:
        """Tend the service once a second: beside its server, because taking settings up may last."""
        while True:
            await self.tend()
            await asyncio.sleep(1.0)

    async def tend(self) -> None:
        """Read the settings file if it has changed; report what expires, once a day."""
        if self._path and (stamp := self._read_stamp()) != self._stamp:
            self._stamp = stamp
            await asyncio.to_thread(self.reload)
        if self._warned_on != self._tokens.today():
            await asyncio.to_thread(self.tell_expiries)

    def reload(self) -> None:
        """Take up what the settings file says; one that cannot be used, or is refused, changes nothing."""
        log = structlog.get_logger()
        try:
            settings = self._kind.load(self._path)
            taken_up = set(self._take_up(settings))
        except ParleyError as error:
            log.warning("settings", kept="those before", reason=error.detail)
            return
        changed = _other_changes(self._in_use, settings)
        self._use(settings, taken_up)
        callers = {token.caller for token in self._in_use.tokens}
        self._tokens.replace(token for token in settings.tokens if token.caller in callers)
        for follow in self._followers:
            taken_up.update(follow(settings))
        self._use(settings, taken_up)
        self._warned_on = None
        new, left = [name for name in changed if name in taken_up], [name for name in changed if name not in taken_up]
        log.info("settings", read=str(self._path), **({"taken_up": new} if new else {}))
        _warn_of_open(settings.secret_files)
        if left:
            log.warning("settings", needs_restart=left)

    def _use(self, settings: ServiceSettings, names: Collection[str]) -> None:
        """Note that these settings are in use."""
        self._in_use = self._in_use.model_copy(update={name: getattr(settings, name) for name in names})

    def tell_expiries(self) -> None:
        """Show in how many days the first token and the first certificate expire, and warn if these are few."""
        self._warned_on = self._tokens.today()
        token = self._tokens.next_expiry()
        self._show_expiry("token", token.expires if token else None, str(token.caller) if token else "")
        ends = {path: day for path in self._in_use.certificates if (day := certificate_expiry(path))}
        first = min(ends, key=ends.__getitem__, default=None)
        self._show_expiry("certificate", ends[first] if first else None, str(first))

    def _show_expiry(self, kind: str, ends: date | None, name: str) -> None:
        """Show in how many days something expires; nothing if nothing of its kind does any more."""
        if ends is None:
            with suppress(KeyError):
                self._metrics.expiry_days.remove(kind)
            return
        days = (ends - self._tokens.today()).days
        self._metrics.expiry_days.labels(kind).set(days)
        if days <= _WARNING_DAYS:
            structlog.get_logger().warning("expires", what=kind, of=name, days=days)

    def _read_stamp(self) -> tuple[int, int] | None:
        """Return what differs once the settings file has changed."""
        return stamp_of(self._path) if self._path else None


def _other_changes(first: ServiceSettings, second: ServiceSettings) -> list[str]:
    """Return the keys of the top level that differ in more than tokens."""

    def plain(settings: ServiceSettings, name: str) -> Any:  # noqa: ANN401 -- any setting
        if name != settings.callers_key:
            return getattr(settings, name)
        return [caller.model_dump(exclude={"token_hash", "tokens"}) for caller in getattr(settings, name)]

    return [name for name in type(first).model_fields if plain(first, name) != plain(second, name)]
