"""The closed loop: learns, plans within a budget, and applies what pays; one decision at a time, each written down."""

import asyncio
import fcntl
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from deploy.plans.shown import percent
from deploy.statedir import BadStateDir
from diem.errors import DiemError

APPLIED: Final = "applied"
WOULD_APPLY: Final = "would apply"
NOTHING: Final = "nothing"
FAILED: Final = "failed"
SOON: Final = timedelta(minutes=10)
"""What is learnt from may be this old in any case."""


class Ran(NamedTuple):
    """How a command of `diem` ended."""

    code: int
    out: str
    err: str


class Run(Protocol):
    """Runs a command of `diem` to its end."""

    async def __call__(self, *arguments: str) -> Ran:
        """Run it with these arguments."""


class AlreadyPlanning(DiemError):
    """Another `diem autoplan` runs for the same state directory."""

    def __init__(self, lock: Path) -> None:
        self.lock = lock
        super().__init__(lock)

    def __str__(self) -> str:
        return f"another `diem autoplan` runs here (it holds {self.lock})"


class StepFailed(DiemError):
    """A command did not do it; the text is what it said."""


class Decision(NamedTuple):
    """What was done, and why."""

    what: str
    """One of the constants of this module."""
    why: str
    plan: str | None = None
    figures: dict[str, Any] | None = None

    def line(self) -> str:
        """Return it in one line, for people."""
        named = f" {self.plan}" if self.plan else ""
        return f"{self.what}{named}: {self.why}{_figures(self.figures)}"


@dataclass(frozen=True, slots=True)
class Policy:
    """What every round does."""

    where: Sequence[str]
    """Options of all commands: which system."""
    pipeline: Sequence[str] | None
    """Options of `diem pipeline run`; None: there is no Spark, files are read instead."""
    plan: Sequence[str]
    """Options of `diem plan`."""
    dry_run: bool = False


async def decide(run: Run, policy: Policy) -> Decision:
    """Go through one round. What fails is a decision, too: the next round tries again."""
    try:
        if policy.pipeline is not None:
            await _step(run, "pipeline", "run", *policy.pipeline)
        # It is handed over with the command to apply it.
        planned = _object(await _step(run, "plan", "--json", "--no-submit", *policy.plan, *policy.where))
        why, name, figures = str(planned["why"]), planned["plan"], figures_of(planned)
        if is_old(window := planned["window"], datetime.now(UTC)):
            return Decision(NOTHING, f"no traffic was recorded after {window['to']}", None, figures)
        if not planned["pays"]:
            return Decision(NOTHING, why, None, figures)
        if policy.dry_run:
            return Decision(WOULD_APPLY, why, name, figures)
        await _step(run, "apply", planned["file"], "--yes", *policy.where)
        return Decision(APPLIED, why, name, figures)
    except StepFailed as error:
        return Decision(FAILED, str(error))


def is_old(window: Mapping[str, str], now: datetime) -> bool:
    """Whether a window (`from`, `to`, ISO 8601) ended longer ago than it lasted, and than recording and planning take.

    It ends with the last event, and servers record something every minute: since then nothing is recorded.
    """
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    return now - end > max(end - start, SOON)


async def _step(run: Run, *arguments: str) -> str:
    ran = await run(*arguments)
    if ran.code != 0:
        # A command says in its last line why it ends.
        said = [line.removeprefix("diem: ") for line in ran.err.splitlines() if line.strip()]
        raise StepFailed(f"diem {arguments[0]}: {said[-1] if said else f'exit {ran.code}'}")
    return ran.out


def _object(text: str) -> dict[str, Any]:
    lines = text.strip().splitlines()
    try:
        found: dict[str, Any] = json.loads(lines[-1] if lines else "")
    except ValueError:
        raise StepFailed("diem plan: it gave no JSON") from None
    return found


def figures_of(planned: dict[str, Any]) -> dict[str, Any]:
    """Return what a decision was made by: a few figures of what `diem plan --json` says."""
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
    }


def _figures(figures: dict[str, Any] | None) -> str:
    if figures is None:
        return ""
    parts = []
    for count, own in figures["servers"].items():
        now, then = own["current"], own["plan"]
        parts.append(
            f"S = {count}: fan-out {now['fan_out']:.2f} -> {then['fan_out']:.2f}, "
            f"load {now['max_over_mean_load']:.3f} -> {then['max_over_mean_load']:.3f}"
        )
    return f" ({'; '.join(parts)}; {percent(figures['subscriptions_moved'])} of the subscriptions)"


class Journal:
    """The decisions, one JSON object a line, and who may make them. `folder` is a state directory."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.file = folder / "autoplan.jsonl"
        self._lock = folder / "autoplan.lock"
        self._say = say

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder against others; it is free again when this process ends in any way.

        Raises:
            AlreadyPlanning: another one holds it.
            BadStateDir: it cannot be written.
        """
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = self._lock.open("w")
        except OSError as error:
            raise BadStateDir(self.file.parent, error.strerror or str(error)) from error
        with opened as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyPlanning(self._lock) from None
            yield

    def note(self, decision: Decision, seconds: float) -> None:
        """Say a decision, and write it down; that this cannot be done is said, and no reason to end."""
        at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._say(f"{at}  {decision.line()}")
        entry = {"at": at, **decision._asdict(), "seconds": round(seconds, 1)}
        try:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")
        except OSError as error:
            self._say(f"{self.file} was not written: {error.strerror or error}")


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, or until it is to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
