"""The window of recorded traffic in options of commands."""

import typer

from deploy.cli.times import parse_span, parse_time
from learning.statistics.window import Window


def parse_window(length: str, begin: str | None, end: str | None) -> Window | int:
    """Parse a window, or the length in ms of the last one. Raises ``typer.BadParameter``, ``ConfigurationError``."""
    span = parse_span(length)
    if begin is None and end is None:
        return span
    if end is None:
        raise typer.BadParameter("--from needs --to")
    until = parse_time(end)
    return Window(parse_time(begin) if begin is not None else until - span, until)
