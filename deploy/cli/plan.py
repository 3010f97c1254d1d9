"""The command `diem plan`: learns from recorded traffic where endpoints are to be."""

import json
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli.options import EXIT_NOTHING, StateDirOption
from deploy.clients.metadata import PlanStatus
from deploy.planning.context import (
    KeyOption,
    MetadataOption,
    PlanRequest,
    System,
    connect,
    parse_server_counts,
    parse_share,
    parse_window,
    require_stable,
    run_step,
)
from deploy.planning.traffic_input import NoTrafficToPlan, require_planner
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console
from diem.process import lifecycle, log
from diem.protocol.assignment import Snapshot


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("plan")(plan_command)


def plan_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    traffic: Annotated[
        Path | None, typer.Option(help="Recorded traffic, or statistics; default: traffic in the state directory.")
    ] = None,
    window: Annotated[
        str | None, typer.Option(help="Length, such as 1h, that ends with the last event; default: latest statistics.")
    ] = None,
    begin: Annotated[str | None, typer.Option("--from", help="Begin of the window, ISO 8601.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="End of the window, ISO 8601.")] = None,
    servers: Annotated[
        str | None, typer.Option(help="Numbers of servers to plan for, such as 2,4,8; default: as many as there are.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search: the same seed, the same plan.")] = 0,
    partitions: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Of the updates topic; default: as the load needs.")
    ] = None,
    hot_budget: Annotated[str, typer.Option(help="Load that endpoints on every server may add.")] = "0.5%",
    movement: Annotated[str | None, typer.Option(help="Subscriptions that may move, such as 5%; default: any.")] = None,
    costs: Annotated[Path | None, typer.Option(help="File of `make bench-cost`; default: figures built in.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File of the plan; default: planned/ID.json in the state directory.")
    ] = None,
    submit: Annotated[bool, typer.Option("--submit/--no-submit", help="Give it to the metadata service.")] = True,
    anyway: Annotated[bool, typer.Option("--anyway", help="Write and submit it even if it does not pay.")] = False,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark", help="Compute the window with Spark, or from files alone; default: as needed."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Learn from recorded traffic which endpoints belong together, and plan where each is to be."""
    log.configure("error", "console")
    state = StateDir(state_dir)
    if movement is not None and partitions is not None:
        raise typer.BadParameter("--movement goes without --partitions: with other partitions most endpoints move")
    request = PlanRequest(
        traffic=traffic or state.path / "traffic",
        window=parse_window(window, begin, end),
        spark=spark,
        servers=None if servers is None else parse_server_counts(servers),
        seed=seed,
        partitions=partitions,
        hot_budget=parse_share(hot_budget, "--hot-budget"),
        movement=None if movement is None else parse_share(movement, "--movement"),
        costs=costs,
    )
    require_planner()
    from deploy.planning.planner import PlanRun  # noqa: PLC0415  # it needs numpy

    planning = PlanRun(request, Terminal(quiet=as_json), plain_console())

    async def fetch() -> tuple[System, Snapshot]:
        system, service = await connect(state, metadata, key_file)
        snapshot = await service.snapshot()
        require_stable(snapshot)
        return system, snapshot

    system, snapshot = run_step(fetch)
    try:
        planning.read_input()
    except NoTrafficToPlan as error:
        log.fail(str(error))
        return EXIT_NOTHING
    made = planning.make_plan(system, snapshot)
    file, submitted = None, False
    if made.pays or anyway:
        planning.write(file := out or state.path / "planned" / f"{made.plan.id}.json")
        if submit:
            run_step(lambda: _submit(state, metadata, key_file, planning.encoded))
            submitted = True
    if as_json:
        typer.echo(json.dumps(planning.as_json(file, submitted=submitted)))
    else:
        planning.print_summary(file, submitted=submitted)
    return lifecycle.EXIT_OK


async def _submit(state: StateDir, metadata: str | None, key_file: Path | None, plan: bytes) -> PlanStatus:
    return await (await connect(state, metadata, key_file))[1].submit(plan)
