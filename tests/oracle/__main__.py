"""``python -m tests.oracle FOLDER``: judges a recorded history, or proves on it that the oracle can say no."""

import argparse
import sys
from pathlib import Path
from random import Random

import orjson

from tests.oracle.history import read_history
from tests.oracle.judge import judge
from tests.oracle.mutate import CONTROLS
from tests.oracle.violations import Bounds


def main() -> int:
    """Print the figures as JSON; exit with 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("folder", type=Path, help="what a run left in build/histories")
    parser.add_argument("--t-conv", type=float, default=Bounds.t_conv, help="seconds")
    parser.add_argument("--t-heal", type=float, default=Bounds.t_heal, help="seconds")
    parser.add_argument("--mutate", choices=CONTROLS, help="break one promise first")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    history = read_history(arguments.folder)
    if arguments.mutate:
        history = CONTROLS[arguments.mutate](history, Random(arguments.seed))
    report = judge(history, Bounds(arguments.t_conv, arguments.t_heal))
    print(orjson.dumps(report.figures(), option=orjson.OPT_INDENT_2).decode())
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
