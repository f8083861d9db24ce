"""Who takes traces: in this process's memory, or over HTTP as a collector does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from parley.common.service.spans import Spans
from parley.common.service.tracing import trace_with


@contextmanager
def remembered_spans() -> Iterator[InMemorySpanExporter]:
    """All spans that this process makes."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace_with(Spans(provider))
    try:
        yield exporter
    finally:
        trace_with(None)


class Collector:
    """Takes spans over HTTP: ``spans`` has them, each with the name of its service; ``said`` all else in the bodies.

    What is drawn at random is left out of that: a name of two characters is in the bytes of some run's identifiers.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/traces"
        self.spans: list[tuple[str, Span]] = []
        self.said: list[str] = []

    def take(self, body: bytes) -> None:
        """Take a request."""
        export = ExportTraceServiceRequest.FromString(body)
        for resource in export.resource_spans:
            names = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.append((names["service.name"], Span.FromString(span.SerializeToString())))
                for drawn in ("trace_id", "span_id", "parent_span_id"):
                    span.ClearField(drawn)
        self.said.append(str(export))


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- http.server's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield collector
        server.shutdown()
