"""Run every random walk and property with new seeds until the time is over: ``python -m tests.walks --help``."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

from tests.run import FUZZ_OPTIONS
from tests.support.commandline import parser

_ROOM = Path(__file__).parent
_FACTOR = 10
_UNITS = "tests/unit"
"""Properties of single parts, with more examples than `make test` tries."""
_FUZZ = "tests/fuzz"
_OPTIONS = {_UNITS: ("-m", "hypothesis"), _FUZZ: ("-o", f"addopts={FUZZ_OPTIONS}")}


@dataclass(frozen=True)
class _Outcome:
    """One run of one module of walks."""

    module: str
    seed: int
    seconds: float
    failure: str


def _run(module: str, seed: int) -> _Outcome:
    """Run the walks of ``module`` once with ``seed``."""
    start, options = time.monotonic(), _OPTIONS.get(module, ())
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", f"--hypothesis-seed={seed}", *options, module],
        env={**os.environ, "DIEM_WALKS_FACTOR": str(_FACTOR)},
        capture_output=True,
        text=True,
        check=False,
    )
    return _Outcome(module, seed, time.monotonic() - start, "" if ran.returncode == 0 else ran.stdout + ran.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run walks until the time is over or one fails; return the exit code."""
    arguments = parser(__spec__, __doc__, report="standard output", quick="1 minute, unless --minutes says otherwise")
    minutes = 1 if os.environ.get("QUICK") else 10
    arguments.add_argument("--minutes", type=float, default=minutes, help="how long to run; default: 10")
    arguments.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="first seed")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="walks at a time")
    arguments.add_argument("modules", nargs="*", help=f"tests/walks/..., {_UNITS}, {_FUZZ}, each once; default: all")
    options = arguments.parse_args(argv)
    modules = options.modules or [*sorted(str(path) for path in _ROOM.glob("test_*.py")), _UNITS, _FUZZ]
    end = time.monotonic() + options.minutes * 60
    runs = zip(count(), cycle(modules), range(options.seed, options.seed + 2**31), strict=False)

    def work() -> list[_Outcome]:
        done: list[_Outcome] = []
        for number, module, seed in runs:
            # Those that are named run once in any case: a failure can be repeated.
            if failed or (number >= len(options.modules) and time.monotonic() >= end):
                break
            outcome = _run(module, seed)
            done.append(outcome)
            left = max(0, end - time.monotonic())
            verdict = "FAILED" if outcome.failure else "passed"
            print(
                f"{left:4.0f} s left  {verdict}  {outcome.seconds:5.1f} s  seed {outcome.seed}  {outcome.module}",
                flush=True,
            )
            if outcome.failure:
                failed.append(outcome)
        return done

    failed: list[_Outcome] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        outcomes = [
            outcome for worker in [pool.submit(work) for _ in range(options.jobs)] for outcome in worker.result()
        ]
    for outcome in failed:
        print(outcome.failure)
        print(f"repeat it: python -m tests.walks --minutes 0 --jobs 1 --seed {outcome.seed} {outcome.module}")
    print(f"{len(outcomes)} runs of {len(modules)} modules, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
