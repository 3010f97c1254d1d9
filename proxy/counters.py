"""Metrics of a proxy."""

from collections.abc import Iterable

from diem.links import edge_samples
from diem.process import metrics
from diem.process.metrics import Sample
from proxy.proxy import Proxy
from proxy.shared import SharedProxy


def samples(proxy: Proxy) -> Iterable[Sample]:
    """All samples of one scrape."""
    yield from edge_samples.samples(proxy.edge)
    yield metrics.SUBSCRIPTIONS.sample(proxy.subscriptions())
    if isinstance(proxy.service, SharedProxy):
        relay, fanout = proxy.service.relay, proxy.edge.fanout
        yield metrics.ENDPOINTS.sample(len(relay.retained))
        yield metrics.UPDATES_RECEIVED.sample(relay.counts.consumed)
        yield metrics.UPDATES_STALE.sample(relay.counts.stale)
        yield metrics.UPDATES_FANNED_OUT.sample(fanout.delivered)
        yield metrics.UPDATES_NOT_SUBSCRIBED.sample(fanout.not_subscribed)
        yield metrics.UPDATES_CONFLATED.sample(relay.conflated)
