"""The command line ``diem``, and its commands that run or change a system: one module a group, found by entry point.

A plain ``run PROCESS`` bypasses ``commands``: imports cost memory, and a server needs no command line parser. Reading
order: ``commands`` (entry and error handling), ``help`` (its layout; every command has a line there), ``options``, then
any command.
"""

import gc
import sys
from typing import NoReturn

from diem.process.imports import prepare_imports, skip_sniffio


def app() -> NoReturn:
    """Run the command in ``sys.argv`` and exit with its code."""
    match sys.argv[1:]:
        case ["run", name] if not name.startswith("-"):
            prepare_imports()
            from diem.process.program import start  # noqa: PLC0415  # see above

            sys.exit(start(name))
        case _:
            gc.disable()  # as prepare_imports does; ``main`` enables it
            skip_sniffio()
            from deploy.cli.commands import main  # noqa: PLC0415

            sys.exit(main())
