"""Prometheus' programs for tests: those that deploy/install/prometheus.sh has unpacked, or the machine's own."""

import os
import shutil
import sys
from pathlib import Path

from tests.support.required import unavailable


class NoPrometheus(Exception):
    """Prometheus' programs are not there."""

    def __str__(self) -> str:
        return "No Prometheus here: run deploy/install/prometheus.sh (on Debian: apt install prometheus)"


def program(name: str) -> Path:
    """Return the path of ``prometheus`` or ``promtool``; without it, skip the test."""
    found = shutil.which(name, path=os.pathsep.join([str(Path(sys.prefix) / "prometheus"), os.environ.get("PATH", "")]))
    if found is None:
        unavailable("Prometheus", NoPrometheus())
    return Path(found)
