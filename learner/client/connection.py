"""Requests to a learner's API carried over HTTP: by threads that wait here, by an event loop in `async_connection`.

What is asked and how an answer is read is a `Call`, which both carry.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import httpx

from parley.common.errors import InvalidInputError, ParleyError, UnavailableError
from parley.common.service.http.proxy import ProxyAccess, spell_hosts
from parley.common.strict import is_loopback
from parley.learner.client.call import Call, Reading, run_path
from parley.learner.client.refusals import refusal_of
from parley.learner.client.token import read_token
from parley.learner.client.watching import AWAY, PATIENCE, Watching
from parley.learner.run_states import RunEvent

PROXY = "PARLEY_PROXY"
"""The environment's variable that names the HTTP proxy between users and learners beyond this machine."""

_SIGNS = {
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted here, or has expired: name its authority, by --ca "
    "or PARLEY_CA",
    "WRONG_VERSION_NUMBER": "it does not speak TLS: is it http://?",
    "Name or service not known": "nobody here knows this name",
}
"""What errors of connections say, and what that most likely means."""
_ZONE = re.compile(r"^(\w+://\[[^]%]+)%25")
"""How an address of IPv6 that holds on this machine's ``eth0`` is spelt by some (RFC 6874); httpx takes ``%eth0``."""
_TIMEOUT = httpx.Timeout(10.0, read=60.0)


def options_of(url: str, token: str, tls: ssl.SSLContext, proxy: str | None) -> dict[str, Any]:
    """What a client of httpx is made by; raises InvalidInputError for what is no address, or no proxy."""
    try:
        url = _ZONE.sub(r"\1%", url)
        scheme, host = httpx.URL(url).scheme, httpx.URL(url).host
    except (httpx.InvalidURL, TypeError):  # the second of what is no text
        scheme = host = ""
    if scheme not in {"http", "https"} or not host:
        raise InvalidInputError(f"the learner's address must begin with http:// or https://, not be {str(url)[:200]!r}")
    headers = {"Authorization": f"Bearer {token}"}
    through = _proxy_of(host, proxy)
    return {
        "base_url": url,
        "headers": headers,
        "proxy": through,
        "trust_env": False,
        "verify": tls,
        "timeout": _TIMEOUT,
    }


def _proxy_of(host: str, proxy: str | None) -> httpx.Proxy | None:
    """The proxy that is given, else PARLEY_PROXY's, which is not asked for this machine itself."""
    if proxy is None and not is_loopback(host):
        proxy = os.environ.get(PROXY)
    return ProxyAccess.of(proxy).for_client() if proxy else None


def tls_of(ca: Path | str | None, certificate: Path | str | None, key: Path | str | None) -> ssl.SSLContext:
    """TLS with an authority and a certificate of one's own, or by this machine's and SSL_CERT_FILE's authorities.

    Raises InvalidInputError for files that cannot be used.
    """
    if ca is certificate is None:
        return ssl.create_default_context()
    from parley.common.service.http.tls import client_context  # noqa: PLC0415 -- most users need none of it

    return client_context(*(None if file is None else Path(file) for file in (ca, certificate, key)))


def read_answer(call: Call[Reading], url: str, response: httpx.Response) -> Reading:
    """What an answer says; raises the exception of a refusal, and ParleyError for what a learner would not answer."""
    if not response.is_success:
        raise refusal_of(response.status_code, response.content)
    try:
        return call.read(response.content)
    except ValueError:  # no JSON, or other fields
        raise not_a_learner(url) from None


def not_a_learner(url: str) -> ParleyError:
    """What is raised where something else answers than a learner would."""
    return ParleyError(f"what answers at {url} is no learner of this version of Parley", problem=None)


def unreachable(url: str, error: httpx.TransportError) -> UnavailableError:
    """What is raised where no learner answers, with what may help."""
    hints = [words for sign, words in _SIGNS.items() if sign in str(error)]
    if isinstance(error, httpx.RemoteProtocolError) and url.startswith("http://"):
        hints.append("is it https://?")
    told = "".join(f": {words}" for words in hints[:1])
    return UnavailableError(f"no learner answers at {url} ({type(error).__name__}){told}")


def cut_off(run: str) -> UnavailableError:
    """What is raised where a stream of events ended before its run, again and again."""
    return UnavailableError(f"the learner ends the news of run {run[:100]} before the run has ended")


class BlockingConnection:
    """The learner at ``url``, as the user whose token this is: that given, or as `read_token` finds one.

    An https learner needs a certificate by the authority ``ca``, or else by one that this machine trusts or the file
    SSL_CERT_FILE holds; ``certificate`` and ``key`` are the user's own, where a proxy wants to see one (PEM files).
    ``proxy`` is the HTTP proxy on the way, http://host:port or http://user:password@host:port, by default PARLEY_PROXY.
    ``patience`` is for how many seconds `watch` asks again. A `transport` of httpx stands in for the network in tests.

    All methods raise UnavailableError where no learner answers, and else the exception of the learner's problem
    document: that of `parley.common.errors` whose ``kind`` it names, with its fields as ``facts``.
    """

    def __init__(  # noqa: PLR0913 -- a keyword each
        self,
        url: str,
        token: str | None = None,
        transport: httpx.BaseTransport | None = None,
        *,
        token_file: Path | str | None = None,
        ca: Path | str | None = None,
        certificate: Path | str | None = None,
        key: Path | str | None = None,
        proxy: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self.url, self.patience = url, patience
        options = options_of(url, read_token(token, token_file), tls_of(ca, certificate, key), proxy)
        self._http = httpx.Client(transport=transport, event_hooks={"request": [spell_hosts]}, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __deepcopy__(self, _: dict[int, Any]) -> Self:
        """Itself: a connection is shared by what is copied, as an estimator's parameter is."""
        return self

    def close(self) -> None:
        """End the connections."""
        self._http.close()

    def send(self, call: Call[Reading]) -> Reading:
        """What a call's answer says."""
        try:
            response = self._http.request(**call.options)
        except httpx.TransportError as error:
            raise unreachable(self.url, error) from None
        return read_answer(call, self.url, response)

    def watch(self, run: str) -> Iterator[RunEvent]:
        """A run's events from its first to its end, as they come; each once, however often the connection breaks.

        A learner that is away, or restarts, is asked again, ever less often, until ``patience`` is spent.
        """
        watching = Watching(run, self.patience)
        while not watching.has_ended:
            try:
                with self._http.stream("GET", run_path(run, "events"), headers=watching.headers) as response:
                    if response.is_success:
                        for line in response.iter_lines():
                            yield from watching.take(line)
                        lost: ParleyError = cut_off(run)
                    else:
                        lost = refusal_of(response.status_code, response.read())
                        if response.status_code not in AWAY:
                            raise lost
            except httpx.TransportError as error:
                lost = unreachable(self.url, error)
            if not watching.has_ended:
                time.sleep(watching.pause(lost))
