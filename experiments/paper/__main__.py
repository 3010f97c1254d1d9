"""``make figures``: tables of docs/sizing.md section 5 as CSV, and the figures of thesis and paper as SVG or PNG."""

import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.paper.figures import write_all
from tests.support.commandline import parser


def main(argv: Sequence[str] | None = None) -> int:
    """Write all of them."""
    command = parser(__spec__, __doc__, report="the folder")
    command.add_argument("--out", type=Path, default=Path("build/figures"), metavar="DIR", help="the folder")
    command.add_argument("--format", choices=("svg", "png", "csv"), default="svg", help="csv: the numbers alone")
    given = command.parse_args(argv)
    print(f"{len(list(write_all(given.out, given.format)))} files in {given.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
