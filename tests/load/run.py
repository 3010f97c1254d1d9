"""``python -m tests.load.run``: one convergence run, judged by the oracle; exits with 1 when a promise was broken."""

import argparse
import asyncio
import signal
import sys
from dataclasses import fields
from typing import Any

from tests.load import bench
from tests.load.injection import FAULTS, MODES
from tests.load.injection.learned import table
from tests.load.observe import run
from tests.load.scenario import Outcome, Scenario, quick
from tests.oracle import Bounds


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m tests.load.run", description=__doc__)
    parser.add_argument("--mode", choices=MODES, default="single")
    parser.add_argument("--fault", choices=FAULTS, action="append", default=[], dest="faults", help="may be repeated")
    parser.add_argument("--seconds", type=float, help="of writing")
    parser.add_argument("--clients", type=int)
    parser.add_argument("--subscriptions", type=int, help="of each client")
    parser.add_argument("--communities", type=int, help="of clients with interests in common; 0: none")
    parser.add_argument("--endpoints", type=int)
    parser.add_argument("--rate", type=float, help="updates a second")
    parser.add_argument("--churn-seconds", type=float, help="mean time between two endpoint swaps of a client; 0: none")
    parser.add_argument("--probes", type=int, help="clients that fetch what they are told of")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--controls", action="store_true", help="try the negative controls on the recorded history")
    parser.add_argument("--t-conv", type=float, help="seconds")
    parser.add_argument("--t-heal", type=float, help="seconds")
    parser.add_argument("--servers", type=int)
    parser.add_argument("--proxy", choices=("shared", "passthrough"))
    parser.add_argument("--traffic", choices=("files", "kafka", "off"), help="where it is recorded")
    parser.add_argument("--clones", type=int, help="in mode xz")
    parser.add_argument("--max-servers", type=int)
    parser.add_argument("--brokers", type=int, choices=(1, 3), help="in the modes with Kafka")
    parser.add_argument("--label", help="what the run is called instead of its faults")
    arguments = vars(parser.parse_args())
    names = {field.name for field in fields(Scenario)}
    chosen: dict[str, Any] = {name: value for name, value in arguments.items() if name in names and value is not None}
    scenario = quick(Scenario(**{**chosen, "faults": tuple(arguments["faults"])}))
    end_in_order()
    bounds = Bounds(arguments["t_conv"] or scenario.bounds.t_conv, arguments["t_heal"] or scenario.bounds.t_heal)
    outcome = asyncio.run(run(scenario, bounds))
    return 0 if told(outcome) else 1


def end_in_order() -> None:
    """Let SIGTERM end a run as Ctrl-C does: with everything that it started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def told(outcome: Outcome) -> bool:
    """Write the bench file, print the goals and the first violations; returns whether the oracle found nothing."""
    path = bench.write(outcome.scenario.name, outcome.figures, outcome.goals)
    print(f"{outcome.scenario.name}: {'clean' if outcome.clean else 'BROKEN'} ({path})")
    print(bench.table(outcome.goals))
    if found := table(outcome.scenario.name, outcome.figures):
        print(found)
    for violation in outcome.report.violations[:10]:
        print(f"  {violation}")
    return outcome.clean


if __name__ == "__main__":
    sys.exit(main())
