"""Entry point of `diem`: a plain `run PROCESS` goes straight to the process, everything else to the commands.

The short way exists because each process pays for its imports in memory: a server needs no command line parser.
"""

import sys
from typing import NoReturn

from diem.process.imports import without_colours


def app() -> NoReturn:
    """Run the command in `sys.argv` and exit with its code."""
    match sys.argv[1:]:
        case ["run", name] if not name.startswith("-"):
            without_colours()
            from deploy.run import start  # noqa: PLC0415  # see above

            sys.exit(start(name))
        case _:
            from deploy.cli.commands import main  # noqa: PLC0415

            sys.exit(main())
