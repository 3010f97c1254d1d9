"""The text format of Prometheus, from the registered samples; ``metrics.render`` imports this at the first scrape."""

from collections.abc import Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from diem.process import metrics


def render() -> tuple[bytes, str]:
    """Return the body of a scrape and its content type."""
    return generate_latest(_registry), CONTENT_TYPE_LATEST


class _Registered(Collector):
    """Groups the registered samples into metric families."""

    def collect(self) -> Iterable[Metric]:
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for sample in metrics.collect():
            name = sample.metric.name
            if name not in families:
                families[name] = _family(sample.metric)
            families[name].add_metric(sample.labels, sample.value)
        return families.values()


def _family(metric: metrics.Definition) -> CounterMetricFamily | GaugeMetricFamily:
    family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    return family(metric.name, metric.help, labels=metric.labels)


_registry = CollectorRegistry()
_registry.register(_Registered())
ProcessCollector(registry=_registry)
