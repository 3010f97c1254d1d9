"""``make bench-attack``: attackers at the public addresses beside 200 honest clients, judged by the oracle.

Slow second requests, connections that come and go, bursts of messages, forged names and tokens, a thousand sockets of
one address, a user who reads as much as the API key of all users may, bodies without a key that trickle, clients from
64 networks of one /56, clients that subscribe again and again for the same data, and a write key that would fill the
store: directly, through nginx and through a proxy. No honest client may lose an update, or wait more than a second
longer than before the attack.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.load.injection import ATTACK
from tests.load.scenario import BENCH_FILE, QUICK_RUN, Scenario
from tests.load.suite import run_all
from tests.support.commandline import parser
from tests.support.size import sized

LOAD = Scenario(clients=200, rate=200, seconds=20, probes=4, faults=(ATTACK,), tokens=True)
RUNS = (replace(LOAD, mode="single"), replace(LOAD, mode="x", servers=2), replace(LOAD, mode="z-proxy", servers=2))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit code."""
    options = parser(__spec__, __doc__, report=BENCH_FILE.format("attack"), quick=f"{QUICK_RUN}, 6 s of attack")
    options.add_argument("--mode", choices=[run.mode for run in RUNS], help="one of them; default: all")
    options.add_argument("--seed", type=int, default=1, help="of everything that is random; default: 1")
    arguments = options.parse_args(argv)
    runs = [replace(run, seed=arguments.seed) for run in RUNS if arguments.mode in (None, run.mode)]
    return run_all("attack", sized(runs, runs, runs[:1]))


if __name__ == "__main__":
    sys.exit(main())
