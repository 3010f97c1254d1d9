"""``python -m tests.load.faults --mode MODE``: Load L with every fault that the mode can have.

Modes with Kafka have them in sequence, in one start with one broker and one with three; the other modes have one run
for each fault. ``z`` stands for all modes in which servers share out the endpoints. ``drain`` restarts a server with
2,000 clients by SIGTERM, none of which may be without a server for more than 2 s. ``repartition`` has endpoints move to
other partitions meanwhile, where clients or proxies follow them, and then to where a plan has them that is learnt from
the recorded traffic. ``upgrade`` begins with the last release, and replaces its processes by those of this checkout one
by one, and then the other way round; it is skipped where the history does not have that release.

Where clients need no other server than the one that they know, a third of them makes long polls, and a sixth reads
event streams.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.load.injection import (
    DRAIN,
    LEARNED,
    MODES,
    ONE_BROKER,
    PARTITIONED,
    ROLLBACK,
    THREE_BROKERS,
    UPGRADE,
    faults_of,
)
from tests.load.injection.repartition import repartitions
from tests.load.scenario import BENCH_FILE, QUICK_RUN, Scenario
from tests.load.suite import run_all
from tests.load.trees import why_not_extracted
from tests.support.commandline import parser
from tests.support.size import SIZE, RunSize

LOAD_X = Scenario("x", clients=600, servers=3, max_servers=4, nginx=False)
LOAD_Z = Scenario(clients=600, rate=300, servers=3, max_servers=4)
RUNS_Z = (
    replace(LOAD_Z, mode="z-client"),
    replace(LOAD_Z, mode="z-proxy"),
    replace(LOAD_Z, mode="z-composite"),
    # Two composites: each has every endpoint, and half of the clients.
    replace(LOAD_Z, mode="xz", servers=2, clones=2, max_servers=3, nginx=False),
)
RUNS_REPARTITION = (
    replace(LOAD_Z, mode="z-client"),
    replace(LOAD_Z, mode="z-proxy", servers=4),
)

LOAD_DRAIN = Scenario(
    "x-broadcast",
    seconds=5.0,
    clients=2000,
    rate=20,
    servers=1,
    max_servers=2,
    nginx=False,
    drain_seconds=30.0,
    faults=(DRAIN,),
    label="drain-2000",
)

LOAD_LEARNED = Scenario(
    clients=300,
    subscriptions=8,
    communities=16,
    churn_seconds=600,
    rate=300,
    servers=4,
    max_servers=4,
    faults=(LEARNED,),
)
RUNS_LEARNED = (
    replace(LOAD_LEARNED, mode="z-client"),
    replace(LOAD_LEARNED, mode="z-proxy", traffic="files"),
)
"""Clients with stable common interests, for plans from their traffic."""


LAST_RELEASE = "98764fff"
"""Commit of the release that this one replaces while it runs, and that may replace it again."""
RUNS_UPGRADE = (
    Scenario("single", clients=100),
    Scenario("x", clients=300, servers=2, max_servers=2),
    Scenario("z-proxy", clients=300, rate=300, servers=2, max_servers=2),
)


FAULT_MODES: Final = (*MODES, "z", "drain", "repartition", "upgrade")


def scenarios(mode: str, seed: int) -> list[Scenario]:
    """Return the runs of a mode: with ``SMOKE=1`` one of them, with one fault."""
    found = [_with_http(run) for run in _scenarios(mode, seed)]
    if SIZE is not RunSize.SMOKE:
        return found
    # Of mode z that with a proxy, which no other mode has.
    run = found[1] if mode == "z" else found[0]
    return [replace(run, faults=run.faults[:1])]


def _with_http(run: Scenario) -> Scenario:
    # The last release has no updates over HTTP, and recorded traffic, of which plans are learnt, no polls.
    if run.mode == "z-client" or run.release is not None or LEARNED in run.faults:
        return run
    return replace(run, polls=1 / 3, streams=1 / 6)


def _scenarios(mode: str, seed: int) -> list[Scenario]:
    if mode == "drain":
        return [replace(LOAD_DRAIN, seed=seed)]
    if mode == "repartition":
        brief = SIZE is not RunSize.FULL
        moves = [
            replace(run, faults=repartitions(run.mode, seed + number, quick=brief), label=mode, seed=seed + number)
            for number, run in enumerate(RUNS_REPARTITION)
        ]
        # It takes its minutes, however few the clients are.
        return moves + [replace(run, seed=seed) for run in (RUNS_LEARNED[:1] if brief else RUNS_LEARNED)]
    if mode == "upgrade":
        faults = (UPGRADE, ROLLBACK)
        return [replace(run, faults=faults, release=LAST_RELEASE, seed=seed) for run in RUNS_UPGRADE]
    if mode == "z" or mode in PARTITIONED:
        return [
            run
            for each in RUNS_Z
            if mode in ("z", each.mode)
            for run in (
                replace(each, faults=PARTITIONED[each.mode], label="faults-1-broker", seed=seed),
                replace(each, faults=("kill-broker",), label="faults-3-brokers", brokers=3, seed=seed),
            )
        ]
    if mode != "x":
        nginx = False if mode == "x-broadcast" else None
        return [Scenario(mode, nginx=nginx, faults=(fault,), seed=seed) for fault in faults_of(mode)]
    return [
        replace(LOAD_X, faults=ONE_BROKER, label="faults-1-broker", seed=seed),
        replace(LOAD_X, faults=THREE_BROKERS, label="faults-3-brokers", brokers=3, seed=seed),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the scenarios of the arguments."""
    options = parser(__spec__, __doc__, report=BENCH_FILE.format("faults-MODE"), quick=QUICK_RUN)
    options.add_argument("--mode", choices=FAULT_MODES, default="single", help="default: single")
    options.add_argument("--seed", type=int, default=1, help="of everything that is random; default: 1")
    arguments = options.parse_args(argv)
    if arguments.mode == "upgrade" and (missing := why_not_extracted(LAST_RELEASE)):
        print(f"skipped: {missing}")
        return 0
    return run_all(f"faults-{arguments.mode}", scenarios(arguments.mode, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
