"""The command ``diem plan``: compute the placement of endpoints from recorded traffic."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import (
    EXIT_NOTHING,
    StateDirOption,
    find_cluster,
    parse_counts,
    parse_share,
    with_kafka_options,
)
from deploy.cli.times import parse_span
from deploy.clients.metadata import PlanStatus
from deploy.system.state_dir import NotUp, StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console
from deploy.topology.kafka_users import KafkaUser
from diem.kafka.config import KafkaOptions
from diem.process import lifecycle, log
from diem.protocol.assignment import Snapshot
from diem.protocol.partition_map import Head, PartitionMap
from learning.commands.options import parse_capacity, parse_window
from learning.commands.spark_options import WarehouseOption, with_spark_options
from learning.jobs.sources import complete_files
from learning.jobs.spark_options import SparkSettings
from learning.planning.context import (
    CapacityOption,
    IntervalFile,
    KeyOption,
    MetadataOption,
    PlanRequest,
    RunningSystem,
    connect,
    require_stable,
    run_step,
)
from learning.planning.intervals import COLUMNS, COMBINED
from learning.planning.traffic_input import NoTrafficToPlan, require_planner
from learning.sizing.even import choose_count, planned_sizes


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("plan")(with_spark_options(with_kafka_options(plan_command)))


def plan_command(
    *,
    kafka: Mapping[str, object],
    settings: SparkSettings,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    traffic: Annotated[
        Path | None, typer.Option(help="Recorded traffic, or statistics. Default: the state directory's traffic.")
    ] = None,
    warehouse: WarehouseOption = None,
    window: Annotated[
        str | None,
        typer.Option(help="How much recent traffic to learn from, such as 1h. Default: the latest statistics."),
    ] = None,
    begin: Annotated[str | None, typer.Option("--from", help="Start of the window (ISO 8601).")] = None,
    end: Annotated[str | None, typer.Option("--to", help="End of the window (ISO 8601).")] = None,
    servers: Annotated[
        str | None, typer.Option(help="Numbers of servers to plan for, such as 2,4,8. Default: the current number.")
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Partitions of the updates topic. Default: chosen from the load."),
    ] = None,
    hot_budget: Annotated[str, typer.Option(help="Extra load that hot endpoints may cause.")] = "0.5%",
    movement: Annotated[
        str | None, typer.Option(help="Share of the subscriptions that may move, such as 5%. Default: all.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare/--no-compare",
            hidden=True,
            help="With --movement: compare a plan that does not pay with the best one that moves any.",
        ),
    ] = True,
    costs: Annotated[
        Path | None, typer.Option(help="Output file of `make bench-cost`. Default: built-in figures.")
    ] = None,
    capacity: CapacityOption = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the plan. Default: planned/ID.json in the state directory.")
    ] = None,
    submit: Annotated[
        bool, typer.Option("--submit/--no-submit", help="Submit the plan to the metadata service.")
    ] = True,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Write and submit the plan even if it does not pay off.")
    ] = False,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark", help="Compute statistics with Spark, or from the files directly. Default: as needed."
        ),
    ] = None,
    from_csv: Annotated[
        Path | None,
        typer.Option(help="Plan without a system, from a CSV file with the columns client, endpoint, start and end."),
    ] = None,
    from_log: Annotated[
        Path | None, typer.Option(help="Plan without a system, from an access log (default: combined format).")
    ] = None,
    mapping: Annotated[
        str | None,
        typer.Option(
            help="Columns of the CSV file, such as client=user,start=begin; or a regular expression of lines of the "
            "log with groups of these names."
        ),
    ] = None,
    held: Annotated[str, typer.Option(help="How long a client uses an endpoint, where no end is given.")] = "5m",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Learn from recorded traffic which endpoints belong together, and plan which server holds each."""
    state = StateDir(state_dir)
    if movement is not None and partitions is not None:
        raise typer.BadParameter("--movement goes without --partitions: with other partitions most endpoints move")
    intervals = _interval_file(from_csv, from_log, mapping, held)
    request = PlanRequest(
        traffic=traffic or state.path / "traffic",
        intervals=intervals,
        kafka=None if spark or traffic is not None or intervals is not None else _kafka(state, kafka),
        window=None if window is begin is end is None else parse_window(window or "1h", begin, end),
        spark=spark,
        servers=None if servers is None else parse_counts(servers, "--servers"),
        partitions=partitions,
        hot_budget=parse_share(hot_budget, "--hot-budget"),
        movement=None if movement is None else parse_share(movement, "--movement"),
        compare=compare,
        costs=costs,
        capacity=parse_capacity(capacity),
        warehouse=warehouse,
        settings=settings,
    )
    require_planner()
    from learning.planning.planner import run_plan  # noqa: PLC0415  # it needs numpy

    async def fetch() -> tuple[RunningSystem, Snapshot] | None:
        try:
            system, service = await connect(state, metadata, key_file)
        except NotUp:
            # Traffic of another machine, or of a system of another time.
            if traffic is None or request.servers is None or submit:
                raise
            return None
        snapshot = await service.snapshot()
        require_stable(snapshot)
        return system, snapshot

    running = run_step(fetch) if intervals is None else None
    system, snapshot = running or (RunningSystem(()), _without_system(request.servers))
    try:
        planning = run_plan(request, system, snapshot, Terminal(quiet=as_json), plain_console())
    except NoTrafficToPlan as error:
        log.fail(str(error))
        return EXIT_NOTHING
    file: Path | None = None
    submitted = None if running is None else False
    if planning.made.pays or anyway:
        planning.write(file := out or state.path / "planned" / f"{planning.made.plan.id}.json")
        if submit and submitted is not None:
            run_step(lambda: _submit(state, metadata, key_file, planning.encoded))
            submitted = True
    if as_json:
        typer.echo(json.dumps(planning.as_json(file, submitted=submitted)))
    else:
        planning.print_summary(file, submitted=submitted)
    return lifecycle.EXIT_OK


