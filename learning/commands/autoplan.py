"""The command ``diem autoplan``: plan and apply on a schedule, within a budget.

Reading order: the command, one round (pipeline, plan, apply), the journal of decisions, the subprocesses of a round.
"""

import asyncio
import fcntl
import importlib.util
import json
import math
import os
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Protocol

import typer

from deploy.cli.options import EXIT_NOTHING, StateDirOption, parse_share
from deploy.cli.times import parse_span
from deploy.system.launch import command, pdeathsig_command
from deploy.system.state_dir import BadStateDir, StateDir
from deploy.terminal import DEFAULT_STATE_DIR
from diem.errors import DiemError
from diem.process import lifecycle
from diem.process.lifecycle import Lifecycle
from learning.commands.spark_options import WarehouseOption, with_spark_options
from learning.jobs.spark_options import SparkSettings
from learning.jobs.warehouse import warehouse_at
from learning.planning.context import CapacityOption, KeyOption, MetadataOption
from learning.planning.render import percent
from learning.planning.traffic_input import MAX_WINDOWS, RELEVANT_MS, remove_old
from learning.statistics.constants import DAY_MS
from learning.statistics.model import duplicate_recorders_warning

DRAIN_S: Final = 30.0
"""Time for an interrupted command, with its JVM, to end."""
NAME: Final = "autoplan"
"""Name of the plan's file, replaced in each round, and of the statistics, with a number."""


def register(cli: typer.Typer) -> None:
    """Add the command."""
    cli.command("autoplan")(with_spark_options(autoplan_command))


def autoplan_command(
    *,
    settings: SparkSettings,
    state_dir: StateDirOption = DEFAULT_STATE_DIR,
    every: Annotated[str, typer.Option(help="How often to plan, such as 15m or 1h.")] = "1h",
    once: Annotated[bool, typer.Option("--once", help="Plan once and exit; the exit code is 1 if that fails.")] = False,
    window: Annotated[
        str,
        typer.Option(
            help="How much recent traffic to learn from, such as 1h. Nothing is planned if the traffic ended longer "
            "ago than that."
        ),
    ] = "1h",
    movement: Annotated[str, typer.Option(help="Share of the subscriptions that one plan may move.")] = "5%",
    servers: Annotated[
        str | None, typer.Option(help="Numbers of servers to plan for, such as 2,4,8. Default: the current number.")
    ] = None,
    hot_budget: Annotated[str, typer.Option(help="Extra load that hot endpoints may cause.")] = "0.5%",
    costs: Annotated[
        Path | None, typer.Option(help="Output file of `make bench-cost`. Default: built-in figures.")
    ] = None,
    capacity: CapacityOption = None,
    traffic: Annotated[
        Path | None, typer.Option(help="Recorded traffic. Default: that of the state directory.")
    ] = None,
    warehouse: WarehouseOption = None,
    spark: Annotated[
        bool | None,
        typer.Option(
            "--spark/--no-spark",
            help="Run the Spark pipeline, or read the files directly. Default: the pipeline if Spark is installed.",
        ),
    ] = None,
    keep_days: Annotated[
        int,
        typer.Option(
            min=0,
            help="Without Spark: days to keep files after they have been read. Files still needed are kept longer.",
        ),
    ] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be applied, and apply nothing.")] = False,
    metadata: MetadataOption = None,
    key_file: KeyOption = None,
) -> int:
    """Plan from recorded traffic on a schedule, apply the plans that pay off, and print each decision.

    Each plan stays within a budget of moves.
    """
    state, period = StateDir(state_dir), parse_span(every) / 1000
    for text, option in ((movement, "--movement"), (hot_budget, "--hot-budget")):
        parse_share(text, option)
    length = parse_span(window)
    kept = (1 + MAX_WINDOWS) * math.ceil(length / (1000 * period)) + 1
    where = ["--state-dir", str(state.path), *_given("--metadata", metadata), *_given("--key-file", key_file)]
    journal, life, failed = Journal(state.path, typer.echo), Lifecycle(DRAIN_S), False

    def policy() -> Policy:
        pipeline, learning = learning_of(
            state,
            window,
            traffic,
            spark=spark,
            warehouse=warehouse,
            settings=settings,
            number=int(time.time() / period) % kept,
        )
        return Policy(
            where=where,
            pipeline=pipeline,
            plan=[
                *("--movement", movement, "--hot-budget", hot_budget),
                *("--out", str(state.path / "planned" / f"{NAME}.json")),
                *_given("--servers", servers),
                *_given("--costs", costs),
                *_given("--capacity", capacity),
                *learning,
            ],
            dry_run=dry_run,
        )

    async def rounds() -> None:
        nonlocal failed
        commands = SubprocessRunner(life.stopping)
        while not life.stopping.is_set():
            started = time.monotonic()
            try:
                decision = await run_round(commands, now := policy(), journal.last())
            except Interrupted:
                return
            elapsed_s = time.monotonic() - started
            journal.record(decision, elapsed_s)
            failed = decision.what == FAILED
            if not failed and now.pipeline is None and traffic is None:
                # A pipeline removes what it has read. A window may be as old as its length.
                needed = (2 + MAX_WINDOWS) * length + RELEVANT_MS
                remove_old(state.path / "traffic" / "in", max(keep_days * DAY_MS, needed))
            if once:
                return
            await life.pause(max(0.0, period - elapsed_s))

    with journal.lock():
        code = lifecycle.serve(life, rounds)
    return lifecycle.EXIT_FAILED if code == lifecycle.EXIT_OK and once and failed else code


