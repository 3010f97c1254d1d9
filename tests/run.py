"""Run all that must pass: static checks, tests of page and SDK, fuzzing, unit tests, and all other tests.

``make test`` is this. What Kafka and Spark need is installed, once, beside the tests that need neither. Unit tests
compute: they run in three processes of their own, because passing thousands of short tests to workers of pytest-xdist
costs a fifth of their CPU time. The others mostly wait for processes and clocks, so they have more workers than cores.
The progress is that of the workers; what runs beside them writes to ``build/test``, and is shown when it fails. One
summary ends the run.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Final, NamedTuple, Self

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / "build" / "test"
CORES: Final = os.cpu_count() or 1
WORKERS: Final = 5 * CORES // 2
"""Their tests compute for a quarter of the time. Each worker more takes 8 s of CPU time to import and collect tests."""
PYTEST: Final = (sys.executable, "-m", "pytest")
UNITS: Final = "tests/unit"
WITHOUT_SPARK: Final = tuple(f"{UNITS}/{name}" for name in ("bridge", "client", "diem", "proxy"))
"""Unit tests that need no package of Spark's or of the planner's: they start before these are installed."""
SERVICES: Final = f"{UNITS}/services/data"
"""Half of the other unit tests: one process for all of them would be the last to end, alone, on one core."""
PIPELINE: Final = "tests/integration/pipeline"
"""Two minutes in one JVM, alone on a core: in a session of its own, for Linux divides CPU time among sessions
(sched(7), autogroup), and in that of the workers it had a twelfth of a core and was the last to end."""
CHECKS: Final = 5
"""Niceness of the static checks, which have no time limits: a third of a worker's share. With a tenth they were the
last to end, alone on one core."""
LATER_UNITS: Final = 5
"""Niceness of the unit tests beside the workers: a third of a worker's share, so that they last longer. When the
workers were the last, which wait now and then, a quarter of the cores was idle; two processes that compute use both."""
FUZZ_OPTIONS: Final = "--strict-markers --strict-config --import-mode=importlib -ra"


class Counts(NamedTuple):
    """Tests of one part, by outcome."""

    passed: int
    failed: int
    skipped: int


class Part:
    """One command of the run."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log: Path | None = None,
        report: Path | None = None,
        niceness: int = 0,
        own_session: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self.report = report
        self.exit_code = 0
        self.wall_s = 0.0
        self.cpu_s = 0.0
        if report is not None:
            report.unlink(missing_ok=True)
        output: IO[bytes] | None = None if log is None else log.open("wb")
        self._start = time.monotonic()
        # Each of a thousand processes would compile all that it imports.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        # The order of a set is the same each time, so no test is red on one day in many. `make walks` has other orders.
        environment.setdefault("PYTHONHASHSEED", "0")
        self._process = subprocess.Popen(
            ("nice", "-n", str(niceness), *argv) if niceness else argv,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if output else None,
            start_new_session=own_session,
        )
        self._own_session = own_session
        if output is not None:
            output.close()

    def interrupt(self) -> None:
        """Interrupt a command that Ctrl-C does not reach."""
        if self._own_session and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGINT)

    def wait(self) -> None:
        """Block until the command has ended; then its exit code and its times are known."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self.exit_code = os.waitstatus_to_exitcode(status)
        self._process.returncode = self.exit_code
        self.wall_s = time.monotonic() - self._start
        self.cpu_s = usage.ru_utime + usage.ru_stime

    @property
    def counts(self) -> Counts:
        """Counts of its JUnit report; a command without one counts as one test if it fails, else as none."""
        if self.report is None or not self.report.exists():
            return Counts(0, 1 if self.exit_code else 0, 0)
        suites = list(ET.parse(self.report).getroot().iter("testsuite"))  # noqa: S314  # our own tools wrote it
        total, failures, errors, skipped = (
            sum(int(suite.get(name) or 0) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
        )
        failed = failures + errors
        if self.exit_code and not failed:
            failed = 1
        return Counts(max(0, total - failures - errors - skipped), failed, skipped)


class Selection(NamedTuple):
    """Arguments of the processes of pytest; an empty one has nothing to run."""

    early: list[str]
    services: list[str]
    units: list[str]
    pipeline: list[str]
    others: list[str]


def select(arguments: Sequence[str]) -> Selection:
    """Divide pytest's arguments; only whole folders run beside the workers."""
    selection = Selection([], [], [], [], [])
    for argument in arguments:
        if argument in {"tests", UNITS}:
            selection.early.extend(WITHOUT_SPARK)
            selection.services.append(SERVICES)
            selection.units.extend([UNITS, *(f"--ignore={folder}" for folder in (*WITHOUT_SPARK, SERVICES))])
        if argument != UNITS:
            selection.others.append(argument)
        if argument == "tests":
            selection.pipeline.append(PIPELINE)
            selection.others.extend([f"--ignore={UNITS}", f"--ignore={PIPELINE}"])
    return selection


