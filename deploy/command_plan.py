"""The commands of `diem` for plans: `plan`, `apply`, `rollback` and `plans`."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from deploy.command_options import StateDirOption, attended
from deploy.plans import shown
from deploy.plans.asked import Asked, numbers_of_servers, share, window_of
from deploy.plans.choose import Outdated, handed_over, is_file, read_plan, to_apply, to_take_back
from deploy.plans.follow import APPLYING, ROLLING_BACK, Follower, Way
from deploy.plans.screen import telling
from deploy.plans.service import MetadataService, Status, metadata_service
from deploy.plans.system import System, find, must_rest
from deploy.statedir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, Terminal, plain_console
from diem.process import lifecycle, log
from diem.process.auth import SharedKey
from diem.process.clock import SystemClock
from diem.process.faults import ConfigurationError
from diem.protocol.assignment import Snapshot

T = TypeVar("T")

MetadataOption = Annotated[
    str | None,
    typer.Option("--metadata", help="Base URL of a metadata service's internal listener; default: the one up here."),
]
KeyOption = Annotated[Path | None, typer.Option(help="Internal key; default: the state directory's.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("plan")(plan_command)
    cli.command("apply")(apply_command)
    cli.command("rollback")(rollback_command)
    cli.command("plans")(plans_command)


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
    asked = Asked(
        traffic=traffic or state.path / "traffic",
        window=window_of(window, begin, end),
        spark=spark,
        servers=None if servers is None else numbers_of_servers(servers),
        seed=seed,
        partitions=partitions,
        hot_budget=share(hot_budget, "--hot-budget"),
        movement=None if movement is None else share(movement, "--movement"),
        costs=costs,
    )
    from deploy.plans.planning import Planning  # noqa: PLC0415  # no other command needs what it imports

    planning = Planning(asked, Terminal(quiet=as_json), plain_console())

    async def look() -> tuple[System, Snapshot]:
        system, service = await _reached(state, metadata, key_file)
        snapshot = await service.snapshot()
        must_rest(snapshot)
        return system, snapshot

    system, snapshot = _done(look)
    planning.learn()
    made = planning.make(system, snapshot)
    file, submitted = None, False
    if made.pays or anyway:
        planning.write(file := out or state.path / "planned" / f"{made.plan.id}.json")
        if submit:
            _done(lambda: _submit(state, metadata, key_file, planning.encoded))
            submitted = True
    if as_json:
        typer.echo(json.dumps(planning.as_json(file, submitted=submitted)))
    else:
        planning.say(file, submitted=submitted)
    return lifecycle.EXIT_OK


def apply_command(
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN|FILE]", help="Name or file; default: the latest that fits.")
    ] = None,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    yes: YesOption = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Move endpoints to where a plan has them, and follow that; also one that is on its way already."""
    log.configure("error", "console")
    state, console = StateDir(state_dir), plain_console()
    file = read_plan(Path(plan)) if plan is not None and is_file(plan) else None

    async def look() -> tuple[Status, dict[str, Any]]:
        _, service = await _reached(state, metadata, key_file)
        found = await (handed_over(service, *file) if file is not None else to_apply(service, plan))
        return found, await service.report(found.id) if found.state == "ready" else {}

    found, report = _done(look)
    if found.state == APPLYING.done:
        console.print(f"{found.id} is applied already")
        return lifecycle.EXIT_OK
    if found.is_outdated:
        raise Outdated(found)
    if found.state == "ready":
        console.print(found.id)
        for each in shown.gains(report):
            console.print(each)
        _ask("Move these endpoints now?", yes=yes)
    # On its way it is only followed: the service says so to whoever begins it again.
    return _follow(state, metadata, key_file, found, APPLYING)


def rollback_command(
    plan: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="Default: the one that was applied last.")
    ] = None,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    yes: YesOption = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Move the endpoints of a plan back to where they were before it, also while it is being applied."""
    log.configure("error", "console")
    state, console = StateDir(state_dir), plain_console()

    async def look() -> Status:
        return await to_take_back((await _reached(state, metadata, key_file))[1], plan)

    found = _done(look)
    if found.state == ROLLING_BACK.done:
        console.print(f"{found.id} is rolled back already")
        return lifecycle.EXIT_OK
    if found.state not in ROLLING_BACK.doing:
        console.print(f"{found.id} is {shown.state(found)}: {shown.amount(found.moves, 'endpoint')} would move back")
        _ask("Move them back now?", yes=yes)
    return _follow(state, metadata, key_file, found, ROLLING_BACK)


def plans_command(
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """List the plans that were submitted, and how far each is."""
    log.configure("error", "console")

    async def look() -> list[Status]:
        return await (await _reached(StateDir(state_dir), metadata, key_file))[1].plans()

    found = _done(look)
    if as_json:
        typer.echo(json.dumps({"plans": [each._asdict() for each in found]}))
    elif found:
        plain_console().print(shown.plans_table(found))
    else:
        typer.echo("no plan was submitted yet: `diem plan` makes one")
    return lifecycle.EXIT_OK


def _follow(state: StateDir, metadata: str | None, key_file: Path | None, found: Status, way: Way) -> int:
    console, clock = plain_console(), SystemClock()

    async def follow() -> None:
        _, service = await _reached(state, metadata, key_file)
        started = clock.monotonic()
        try:
            begun = found
            if found.state not in way.doing:
                begun = await (service.apply if way is APPLYING else service.rollback)(found.id)
            with telling(console) as tell:
                ended = await Follower(service, way, tell, clock).follow(begun)
        except asyncio.CancelledError:
            console.print(
                f"{found.id} goes on without this command: `diem {way.command} {found.id}` shows how far it is",
                soft_wrap=True,
            )
            raise
        console.print(
            f"{ended.id} is {shown.state(ended)}, {shown.amount(ended.moves, 'endpoint')}, "
            f"after {clock.monotonic() - started:.0f} s",
            soft_wrap=True,
        )
        if way is APPLYING:
            console.print(f"next: diem status; back: diem rollback {ended.id}", soft_wrap=True)

    return attended(follow)


async def _submit(state: StateDir, metadata: str | None, key_file: Path | None, plan: bytes) -> Status:
    return await (await _reached(state, metadata, key_file))[1].submit(plan)


async def _reached(state: StateDir, url: str | None, key_file: Path | None) -> tuple[System, MetadataService]:
    system = await find(state, url)
    return system, metadata_service(system.metadata, SharedKey.load(key_file or state.internal_key_file))


def _done(work: Callable[[], Awaitable[T]]) -> T:
    """Return what a part of a command finds; ends the command when that fails or is interrupted."""
    found: list[T] = []

    async def keep() -> None:
        found.append(await work())

    code = attended(keep)
    if not found:
        # An end that was asked for is none of the work: what comes next in a script is not to go on.
        raise typer.Abort if code == lifecycle.EXIT_OK else typer.Exit(code)
    return found[0]


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask at: say --yes")
    typer.confirm(question, abort=True)
