"""The dashboard: its expressions use metrics and labels that exist, and its panels do not overlap."""

import json
import re
from itertools import combinations
from typing import Any, Final

import pytest

from diem.process import metrics
from tests.support.metrics import OF_EVERY_PROCESS, names_in
from tools.prometheus.configuration import DASHBOARD

DOCUMENT: Final = json.loads(DASHBOARD.read_text())
PANELS: Final[list[dict[str, Any]]] = [panel for panel in DOCUMENT["panels"] if panel["type"] != "row"]
EXPOSED: Final = {each.exposed_name: each for each in metrics.ALL}
TARGET_LABELS: Final = {"job", "instance", "process", "number", "clone", "mode"}


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["id"]))
def test_expressions_use_metrics_and_labels_that_exist(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        expression = target["expr"]
        names = names_in(expression)
        assert names or expression.startswith("count(up{")
        assert names <= EXPOSED.keys() | OF_EVERY_PROCESS
        # Every selector is of the chosen job, so that a Prometheus with other jobs shows nothing of theirs.
        assert len(re.findall(r"\{", expression)) == len(re.findall(r'\{job=~"\$job"', expression))
        for name in re.findall(r"(?:rate|increase)\((\w+)", expression):
            assert name.endswith("_total")
        known = TARGET_LABELS | {label for name in names & EXPOSED.keys() for label in EXPOSED[name].labels}
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
        matched = set(re.findall(r'(\w+)[=!]~?"', expression))
        assert shown | grouped | matched <= known


def test_it_shows_what_operators_need() -> None:
    used = {name for panel in PANELS for target in panel["targets"] for name in names_in(target["expr"])}
    assert {
        *("diem_clients", "diem_subscriptions", "diem_updates_received_total", "diem_delivery_delay_seconds"),
        *("diem_handshakes_refused_total", "diem_kafka_lag", "diem_publisher_lag", "diem_feed_silence_seconds"),
        *("diem_map_moving_endpoints", "process_cpu_seconds_total", "process_resident_memory_bytes"),
    } <= used


def test_panels_have_their_own_ids_and_places() -> None:
    assert len({panel["id"] for panel in DOCUMENT["panels"]}) == len(DOCUMENT["panels"])
    for one, other in combinations([panel["gridPos"] for panel in DOCUMENT["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DOCUMENT["panels"])
