"""Scrape targets of a running ``diem up``, and their file for Prometheus' service discovery."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from deploy.system.description import with_children
from diem.process.private_files import replace_private

_NUMBERED: Final = frozenset({"bridge", "websocket", "proxy", "composite"})


class Target(NamedTuple):
    """The internal listener of one process."""

    address: str
    """``host:port``, without a scheme."""
    labels: dict[str, str]
    """``process``, ``number``, ``clone``, ``host`` and ``mode``, as far as the process has them."""


def scrape_targets(status: Mapping[str, Any]) -> list[Target]:
    """Return the targets of a description (:func:`deploy.system.description.describe`), in its order.

    Children of composites are included only with the composites' reports. Third-party programs have no metrics.
    ``host`` is a label of processes on several hosts.
    """
    found = []
    for name, process in with_children(status["processes"]):
        url = process["urls"].get("internal")
        if url is None:
            continue
        labels = {"process": process["process"]}
        composite, _, own = name.rpartition("/")
        number = own.rpartition("-")[2] if process["process"] in _NUMBERED else ""
        # The proxy of a composite has no number.
        if number.isdecimal():
            labels["number"] = number
        if (clone := _clone(status, composite, process)) is not None:
            labels["clone"] = str(clone)
        if "host" in process:
            labels["host"] = process["host"]
        found.append(Target(url.partition("://")[2], {**labels, "mode": status["mode"]}))
    return found


def _clone(status: Mapping[str, Any], composite: str, process: Mapping[str, Any]) -> int | None:
    """Return the clone of a process, for a child its composite's."""
    if not composite:
        clone: int | None = process.get("clone")
        return clone
    return next((each.get("clone") for each in status["processes"] if each["name"] == composite), None)


def file_sd(targets: list[Target]) -> bytes:
    """Encode targets for Prometheus' ``file_sd_configs``."""
    groups = [{"targets": [target.address], "labels": target.labels} for target in targets]
    return orjson.dumps(groups, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


class TargetsFile:
    """Keeps the file of targets up to date. A dead process stays a target until removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = b""
        self._reports: dict[str, dict[str, Any]] = {}

    def update(self, status: Mapping[str, Any]) -> None:
        """Write the file if the targets have changed; ``status`` has the reports of composites that answered.

        Children of an unresponsive composite are kept. Raises ``OSError``.
        """
        processes = [self._with_report(process) for process in status["processes"]]
        self._reports = {process["name"]: process["report"] for process in processes if process["report"]}
        content = file_sd(scrape_targets({**status, "processes": processes}))
        if content != self._written:
            replace_private(self._path, content)
            self._written = content

    def _with_report(self, process: Mapping[str, Any]) -> dict[str, Any]:
        return {**process, "report": process.get("report") or self._reports.get(process["name"])}
