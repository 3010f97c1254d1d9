"""The commands ``diem backup`` and ``diem restore``: the store of the Data Service as a whole."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from deploy.cli.options import StateDirOption, run_change
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, amount, plain_console, plain_table
from diem.process.auth import SharedKey
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
        help="The store; default: the state directory's. Passwords belong in the variable.",
    ),
]
KeyFileOption = Annotated[
    Path | None,
    typer.Option(help="Key that authenticates the backup; default: backup.key of the state directory."),
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
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Encrypt the backup with the key, too.")] = False,
    passphrase_file: Annotated[
        Path | None, typer.Option(help="File of a passphrase to encrypt with, instead of a key.")
    ] = None,
) -> int:
    """Write the whole store to a file, also while it is in use. A key authenticates the file."""
    if passphrase_file is not None and (key_file is not None or encrypt):
        raise typer.BadParameter("--passphrase-file encrypts by itself: it goes without --key-file and --encrypt")
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
        typer.echo(f"{endpoints} endpoints at position {header.sequence} of store {header.store} are in {file}")
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
        Path | None, typer.Option(help="File of the passphrase that the backup is encrypted with.")
    ] = None,
    unauthenticated: Annotated[
        bool,
        typer.Option("--unauthenticated", help="Restore a file that nobody vouches for, as those of earlier releases."),
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Let API keys of the backup become valid.")] = False,
) -> int:
    """Restore a backup as a new store, with a new version of every endpoint. The Data Service must be stopped."""
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
            f"{restored.endpoints} endpoints are in store {restored.store}, with versions from {restored.version}"
        )
        if restored.keys:
            _show(restored.keys)
            typer.echo(
                f"{amount(len(restored.keys), 'API key')} as of {restored.created[:19]}Z, valid even if revoked since: "
                "`diem keys list` and `diem keys revoke ID` once the Data Service runs"
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
    return given or f"sqlite:///{state.path / 'data.db'}"
