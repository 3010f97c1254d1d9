"""``python -m tests.load.convergence``: Load L without faults in every mode, and the negative controls on it."""

import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.load.faults import RUNS_Z
from tests.load.scenario import BENCH_FILE, QUICK_RUN, Scenario
from tests.load.suite import run_all
from tests.support.commandline import parser
from tests.support.size import sized

RUNS = [
    *(Scenario(mode=mode, controls=True) for mode in ("single", "x-broadcast", "all-to-all")),
    Scenario("x-broadcast", servers=3, label="3-servers"),
    Scenario("all-to-all", servers=3, clients=200, label="3-servers"),
    Scenario("x", clients=600, servers=1, label="1-server"),
    Scenario("x", clients=600, servers=3, label="3-servers", controls=True),
    *(replace(run, label="without-faults", controls=True) for run in RUNS_Z),
]


def main(argv: Sequence[str] | None = None) -> int:
    """Run all scenarios."""
    parser(__spec__, __doc__, report=BENCH_FILE.format("convergence"), quick=QUICK_RUN).parse_args(argv)
    return run_all("convergence", sized(RUNS, RUNS, RUNS[:1]))


if __name__ == "__main__":
    sys.exit(main())
