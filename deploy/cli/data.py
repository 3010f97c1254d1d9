"""The commands of `diem` for datasets: `watch`, `get`, `put` and `delete`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import StateDirOption, UrlOption, attended, completed
from deploy.found import data_service
from deploy.get import confirm, delete, get, write
from deploy.put import Upload, guess_form, put, read
from deploy.statedir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from deploy.watch import watch
from diem.process import log
from diem.process.auth import SharedKey
from diem.protocol import endpoints

EndpointArgument = Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name such as /my/endpoint.")]
WriteKeyOption = Annotated[Path | None, typer.Option("--key-file", help="Write key; default: the state directory's.")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("watch")(watch_command)
    cli.command("get")(get_command)
    cli.command("put")(put_command)
    cli.command("delete")(delete_command)


def watch_command(
    names: Annotated[list[str], typer.Argument(metavar="ENDPOINT...", help="Names such as /dam/prices/GR.")],
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for every event.")] = False,
) -> int:
    """Print the updates of endpoints as they come, until Ctrl-C."""
    for name in names:
        endpoints.check(name)
    log.configure("error", "console")

    def say(text: str) -> None:
        typer.echo(text)

    def note(text: str) -> None:
        typer.echo(text, err=True)

    return attended(lambda: watch(data_service(StateDir(state_dir), url), names, say, note, as_json=as_json))


def get_command(
    endpoint: EndpointArgument,
    *,
    csv: Annotated[bool, typer.Option("--csv", help="As CSV; default: as JSON.")] = False,
    version: Annotated[int | None, typer.Option(min=1, metavar="N", help="An old version; default: the last.")] = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="Default: standard output.")] = "-",
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: Annotated[Path | None, typer.Option(help="API key; default: reads as everybody may.")] = None,
) -> int:
    """Print the data of an endpoint."""
    endpoints.check(endpoint)

    async def read_it() -> None:
        service = data_service(StateDir(state_dir), url)
        key = None if key_file is None else SharedKey.load(key_file)
        write(await get(service, key, endpoint, "csv" if csv else "json", version), output)

    return completed(read_it)


def delete_command(
    endpoint: EndpointArgument,
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Delete an endpoint: clients that watch it are told that it is gone."""
    endpoints.check(endpoint)
    state = StateDir(state_dir)
    service, key = data_service(state, url), SharedKey.load(key_file or state.write_key_file)
    if not yes:
        confirm(service, endpoint, terminal=sys.stdin.isatty())

    async def remove() -> None:
        answer = await delete(service, key, endpoint)
        typer.echo(f"{endpoint} is gone as of version {answer.get('version')}")

    return completed(remove)


def put_command(
    endpoint: EndpointArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV or JSON; `-` reads standard input.")],
    *,
    unit: Annotated[str | None, typer.Option(help="Unit, for CSV that does not say it.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Such as PT1H, for CSV.")] = None,
    form: Annotated[str | None, typer.Option("--format", help="csv or json; default: by name or content.")] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: WriteKeyOption = None,
) -> int:
    """Store a file as the data of an endpoint."""
    if form not in {None, "csv", "json"}:
        raise typer.BadParameter(f"--format is csv or json, not {form}")
    endpoints.check(endpoint)
    state = StateDir(state_dir)
    declared = {name: value for name, value in (("unit", unit), ("resolution", resolution)) if value is not None}

    async def store() -> None:
        service, content = data_service(state, url), read(file)
        key = SharedKey.load(key_file or state.write_key_file)
        answer = await put(service, key, endpoint, Upload(content, form or guess_form(file, content), declared))
        said = "stored as" if answer.get("changed", True) else "already there as"
        typer.echo(f"{endpoint} {said} version {answer.get('version')}")

    return completed(store)
