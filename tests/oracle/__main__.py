"""``python -m tests.oracle FOLDER``: check a recorded history, or run the negative controls on it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import orjson

from tests.oracle.history import read_history
from tests.oracle.judge import judge
from tests.oracle.mutate import CONTROLS
from tests.oracle.violations import Bounds
from tests.support.commandline import parser


def main(argv: Sequence[str] | None = None) -> int:
    """Print the figures as JSON; exit with 1 when a promise was broken."""
    options = parser(__spec__, __doc__, report="standard output, as JSON")
    options.add_argument("folder", type=Path, help="what a run left in build/histories")
    options.add_argument("--t-conv", type=float, default=Bounds.t_conv, help="seconds")
    options.add_argument("--t-heal", type=float, default=Bounds.t_heal, help="seconds")
    options.add_argument("--mutate", choices=CONTROLS, help="break one promise first")
    options.add_argument("--seed", type=int, default=0, help="of what is broken; default: 0")
    arguments = options.parse_args(argv)
    history = read_history(arguments.folder)
    if arguments.mutate:
        history = CONTROLS[arguments.mutate](history, Random(arguments.seed))
    report = judge(history, Bounds(arguments.t_conv, arguments.t_heal))
    print(orjson.dumps(report.figures(), option=orjson.OPT_INDENT_2).decode())
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
