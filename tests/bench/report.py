"""Terminal output of a benchmark: progress and results."""

from collections.abc import Mapping, Sequence
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.bench.figures import Figure
from tests.load import bench
from tests.load.bench import Goal

WIDTH_OF_FILES = 120


class Report:
    """Progress while the block is open (a bar at a terminal, otherwise plain lines), and tables.

    Without ``bar``, lines are printed at a terminal, too: for steps that show bars of their own.
    """

    def __init__(self, steps: int, *, bar: bool = True) -> None:
        self._console = Console(highlight=False)
        if not self._console.is_terminal:
            self._console.width = WIDTH_OF_FILES
        columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self._console, transient=True)
        self._task = self._bar.add_task("starting", total=steps)
        self._steps = steps
        self._live = bar and self._console.is_terminal
        self._done = 0

    def __enter__(self) -> Self:
        if self._live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def step(self, what: str) -> None:
        """Show the next step."""
        self._done += 1
        if self._live:
            self._bar.update(self._task, advance=1, description=what)
        else:
            self._console.print(f"[{self._done}/{self._steps}] {what}", markup=False)

    def figures(self, title: str, figures: Mapping[str, Figure]) -> None:
        table = Table("", "median", "95 %", title=title, title_justify="left")
        for name, figure in figures.items():
            table.add_row(name, f"{figure.median:.3f}", f"{figure.low:.3f} - {figure.high:.3f}")
        self._console.print(table)

    def rows(self, title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
        """Print a table of numbers: a row for each key, a column for each inner key."""
        columns = dict.fromkeys(name for row in rows.values() for name in row)
        table = Table("", *columns, title=title, title_justify="left")
        for name, row in rows.items():
            table.add_row(name, *(f"{row[column]:g}" if column in row else "" for column in columns))
        self._console.print(table)

    def medians(self, figures: Mapping[str, Mapping[str, Figure]]) -> None:
        """Print the medians: a row for each key, a column for each inner key."""
        self.rows("Medians", {name: {what: one.median for what, one in of.items()} for name, of in figures.items()})

    def goals(self, goals: Sequence[Goal]) -> None:
        """Print the goals."""
        self._console.print(f"Goals\n{bench.table(goals)}", markup=False)
