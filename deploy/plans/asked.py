"""What is written on the command line: shares, numbers of servers, windows."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import typer

from metadata.statistics.window import Window, parse_span, parse_time

MAX_SERVERS: Final = 1000
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is to be made from and for; None leaves it to what is found."""

    traffic: Path
    window: Window | int | None = None
    """Or the length of the last one, in ms."""
    spark: bool | None = None
    servers: tuple[int, ...] | None = None
    seed: int = 0
    partitions: int | None = None
    hot_budget: float = 0.005
    movement: float | None = None
    """Share of the subscriptions that may move; None: any."""
    costs: Path | None = None


def share(text: str, option: str) -> float:
    """Parse a percentage to a share. Raises `typer.BadParameter`."""
    match = _SHARE.fullmatch(text.strip())
    if match is None or float(match[1]) > 100:
        raise typer.BadParameter(f"{option} is a percentage such as 0.5%, not {text!r}")
    return float(match[1]) / 100


def numbers_of_servers(text: str) -> tuple[int, ...]:
    """Parse numbers with commas. Raises `typer.BadParameter`."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and 1 <= int(word) <= MAX_SERVERS for word in words):
        raise typer.BadParameter(f"--servers is numbers from 1 to {MAX_SERVERS} with commas, not {text!r}")
    return tuple(sorted({int(word) for word in words}))


def window_of(length: str | None, begin: str | None, end: str | None) -> Window | int | None:
    """Parse a window, or its length in ms. Raises `typer.BadParameter`, `BadWindow`."""
    if begin is None and end is None:
        return None if length is None else parse_span(length)
    if end is None:
        raise typer.BadParameter("--from needs --to")
    until = parse_time(end)
    return Window(parse_time(begin) if begin is not None else until - parse_span(length or "1h"), until)
