"""Terminal output of ``diem``; plain lines where there is no terminal."""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from deploy.invocation import diem_command, pasteable
from deploy.page_address import data_view
from deploy.topology import Topology, kafka_users
from deploy.topology.kafka_users import directory_of

DEFAULT_STATE_DIR: Final = Path(".diem")
WIDTH_OF_FILES: Final = 240
"""Columns where the output is not a terminal: enough that nothing is cut."""


def amount(number: int, noun: str) -> str:
    """Return ``1 server`` or ``3 servers``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def data_size(number: float) -> str:
    """Return a number of bytes in a unit that fits: ``182 KB``."""
    for unit in ("B", "KB", "MB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} GB"


class _Console(Console):
    """A console that survives the end of its reader (``diem check | head``)."""

    def on_broken_pipe(self) -> None:
        """Discard further output; the command ends with its own exit code."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if self.stderr else sys.stdout).fileno())


def plain_console(*, stderr: bool = False) -> Console:
    """Return a console without markup and highlighting, which wraps lines only at a terminal."""
    console = _Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_FILES
    return console


def plain_table(*headings: str, right: Collection[str] = (), wrap: Collection[str] = (), gap: int = 2) -> Table:
    """Return a table without lines; columns in ``right`` are for numbers, those in ``wrap`` may wrap."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, gap, 0, 0))
    for heading in headings:
        wraps = heading in wrap
        table.add_column(
            heading,
            justify="right" if heading in right else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
        )
    return table


class Terminal:
    """Messages and progress of a command; ``quiet`` leaves only warnings."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._out = plain_console()
        self._err = plain_console(stderr=True)

    @property
    def is_shown(self) -> bool:
        """True if progress bars are drawn."""
        return not self._quiet and self._out.is_terminal

    def info(self, text: str) -> None:
        """Print a message, unless quiet; commands in backticks can be pasted."""
        if not self._quiet:
            self._out.print(pasteable(text), soft_wrap=True)

    def warn(self, text: str) -> None:
        """Print a warning in one line on standard error; commands in backticks can be pasted."""
        self._err.print(Text(pasteable(text), style="yellow"), soft_wrap=True)

    @contextmanager
    def progress(self, total: int) -> Iterator[Callable[[str], None]]:
        """Yield a function to call with the name of each process that becomes ready, ``total`` in all."""
        if self._quiet or not self._out.is_terminal:
            yield lambda name: self.info(f"{name} is ready")
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._out, transient=True) as bar:
            task = bar.add_task("starting", total=total)
            yield lambda name: bar.update(task, advance=1, description=f"{name} is ready")

    @contextmanager
    def counting(self, what: str) -> Iterator[Callable[[int, int], None]]:
        """Yield a function to call with the amount that is done, and the total."""
        if self._quiet or not self._out.is_terminal:
            yield lambda _done, _total: None
            return
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self._out, transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)

    @contextmanager
    def downloads(self) -> Iterator[Callable[[int, int], None]]:
        """Yield a progress function for the local Kafka's jars; nothing is shown unless it is called."""
        with ExitStack() as shown:
            show: Callable[[int, int], None] | None = None

            def progress(done: int, total: int) -> None:
                nonlocal show
                if show is None:
                    self.info(f"downloading the local Kafka, once: {total - done} of {total} files")
                    show = shown.enter_context(self.counting("downloading"))
                show(done, total)

            yield progress

    def announce(
        self, topology: Topology, state_dir: Path, seconds: float, operator: tuple[str, Path] | None = None
    ) -> None:
        """Print the addresses, and the commands that write, watch and stop.

        ``operator`` is the URL of the operator page, and the file with its key.
        """
        topic, brokers, kafka = topology.topic, ",".join(topology.local_brokers), directory_of(state_dir)
        login = f"{kafka_users.PROTOCOL}, {kafka_users.MECHANISM}; login in {kafka / kafka_users.TOOLS_FILE}"
        where = () if state_dir == DEFAULT_STATE_DIR.absolute() else ("--state-dir", str(state_dir))
        rows = [
            *(("Page", f"{origin}/") for origin in topology.public.own_origins),
            ("Page", local := topology.page_url.replace("127.0.0.1", "localhost")),
            ("Data", data_view(f"{topology.public.own_origins[0]}/" if topology.public.own_origins else local)),
            *(("Admitted", f"pages of {origin}") for origin in topology.public.other_origins),
            ("REST", topology.rest_url),
            *(("WebSocket", url) for url in topology.client_urls(topology.servers)),
            *(("Metadata", url) for url in topology.metadata_urls),
            *([] if operator is None else [("Operator", f"{operator[0]} (sign in with {operator[1]})")]),
            *([("Kafka", f"{brokers} ({login})")] if brokers else []),
            ("Logs", str(state_dir / "logs")),
            (
                "Write",
                diem_command("put", *where, "/my/endpoint", "FILE.json") if topic is None else f"to topic {topic}",
            ),
            ("Watch", diem_command("watch", *where, "/my/endpoint")),
            ("Status", diem_command("status", *where)),
            ("Stop", "Ctrl-C"),
        ]
        self.info(f"\nDIEM is up ({topology.mode}) after {seconds:.1f} s\n")
        for label, value in rows:
            self.info(f"  {label:<11}{value}")
        self.info("")
