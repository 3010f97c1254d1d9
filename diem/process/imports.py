"""Speeds up the imports of a starting process, most of its start-up time (docs/performance.md)."""

import gc
import os
import sys


def prepare_imports() -> None:
    """Pause the garbage collector, and prevent imports that a server does not need. Call it before any other import.

    The caller enables the collector (``gc.enable()``) once everything is imported: until then, it would only traverse
    modules, which stay. structlog and httpx import ``rich`` and ``pygments``, if installed, for terminals: 40 ms and 3
    MB. pydantic reads the metadata of all installed packages in search of plugins.
    """
    gc.disable()
    for name in ("rich", "pygments"):
        sys.modules.setdefault(name, None)  # type: ignore[arg-type]  # None: importing it fails
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    skip_sniffio()


def skip_sniffio() -> None:
    """Prevent the import of ``sniffio``, which would find asyncio, as httpcore assumes without it.

    httpcore tries it several times a request. Where it is not installed, each attempt searches all directories of
    ``sys.path``: 0.2 ms.
    """
    sys.modules.setdefault("sniffio", None)  # type: ignore[arg-type]  # None: importing it fails
