"""The commands of ``diem sources``; ``check`` tries the sources of a ``diem.toml`` once, without a running DIEM."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from deploy.cli.keys import InternalOption, JsonOption, KeyFileOption, local_admin
from deploy.cli.mode_options import ConfigOption, config_file
from deploy.cli.options import StateDirOption, run_change
from deploy.cli.suggest import suggest_command
from deploy.system.source_health import failing
from deploy.terminal import DEFAULT_STATE_DIR, amount, data_size, plain_console, plain_table
from diem.errors import ConfigurationError
from diem.process import lifecycle
from diem.process.clock import SystemClock
from diem.protocol.media_types import kind_of
from services.data.sources.config import default_file, load
from services.data.sources.trial import PublishedData, SourceTrial, try_sources

MAX_SHOWN: Final = 5
"""Maximum number of displayed endpoints per source; ``--json`` has all."""


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="The sources of diem.toml.")
    group.command("check")(check_command)
    group.command("suggest")(suggest_command)
    group.command("replay")(replay_command)
    cli.add_typer(group, name="sources")


def check_command(
    *,
    config: ConfigOption = None,
    watch: Annotated[
        list[str] | None,
        typer.Option(metavar="ENDPOINT", help="Read this endpoint of a source that polls what is watched."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> int:
    """Read each source once and show what it would publish, or why not (exit code 1); nothing is stored."""
    file = config_file(config) or default_file()
    configured = load(file)
    tried: list[SourceTrial] = []

    async def attempt() -> None:
        tried.extend(await try_sources(configured, SystemClock(), watch or ()))
        if as_json:
            typer.echo(json.dumps(outcome_json(file, tried)))
            return
        console = plain_console()
        for part in render(tried):
            console.print(part)

    code = run_change(attempt)
    fails = any(each.error is not None for each in tried)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and fails else code


def replay_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A source that reads a topic, a database or a broker.")],
    *,
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="POSITION", help="Where it goes on, such as an offset; start: as configured."),
    ] = None,
    part: Annotated[str | None, typer.Option(help="Of this part alone, such as a partition. Default: all.")] = None,
    skip: Annotated[bool, typer.Option("--skip", help="Go on after the record at which it has stopped.")] = False,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    data: InternalOption = None,
    key_file: KeyFileOption = None,
    as_json: JsonOption = False,
) -> int:
    """Show where a source has read up to, or let it go on elsewhere; values that it reads again get new versions."""

    async def replay() -> None:
        if skip and start is not None:
            raise ConfigurationError("--skip and --from exclude each other")
        if part is not None and start is None:
            raise ConfigurationError("--part needs --from")
        service = local_admin(state_dir, data, key_file)
        if skip or start is not None:
            given = {"from": start} if part is None else {"from": start, "part": part}
            answer = await service.replay(name, {"skip": True} if skip else given)
        else:
            answer = await service.positions(name)
        if as_json:
            typer.echo(json.dumps(answer))
            return
        table = plain_table("part", "position", wrap=("part", "position"))
        for each, position in sorted(answer["positions"].items()):
            table.add_row(Text(each), Text(position))
        plain_console().print(table if answer["positions"] else Text(f"{name} has not stored a record yet"))
        if (stopped := answer["stopped"]) is not None:
            plain_console().print(Text(f"stopped: {answer['error'] or stopped['part']}"))

    return run_change(replay)


def render(tried: Sequence[SourceTrial]) -> Iterator[RenderableType]:
    """Yield the outcomes as tables, then each error with its remedy, then a summary."""
    if not tried:
        yield Text("no [[source]] is configured: endpoints are written with `diem put` or over HTTP")
        return
    numbers = ("endpoints", "points")
    table = plain_table("source", "type", "state", *numbers, right=numbers, wrap=("source",))
    for each in tried:
        state = "failing" if each.error is not None else "ok" if each.endpoints else "no data"
        table.add_row(Text(each.name), Text(each.type), state, f"{len(each.endpoints):,}", f"{each.points:,}")
    yield table
    if any(each.endpoints for each in tried):
        yield Text("")
        shown = [published for each in tried for published in each.endpoints[:MAX_SHOWN]]
        yield from _endpoints(shown)
        for each in tried:
            if (more := len(each.endpoints) - MAX_SHOWN) > 0:
                yield Text(f"and {amount(more, 'endpoint')} more of {each.name}")
    yield Text("")
    for each in tried:
        if len(each.errors) > 1:
            yield Text(f"{each.name} fails:")
            yield from (Text(f"  {error}") for error in each.errors)
        elif each.error is not None:
            yield Text(f"{each.name} fails: {each.error}")
        if each.remedy is not None:
            yield Text(f"  {each.remedy}" if each.error is not None else f"{each.name}: {each.remedy}")
    bad = sum(each.error is not None for each in tried)
    yield Text(failing(bad, len(tried)) if bad else f"{amount(len(tried), 'source')} checked: none fails")


def _endpoints(shown: Sequence[PublishedData]) -> Iterator[Table]:
    """Yield a table of series and one of other data."""
    series = [each for each in shown if kind_of(each.media_type) == "series"]
    if series:
        headings = "endpoint", "points", "unit", "resolution", "from", "to"
        table = plain_table(*headings, right=("points",), wrap=("endpoint",))
        for each in series:
            times = (time[:16].replace("T", " ") for time in (each.first, each.last))
            table.add_row(Text(each.endpoint), f"{each.points:,}", Text(each.unit), each.resolution, *times)
        yield table
    others = [each for each in shown if each not in series]
    if others:
        table = plain_table("endpoint", "size", "media type", right=("size",), wrap=("endpoint", "media type"))
        for each in others:
            table.add_row(Text(each.endpoint), data_size(each.bytes), Text(each.media_type))
        yield table


def outcome_json(file: Path | None, tried: Sequence[SourceTrial]) -> dict[str, Any]:
    """Return the outcomes as one JSON object."""
    return {
        "config": "" if file is None else str(file),
        "failing": sum(each.error is not None for each in tried),
        "sources": [
            {
                "name": each.name,
                "type": each.type,
                "ok": each.error is None,
                "error": each.error,
                "errors": list(each.errors) or ([] if each.error is None else [each.error]),
                "remedy": each.remedy,
                "endpoints": [endpoint._asdict() for endpoint in each.endpoints],
            }
            for each in tried
        ],
    }
