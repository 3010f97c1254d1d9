"""What a proxy counts, as metrics at a scrape."""

from collections.abc import Iterable

from diem.process import metrics
from diem.process.metrics import Sample
from proxy.proxy import Proxy
from proxy.shared import Shared


def samples(proxy: Proxy) -> Iterable[Sample]:
    """All samples of one scrape."""
    hub, edge, counts = proxy.edge.hub, proxy.edge, proxy.edge.hub.state.counts
    yield metrics.CLIENTS.sample(len(edge.connections))
    yield metrics.SUBSCRIPTIONS.sample(proxy.subscriptions())
    yield metrics.DELIVERIES.sample(hub.accounts.sent)
    yield metrics.DELIVERIES_CONFLATED.sample(hub.accounts.conflated)
    if isinstance(proxy.service, Shared):
        yield metrics.ENDPOINTS.sample(len(hub.state.retained))
        yield metrics.UPDATES_RECEIVED.sample(counts.consumed)
        yield metrics.UPDATES_STALE.sample(counts.stale)
        yield metrics.UPDATES_FANNED_OUT.sample(hub.fanned_out)
        yield metrics.UPDATES_NOT_SUBSCRIBED.sample(hub.not_subscribed)
        yield metrics.UPDATES_CONFLATED.sample(proxy.service.conflated)
    for kind, count in edge.received.items():
        yield metrics.MESSAGES.sample(count, kind)
    for error, count in edge.errors.items():
        yield metrics.ERRORS.sample(count, error)
    for code, count in edge.closes.items():
        yield metrics.CLOSES.sample(count, str(int(code)))
    for status, count in edge.refused.items():
        yield metrics.REFUSED.sample(count, str(status))
