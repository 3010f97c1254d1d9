"""``python -m tests.load.faults --mode MODE``: Load L with every fault that the mode can have, one run each."""

import argparse
import sys

from tests.load.injection import MODES, faults_of
from tests.load.scenario import Scenario
from tests.load.suite import run_all


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.faults", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="single")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    mode = arguments.mode
    scenarios = [Scenario(mode=mode, faults=(fault,), seed=arguments.seed) for fault in faults_of(mode)]
    return run_all(f"faults-{mode}", scenarios)


if __name__ == "__main__":
    sys.exit(main())
