"""Values of options of commands: the window of recorded traffic, amounts of bytes, the capacity of a server."""

import re
from typing import Final

import typer

from deploy.cli.options import parse_share
from deploy.cli.times import parse_span, parse_time
from learning.statistics.window import Window

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_window(length: str, begin: str | None, end: str | None) -> Window | int:
    """Parse a window, or the length in ms of the last one. Raises ``typer.BadParameter``, ``ConfigurationError``."""
    span = parse_span(length)
    if begin is None and end is None:
        return span
    if end is None:
        raise typer.BadParameter("--from needs --to")
    until = parse_time(end)
    return Window(parse_time(begin) if begin is not None else until - span, until)


def parse_bytes(text: str, option: str, unit: float = 1024.0) -> float:
    """Parse ``16G`` to bytes, by powers of ``unit``. Raises ``typer.BadParameter``."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or float(match[1]) == 0:
        raise typer.BadParameter(f"{option} is an amount such as 512M or 16G, not {text!r}")
    return float(match[1]) * unit ** " KMGT".index(match[2].upper() or " ")


def parse_capacity(text: str | None) -> dict[str, float]:
    """Parse ``clients=8000,memory=512M``, or a number of clients alone, to limits by their names in ``Resources``.

    Raises:
        typer.BadParameter: it is not of this form.
    """
    found: dict[str, float] = {}
    for part in [] if text is None else text.split(","):
        name, _, value = part.partition("=") if "=" in part else ("clients", "", part)
        match name.strip():
            case "clients" if value.strip().isdecimal() and int(value):
                found["clients"] = float(value)
            case "memory":
                found["memory_bytes"] = parse_bytes(value, "--capacity memory=")
            case "network":
                found["sent_bytes_per_s"] = parse_bytes(value, "--capacity network=", 1000.0)
            case "cpu" if (share := parse_share(value, "--capacity cpu=")) > 0:
                found["cpu_us_per_s"] = share * 1e6
            case _:
                form = "clients=8000,memory=512M,network=50M,cpu=80%"
                raise typer.BadParameter(f"--capacity is a number of clients, or some of {form}, not {text!r}")
    return found
