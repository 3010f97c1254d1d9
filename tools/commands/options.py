"""The option of commands that judge a number of partitions."""

from typing import Annotated

import typer

from deploy.cli.options import parse_counts
from learning.sizing.even import planned_sizes

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
