"""The metrics as docs/metrics.md lists them, and as a running system exposes them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from deploy.system.scrape_targets import Target, scrape_targets
from diem.process import metrics
from tests.support.patience import PATIENCE_S

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "metrics.md"
OF_EVERY_PROCESS: Final = frozenset(
    {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }
)
"""Those of the client library."""
_NAME: Final = re.compile(r"\b(?:diem|process)_[a-z_]+\b")
_TYPE: Final = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)


class Row(NamedTuple):
    """One row of the document."""

    name: str
    kind: str
    labels: tuple[str, ...]
    unit: str
    processes: dict[str, bool]
    """Process -> whether it always exposes the metric."""
    meaning: str


def rows() -> list[Row]:
    """Return the rows of all tables of metrics."""
    found = []
    for line in DOCUMENT.read_text().splitlines():
        if not re.match(r"\| `(?:diem|process)_", line):
            continue
        name, kind, labels, unit, processes, meaning = (cell.strip() for cell in line.strip("|").split("|"))
        always = {each.removesuffix("\\*"): not each.endswith("*") for each in processes.split(", ")}
        found.append(Row(name.strip("`"), kind, tuple(re.findall(r"`(\w+)`", labels)), unit, always, meaning))
    return found


def names_in(expression: str) -> set[str]:
    """Return the metrics of DIEM that a PromQL expression names."""
    return set(_NAME.findall(expression))


def documented(process: str) -> dict[str, bool]:
    """Return the metrics that a process exposes by the document, and whether it always does."""
    return {
        row.name: row.processes.get(process, row.processes.get("every", False))
        for row in rows()
        if {process, "every"} & row.processes.keys()
    }


async def check_metrics(status: Mapping[str, Any], header: str) -> None:
    """Check that each process of a system exposes what docs/metrics.md lists for it: nothing more, and nothing less.

    Args:
        status: as ``diem status --json`` prints it.
        header: ``Authorization`` of a scrape.
    """
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S, headers={"Authorization": header}) as http:
        for target in scrape_targets(status):
            _check(target, (await http.get(f"http://{target.address}/metrics")).raise_for_status().text)


def _check(target: Target, text: str) -> None:
    exposed = dict(_TYPE.findall(text))
    listed = documented(target.labels["process"])
    assert exposed.keys() - listed.keys() == set(), f"{target}: not in docs/metrics.md"
    assert {name for name, always in listed.items() if always} - exposed.keys() == set(), f"{target}: not exposed"
    kinds = {each.exposed_name: each.kind for each in metrics.ALL}
    assert {name: kind for name, kind in exposed.items() if name in kinds and kinds[name] != kind} == {}
