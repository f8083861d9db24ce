"""Run an application on uvicorn, with TLS 1.3 by settings, until it is told to stop."""

from __future__ import annotations

import signal
import ssl
import sys

import structlog
import uvicorn
from fastapi import FastAPI
from threadpoolctl import threadpool_limits

from common.errors import InvalidInputError
from common.service import logs
from common.service.settings import ServiceSettings, Tls


def serve(app: FastAPI, settings: ServiceSettings) -> None:
    """Serve until SIGINT or SIGTERM, then exit with status 0; open requests get ``limits.stop_seconds`` to finish.

    Raises InvalidInputError when the certificate or its key cannot be used.
    """
    logs.configure(settings.log_format)
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
    structlog.get_logger().info("serving", name=settings.name, host=settings.host, port=settings.port, tls=bool(tls))
    for stop in (signal.SIGINT, signal.SIGTERM):  # which uvicorn handles, and raises again when it is done
        signal.signal(stop, lambda *_: sys.exit(0))
    with threadpool_limits(settings.blas_threads, user_api="blas"):
        uvicorn.Server(config).run()


def tls_context(tls: Tls) -> ssl.SSLContext:
    """A server's TLS 1.3 context, which asks clients for a certificate if it has an authority to check them by."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError):
        raise InvalidInputError(f"tls: {tls.certificate}, {tls.key} or the client authority cannot be used") from None
    return context
