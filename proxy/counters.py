"""Metrics of a proxy."""

from collections.abc import Iterable

from diem.links import edge_samples
from diem.process import metrics
from diem.process.metrics import Sample
from proxy.proxy import Proxy
from proxy.shared import SharedProxy


def samples(proxy: Proxy) -> Iterable[Sample]:
    """All samples of one scrape."""
    hub, counts = proxy.edge.hub, proxy.edge.hub.state.counts
    yield from edge_samples.samples(proxy.edge)
    yield metrics.SUBSCRIPTIONS.sample(proxy.subscriptions())
    if isinstance(proxy.service, SharedProxy):
        yield metrics.ENDPOINTS.sample(len(hub.state.retained))
        yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
        yield metrics.UPDATES_STALE.sample(counts.stale)
        yield metrics.UPDATES_FANNED_OUT.sample(hub.fanned_out)
        yield metrics.UPDATES_NOT_SUBSCRIBED.sample(hub.not_subscribed)
        yield metrics.UPDATES_CONFLATED.sample(proxy.service.conflated)
