"""Options of several commands."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import parse_counts
from learning.sizing.even import planned_sizes

HostsOption = Annotated[
    Path | None,
    typer.Option(
        "--hosts",
        metavar="DIR",
        help="Processes on several hosts: the directory that `diem config MODE --hosts` has written.",
    ),
]
PlannedOption = Annotated[
    str | None,
    typer.Option(
        metavar="N,...",
        help="Numbers of servers to plan for, among which partitions are shared.",
        show_default="1,2,3,4,6,12 and as many as run",
    ),
]


def parse_planned(text: str | None, running: int | None) -> tuple[int, ...]:
    """Return the planned numbers of servers; by default a new system's, and ``running``."""
    return planned_sizes(running) if text is None else parse_counts(text, "--planned")