def learning_of(
    state: StateDir,
    window: str,
    traffic: Path | None,
    *,
    spark: bool | None,
    warehouse: Path | None = None,
    settings: SparkSettings | None = None,
    number: int = 0,
) -> tuple[list[str] | None, list[str]]:
    """Return the options of ``diem pipeline run`` (None without Spark), and the options of ``diem plan`` for its input.

    The input has the window's length in every round. Its statistics have a ``number``, so that those of earlier rounds,
    which the plan is learnt from, stay until it comes again.
    """
    given = [] if settings is None else settings.arguments()
    with_spark = importlib.util.find_spec("pyspark") is not None if spark is None else spark
    if with_spark and traffic is None:
        name = f"{NAME}-{number}"
        statistics = warehouse_at(warehouse, state.path / "traffic").statistics / name
        where = ["--state-dir", str(state.path), *_given("--warehouse", warehouse)]
        return (
            [*where, "--window", window, "--name", name, *given],
            ["--traffic", str(statistics), *given],
        )
    how = [] if with_spark and spark is None else ["--spark" if with_spark else "--no-spark"]
    tables = [*_given("--traffic", traffic), *_given("--warehouse", warehouse)]
    return None, [*tables, "--window", window, *how, *given]


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


APPLIED: Final = "applied"
WOULD_APPLY: Final = "would apply"
NOTHING: Final = "nothing"
WAITING: Final = "waiting"
"""The load is uneven in the only window: a plan is applied if it balances the next one, too."""
FAILED: Final = "failed"
COMPARE_EVERY: Final = timedelta(days=1)
"""Time for which a sufficient budget of moves counts as sufficient."""
RECENT: Final = timedelta(minutes=10)
"""Traffic of at most this age is recent, even if its window is shorter."""


class CommandResult(NamedTuple):
    """Exit code and output of a command of ``diem``."""

    code: int
    out: str
    err: str


class CommandRunner(Protocol):
    """Runs a command of ``diem`` to its end."""

    async def __call__(self, *arguments: str) -> CommandResult:
        """Run the command with these arguments."""


class StepFailed(DiemError):
    """A command failed; the text is its last line of output."""


class NoNewTraffic(StepFailed):
    """A command found no traffic, or no clients in its window."""


class Decision(NamedTuple):
    """One decision, with its reason."""

    what: str
    """One of the constants of this module."""
    why: str
    plan: str | None = None
    figures: dict[str, Any] | None = None

    def line(self) -> str:
        """Return the decision in one line, for people."""
        named = f" {self.plan}" if self.plan else ""
        return f"{self.what}{named}: {self.why}{_format_figures(self.figures)}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Options of every round."""

    where: Sequence[str]
    """Options of all commands for selecting the system."""
    pipeline: Sequence[str] | None
    """Options of ``diem pipeline run``; None without Spark: files are read instead."""
    plan: Sequence[str]
    """Options of ``diem plan``."""
    dry_run: bool = False


