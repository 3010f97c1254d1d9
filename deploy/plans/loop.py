"""The closed loop: learns, plans within a budget, and applies what pays; one decision at a time, each written down."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple, Protocol

from deploy.cli.options import EXIT_NOTHING
from deploy.plans.shown import percent
from diem.errors import DiemError
from metadata.statistics.figures import warning_of_twins

APPLIED: Final = "applied"
WOULD_APPLY: Final = "would apply"
NOTHING: Final = "nothing"
FAILED: Final = "failed"
SOON: Final = timedelta(minutes=10)
"""What is learnt from may be this old in any case."""


class CommandResult(NamedTuple):
    """How a command of `diem` ended."""

    code: int
    out: str
    err: str


class CommandRunner(Protocol):
    """Runs a command of `diem` to its end."""

    async def __call__(self, *arguments: str) -> CommandResult:
        """Run it with these arguments."""


class StepFailed(DiemError):
    """A command did not do it; the text is what it said."""


class NoNewTraffic(StepFailed):
    """A command found no traffic, or no clients in its window."""


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


async def decide(run: CommandRunner, policy: Policy) -> Decision:
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
    except NoNewTraffic as error:
        return Decision(NOTHING, str(error))
    except StepFailed as error:
        return Decision(FAILED, str(error))


def is_old(window: Mapping[str, str], now: datetime) -> bool:
    """Whether a window (`from`, `to`, ISO 8601) ended longer ago than it lasted, and than recording and planning take.

    It ends with the last event, and a server that has clients records something every minute: since then there were
    none, or nothing is recorded.
    """
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    return now - end > max(end - start, SOON)


async def _step(run: CommandRunner, *arguments: str) -> str:
    ran = await run(*arguments)
    if ran.code != 0:
        # A command says in its last line why it ends.
        said = [line.removeprefix("diem: ") for line in ran.err.splitlines() if line.strip()]
        failed = NoNewTraffic if ran.code == EXIT_NOTHING else StepFailed
        raise failed(f"diem {arguments[0]}: {said[-1] if said else f'exit {ran.code}'}")
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
        "twins": planned["twins"],
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
    twins = f"; {warning_of_twins(figures['twins'])}" if figures["twins"] else ""
    return f" ({'; '.join(parts)}; {percent(figures['subscriptions_moved'])} of the subscriptions{twins})"


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    """Wait, or until it is to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return
