"""Metrics of clients, common to all edge processes."""

from collections.abc import Iterable

from diem.links.edge import Edge
from diem.process import metrics
from diem.process.metrics import Sample


def samples(edge: Edge) -> Iterable[Sample]:
    """Clients, deliveries, messages, errors, closes and refused handshakes."""
    yield metrics.CLIENTS.sample(len(edge.connections))
    yield metrics.DELIVERIES.sample(edge.fanout.stats.sent)
    yield metrics.DELIVERIES_CONFLATED.sample(edge.fanout.stats.conflated)
    for kind, count in edge.received.items():
        yield metrics.MESSAGES.sample(count, kind)
    for error, count in edge.errors.items():
        yield metrics.ERRORS.sample(count, error)
    for code, count in edge.closes.items():
        yield metrics.CLOSES.sample(count, str(int(code)))
    for status, count in edge.refused.items():
        yield metrics.REFUSED.sample(count, str(status))