async def run_round(run: CommandRunner, policy: Policy, last: Mapping[str, Any] | None = None) -> Decision:
    """Run one round. A failure is a decision, too: the next round retries.

    ``last`` is the previous round's entry in the journal. A plan that only balances the load is applied if it was made
    from earlier windows: an imbalance in one window may be over in the next.
    """
    try:
        if policy.pipeline is not None:
            await _run_step(run, "pipeline", "run", *policy.pipeline)
        # ``diem apply`` submits it.
        compare = [] if needs_comparison(last, datetime.now(UTC)) else ["--no-compare"]
        options = ("--json", "--no-submit", *compare, *policy.plan, *policy.where)
        planned = _parse_json(await _run_step(run, "plan", *options))
        decision = decide(planned, last, dry_run=policy.dry_run)
        if decision.what == APPLIED:
            await _run_step(run, "apply", planned["file"], "--yes", *policy.where)
    except NoNewTraffic as error:
        return Decision(NOTHING, str(error))
    except StepFailed as error:
        return Decision(FAILED, str(error))
    return decision


def decide(planned: dict[str, Any], last: Mapping[str, Any] | None, *, dry_run: bool) -> Decision:
    """Decide by the output of ``diem plan --json``."""
    why, name, figures, window = str(planned["why"]), planned["plan"], select_figures(planned), planned["window"]
    if (compared_at := last_comparison(planned, last)) is not None:
        figures["compared_at"] = compared_at
    if is_old(window, datetime.now(UTC)):
        return Decision(NOTHING, f"no traffic was recorded after {window['to']}", None, figures)
    obstacle = figures.get("obstacle")
    held_back = f"; {obstacle['text']}" if obstacle else ""
    if not planned["pays"]:
        return Decision(NOTHING, f"{why}{held_back}", None, figures)
    if planned["report"]["balances"] and not planned["report"].get("windows"):
        # Made from earlier windows it balances this one, too.
        return Decision(WAITING, f"{why}; to be confirmed by the next window{held_back}", None, figures)
    return Decision(WOULD_APPLY if dry_run else APPLIED, f"{why}{held_back}", name, figures)


def last_comparison(planned: Mapping[str, Any], last: Mapping[str, Any] | None) -> str | None:
    """Return the time of the last comparison of a plan with one without a budget of moves; None: never."""
    if planned["report"].get("compared"):
        return datetime.now(UTC).isoformat()
    found: str | None = ((last or {}).get("figures") or {}).get("compared_at")
    return found


def needs_comparison(last: Mapping[str, Any] | None, now: datetime) -> bool:
    """Return whether to compare a plan that does not pay with one without a budget of moves.

    That takes ten times the plan's CPU time. A budget that was sufficient counts as such for a day.
    """
    figures = (last or {}).get("figures") or {}
    compared_at = figures.get("compared_at")
    if compared_at is None or "obstacle" in figures:
        return True
    # A time ahead is that of a clock that was wrong.
    return not timedelta(0) <= now - datetime.fromisoformat(compared_at) < COMPARE_EVERY


def is_old(window: Mapping[str, str], now: datetime) -> bool:
    """Return whether a window (``from``, ``to``, ISO 8601) ended longer ago than its length, and than ``RECENT``.

    A window ends with the last event, and a server with clients records events every minute: since then there were no
    clients, or recording is off.
    """
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    return now - end > max(end - start, RECENT)


async def _run_step(run: CommandRunner, *arguments: str) -> str:
    ran = await run(*arguments)
    if ran.code != 0:
        # The last line of a failed command is the reason.
        lines = [line.removeprefix("diem: ") for line in ran.err.splitlines() if line.strip()]
        failed = NoNewTraffic if ran.code == EXIT_NOTHING else StepFailed
        raise failed(f"diem {arguments[0]}: {lines[-1] if lines else f'exit {ran.code}'}")
    return ran.out


