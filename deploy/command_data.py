"""The commands of `diem` for datasets: `watch` and `put`."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.command_options import StateDirOption, UrlOption, attended, completed
from deploy.found import data_service
from deploy.put import Upload, guess_form, put, read
from deploy.statedir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from deploy.watch import watch
from diem.process import log
from diem.process.auth import SharedKey
from diem.protocol import endpoints


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("watch")(watch_command)
    cli.command("put")(put_command)


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


def put_command(
    endpoint: Annotated[str, typer.Argument(metavar="ENDPOINT", help="Name such as /my/endpoint.")],
    file: Annotated[str, typer.Argument(metavar="FILE", help="CSV or JSON; `-` reads standard input.")],
    *,
    unit: Annotated[str | None, typer.Option(help="Unit, for CSV that does not say it.")] = None,
    resolution: Annotated[str | None, typer.Option(help="Such as PT1H, for CSV.")] = None,
    form: Annotated[str | None, typer.Option("--format", help="csv or json; default: by name or content.")] = None,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    url: UrlOption = None,
    key_file: Annotated[Path | None, typer.Option(help="Write key; default: the state directory's.")] = None,
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