async def _submit(state: StateDir, metadata: str | None, key_file: Path | None, plan: bytes) -> PlanStatus:
    return await (await connect(state, metadata, key_file))[1].submit(plan)


def _interval_file(from_csv: Path | None, from_log: Path | None, mapping: str | None, held: str) -> IntervalFile | None:
    held_ms = parse_span(held)
    if from_csv is not None and from_log is not None:
        raise typer.BadParameter("--from-csv or --from-log, not both")
    if from_log is not None:
        return IntervalFile(from_log, {}, mapping or COMBINED, held_ms)
    if from_csv is None:
        if mapping is not None:
            raise typer.BadParameter("--mapping is for --from-csv and --from-log")
        return None
    columns = dict(part.partition("=")[::2] for part in (mapping or "").split(",") if part)
    if unknown := [name for name, column in columns.items() if name not in COLUMNS or not column]:
        raise typer.BadParameter(f"--mapping: {unknown[0]!r} is none of {', '.join(COLUMNS)}, each with =COLUMN")
    return IntervalFile(from_csv, columns, None, held_ms)


def _without_system(servers: tuple[int, ...] | None) -> Snapshot:
    """Return a new topic for these numbers of servers, placed by the hash."""
    return Snapshot(PartitionMap(Head(choose_count(planned_sizes(*(servers or ()))), 0)), {})


def _kafka(state: StateDir, kafka: Mapping[str, object]) -> KafkaOptions | None:
    """Return the named cluster, or that of the running system; None if there are recorded files."""
    recorded = state.read_processes().get("traffic", {}).get("sink")
    if not kafka and (recorded != "kafka" or complete_files(state.path / "traffic" / "in")):
        return None
    return find_cluster(state, kafka, KafkaUser.PIPELINE).options
