"""The commands of ``diem`` for existing plans: ``apply``, ``rollback`` and ``plans``.

Reading order: the commands, the selection of a plan, the monitor of its migration.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from deploy.cli.options import StateDirOption, UnusableFile, run_interactive
from deploy.clients.data_service import ServiceRefused
from deploy.clients.metadata import (
    APPLYING_STATES,
    ROLLING_BACK_STATES,
    MetadataService,
    MetadataUnavailable,
    PlanStatus,
)
from deploy.invocation import diem_command
from deploy.system.state_dir import StateDir
from deploy.terminal import DEFAULT_STATE_DIR, amount, plain_console
from diem.errors import ConfigurationError, DiemError
from diem.process import lifecycle
from diem.process.clock import Clock, SystemClock
from learning.planning import render
from learning.planning.context import KeyOption, MetadataOption, connect, run_step
from learning.planning.render import progress_line
from metadata.plans.plan import BadPlan, decode

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


class MigrationKind(NamedTuple):
    """A direction of migration, with the plan's states during and after it."""

    command: str
    """The command that shows its progress."""
    in_progress: frozenset[str]
    final: str


APPLYING: Final = MigrationKind("apply", APPLYING_STATES, "applied")
ROLLING_BACK: Final = MigrationKind("rollback", ROLLING_BACK_STATES, "rolled_back")


def register(cli: typer.Typer) -> None:
    """Add the commands."""
    cli.command("apply")(apply_command)
    cli.command("rollback")(rollback_command)
    cli.command("plans")(plans_command)


def apply_command(
    plan: Annotated[
        str | None,
        typer.Argument(
            metavar="PLAN|FILE", help="Name or file of the plan. Default: the latest that fits the current map."
        ),
    ] = None,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    yes: YesOption = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Apply a plan: move its endpoints, and show the progress. Also shows the progress of a plan already started."""
    state, console = StateDir(state_dir), plain_console()
    file = read_plan(Path(plan)) if plan is not None and names_file(plan) else None

    async def fetch() -> tuple[PlanStatus, dict[str, Any]]:
        _, service = await connect(state, metadata, key_file)
        found = await (submit_once(service, *file) if file is not None else select_to_apply(service, plan))
        return found, await service.report(found.id) if found.state == "ready" else {}

    found, report = run_step(fetch)
    if found.state == APPLYING.final:
        console.print(f"{found.id} has already been applied")
        return lifecycle.EXIT_OK
    if found.is_outdated:
        raise DiemError(
            f"{found.id} is outdated: it was made for epoch {found.epoch_of_plan} of the map, which is now at "
            f"{found.epoch}. Make another one: `diem plan`"
        )
    if found.state == "ready":
        console.print(found.id)
        for each in render.forecast(report):
            console.print(each)
        _ask("Move these endpoints now?", yes=yes)
    # A migration in progress is only monitored: the service rejects a second start.
    return _follow(state, metadata, key_file, found, APPLYING)


def rollback_command(
    plan: Annotated[
        str | None, typer.Argument(metavar="PLAN", help="Name of the plan. Default: the one applied last.")
    ] = None,
    *,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    yes: YesOption = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Undo a plan: move its endpoints back to where they were. Also works while it is being applied."""
    state, console = StateDir(state_dir), plain_console()

    async def fetch() -> PlanStatus:
        return await select_to_roll_back((await connect(state, metadata, key_file))[1], plan)

    found = run_step(fetch)
    if found.state == ROLLING_BACK.final:
        console.print(f"{found.id} has already been rolled back")
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
    """List the submitted plans, with the progress of each."""

    async def fetch() -> list[PlanStatus]:
        return await (await connect(StateDir(state_dir), metadata, key_file))[1].plans()

    found = run_step(fetch)
    if as_json:
        typer.echo(json.dumps({"plans": [each._asdict() for each in found]}))
    elif found:
        plain_console().print(render.plans_table(found))
    else:
        typer.echo(f"no plan has been submitted yet: run {diem_command('plan')}")
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
                f"{found.id} continues without this command; its progress: {diem_command(kind.command, found.id)}",
                soft_wrap=True,
            )
            raise
        console.print(
            f"{ended.id} is {render.format_state(ended)}, {amount(ended.moves, 'endpoint')}, "
            f"after {clock.monotonic() - started:.0f} s",
            soft_wrap=True,
        )
        if kind is APPLYING:
            console.print(f"next: {diem_command('status')}\nback: {diem_command('rollback', ended.id)}", soft_wrap=True)

    return run_interactive(follow)


