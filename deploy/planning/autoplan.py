"""The loop of ``diem autoplan``: run the pipeline, plan within a budget, apply what pays, and record each decision."""

import asyncio
import fcntl
import json
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from deploy.cli.options import EXIT_NOTHING
from deploy.planning.render import percent
from deploy.system.launch import command, pdeathsig_command
from deploy.system.state_dir import BadStateDir
from diem.errors import DiemError
from metadata.statistics.model import duplicate_recorders_warning

APPLIED: Final = "applied"
WOULD_APPLY: Final = "would apply"
NOTHING: Final = "nothing"
FAILED: Final = "failed"
RECENT: Final = timedelta(minutes=10)
"""Traffic of at most this age is recent, however short its window is."""


class CommandResult(NamedTuple):
    """Exit code and output of a command of `diem`."""

    code: int
    out: str
    err: str


class CommandRunner(Protocol):
    """Runs a command of `diem` to its end."""

    async def __call__(self, *arguments: str) -> CommandResult:
        """Run it with these arguments."""


class StepFailed(DiemError):
    """A command failed; the text is its last line."""


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
        """Return it in one line, for people."""
        named = f" {self.plan}" if self.plan else ""
        return f"{self.what}{named}: {self.why}{_format_figures(self.figures)}"


@dataclass(frozen=True, slots=True)
class Policy:
    """Options of every round."""

    where: Sequence[str]
    """Options of all commands: which system."""
    pipeline: Sequence[str] | None
    """Options of `diem pipeline run`; None: there is no Spark, files are read instead."""
    plan: Sequence[str]
    """Options of `diem plan`."""
    dry_run: bool = False


async def run_round(run: CommandRunner, policy: Policy) -> Decision:
    """Go through one round. What fails is a decision, too: the next round tries again."""
    try:
        if policy.pipeline is not None:
            await _run_step(run, "pipeline", "run", *policy.pipeline)
        # It is handed over with the command to apply it.
        planned = _parse_json(await _run_step(run, "plan", "--json", "--no-submit", *policy.plan, *policy.where))
        why, name, figures = str(planned["why"]), planned["plan"], select_figures(planned)
        if is_old(window := planned["window"], datetime.now(UTC)):
            return Decision(NOTHING, f"no traffic was recorded after {window['to']}", None, figures)
        if not planned["pays"]:
            return Decision(NOTHING, why, None, figures)
        if policy.dry_run:
            return Decision(WOULD_APPLY, why, name, figures)
        await _run_step(run, "apply", planned["file"], "--yes", *policy.where)
        return Decision(APPLIED, why, name, figures)
    except NoNewTraffic as error:
        return Decision(NOTHING, str(error))
    except StepFailed as error:
        return Decision(FAILED, str(error))


def is_old(window: Mapping[str, str], now: datetime) -> bool:
    """Return whether a window (`from`, `to`, ISO 8601) ended longer ago than its length, and than `RECENT`.

    It ends with the last event, and a server that has clients records something every minute: since then there were
    none, or nothing is recorded.
    """
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    return now - end > max(end - start, RECENT)


async def _run_step(run: CommandRunner, *arguments: str) -> str:
    ran = await run(*arguments)
    if ran.code != 0:
        # A command says in its last line why it ends.
        lines = [line.removeprefix("diem: ") for line in ran.err.splitlines() if line.strip()]
        failed = NoNewTraffic if ran.code == EXIT_NOTHING else StepFailed
        raise failed(f"diem {arguments[0]}: {lines[-1] if lines else f'exit {ran.code}'}")
    return ran.out


def _parse_json(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1] if lines else "")
    except ValueError:
        raise StepFailed("diem plan: it gave no JSON") from None
    return found


def select_figures(planned: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of `diem plan --json` that a decision is recorded with."""
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
    return f" ({'; '.join(parts)}; {percent(figures['subscriptions_moved'])} of the subscriptions{duplicates})"


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait for a time, or until `stopping` is set."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return


@dataclass(eq=False)
class AlreadyPlanning(DiemError):
    """Another `diem autoplan` runs for the same state directory."""

    template = "another `diem autoplan` runs here (it holds {lock})"

    lock: Path


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
            AlreadyPlanning: another one holds it.
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
                raise AlreadyPlanning(self._lock_file) from None
            yield

    def record(self, decision: Decision, seconds: float) -> None:
        """Print a decision and append it to the file; a failure to write is printed, too, and does not end the loop."""
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._echo(f"{at}  {decision.line()}")
        entry = {"at": at, **decision._asdict(), "seconds": round(seconds, 1)}
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            self._echo(f"{self.file} was not written: {error.strerror or error}")


TERMINATE_TIMEOUT_S: Final = 20.0
"""For an interrupted command and its JVM."""


class Interrupted(Exception):  # it is no error
    """The loop was stopped while a command ran."""


class SubprocessRunner:
    """Runs one command at a time, until `stopping` is set."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping

    async def __call__(self, *arguments: str) -> CommandResult:
        """Run a command to its end. Raises `Interrupted`: it was to stop, and was interrupted as by Ctrl-C."""
        # A session of its own: Ctrl-C at a terminal reaches this process alone, which passes it on, once.
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
