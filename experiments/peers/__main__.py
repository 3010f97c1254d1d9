"""``make bench-peers``: DIEM and the servers of others on the same work, by one load client in C.

Each system in turn, beside the floor in C and a ``single`` of DIEM that run all the time: blocks of the three
alternate, and CPU is that of all processes of a system above its idle, for each frame that reaches a client. Then
memory of connections, updates that nobody watches, and a storm: what holds the connections is killed, an update is
published meanwhile, and all clients connect again within a second. ``make peers`` installs what can be;
the report names the others. ``QUICK=1``: one round, less data, and no 5,000 clients. ``SMOKE=1``: DIEM's single and
``ws`` only.
"""

import asyncio
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from diem import __version__
from diem.errors import DiemError
from experiments.document import revision
from experiments.peers import diem, others, session
from experiments.peers.contenders import Absent, Contender, Refused
from experiments.peers.page import page
from tests.bench import native
from tests.bench.drain import Lost, pin
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.load.system import NotUp
from tests.support.commandline import parser
from tests.support.size import sized

FLOOR, SINGLE = "C floor", "single"
ALL: Final[Mapping[str, Callable[[Path], AbstractAsyncContextManager[Contender]]]] = {
    **{mode: partial(diem.diem, mode) for mode in diem.MODES},
    **others.OTHERS,
}
STEPS: Final = len(session.CELLS) + 4


class Bench:
    """One run."""

    def __init__(self, folder: Path, names: Sequence[str], report: Report) -> None:
        self.results: dict[str, Any] = {}
        self.absent: dict[str, str] = dict(others.ABSENT)
        self.goals: list[Goal] = []
        self.about = {
            "began": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
            "machine": f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
            "load before": _load(),
            "versions": {"DIEM": revision() or __version__, **others.versions()},
        }
        self._folder = folder
        self._names = names
        self._report = report
        self._cores = cores if len(cores := sorted(os.sched_getaffinity(0))) > 1 else [None, None]
        self._program = native.program("drain")

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            self._report.step("starting the floor and DIEM's single, and connecting their clients")
            connect = session.Connect(stack, self._program, self._cores[1])
            base = {}
            for name, start in ((FLOOR, others.floor()), (SINGLE, diem.diem(SINGLE, self._folder / "base"))):
                self._pin(0)
                server = await stack.enter_async_context(start)
                self._pin(1)
                groups = ("hot",) if name == FLOOR else ("hot", "many", session.WIDE)
                base[name] = await session.prepare(connect, server, groups=groups)
            for name in self._names:
                self._report.step(f"{name}: starting")
                try:
                    self.results[name] = await self._measure(name, connect, base)
                except (Absent, NotUp, Refused, Lost, TimeoutError, DiemError) as error:
                    self.absent[name] = str(error) or type(error).__name__
                self.write()

    async def _measure(self, name: str, connect: session.Connect, base: Mapping[str, session.Side]) -> dict[str, Any]:
        # Processes inherit the core on which they are started; also those that a supervisor starts again.
        self._pin(0)
        async with ALL[name](self._folder / name.replace(", ", "-")) as server:
            self._pin(1)
            found = await session.session(connect, server, base, self._report.step)
            return found | {"load": _load()}

    def _pin(self, core: int) -> None:
        pin(os.getpid(), self._cores[core])

    def write(self) -> None:
        """Write what has been measured so far, and the page."""
        self.goals = goals(self.results)
        figures = {"about": self.about, "parameters": session.SIZE._asdict(), "skipped": self.absent}
        written = write("peers", figures | {"systems": self.results}, self.goals)
        text = page(figures | {"systems": self.results}, [goal.row() for goal in self.goals])
        written.with_suffix(".html").write_text(text, encoding="utf-8")


def goals(results: Mapping[str, Any]) -> list[Goal]:
    """Return the goals for DIEM against Centrifugo: of what each takes in turn with the same ``single``."""
    made = []
    bounds = {("single", 1): 0.5, ("single", session.EIGHT): 0.5, ("x", 1): 1.3, ("x", session.EIGHT): 0.8}
    for (mode, each), bound in bounds.items():
        cell = session.Cell("hot", 0, each).name
        if mode in results and "Centrifugo" in results:
            own, peer = (results[name]["cells"][cell][f"x {SINGLE}"] for name in (mode, "Centrifugo"))
            made.append(Goal(f"{mode}: CPU of a frame, of Centrifugo, {cell}", "x", bound, round(own / peer, 3)))
    return made


def _load() -> str:
    return " ".join(f"{each:.1f}" for each in os.getloadavg())


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, write build/bench/peers.json and its page, and print the table."""
    options = parser(
        __spec__, __doc__, report="build/bench/peers.json and .html", quick="one round, less data, and no 5,000 clients"
    )
    options.add_argument("--only", choices=ALL, nargs="+", help="these; default: all")
    arguments = options.parse_args(argv)
    names = arguments.only or sized([*ALL], [*ALL], [SINGLE, "ws"])
    with tempfile.TemporaryDirectory(prefix="diem-peers-") as folder, Report(1 + len(names) * STEPS) as report:
        try:
            bench = Bench(Path(folder), names, report)
            asyncio.run(bench.run())
        except native.NoCompiler as error:
            print(error, file=sys.stderr)
            return 1
        for cell in session.CELLS:
            rows = {name: found["cells"][cell.name] for name, found in bench.results.items()}
            numbers = {name: {k: v for k, v in row.items() if isinstance(v, float)} for name, row in rows.items()}
            report.rows(f"CPU of a frame: {cell.name}", numbers)
        for part in ("memory", "publish", "storm"):
            report.rows(
                part, {n: {k: v for k, v in f[part].items() if v is not None} for n, f in bench.results.items()}
            )
        report.goals(bench.goals)
    for name, reason in bench.absent.items():
        print(f"skipped: {name}: {reason}")
    print("written: build/bench/peers.json and .html")
    return exit_code(bench.goals)


if __name__ == "__main__":
    sys.exit(main())
