"""How commands reach the metadata service of a system, and what they ask it before their work begins."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from deploy.command_options import attended
from deploy.plans.service import MetadataService, metadata_service
from deploy.plans.system import System, find
from deploy.statedir import StateDir
from diem.process import lifecycle
from diem.process.auth import SharedKey

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
