"""``make smoke``: every benchmark and every fault mode for seconds, to see that each still runs and writes its report.

All take their usual path in the smallest size (``SMOKE=1``): speed is not judged, the oracle is. What they find is in
build/bench as ever, instead of what was there; their output is in build/smoke. They mostly wait, so several run at a
time, and a fork server starts them and their processes, whose imports would take most of the time (``EXECUTED`` are
executed).
"""

import asyncio
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.load import bench
from tests.support import fork_server
from tests.support.commandline import parser
from tests.support.patience import FACTOR
from tests.support.size import RunSize
from tests.support.spark_session import OPTIONS

ROOT: Final = Path(__file__).parents[1]
LOGS: Final = ROOT / "build" / "smoke"
AT_ONCE: Final = 6
LIMIT_S: Final = 300.0 * FACTOR
"""Longest time of a run."""
_TARGET: Final = re.compile(r"^bench-(\w+):.*\n\t@(?:\w+=\S+ )*\$\(PY\) -m (\S+)$", re.MULTILINE)
EXECUTED: Final = frozenset({"placement", "learning", "pipeline", "follow", "faults-upgrade"})
"""Runs with libraries that have threads of their own, and with the processes of another release."""
LONGEST: Final = ("cost", "placement", "follow", "pipeline", "modes", "tokens", "sizing", "fanout", "faults-z-client")
"""They begin first."""
IMPORTS: Final = ("tests.load.observe", "tests.bench.report", "tests.bench.servers", "tests.integration.data.process")
"""What most of the runs import."""
ENVIRONMENT: Final = {
    RunSize.SMOKE.name: "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "SPARK_SUBMIT_OPTS": OPTIONS,
    # Beside the others each is slower than alone.
    "DIEM_TIME_FACTOR": os.environ.get("DIEM_TIME_FACTOR", "3"),
}


class Run(NamedTuple):
    """A run, and its report's name."""

    name: str
    module: str
    arguments: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How a run ended."""

    run: Run
    seconds: float
    fault: str
    """Why it failed; empty if it did not."""


def runs() -> list[Run]:
    """Return a run for each benchmark of the Makefile and each fault mode, those that take longest first."""
    from tests.load.faults import FAULT_MODES  # noqa: PLC0415  # the fork server has it, this process only the names

    benchmarks = [Run(*found) for found in _TARGET.findall((ROOT / "Makefile").read_text(encoding="utf-8"))]
    faults = [Run(f"faults-{mode}", "tests.load.faults", ("--mode", mode)) for mode in FAULT_MODES]
    place = {name: number for number, name in enumerate(LONGEST)}
    return sorted([*benchmarks, *faults], key=lambda run: place.get(run.name, len(place)))


async def smoke(run: Run, folder: Path = bench.FOLDER) -> Outcome:
    """Run one, and check its report, which is written to a folder."""
    report, log = folder / f"{run.name}.json", LOGS / f"{run.name}.log"
    LOGS.mkdir(parents=True, exist_ok=True)
    report.unlink(missing_ok=True)
    began = time.monotonic()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", run.module, *run.arguments),
            cwd=ROOT,
            env={**os.environ, **ENVIRONMENT, "BENCH_FOLDER": str(folder)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        code = await asyncio.wait_for(process.wait(), LIMIT_S)
        fault = f"exit code {code}" if code else fault_of(report, log)
    except TimeoutError:
        fault = f"not over after {LIMIT_S:.0f} s"
    finally:
        if process.returncode is None:
            # Not SIGKILL: it ends what it has started.
            process.terminate()
            await process.wait()
    return Outcome(run, time.monotonic() - began, fault)


def fault_of(report: Path, log: Path) -> str:
    """Return what is wrong with a report; empty if nothing is, or if the run says that it was skipped."""
    try:
        found = bench.read(report)
    except FileNotFoundError:
        return "" if log.read_text(errors="replace").startswith("skipped: ") else f"it wrote no {report.name}"
    except ValueError as error:
        return f"{report.name} has not the form of all: {error}"
    return "" if found.size is RunSize.SMOKE else f"{report.name} is of a {found.size} run"


async def smoke_all(chosen: Sequence[Run]) -> list[Outcome]:
    """Run all, several at a time, and print each that is over."""
    free, over = asyncio.Semaphore(AT_ONCE), list[Outcome]()

    async def one(run: Run) -> None:
        async with free:
            outcome = await smoke(run)
        over.append(outcome)
        said = f"FAILED: {outcome.fault}" if outcome.fault else "ok"
        print(f"[{len(over)}/{len(chosen)}] {run.name}, {outcome.seconds:.0f} s: {said}", flush=True)

    async with asyncio.TaskGroup() as tasks:
        for run in chosen:
            tasks.create_task(one(run))
    return over


def main(argv: Sequence[str] | None = None) -> int:
    """Run all, or those that are named; return 1 if one failed."""
    known = {run.name: run for run in runs()}
    options = parser(__spec__, __doc__, report="build/bench/NAME.json of each, and build/smoke/NAME.log")
    options.add_argument("names", nargs="*", help=f"some of {', '.join(known)}; default: all")
    names = options.parse_args(argv).names or [*known]
    if unknown := set(names) - known.keys():
        options.error(f"there is no {', '.join(sorted(unknown))}")
    chosen = [run for name, run in known.items() if name in names]
    os.environ.update(ENVIRONMENT)
    began = time.monotonic()
    modules = {run.module for run in chosen if run.name not in EXECUTED}
    with fork_server.running(modules, IMPORTS) as address:
        fork_server.install(lambda: address)
        over = asyncio.run(smoke_all(chosen))
    failed = [outcome for outcome in over if outcome.fault]
    for outcome in failed:
        output = (LOGS / f"{outcome.run.name}.log").read_text(errors="replace")
        print(f"\n{outcome.run.name} failed: {outcome.fault}\n{output}")
    print(f"{len(over) - len(failed)} of {len(over)} ran, in {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
