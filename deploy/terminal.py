"""What `diem` says to the person at the terminal; plain lines where there is no terminal."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from deploy.topology import Topology

DEFAULT_STATE_DIR: Final = Path(".diem")
WIDTH_OF_FILES: Final = 240
"""Columns where the output is no terminal: nothing is cut there."""
WIDE: Final = 100
"""Columns from which tables can afford wider gaps."""


class _Console(Console):
    """A console that goes on in silence when nobody reads any more (`diem check | head`)."""

    def on_broken_pipe(self) -> None:
        """Write to nowhere from now on; the command ends by itself, with its own exit code."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if self.stderr else sys.stdout).fileno())


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console that interprets nothing in the texts it is given and breaks lines only at a terminal."""
    console = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    return console


class Terminal:
    """Says what `diem up` does; `quiet` leaves only what needs attention."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._out = plain_console()
        self._err = plain_console(stderr=True)

    def say(self, text: str) -> None:
        """Say something that is going well."""
        if not self._quiet:
            self._out.print(text, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Say something that needs attention, in one line on standard error."""
        self._err.print(Text(text, style="yellow"), soft_wrap=True)

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[str], None]]:
        """Show how many of `total` processes are ready; the function given is called with each one's name."""
        if self._quiet or not self._out.is_terminal:
            yield lambda name: self.say(f"{name} is ready")
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._out, transient=True) as bar:
            task = bar.add_task("starting", total=total)
            yield lambda name: bar.update(task, advance=1, description=f"{name} is ready")

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Show how far something is; the function given is called with how much is done, and of how much."""
        if self._quiet or not self._out.is_terminal:
            yield lambda _done, _total: None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self._out, transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def downloads(self) -> Iterator[Callable[[int, int], None]]:
        """Show the first download of what the local Kafka needs; nothing when there is nothing to download."""
        with ExitStack() as shown:
            show: Callable[[int, int], None] | None = None

            def progress(done: int, total: int) -> None:
                nonlocal show
                if show is None:
                    self.say(f"downloading the local Kafka, once: {total - done} of {total} files")
                    show = shown.enter_context(self.counting("downloading"))
                show(done, total)

            yield progress

    def announce(self, topology: Topology, state_dir: Path, seconds: float) -> None:
        """Say where everything is, how to look at it and how to stop it."""
        option = "" if state_dir == DEFAULT_STATE_DIR.absolute() else f" --state-dir {shlex.quote(str(state_dir))}"
        rows = [
            ("Page", topology.page_url.replace("127.0.0.1", "localhost")),
            ("REST", topology.rest_url),
            *(("WebSocket", url) for url in topology.websocket_urls),
            ("Logs", str(state_dir / "logs")),
            ("Write", f"diem put{option} /my/endpoint FILE.csv --unit MW --resolution PT1H"),
            ("Watch", f"diem watch{option} /my/endpoint"),
            ("Status", f"diem status{option}"),
            ("Stop", "Ctrl-C"),
        ]
        self.say(f"\nDIEM is up ({topology.mode}) after {seconds:.1f} s\n")
        for label, value in rows:
            self.say(f"  {label:<11}{value}")
        self.say("")


def status_tables(status: dict[str, Any], width: int = WIDTH_OF_FILES) -> list[Table]:
    """Render the answer of `status` for `width` columns: the processes, and the sources if there are any."""
    processes = _table(width)
    processes.add_column("process", no_wrap=True)
    processes.add_column("state", no_wrap=True)
    for heading in ("pid", "uptime", "restarts", "clients", "subs", "live", "position", "lag"):
        processes.add_column(heading, justify="right", no_wrap=True)
    sources: list[dict[str, Any]] = []
    for process in status["processes"]:
        report = process["report"] or {}
        sources += report.get("sources", [])
        processes.add_row(
            process["name"],
            _state(process["state"], report),
            _cell(process["pid"]),
            _span(process["uptime_seconds"]) if process["pid"] else "-",
            str(process["restarts"]),
            _cell(report.get("clients")),
            _cell(report.get("subscriptions")),
            _cell(report.get("live")),
            _cell(report.get("position", report.get("sequence"))),
            _lag(report),
        )
    return [processes, _sources(sources, width)] if sources else [processes]


def _table(width: int) -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2 if width >= WIDE else 1, 0, 0))


def _sources(sources: list[dict[str, Any]], width: int) -> Table:
    table = _table(width)
    for heading in ("source", "state", "last success", "failures", "error"):
        table.add_column(heading)
    for source in sources:
        table.add_row(
            Text(str(source.get("name"))),
            "ok" if source.get("ok") else "failing",
            _cell(source.get("last_success")),
            _cell(source.get("failures")),
            Text(str(source.get("error") or "")),
        )
    return table


def _state(state: str, report: dict[str, Any]) -> str:
    if state != "running":
        return state
    if not report:
        return "no answer"
    return "ready" if report.get("ready") else "not ready"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _lag(report: dict[str, Any]) -> str:
    """Return how far behind a process is: in seconds, or in records where it reads from or writes to Kafka."""
    seconds = report.get("lag_seconds")
    if seconds is not None:
        return f"{seconds:.1f}s"
    return _cell((report.get("publisher") or report).get("lag"))


def _span(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 100:
        return f"{hours // 24}d"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
