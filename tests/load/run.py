"""``python -m tests.load.run``: one convergence run, judged by the oracle; exits with 1 when a promise was broken."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from tests.load import bench
from tests.load.injection import FAULTS, MODES, attack, traffic_plan
from tests.load.observe import run
from tests.load.scenario import BENCH_FILE, QUICK_RUN, Outcome, Scenario, quick
from tests.oracle import Bounds
from tests.support.commandline import parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the scenario of the arguments."""
    options = parser(__spec__, __doc__, report=BENCH_FILE.format("convergence-MODE-FAULTS"), quick=QUICK_RUN)
    add = options.add_argument
    add("--mode", choices=MODES, default="single", help="default: single")
    add("--fault", choices=FAULTS, action="append", default=[], dest="faults", help="may be repeated")
    add("--seconds", type=float, help="of writing")
    add("--clients", type=int, help="in all")
    add("--subscriptions", type=int, help="of each client")
    add("--communities", type=int, help="of clients with interests in common; 0: none")
    add("--endpoints", type=int, help="in all")
    add("--rate", type=float, help="updates a second")
    add("--churn-seconds", type=float, help="mean time between two endpoint swaps of a client; 0: none")
    add("--probes", type=int, help="clients that fetch what they are told of")
    add("--data", type=float, help="share of the clients that ask for the data of updates")
    add("--compression", type=float, help="share of the clients that offer compression")
    add("--seed", type=int, help="of everything that is random")
    add("--controls", action="store_true", help="try the negative controls on the recorded history")
    add("--t-conv", type=float, help="seconds within which all have converged after a change")
    add("--t-heal", type=float, help="seconds within which all have converged after a fault")
    add("--servers", type=int, help="at first")
    add("--traffic", choices=("files", "kafka", "off"), help="where it is recorded")
    add("--clones", type=int, help="in mode xz")
    add("--max-servers", type=int, help="that may be started later")
    add("--brokers", type=int, choices=(1, 3), help="in the modes with Kafka")
    add("--label", help="what the run is called instead of its faults")
    arguments = vars(options.parse_args(argv))
    names = {field.name for field in fields(Scenario)}
    chosen: dict[str, Any] = {name: value for name, value in arguments.items() if name in names and value is not None}
    scenario = quick(Scenario(**{**chosen, "faults": tuple(arguments["faults"])}))
    end_in_order()
    bounds = Bounds(arguments["t_conv"] or scenario.bounds.t_conv, arguments["t_heal"] or scenario.bounds.t_heal)
    outcome = asyncio.run(run(scenario, bounds))
    return 0 if told(outcome) else 1


def end_in_order() -> None:
    """Handle SIGTERM like Ctrl-C: everything that was started ends, too."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def told(outcome: Outcome) -> bool:
    """Write the bench file, print the goals and the first violations; return whether the oracle found none."""
    path = bench.write(outcome.scenario.name, outcome.figures, outcome.goals)
    print(f"{outcome.scenario.name}: {'clean' if outcome.clean else 'BROKEN'} ({path})")
    print(bench.table(outcome.goals))
    for found in (traffic_plan.table(outcome.scenario.name, outcome.figures), attack.table(outcome.figures)):
        if found:
            print(found)
    for violation in outcome.report.violations[:10]:
        print(f"  {violation}")
    return outcome.clean


if __name__ == "__main__":
    sys.exit(main())