def _ask(question: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError("this needs confirmation, and there is no terminal: add --yes")
    typer.confirm(question, abort=True)


def names_file(plan: str) -> bool:
    """Return whether the argument is a file, possibly missing, rather than the name of a plan."""
    return Path(plan).is_file() or "/" in plan or plan.endswith(".json")


def read_plan(file: Path) -> tuple[str, bytes]:
    """Return the name and the content of the plan in a file. Raises ``UnusableFile``."""
    try:
        content = file.read_bytes()
        return decode(content).id, content
    except OSError as error:
        raise UnusableFile(file, error.strerror or str(error)) from error
    except BadPlan as error:
        raise UnusableFile(file, str(error)) from error


async def submit_once(service: MetadataService, name: str, content: bytes) -> PlanStatus:
    """Return the status of a plan, submitting it if missing in the service.

    Raises:
        MetadataUnavailable: no service answers.
        ServiceRefused: the service rejects it.
    """
    try:
        return await service.plan(name)
    except ServiceRefused as error:
        if error.status != 404:
            raise
    return await service.submit(content)


async def select_to_apply(service: MetadataService, name: str | None) -> PlanStatus:
    """Return the named plan; without a name the current one, else the latest applicable one.

    Raises:
        DiemError: there is none.
        MetadataUnavailable: no service answers.
        ServiceRefused: there is none of that name.
    """
    if name is not None:
        return await service.plan(name)
    found = await service.plans()
    for plan in found:
        if plan.state in APPLYING.in_progress:
            return plan
    for plan in reversed(found):
        if plan.state == "ready" and not plan.is_outdated:
            return plan
    raise DiemError("no plan fits the current map: make one with `diem plan`")


async def select_to_roll_back(service: MetadataService, name: str | None) -> PlanStatus:
    """Return the plan in progress or applied last, checking its name if given.

    Raises:
        DiemError: none was applied, or another one.
        MetadataUnavailable: no service answers.
        ServiceRefused: there is none of that name.
    """
    applied = APPLYING.in_progress | ROLLING_BACK.in_progress | {APPLYING.final, ROLLING_BACK.final}
    if name is None:
        last = next((plan for plan in reversed(await service.plans()) if plan.state in applied), None)
        if last is None:
            raise DiemError("nothing to roll back: no plan has been applied")
        return last
    plan = await service.plan(name)
    if plan.state not in applied:
        raise DiemError(f"{name} cannot be rolled back: it is not the plan applied last")
    return plan


POLL_INTERVAL_S: Final = 0.5
GIVE_UP_AFTER_S: Final = 600.0
"""Longest time without an answer. The migration itself continues when the service is back."""

ShowProgress = Callable[[str, str], None]
"""Called with a key and a text; a text is new if its key differs from the previous one."""


class MigrationMonitor:
    """Polls the status of one plan until its migration ends, across restarts of the metadata service."""

    def __init__(self, service: MetadataService, kind: MigrationKind, show: ShowProgress, clock: Clock) -> None:
        self._service = service
        self._kind = kind
        self._show = show
        self._clock = clock
        self._started_at = self._answered_at = clock.monotonic()

    async def wait(self, begun: PlanStatus) -> PlanStatus:
        """Return the final status; ``begun`` is the status when the migration began.

        Raises:
            DiemError: another command has changed its course.
            MetadataUnavailable: no answer for ``GIVE_UP_AFTER_S``; the migration continues when the service is back.
            ServiceRefused: the service does not know the plan.
        """
        plan: PlanStatus | None = begun
        while plan is None or not self._is_over(plan, begun.epoch or 0):
            await asyncio.sleep(POLL_INTERVAL_S)
            plan = await self._poll(begun.id)
        return plan

    async def _poll(self, name: str) -> PlanStatus | None:
        try:
            plan = await self._service.plan(name)
        except MetadataUnavailable as error:
            silent = self._clock.monotonic() - self._answered_at
            if silent > GIVE_UP_AFTER_S:
                raise MetadataUnavailable(
                    f"{error.reason}, for {silent:.0f} s now; the migration continues when it is back"
                ) from error
            self._show("away", f"{error}; continuing when it is back ({silent:.0f} s)")
            return None
        self._answered_at = self._clock.monotonic()
        return plan

    def _is_over(self, plan: PlanStatus, epoch: int) -> bool:
        if plan.state == self._kind.final:
            return True
        if plan.state in self._kind.in_progress:
            text = _describe(plan)
            self._show(re.sub(r"\d+", "", text), f"{text} ({self._clock.monotonic() - self._started_at:.0f} s)")
        # A migration appears in the map at a later epoch; until then, the plan has its previous state.
        elif plan.phase is not None and (plan.epoch or 0) > epoch:
            now = plan.state.replace("_", " ")
            raise DiemError(f"another command intervened: {plan.id} is {now} at epoch {plan.epoch}")
        return False


def _describe(plan: PlanStatus) -> str:
    endpoints = amount(plan.moves, "endpoint")
    waits = f"; waiting for {plan.waiting_for}" if plan.waiting_for else ""
    back = "back: " if plan.state == "rolling_back" else ""
    return f"{back}{plan.phase or plan.state}, {endpoints}{waits}"
