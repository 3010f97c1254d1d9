"""``python -m tests.load.faults --mode MODE``: Load L with every fault that the mode can have.

Mode x has them in sequence, in one start with one broker and one with three; the other modes have one run each.
"""

import argparse
import sys
from dataclasses import replace

from tests.load.injection import MODES, ONE_BROKER, THREE_BROKERS, faults_of
from tests.load.scenario import Scenario
from tests.load.suite import run_all

LOAD_X = Scenario("x", clients=600, servers=3, max_servers=4)


def scenarios(mode: str, seed: int) -> list[Scenario]:
    """The runs of a mode."""
    if mode != "x":
        return [Scenario(mode, faults=(fault,), seed=seed) for fault in faults_of(mode)]
    return [
        replace(LOAD_X, faults=ONE_BROKER, label="faults-1-broker", seed=seed),
        replace(LOAD_X, faults=THREE_BROKERS, label="faults-3-brokers", brokers=3, seed=seed),
    ]


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.faults", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="single")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return run_all(f"faults-{arguments.mode}", scenarios(arguments.mode, arguments.seed))


if __name__ == "__main__":
    sys.exit(main())
