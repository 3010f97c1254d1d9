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
_HEADING: Final = re.compile(r"\| metric (?:\((?P<processes>.*)\) )?\|")
_ROW: Final = re.compile(
    r"\| `(?P<name>(?:diem|process)_\w+?)(?:\{(?P<labels>[\w,]+)\})?`(?P<star>\\\*)? \| (?P<cells>.*) \|$"
)
_NAME: Final = re.compile(r"\b(?:diem|process)_[a-z_]+\b")
_TYPE: Final = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)


class Row(NamedTuple):
    """One row of the document."""

    name: str
    labels: tuple[str, ...]
    processes: dict[str, bool]
    """Process -> whether it always exposes the metric."""
    meaning: str

    @property
    def kind(self) -> str:
        """The type that follows from the name, as the document says."""
        return "counter" if self.name.endswith("_total") else "gauge"


def rows() -> list[Row]:
    """Return the rows of all tables of metrics; the heading of some names the processes of all their rows."""
    found = []
    shared = ""
    for line in DOCUMENT.read_text().splitlines():
        if heading := _HEADING.match(line):
            shared = heading["processes"] or ""
        if not (row := _ROW.match(line)):
            continue
        *own, meaning = (cell.strip() for cell in row["cells"].split("|"))
        assert len(own) == (not shared), f"{row['name']}: processes are in its row or in the heading of its table"
        listed = own[0] if own else f"{shared}{row['star'] or ''}"
        always = {each.removesuffix("\\*"): not each.endswith("*") for each in listed.split(", ")}
        labels = tuple(filter(None, (row["labels"] or "").split(",")))
        found.append(Row(row["name"], labels, always, meaning))
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
