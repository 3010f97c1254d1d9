"""The commands ``diem keys create``, ``list`` and ``revoke``: API keys of the Data Service."""

import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import StateDirOption, run_change, run_interactive
from deploy.clients.data_service import KeyService, key_service
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, plain_console, plain_table
from diem.process.auth import SharedKey

InternalOption = Annotated[
    str | None,
    typer.Option("--data", help="Base URL of a Data Service's internal listener; default: the one of `diem up`."),
]
KeyFileOption = Annotated[Path | None, typer.Option(help="Internal key; default: the state directory's.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="API keys: access and quotas of readers.")
    group.command("create")(create_command)
    group.command("list")(list_command)
    group.command("revoke")(revoke_command)
    cli.add_typer(group, name="keys")


def create_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the holder.")],
    *,
    plan: Annotated[str, typer.Option(help="A [[plan]] of the Data Service's diem.toml.")],
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """Create an API key and print it; it is shown only once."""

    async def create() -> None:
        made = await _service(state_dir, data, key_file).create(name, plan)
        if as_json:
            typer.echo(json.dumps(made))
            return
        typer.echo(made["key"])
        typer.echo(f"key {made['id']} of {made['name']} (plan {made['plan']}): it is not shown again", err=True)

    return run_change(create)


def list_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """List the API keys, without their secrets."""

    async def show() -> None:
        found = await _service(state_dir, data, key_file).all()
        if as_json:
            typer.echo(json.dumps(found))
            return
        table = plain_table("id", "name", "plan", "created", "revoked", wrap=("name",))
        for key in found["keys"]:
            table.add_row(key["id"], key["name"], key["plan"], _second(key["created"]), _second(key["revoked"]))
        plain_console().print(table if found["keys"] else "there are no API keys")

    return run_interactive(show)


def revoke_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The 8 characters after diem_; see `diem keys list`.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """Revoke an API key; it is refused from now on."""

    async def revoke() -> None:
        revoked = await _service(state_dir, data, key_file).revoke(key_id)
        text = f"key {revoked['id']} of {revoked['name']} is revoked since {_second(revoked['revoked'])}"
        typer.echo(json.dumps(revoked) if as_json else text)

    return run_change(revoke)


def _service(state_dir: Path, url: str | None, key_file: Path | None) -> KeyService:
    state = StateDir(state_dir)
    return key_service(state, url, SharedKey.load(key_file or state.internal_key_file))


def _second(time: str | None) -> str:
    return "-" if time is None else time[:19] + "Z"
