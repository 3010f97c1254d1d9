"""Contexts of traced updates: bounds, merged updates, and what the tracer needs."""

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from diem.errors import ConfigurationError
from diem.process.tracing import MAX_UPDATES, TracedUpdates, tracing
from proxy.settings import Settings as Proxy
from services.data.settings import Settings as Data
from services.data.store import Deletion, Write
from services.data.store.traced_writes import TRACES_PER_S, WriteTracer
from tests.support.patience import PATIENCE_S
from tests.support.spans import SAMPLED, TRACE, UNSAMPLED, traced

V1, V2 = 1_700_000_000_001, 1_700_000_000_002


def test_context_is_found_for_its_version_until_it_is_discarded() -> None:
    tracer, _ = traced()
    updates = TracedUpdates(tracer)
    assert not updates
    updates.add(b"/a", V2, SAMPLED)
    assert updates.find(b"/a", V1) is None
    assert updates.find(b"/a", V2) == SAMPLED
    updates.discard(b"/a")
    assert not updates


def test_update_merged_into_a_later_one_ends_as_superseded_with_a_link() -> None:
    tracer, spans = traced()
    updates = TracedUpdates(tracer)
    updates.add(b"/a", V1, SAMPLED)
    other = tracer.context_of(tracer.start("write", None))
    updates.add(b"/a", V2, other)
    (span,) = spans.get_finished_spans()
    assert span.name == "superseded"
    assert span.parent is not None
    assert f"{span.parent.trace_id:032x}" == TRACE
    assert [f"{link.context.trace_id:032x}" for link in span.links] == [other.split("-")[1]]


def test_update_merged_into_one_without_a_trace_ends_as_superseded() -> None:
    tracer, spans = traced()
    updates = TracedUpdates(tracer)
    updates.add(b"/a", V1, SAMPLED)
    assert updates.find(b"/a", V2) is None
    assert not updates
    (span,) = spans.get_finished_spans()
    assert dict(span.attributes or {}) == {"diem.endpoint": "/a", "diem.version": V2}
    assert not span.links


def test_update_that_a_sender_has_found_is_not_superseded() -> None:
    tracer, spans = traced()
    updates = TracedUpdates(tracer)
    updates.add(b"/a", V1, SAMPLED)
    assert updates.find(b"/a", V1) == updates.find(b"/a", V1) == SAMPLED
    assert updates.find(b"/a", V2) is None
    assert spans.get_finished_spans() == ()


def test_contexts_are_bounded_and_the_oldest_gives_way() -> None:
    tracer, _ = traced()
    updates = TracedUpdates(tracer)
    for number in range(MAX_UPDATES + 1):
        updates.add(f"/{number}".encode(), V1, SAMPLED)
    assert len(updates) == MAX_UPDATES
    assert updates.find(b"/0", V1) is None


def test_context_is_not_found_after_its_time() -> None:
    tracer, _ = traced()
    now = 0.0
    updates = TracedUpdates(tracer, now=lambda: now)
    updates.add(b"/a", V1, SAMPLED)
    now = 31.0
    assert updates.find(b"/a", V1) is None
    assert not updates


def writer(rate: float = 0.0, draw: float = 0.5) -> tuple[WriteTracer, TracedUpdates, InMemorySpanExporter]:
    tracer, spans = traced()
    updates = TracedUpdates(tracer)
    return WriteTracer(updates, rate, now=lambda: 1000.0, draw=lambda: draw), updates, spans


@pytest.mark.parametrize(
    ("traceparent", "rate", "is_traced"),
    [
        (None, 0.0, False),
        (None, 0.6, True),
        (None, 0.4, False),
        (SAMPLED, 0.0, True),
        (UNSAMPLED, 1.0, False),
        ("nonsense", 1.0, False),
    ],
)
def test_caller_decides_on_the_trace_and_without_one_the_rate(
    traceparent: str | None, rate: float, is_traced: bool
) -> None:
    write = Write([Deletion("/a")], traceparent=traceparent)
    assert (writer(rate)[0].begin(write) is not None) is is_traced


def test_traces_are_limited_whatever_callers_sample() -> None:
    write_tracer, _, _ = writer()
    write = Write([Deletion("/a")], traceparent=SAMPLED)
    spans = [write_tracer.begin(write) for _ in range(100)]
    assert sum(span is not None for span in spans) == TRACES_PER_S


def test_process_without_traces_does_not_load_the_library() -> None:
    loaded = """
import sys
import bridge.main, services.broadcast.main, services.data.main, services.websocket.main
from diem.process.tracing import tracing
from services.data.settings import Settings

with tracing(Settings()) as tracer:
    assert tracer is None
print([name for name in sys.modules if name.startswith("opentelemetry")])
"""
    found = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_proxies_have_no_tracer(tmp_path: Path) -> None:
    with tracing(Proxy(traces=str(tmp_path))) as tracer:
        assert tracer is None
    assert not list(tmp_path.iterdir())


def test_file_has_one_line_of_otlp_for_each_export(tmp_path: Path) -> None:
    settings = Data(traces=str(tmp_path / "traces"))
    with tracing(settings) as tracer:
        assert tracer is not None
        tracer.start("write", None).end()
    (line,) = (tmp_path / "traces" / "data.jsonl").read_text().splitlines()
    assert line.startswith('{"resourceSpans":')


class Collector(BaseHTTPRequestHandler):
    received: ClassVar[list[tuple[str, str | None]]] = []

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, self.headers["Content-Type"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_spans_go_to_the_collector_that_the_librarys_variables_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        with tracing(Data(traces="otlp")) as tracer:
            assert tracer is not None
            tracer.start("write", None).end()
        thread.join(PATIENCE_S)
    assert Collector.received == [("/v1/traces", "application/x-protobuf")]


def test_missing_extra_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    with (
        pytest.raises(
            ConfigurationError, match=r"DIEM_TRACES: .* is not installed: pip install 'diem-realtime\[otel\]'"
        ),
        tracing(Data(traces="otlp")),
    ):
        pass


def test_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    settings = Data(traces=str(tmp_path / "file" / "traces"))
    with pytest.raises(ConfigurationError, match=r"DIEM_TRACES: .*traces: Not a directory"), tracing(settings):
        pass
