"""Command line values of the planning commands (shares, server counts, windows), and the metadata service they call."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from deploy.cli.options import attended
from deploy.plans.service import MetadataService, metadata_service
from deploy.plans.system import System, find
from deploy.statedir import StateDir
from diem.process import lifecycle
from diem.process.auth import SharedKey
from metadata.statistics.window import Window, parse_span, parse_time

T = TypeVar("T")
MetadataOption = Annotated[
    str | None,
    typer.Option("--metadata", help="Base URL of a metadata service's internal listener; default: the one up here."),
]
KeyOption = Annotated[Path | None, typer.Option(help="Internal key; default: the state directory's.")]


async def reached(state: StateDir, url: str | None, key_file: Path | None) -> tuple[System, MetadataService]:
    """Return the system that is meant, and its metadata service. Raises what `find` does, `BadKeyFile`."""
    system = await find(state, url)
    return system, metadata_service(system.metadata, SharedKey.load(key_file or state.internal_key_file))


def done(work: Callable[[], Awaitable[T]]) -> T:
    """Return what a part of a command finds; ends the command when that fails or is interrupted."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work())

    code = attended(keep)
    if not found:
        # An end that was asked for is none of the work: what comes next in a script is not to go on.
        raise typer.Abort if code == lifecycle.EXIT_OK else typer.Exit(code)
    return found[0]


MAX_SERVERS: Final = 1000
_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class PlanRequest:
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
