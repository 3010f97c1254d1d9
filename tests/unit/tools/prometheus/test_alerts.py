"""The alert rules: metrics, labels and documents that they name exist."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from diem.process import metrics
from diem.process.security_log import SecurityEvent
from tests.support.metrics import OF_EVERY_PROCESS
from tools.prometheus.configuration import ALERTS

ROOT: Final = Path(__file__).parents[4]
DOCUMENT: Final = yaml.safe_load(ALERTS.read_text())
RULES: Final[list[dict[str, Any]]] = [rule for group in DOCUMENT["groups"] for rule in group["rules"]]
OPERATIONS: Final = (ROOT / "docs" / "operations.md").read_text()
EXPOSED: Final = {each.exposed_name: each for each in metrics.ALL}
TARGET_LABELS: Final = {"instance", "process", "number", "mode"}
"""Of every target: deploy.system.scrape_targets."""
_NAME: Final = re.compile(r"\b(?:diem|process)_[a-z_]+")
_MATCHER: Final = re.compile(r"\b(diem_[a-z_]+)\{([a-z_]+)=\"([a-z_]+)\"\}")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_rule_is_complete_and_uses_metrics_that_exist(rule: dict[str, Any]) -> None:
    assert (
        {"alert", "expr", "labels", "annotations"} <= rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    )
    assert rule["labels"]["severity"] in {"info", "warning", "critical"}
    assert rule["annotations"]["summary"]
    expression = rule["expr"]
    assert expression.count("(") == expression.count(")")
    names = set(_NAME.findall(expression))
    assert names or re.search(r"\bup\{", expression)
    assert {name for name in names if name.startswith("diem_")} <= EXPOSED.keys()
    assert {name for name in names if name.startswith("process_")} <= OF_EVERY_PROCESS
    for name in re.findall(r"(?:increase|rate)\((diem_[a-z_]+)", expression):
        assert EXPOSED[name].kind == "counter"
    for name, label, value in _MATCHER.findall(expression):
        assert label in EXPOSED[name].labels
        assert value in set(SecurityEvent)
    for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
        assert label in TARGET_LABELS or any(label in EXPOSED[name].labels for name in names)


def test_names_are_unique_and_explained_in_operations() -> None:
    names = [rule["alert"] for rule in RULES]
    assert len(set(names)) == len(names) > 20
    assert set(names) == set(re.findall(r"`(Diem[A-Z]\w+)`", OPERATIONS))


def test_every_kind_of_security_event_is_explained_in_operations() -> None:
    assert [kind for kind in SecurityEvent if f"`{kind}`" not in OPERATIONS] == []