class Parts:
    """The parts of a run that have been started, in this order; a context manager that waits for their end."""

    def __init__(self) -> None:
        self.started: list[Part] = []
        self._waiting = ThreadPoolExecutor()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is not None:
            for part in self.started:
                part.interrupt()
        self._waiting.shutdown()

    def start(self, part: Part) -> None:
        """Add a part, and measure its times."""
        self.started.append(part)
        self._waiting.submit(part.wait)

    def start_pytest(
        self, name: str, arguments: Sequence[str], *, niceness: int = 0, own_session: bool = False
    ) -> None:
        """Start a pytest beside the others, if it has arguments; its output is a log."""
        if arguments:
            report = LOGS / f"{name.replace(' ', '-')}.xml"
            argv = [*PYTEST, f"--junitxml={report}", *arguments]
            log = report.with_suffix(".log")
            self.start(Part(name, argv, log=log, report=report, niceness=niceness, own_session=own_session))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run everything and print the summary; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("--workers", type=int, default=WORKERS, help="pytest workers")
    parser.add_argument("--only-pytest", action="store_true", help="nothing beside pytest")
    parser.add_argument("pytest", nargs="*", default=["tests"], help="what pytest is given")
    options = parser.parse_args(arguments)
    LOGS.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    with Parts() as parts:
        failed = run(parts, select(options.pytest), workers=options.workers, only_pytest=options.only_pytest)
    return failed or summarise(parts.started, time.monotonic() - start)


def run(parts: Parts, selection: Selection, *, workers: int, only_pytest: bool) -> int:
    """Start all parts, each when what it needs is installed; return the exit code of a failed installation, else 0."""
    make = ("make", "--no-print-directory")
    installation = Part("installation", [*make, "-j2", "kafka", "spark"])
    if not only_pytest:
        report = LOGS / "client.xml"
        client = [*make, "client-test", f"CLIENT_REPORT={report}"]
        parts.start(Part("page and SDK", client, log=LOGS / "client.log", report=report))
        parts.start_pytest("fuzz", ["-o", f"addopts={FUZZ_OPTIONS}", "tests/fuzz"])
    parts.start_pytest("early units", selection.early)
    if selection.others and not any((ROOT / "tests" / "__pycache__").glob("conftest.*-pytest-*.pyc")):
        # Else each worker would compile all modules, at the same time as the others. What cannot be imported yet is
        # little.
        collection = [*PYTEST, "--collect-only", "--quiet", "-p", "no:cacheprovider", *selection.others]
        Part("collection", collection, log=LOGS / "collection.log").wait()
    installation.wait()
    if installation.exit_code:
        return installation.exit_code
    if not only_pytest:
        # To write mypy's cache takes a sixth of its CPU time, and a clone for one run has no use for it.
        checks = [*make, "check", *([] if (ROOT / ".mypy_cache").exists() else ["CI=1"])]
        parts.start(Part("static checks", checks, log=LOGS / "check.log", niceness=CHECKS))
    parts.start_pytest("pipeline", selection.pipeline, own_session=True)
    parts.start_pytest("service units", selection.services, niceness=LATER_UNITS)
    parts.start_pytest("other units", selection.units, niceness=LATER_UNITS)
    if selection.others:
        report = LOGS / "others.xml"
        options = ["-n", str(workers), "--dist", "loadgroup", "--no-loadscope-reorder", f"--junitxml={report}"]
        parts.start(Part("others", [*PYTEST, *options, *selection.others], report=report))
    return 0


def summarise(parts: Sequence[Part], wall_s: float) -> int:
    """Print the output of failed parts and the figures of all; return the exit code."""
    for part in parts:
        if part.exit_code and part.log is not None:
            print(f"\n{part.name} failed:\n{part.log.read_text(errors='replace')}")
    print(f"\n{'':14} {'passed':>7} {'failed':>7} {'skipped':>7} {'wall s':>7} {'CPU s':>7}")
    for part in parts:
        passed, failed, skipped = part.counts
        print(f"{part.name:14} {passed:7} {failed:7} {skipped:7} {part.wall_s:7.0f} {part.cpu_s:7.0f}")
    total = Counts(*(sum(column) for column in zip(*(part.counts for part in parts), strict=True)))
    cpu_s = sum(part.cpu_s for part in parts)
    print(f"{wall_s:.0f} s, {cpu_s:.0f} s of CPU on {CORES} cores")
    print(f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped")
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main())
