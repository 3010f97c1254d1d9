"""The commands of `diem` for plans that are there: `apply`, `rollback` and `plans`."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from deploy.cli.options import StateDirOption, run_interactive
from deploy.clients.metadata import PlanStatus
from deploy.planning import render
from deploy.planning.apply import (
    APPLYING,
    ROLLING_BACK,
    MigrationKind,
    MigrationMonitor,
    PlanOutdated,
    names_file,
    read_plan,
    select_to_apply,
    select_to_roll_back,
    submit_once,
)
from deploy.planning.context import KeyOption, MetadataOption, connect, run_step
from deploy.planning.render import progress_line
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, amount, plain_console
from diem.errors import ConfigurationError
from diem.process import lifecycle, log
from diem.process.clock import SystemClock

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("apply")(apply_command)
    cli.command("rollback")(rollback_command)
    cli.command("plans")(plans_command)


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
    """Move endpoints to where a plan has them, and follow that; also one that is on its kind already."""
    log.configure("error", "console")
    state, console = StateDir(state_dir), plain_console()
    file = read_plan(Path(plan)) if plan is not None and names_file(plan) else None

    async def fetch() -> tuple[PlanStatus, dict[str, Any]]:
        _, service = await connect(state, metadata, key_file)
        found = await (submit_once(service, *file) if file is not None else select_to_apply(service, plan))
        return found, await service.report(found.id) if found.state == "ready" else {}

    found, report = run_step(fetch)
    if found.state == APPLYING.final:
        console.print(f"{found.id} is applied already")
        return lifecycle.EXIT_OK
    if found.is_outdated:
        raise PlanOutdated(found)
    if found.state == "ready":
        console.print(found.id)
        for each in render.forecast(report):
            console.print(each)
        _ask("Move these endpoints now?", yes=yes)
    # On its kind it is only followed: the service says so to whoever begins it again.
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

    async def fetch() -> PlanStatus:
        return await select_to_roll_back((await connect(state, metadata, key_file))[1], plan)

    found = run_step(fetch)
    if found.state == ROLLING_BACK.final:
        console.print(f"{found.id} is rolled back already")
        return lifecycle.EXIT_OK
    if found.state not in ROLLING_BACK.in_progress:
        console.print(f"{found.id} is {render.format_state(found)}: {amount(found.moves, 'endpoint')} would move back")
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

    async def fetch() -> list[PlanStatus]:
        return await (await connect(StateDir(state_dir), metadata, key_file))[1].plans()

    found = run_step(fetch)
    if as_json:
        typer.echo(json.dumps({"plans": [each._asdict() for each in found]}))
    elif found:
        plain_console().print(render.plans_table(found))
    else:
        typer.echo("no plan was submitted yet: `diem plan` makes one")
    return lifecycle.EXIT_OK


def _follow(
    state: StateDir, metadata: str | None, key_file: Path | None, found: PlanStatus, kind: MigrationKind
) -> int:
    console, clock = plain_console(), SystemClock()

    async def follow() -> None:
        _, service = await connect(state, metadata, key_file)
        started = clock.monotonic()
        try:
            begun = found
            if found.state not in kind.in_progress:
                begun = await (service.apply if kind is APPLYING else service.rollback)(found.id)
            with progress_line(console) as show:
                ended = await MigrationMonitor(service, kind, show, clock).wait(begun)
        except asyncio.CancelledError:
            console.print(
                f"{found.id} goes on without this command: `diem {kind.command} {found.id}` shows how far it is",
                soft_wrap=True,
            )
            raise
        console.print(
            f"{ended.id} is {render.format_state(ended)}, {amount(ended.moves, 'endpoint')}, "
            f"after {clock.monotonic() - started:.0f} s",
            soft_wrap=True,
        )
        if kind is APPLYING:
            console.print(f"next: diem status; back: diem rollback {ended.id}", soft_wrap=True)

    return run_interactive(follow)


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError("there is no terminal to ask at: say --yes")
    typer.confirm(question, abort=True)
