"""OpenTelemetry spans of sampled updates, from their write to the fan-out; the only module that imports the library.

Reading order: :func:`tracing` (the tracer of a process, None unless ``DIEM_TRACES`` is set), :class:`Tracer`,
:class:`TracedUpdates` (contexts of updates on their way). Names and attributes follow the semantic conventions of
messaging; contexts are those of W3C Trace Context, as texts (``traceparent``). A span has the endpoint and its version,
as logs do, and never data, addresses, users or keys.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from diem import __version__
from diem.errors import ConfigurationError, install_command
from diem.process.settings import ProcessSettings
from diem.protocol.update import TRACE_HEADER

if TYPE_CHECKING:
    from opentelemetry.trace import Span

OFF: Final = "off"
OTLP: Final = "otlp"
HOPS: Final = frozenset({"data", "broadcast", "bridge", "websocket"})
"""Processes with spans. Proxies pass on what servers send."""
FLUSH_S: Final = 2.0
"""Time in which a stopping process sends its last spans."""
MAX_UPDATES: Final = 64
MAX_AGE_S: Final = 30.0
"""Contexts of updates that are kept at once, and for how long: later, an update is a repeat or a catch-up."""


class Tracer:
    """Starts the spans of one process. Their times are Unix nanoseconds."""

    def __init__(self, provider: Any) -> None:  # noqa: ANN401 - not imported unless needed
        from opentelemetry import trace  # noqa: PLC0415 - only where traces are on
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415

        self._trace = trace
        self._propagator = tracecontext.TraceContextTextMapPropagator()
        self._tracer = provider.get_tracer("diem", __version__)

    def start(
        self,
        name: str,
        parent: str | None,
        attributes: dict[str, str | int] | None = None,
        *,
        kind: str = "INTERNAL",
        start_ns: int | None = None,
        links: Sequence[str] = (),
    ) -> "Span":
        """Start a span.

        Args:
            name: of the operation, without the names of endpoints, which are unbounded.
            parent: context of its parent; None: it is the root of a new trace.
            attributes: of the span.
            kind: a ``SpanKind``.
            start_ns: its start; None: now.
            links: contexts of updates that were merged into this one.
        """
        span: Span = self._tracer.start_span(
            name,
            self._propagator.extract({} if parent is None else {TRACE_HEADER: parent}, self._empty),
            kind=self._trace.SpanKind[kind],
            attributes=attributes,
            start_time=start_ns,
            links=[self._trace.Link(self._remote(each)) for each in links],
        )
        return span

    @property
    def _empty(self) -> Any:  # noqa: ANN401
        # Not the current context of the task, in which nothing is traced.
        return self._trace.set_span_in_context(self._trace.INVALID_SPAN)

    def _remote(self, traceparent: str) -> Any:  # noqa: ANN401
        context = self._propagator.extract({TRACE_HEADER: traceparent}, self._empty)
        return self._trace.get_current_span(context).get_span_context()

    def is_sampled(self, traceparent: str) -> bool:
        """Return whether a caller's context is valid, and its trace recorded."""
        context = self._remote(traceparent)
        return bool(context.is_valid and context.trace_flags.sampled)

    def context_of(self, span: "Span") -> str:
        """Return the ``traceparent`` of the children of a span."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, self._trace.set_span_in_context(span))
        return carrier[TRACE_HEADER]

    def superseded(self, context: str, endpoint: bytes, by: int, merged_into: str | None = None) -> None:
        """End the trace of an update that was merged into the later version ``by``, linked to its trace, if any."""
        self.start(
            "superseded",
            context,
            {"diem.endpoint": endpoint.decode(), "diem.version": by},
            links=[] if merged_into is None else [merged_into],
        ).end()


class TracedUpdate(NamedTuple):
    """The context of one version of an endpoint."""

    version: int
    context: str
    """The ``traceparent`` of the last hop's span."""
    since: float
    """Monotonic seconds."""
    sent: bool = False
    """A sender has found it: others may, but a later version does not supersede it."""


class TracedUpdates:
    """Contexts of sampled updates on their way, by endpoint: at most 64, for 30 s; the oldest gives way.

    False while there are none, so that a sender's loop costs one test.
    """

    def __init__(self, tracer: Tracer, *, now: Callable[[], float] = time.monotonic) -> None:
        self.tracer = tracer
        self._now = now
        self._of: dict[bytes, TracedUpdate] = {}

    def __len__(self) -> int:
        return len(self._of)

    def add(self, endpoint: bytes, version: int, context: str) -> None:
        """Keep the context of an update until it is sent; an earlier one of the endpoint ends as superseded."""
        before = self._of.pop(endpoint, None)
        if before is not None and before.version < version and not before.sent:
            self.tracer.superseded(before.context, endpoint, version, context)
        while len(self._of) >= MAX_UPDATES:
            del self._of[next(iter(self._of))]
        self._of[endpoint] = TracedUpdate(version, context, self._now())

    def find(self, endpoint: bytes, version: int) -> str | None:
        """Return the context of the update that is sent; None if it is not traced, or was merged into this version."""
        found = self._of.get(endpoint)
        if found is None:
            return None
        if self._now() - found.since > MAX_AGE_S:
            del self._of[endpoint]
            return None
        if found.version < version:
            del self._of[endpoint]
            if not found.sent:
                self.tracer.superseded(found.context, endpoint, version)
        if found.version != version:
            return None
        self._of[endpoint] = found._replace(sent=True)
        return found.context

    def discard(self, endpoint: bytes) -> None:
        """Forget an update that was sent."""
        self._of.pop(endpoint, None)

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over a copy of the endpoints."""
        return iter([*self._of])


@contextmanager
def tracing(settings: ProcessSettings) -> Iterator[Tracer | None]:
    """Open the tracer of a process for the block, and send what is left at its end; None if traces are off.

    Raises:
        ConfigurationError: the extra ``otel`` is not installed, or the directory cannot be used.
    """
    if settings.traces == OFF or settings.process not in HOPS:
        yield None
        return
    try:
        provider = _provider(settings)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"DIEM_TRACES: {error.name} is not installed: {install_command('otel')}") from error
    except OSError as error:
        raise ConfigurationError(f"DIEM_TRACES: {error.filename}: {error.strerror}") from error
    try:
        yield Tracer(provider)
    finally:
        # The library itself waits ten seconds for a collector that does not answer.
        flush = threading.Thread(target=provider.shutdown, name="flush of spans", daemon=True)
        flush.start()
        flush.join(FLUSH_S)


def _provider(settings: ProcessSettings) -> Any:  # noqa: ANN401
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - only where traces are on
    from opentelemetry.sdk.trace import TracerProvider, sampling  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter  # noqa: PLC0415

    exporter: SpanExporter
    if settings.traces == OTLP:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        exporter = OTLPSpanExporter()
    else:
        from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter  # noqa: PLC0415

        directory = Path(settings.traces)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        exporter = FileSpanExporter(directory / f"{settings.process_name}.jsonl")
    resource = Resource.create(
        {
            "service.name": os.environ.get("OTEL_SERVICE_NAME", f"diem-{settings.process}"),
            "service.instance.id": settings.process_name,
            "service.version": __version__,
        }
    )
    # What is sampled is decided where a write is accepted; all later spans belong to a sampled trace.
    provider = TracerProvider(sampler=sampling.ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider
