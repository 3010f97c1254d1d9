"""The commands ``diem backup`` and ``diem restore``: the store of the Data Service as a whole."""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import typer

from deploy.cli.options import STATE_DIR, StateDirOption, UnusableFile, run_change
from deploy.invocation import diem_command
from deploy.system.state_dir import NotUp, StateDir
from deploy.system.store import configured_url, running_url
from deploy.terminal import DEFAULT_STATE_DIR, amount, plain_console, plain_table
from diem.errors import ConfigurationError
from diem.process.auth import read_secret
from diem.process.clock import SystemClock
from diem.process.settings import secret_files, variables
from diem.protocol.update import iso
from services.data.access.keys import Key
from services.data.backup.backup import backup
from services.data.backup.errors import UnconfirmedKeys
from services.data.backup.restore import restore
from services.data.settings import Settings
from services.data.store.rollback_guard import MARK_FILE, SQLITE, MarkFile

DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar=list(variables(Settings, "database_url")),
        show_envvar=True,
        help="URL of the store. Default: that in the file DIEM_DATA_DATABASE_URL_FILE, else that of the running `diem "
        "up`, else the state directory's. Put passwords in this file, or in the environment variable.",
    ),
]
PIPE: Final = Path("-")
_SHOWN_KEYS: Final = 50


@dataclass(eq=False)
class UnknownStore(ConfigurationError):
    """The last system of the state directory had its store elsewhere, and nothing runs to name it."""

    template = (
        "the store of {path} was in PostgreSQL, and no `diem up` runs there to name it: set DIEM_DATA_DATABASE_URL, "
        "or give --database-url"
    )

    path: Path


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("backup")(backup_command)
    cli.command("restore")(restore_command)


def backup_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The backup; - is standard output.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    database_url: DatabaseOption = None,
) -> int:
    """Write the whole store to a file or a pipe. The Data Service may keep running."""
    if file == PIPE and sys.stdout.isatty():
        raise typer.BadParameter("a backup is not for a terminal: name a file, or a command after |")

    async def work() -> None:
        with _new_file(file) as output:
            url = await _url(state_dir, database_url)
            header, endpoints = await backup(url, output, SystemClock().wall_ms())
        name = "the backup" if file == PIPE else str(file)
        text = f"{name} has {endpoints} endpoints, at position {header.sequence} of store {header.store}"
        typer.echo(text, err=file == PIPE)

    return run_change(work)


def restore_command(
    file: Annotated[typer.FileBinaryRead, typer.Argument(metavar="FILE", help="The backup; - is standard input.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    database_url: DatabaseOption = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Accept that API keys in the backup become valid.")] = False,
    unauthenticated: Annotated[bool, typer.Option("--unauthenticated", hidden=True, help="Ignored.")] = False,  # noqa: ARG001
) -> int:
    """Restore a backup as a new store, with a new version of each endpoint. Stop the Data Service first."""
    if file.isatty():
        raise typer.BadParameter("a backup does not come from a terminal: name a file, or a command before |")

    async def work() -> None:
        mark = MarkFile(state_dir / MARK_FILE).read()
        try:
            restored = await restore(
                await _url(state_dir, database_url),
                file,
                SystemClock().wall_ms(),
                replace=replace,
                accept_keys=yes,
                least_version=mark.version if mark is not None else 0,
            )
        except UnconfirmedKeys as error:
            _show(error.keys)
            raise
        typer.echo(
            f"restored {restored.endpoints} endpoints to store {restored.store}, with versions from {restored.version}"
        )
        if restored.keys:
            _show(restored.keys)
            typer.echo(
                f"{amount(len(restored.keys), 'API key')} as of {restored.created[:19]}Z, valid even if revoked since. "
                "Once the Data Service runs, check them: "
                f"{diem_command('keys', 'list')}, {diem_command('keys', 'revoke', 'ID')}"
            )

    return run_change(work)


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield standard output for ``-``, otherwise a file for its owner alone, named once it is complete on the disk."""
    if path == PIPE:
        yield sys.stdout.buffer
        return
    try:
        # A unique name: another backup to the same path may be in progress.
        descriptor, name = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                yield file
                os.fsync(descriptor)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
    except OSError as error:
        raise UnusableFile(path, error.strerror or str(error)) from error


def _show(keys: Sequence[Key]) -> None:
    table = plain_table("id", "name", "plan", "created", wrap=("name",))
    for key in keys[:_SHOWN_KEYS]:
        purpose = f"writes {' '.join(key.prefixes) or 'all'}" if key.writes else key.plan
        cells = key.id, key.name, purpose, iso(key.created_ms)[:19] + "Z"
        # From an untrusted file: it must not control the terminal.
        table.add_row(*("".join(c if c.isprintable() else "?" for c in cell) for cell in cells))
    plain_console().print(table)
    if len(keys) > _SHOWN_KEYS:
        typer.echo(f"and {len(keys) - _SHOWN_KEYS} more")


async def _url(state_dir: Path, given: str | None) -> str:
    """Return the URL of the store: as given, of the running system, or of the state directory.

    Raises:
        UnknownStore: the state directory's last store was elsewhere.
        ControlFailed: the running system does not tell it.
        BadKeyFile: it is in an unusable file.
    """
    if given:
        return given
    if file := secret_files(Settings).get("database_url"):
        return read_secret(file)
    state = StateDir(state_dir)
    try:
        return await running_url(state)
    except NotUp:
        mark = MarkFile(state_dir / MARK_FILE).read()
        if mark is not None and mark.backend != SQLITE:
            raise UnknownStore(state.path) from None
    return configured_url({STATE_DIR: str(state_dir)})
