"""A tracer whose spans are kept in memory."""

from typing import Final

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from diem.process.tracing import Tracer

TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED: Final = f"00-{TRACE}-00f067aa0ba902b7-01"
UNSAMPLED: Final = f"00-{TRACE}-00f067aa0ba902b7-00"


def traced() -> tuple[Tracer, InMemorySpanExporter]:
    """Return a tracer, and its ended spans."""
    provider, spans = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracer(provider), spans
