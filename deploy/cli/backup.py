"""The commands ``diem backup`` and ``diem restore``: the store of the Data Service as a whole."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import StateDirOption, run_change
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.process.clock import SystemClock

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="DIEM_DATA_DATABASE_URL",
        show_envvar=True,
        help="The store; default: the state directory's. Passwords belong in the variable.",
    ),
]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("backup")(backup_command)
    cli.command("restore")(restore_command)


def backup_command(
    file: FileArgument, *, state_dir: StateDirOption = DEFAULT_STATE_DIR, database_url: DatabaseOption = None
) -> int:
    """Write the whole store to a file, also while it is in use."""

    async def work() -> None:
        from services.data.store.backup import backup  # noqa: PLC0415  # only these commands need the database library

        header, endpoints = await backup(_url(state_dir, database_url), file, SystemClock().wall_ms())
        typer.echo(f"{endpoints} endpoints at position {header.sequence} of store {header.store} are in {file}")

    return run_change(work)


def restore_command(
    file: FileArgument,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    database_url: DatabaseOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
) -> int:
    """Restore a backup as a new store, with a new version of every endpoint. The Data Service must be stopped."""

    async def work() -> None:
        from services.data.store.backup import restore  # noqa: PLC0415
        from services.data.store.rollback_guard import MARK_FILE, MarkFile  # noqa: PLC0415

        mark = MarkFile(StateDir(state_dir).path / MARK_FILE).read()
        restored = await restore(
            _url(state_dir, database_url),
            file,
            SystemClock().wall_ms(),
            replace=replace,
            least_version=mark.version if mark is not None else 0,
        )
        typer.echo(
            f"{restored.endpoints} endpoints are in store {restored.store}, with versions from {restored.version}"
        )
        if restored.keys:
            typer.echo(
                f"{restored.keys} API keys are as they were at {restored.created[:19]}Z, good even if revoked since: "
                "`diem keys list` and `diem keys revoke ID` once the Data Service runs"
            )

    return run_change(work)


def _url(state_dir: Path, given: str | None) -> str:
    return given or f"sqlite:///{StateDir(state_dir).path / 'data.db'}"
