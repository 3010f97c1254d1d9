"""The commands ``diem backup`` and ``diem restore``: the store of the Data Service as a whole."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deploy.cli.options import StateDirOption, run_change
from deploy.invocation import diem_command
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, amount, plain_console, plain_table
from diem.process.auth import SharedKey, read_secret
from diem.process.clock import SystemClock
from diem.protocol.update import iso

if TYPE_CHECKING:
    from services.data.access.keys import Key

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The backup.")]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        envvar="DIEM_DATA_DATABASE_URL",
        show_envvar=True,
        help="URL of the store. Default: that in the file DIEM_DATA_DATABASE_URL_FILE, or the state directory's. Put "
        "passwords in this file, or in the environment variable.",
    ),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(help="File of the key that authenticates the backup. Default: backup.key in the state directory."),
]
_SHOWN_KEYS: Final = 50


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("backup")(backup_command)
    cli.command("restore")(restore_command)


def backup_command(
    file: FileArgument,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    database_url: DatabaseOption = None,
    key_file: KeyFileOption = None,
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Also encrypt the backup with the key.")] = False,
    passphrase_file: Annotated[
        Path | None, typer.Option(help="Encrypt with the passphrase in this file instead of a key.")
    ] = None,
) -> int:
    """Write the whole store to a file that a key authenticates. The Data Service may keep running."""
    if passphrase_file is not None and (key_file is not None or encrypt):
        raise typer.BadParameter("--passphrase-file already encrypts: use it without --key-file and --encrypt")
    state = StateDir(state_dir)

    async def work() -> None:
        # Only these commands need the database library.
        from services.data.backup.backup import backup  # noqa: PLC0415
        from services.data.backup.seal import BackupKey  # noqa: PLC0415

        def key() -> BackupKey:
            if passphrase_file is not None:
                return BackupKey.of_passphrase_file(passphrase_file)
            if key_file is None:
                state.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                SharedKey.create(state.backup_key_file)
            return BackupKey.of_file(key_file or state.backup_key_file)

        header, endpoints = await backup(
            _url(state, database_url),
            file,
            SystemClock().wall_ms(),
            key=key,
            encrypt=encrypt or passphrase_file is not None,
        )
        typer.echo(f"{file} has {endpoints} endpoints, at position {header.sequence} of store {header.store}")
        if passphrase_file is None:
            verb = "read" if encrypt else "verify"
            typer.echo(f"only {key_file or state_dir / 'backup.key'} can {verb} it: keep a copy of that key elsewhere")

    return run_change(work)


def restore_command(
    file: FileArgument,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    database_url: DatabaseOption = None,
    key_file: KeyFileOption = None,
    passphrase_file: Annotated[
        Path | None, typer.Option(help="File of the passphrase with which the backup is encrypted.")
    ] = None,
    unauthenticated: Annotated[
        bool,
        typer.Option("--unauthenticated", help="Accept a file without authentication, as earlier releases wrote them."),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Accept that API keys in the backup become valid.")] = False,
) -> int:
    """Restore a backup as a new store, with a new version of each endpoint. Stop the Data Service first."""
    state = StateDir(state_dir)

    async def work() -> None:
        from services.data.backup.errors import UnconfirmedKeys  # noqa: PLC0415
        from services.data.backup.restore import restore  # noqa: PLC0415
        from services.data.backup.seal import RestoreKeys  # noqa: PLC0415
        from services.data.store.rollback_guard import MARK_FILE, MarkFile  # noqa: PLC0415

        mark = MarkFile(state.path / MARK_FILE).read()
        try:
            restored = await restore(
                _url(state, database_url),
                file,
                SystemClock().wall_ms(),
                keys=RestoreKeys(key_file or state.backup_key_file, passphrase_file, unauthenticated),
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


def _show(keys: "Sequence[Key]") -> None:
    table = plain_table("id", "name", "plan", "created", wrap=("name",))
    for key in keys[:_SHOWN_KEYS]:
        purpose = f"writes {' '.join(key.prefixes) or 'all'}" if key.writes else key.plan
        table.add_row(key.id, key.name, purpose, iso(key.created_ms)[:19] + "Z")
    plain_console().print(table)
    if len(keys) > _SHOWN_KEYS:
        typer.echo(f"and {len(keys) - _SHOWN_KEYS} more")


def _url(state: StateDir, given: str | None) -> str:
    if given:
        return given
    if file := os.environ.get("DIEM_DATA_DATABASE_URL_FILE"):
        return read_secret(Path(file))
    return f"sqlite:///{state.path / 'data.db'}"
