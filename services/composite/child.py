"""`python -m services.composite.child PROCESS` runs one child of a composite until it ends."""

import sys
from importlib import import_module
from typing import Any, Final

from diem.errors import DiemError
from diem.process.imports import without_colours

PACKAGES: Final = {"bridge": "bridge", "metadata": "metadata", "proxy": "proxy", "websocket": "services.websocket"}
"""Where each kind of child has its `settings` and its `main`."""


def start(process: str) -> int:
    """Run a process; returns its exit code. Every fault of its configuration is one line."""
    # Imported here, so that each child pays for its own imports only.
    from diem.process import lifecycle, log  # noqa: PLC0415

    package = PACKAGES[process]
    try:
        settings = import_module(f"{package}.settings").Settings.load()
    except DiemError as error:
        for line in str(error).splitlines():
            log.fail(line)
        return lifecycle.EXIT_CONFIGURATION
    main: Any = import_module(f"{package}.main").main
    return lifecycle.run(settings, main)


if __name__ == "__main__":
    without_colours()
    sys.exit(start(sys.argv[1]))
