"""Run the Autobahn test suite against a server, and judge its report by the allow-list in ``allowed.json``.

The suite's report goes to ``build/conformance``: ``index.html``, and a page of each case with every frame.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
WSTEST: Final = ROOT / ".venv" / "autobahn" / "env" / "bin" / "wstest"
REPORT: Final = ROOT / "build" / "conformance"
ALLOWED: Final = Path(__file__).with_name("allowed.json")
GROUPS: Final = ("1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*")
"""Framing, pings, reserved bits, opcodes, fragments, UTF-8, close, and automatic fragmentation. Group 9 measures
throughput."""
COMPRESSION: Final = ("12.1.1", "12.1.4", "12.1.11", "12.2.4", "13.1.4", "13.2.4", "13.7.4")
"""A few of the 234 cases of compression, each of 1,000 messages: short and long ones, in fragments, of JSON and binary
data, and each kind of offer that is accepted."""
CASES: Final = 247 + len(COMPRESSION)
"""Cases in these groups of version 0.8.2."""
CONFORMING: Final = frozenset({"OK", "NON-STRICT", "INFORMATIONAL"})
AGENT: Final = "diem"


class AutobahnError(Exception):
    """The suite did not run to its end."""


@dataclass(frozen=True)
class Outcome:
    """Result of one case: how the connection behaved, and how it was closed."""

    behavior: str
    close: str

    @property
    def conforms(self) -> bool:
        """Both are among the accepted results."""
        return {self.behavior, self.close} <= CONFORMING


def run(url: str, report: Path = REPORT) -> dict[str, Outcome]:
    """Run the cases of :data:`GROUPS` and :data:`COMPRESSION` against the echo server at ``url`` (about 20 s).

    Return their outcomes.

    Raises:
        AutobahnError: the suite failed, or left no report.
    """
    report.mkdir(parents=True, exist_ok=True)
    index = report / "index.json"
    index.unlink(missing_ok=True)
    specification = report / "specification.json"
    server = {"agent": AGENT, "url": url, "options": {"version": 18}}
    specification.write_text(json.dumps({"outdir": str(report), "servers": [server], "cases": [*GROUPS, *COMPRESSION]}))
    ran = subprocess.run(
        [str(WSTEST), "--mode", "fuzzingclient", "--spec", str(specification)],
        # Of the test's own environment, only what a Python 2 understands.
        env={"PATH": os.environ.get("PATH", ""), "HOME": os.environ.get("HOME", "/"), "PYTHONWARNINGS": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    (report / "wstest.log").write_text(ran.stdout)
    if ran.returncode or not index.exists():
        raise AutobahnError(ran.stdout[-4000:])
    return outcomes(json.loads(index.read_text()))


def outcomes(index: Mapping[str, Any]) -> dict[str, Outcome]:
    """Return the outcomes of a report's ``index.json``, by case."""
    return {case: Outcome(found["behavior"], found["behaviorClose"]) for case, found in index[AGENT].items()}


def allowed() -> dict[str, Outcome]:
    """Return the outcomes in the allow-list, by case; each has a reason there."""
    entries = json.loads(ALLOWED.read_text())
    return {case: Outcome(entry["behavior"], entry["close"]) for case, entry in entries.items() if entry["reason"]}


def faults(found: Mapping[str, Outcome], exceptions: Mapping[str, Outcome]) -> list[str]:
    """Return what is wrong with ``found``: cases that fail, and exceptions that are no longer needed."""
    wrong = [
        f"{case}: {outcome.behavior}, close {outcome.close}"
        for case, outcome in found.items()
        if not outcome.conforms and exceptions.get(case) != outcome
    ]
    needless = [case for case in exceptions if case not in found or found[case].conforms]
    return wrong + [f"{case} is in the allow-list, and conforms or was not run" for case in needless]
