"""``python -m tests.load.faults --mode MODE``: Load L with every fault that the mode can have.

Modes with Kafka have them in sequence, in one start with one broker and one with three; the other modes have one run
for each fault. ``z`` stands for all modes in which servers share out the endpoints.
"""

import argparse
import sys
from dataclasses import replace

from tests.load.injection import MODES, ONE_BROKER, PARTITIONED, THREE_BROKERS, faults_of
from tests.load.scenario import Scenario
from tests.load.suite import run_all

LOAD_X = Scenario("x", clients=600, servers=3, max_servers=4)
LOAD_Z = Scenario(clients=600, rate=300, servers=3, max_servers=4)
RUNS_Z = (
    replace(LOAD_Z, mode="z-client"),
    replace(LOAD_Z, mode="z-proxy", proxy="shared"),
    replace(LOAD_Z, mode="z-proxy", proxy="passthrough"),
    replace(LOAD_Z, mode="z-composite"),
    # Two composites: each has every endpoint, and half of the clients.
    replace(LOAD_Z, mode="xz", servers=2, clones=2, max_servers=3),
)


def scenarios(mode: str, seed: int) -> list[Scenario]:
    """The runs of a mode."""
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
        return [Scenario(mode, faults=(fault,), seed=seed) for fault in faults_of(mode)]
    return [
        replace(LOAD_X, faults=ONE_BROKER, label="faults-1-broker", seed=seed),
        replace(LOAD_X, faults=THREE_BROKERS, label="faults-3-brokers", brokers=3, seed=seed),
    ]


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.faults", description=__doc__)
    parser.add_argument("--mode", choices=(*MODES, "z"), default="single")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return run_all(f"faults-{arguments.mode}", scenarios(arguments.mode, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
