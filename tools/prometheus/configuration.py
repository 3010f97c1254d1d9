"""The ``prometheus.yml`` of a running ``diem up``; pure. JSON strings are YAML, so no library is needed to write it."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from deploy.system.scrape_targets import Target

DIRECTORY: Final = Path(__file__).parent
ALERTS: Final = DIRECTORY / "alerts.yaml"
DASHBOARD: Final = DIRECTORY / "dashboard.json"
JOB: Final = "diem"
"""Prefix of the job, by which alert rules and dashboard select jobs."""
INTERVAL_S: Final = 15
"""Seconds between scrapes, and between evaluations of the rules."""


def configuration(key_file: Path, targets: Path | Iterable[Target]) -> Iterator[str]:
    """Yield the lines of a ``prometheus.yml`` that scrapes with the key in ``key_file``.

    Args:
        key_file: read by Prometheus at each scrape; it must have one line.
        targets: the file in which ``diem up`` keeps the targets, or fixed targets.
    """
    yield "global:"
    yield f"  scrape_interval: {INTERVAL_S}s"
    yield f"  evaluation_interval: {INTERVAL_S}s"
    yield "rule_files:"
    yield f"  - {json.dumps(str(ALERTS))}"
    yield "scrape_configs:"
    yield f"  - job_name: {JOB}"
    yield "    authorization:"
    yield f"      credentials_file: {json.dumps(str(key_file))}"
    if isinstance(targets, Path):
        yield "    file_sd_configs:"
        yield f"      - files: [{json.dumps(str(targets))}]"
        return
    yield "    static_configs:"
    for target in targets:
        labels = ", ".join(f"{name}: {json.dumps(value)}" for name, value in target.labels.items())
        yield f"      - targets: [{json.dumps(target.address)}]"
        yield f"        labels: {{ {labels} }}"
