"""``python -m tests.load.convergence``: Load L without faults in every mode, and the negative controls on it."""

import sys

from tests.load.injection import MODES
from tests.load.scenario import Scenario
from tests.load.suite import run_all

if __name__ == "__main__":
    sys.exit(run_all("convergence", [Scenario(mode=mode, controls=True) for mode in MODES]))