def _parse_json(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1] if lines else "")
    except ValueError:
        raise StepFailed("diem plan: its output is not JSON") from None
    return found


def select_figures(planned: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of ``diem plan --json`` to record with a decision."""
    report = planned["report"]
    return {
        "window": planned["window"],
        "servers": {
            count: {
                name: {key: own[name][key] for key in ("fan_out", "connections", "max_over_mean_load")}
                for name in ("current", "plan")
            }
            for count, own in report["servers"].items()
        },
        "subscriptions_moved": report["moves"]["subscriptions"],
        "endpoints_moved": report["moves"]["endpoints"],
        "saves_us_per_s": report["saves_us_per_s"],
        "twins": planned["twins"],
        **({"obstacle": found} if (found := report.get("obstacle")) else {}),
        **({"cheaper_mode": cheaper} if (cheaper := report.get("cheaper_mode")) else {}),
    }


def _format_figures(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return ""
    parts = []
    for count, own in figures["servers"].items():
        now, then = own["current"], own["plan"]
        parts.append(
            f"S = {count}: fan-out {now['fan_out']:.2f} -> {then['fan_out']:.2f}, "
            f"load {now['max_over_mean_load']:.3f} -> {then['max_over_mean_load']:.3f}"
        )
    duplicates = f"; {duplicate_recorders_warning(figures['twins'])}" if figures["twins"] else ""
    cheaper = f"; {figures['cheaper_mode']}" if "cheaper_mode" in figures else ""
    return f" ({'; '.join(parts)}; {percent(figures['subscriptions_moved'])} of the subscriptions{duplicates}{cheaper})"


MAX_ENTRY_BYTES: Final = 1 << 20
"""Bytes read from the end of the log to find its last entry."""


class Journal:
    """The log of decisions (one JSON object a line) and the lock of the loop, in a state directory."""

    def __init__(self, folder: Path, echo: Callable[[str], None]) -> None:
        self.file = folder / "autoplan.jsonl"
        self._lock_file = folder / "autoplan.lock"
        self._echo = echo

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock; it is released when this process ends in any way.

        Raises:
            DiemError: another one holds it.
            BadStateDir: it cannot be written.
        """
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = self._lock_file.open("w")
        except OSError as error:
            raise BadStateDir(self.file.parent, error.strerror or str(error)) from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DiemError(f"another `diem autoplan` runs here (it holds {self._lock_file})") from None
            yield

    def last(self) -> dict[str, Any] | None:
        """Return the last entry; None without a readable one."""
        try:
            with self.file.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - MAX_ENTRY_BYTES))
                entry = json.loads(file.read().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            return None
        return entry if isinstance(entry, dict) else None

    def record(self, decision: Decision, seconds: float) -> None:
        """Print a decision and append it to the file; a failure to write is printed and does not end the loop."""
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._echo(f"{at}  {decision.line()}")
        entry = {"at": at, **decision._asdict(), "seconds": round(seconds, 1)}
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            self._echo(f"{self.file} was not written: {error.strerror or error}")


TERMINATE_TIMEOUT_S: Final = 20.0
"""Time for an interrupted command and its JVM to end."""


class Interrupted(Exception):  # not an error
    """The loop was stopped while a command ran."""


class SubprocessRunner:
    """Runs one command at a time, until ``stopping`` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    async def __call__(self, *arguments: str) -> CommandResult:
        """Run a command to its end. Raises ``Interrupted`` when stopping, after sending it SIGINT."""
        # In its own session: Ctrl-C at a terminal reaches only this process, which forwards it once.
        child = await asyncio.create_subprocess_exec(
            *pdeathsig_command((*command(), *arguments)),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        done = asyncio.ensure_future(child.communicate())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({done, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                await _terminate(child, done)
                raise Interrupted
        finally:
            stop.cancel()
        out, err = done.result()
        return CommandResult(child.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))


async def _terminate(child: asyncio.subprocess.Process, done: "asyncio.Future[tuple[bytes, bytes]]") -> None:
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    await asyncio.wait({done}, timeout=TERMINATE_TIMEOUT_S)
    if not done.done():
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    await done
