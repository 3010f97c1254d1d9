"""The commands `diem pipeline run` and `diem pipeline status`: recorded traffic becomes tables and statistics."""

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from deploy.cli.kafka import NoCluster, found, takes_kafka
from deploy.cli.options import EXIT_NOTHING, StateDirOption
from deploy.cli.usage import usage_command
from deploy.statedir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console
from diem.process import log
from metadata.jobs.sources import FileSource, KafkaSource
from metadata.jobs.windows import NoTraffic
from metadata.statistics.window import Window, parse_span, parse_time

DEFAULT_WINDOW: Final = "1h"
DEFAULT_MEMORY: Final = "1g"
_SOURCES: Final = ("kafka", "files", "none")
_MEMORY: Final = re.compile(r"[1-9]\d*[mg]")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(no_args_is_help=True, help="Turn recorded traffic into tables and statistics, with Spark.")
    group.command("run")(takes_kafka(run_command))
    group.command("status")(takes_kafka(status_command))
    group.command("usage")(usage_command)
    cli.add_typer(group, name="pipeline")


def run_command(
    *,
    kafka: Mapping[str, object],
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    source: Annotated[
        str | None,
        typer.Option(help="kafka, files or none (read nothing); default: kafka if named or recorded to, else files."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--input", help="Folder of files; default: traffic/in in the state directory.")
    ] = None,
    keep: Annotated[
        bool | None, typer.Option("--keep/--remove", help="Files that are read; default: keep those of --input only.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", help="Go on reading until Ctrl-C; computes nothing.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between batches, with --follow.")] = 60.0,
    statistics: Annotated[bool, typer.Option("--statistics/--no-statistics", help="Compute them.")] = True,
    window: Annotated[
        str, typer.Option(help="Length of the window of the statistics, such as 15m; it ends with the last event.")
    ] = DEFAULT_WINDOW,
    begin: Annotated[str | None, typer.Option("--from", help="Begin of the window, ISO 8601.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="End of the window, ISO 8601.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the statistics; default: the end of the window.")] = None,
    memory: Annotated[str, typer.Option(help="Heap of the JVM, such as 512m or 4g.")] = DEFAULT_MEMORY,
    cores: Annotated[int, typer.Option(min=1, help="Tasks at a time.")] = 2,
) -> int:
    """Read recorded traffic into tables, and compute the statistics of a window."""
    from deploy import pipeline  # noqa: PLC0415  # no other command needs it

    log.configure("error", "console")
    if source not in {None, *_SOURCES}:
        raise typer.BadParameter(f"--source is kafka, files or none, not {source}")
    if _MEMORY.fullmatch(memory) is None:
        raise typer.BadParameter(f"--memory is such as 512m or 4g, not {memory}")
    if name is not None and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) is None:
        raise typer.BadParameter("--name has letters, digits, '.', '_' and '-'")
    wanted = None if follow or not statistics else pipeline.WindowOptions(_window(window, begin, end), name)
    state = StateDir(state_dir)
    chosen = _source(source, state, folder, kafka)
    # What is read of a topic stays there.
    remove = isinstance(chosen, FileSource) and (not keep if keep is not None else folder is None)
    reading = None if chosen is None else pipeline.ReadOptions(chosen, remove, every if follow else None)
    try:
        pipeline.run(pipeline.warehouse(state.path), reading, wanted, Terminal(), memory=memory, cores=cores)
    except NoTraffic as error:
        log.fail(str(error))
        return EXIT_NOTHING
    except KeyboardInterrupt:
        if not follow:
            raise
    return 0


def status_command(
    *,
    kafka: Mapping[str, object],
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> int:
    """Show what was read, how far behind that is, what was not usable and why, and the statistics that there are."""
    from deploy import pipeline  # noqa: PLC0415
    from deploy.pipeline_status import report, status_lines  # noqa: PLC0415

    log.configure("error", "console")
    state = StateDir(state_dir)
    here = pipeline.warehouse(state.path)
    try:
        cluster = found(state, kafka).options
    except NoCluster:
        cluster = None
    read = asyncio.run(report(here, _folder(state), cluster))
    if as_json:
        typer.echo(json.dumps(asdict(read)))
        return 0
    console = plain_console()
    for each in status_lines(read):
        console.print(each)
    return 0


def _window(length: str, begin: str | None, end: str | None) -> Window | int:
    span = parse_span(length)
    if begin is None and end is None:
        return span
    if end is None:
        raise typer.BadParameter("--from needs --to")
    until = parse_time(end)
    return Window(parse_time(begin) if begin is not None else until - span, until)


def _source(
    kind: str | None, state: StateDir, folder: Path | None, kafka: Mapping[str, Any]
) -> FileSource | KafkaSource | None:
    if kind == "none":
        return None
    if kind == "files" or (kind is None and (folder is not None or _records_files(state, kafka))):
        return FileSource(_folder(state) if folder is None else folder.absolute())
    try:
        cluster = found(state, kafka)
    except NoCluster:
        if kind == "kafka":
            raise
        return FileSource(_folder(state))
    from metadata.jobs.topic import kafka_source  # noqa: PLC0415  # its client is an extra

    return asyncio.run(kafka_source(cluster.options))


def _records_files(state: StateDir, kafka: Mapping[str, Any]) -> bool:
    """Whether the `diem up` here records traffic in files, though it runs with Kafka; a cluster that is named wins."""
    sink = state.read_processes().get("traffic", {}).get("sink")
    return sink == "files" and "kafka_bootstrap_servers" not in kafka


def _folder(state: StateDir) -> Path:
    return state.path / "traffic" / "in"
