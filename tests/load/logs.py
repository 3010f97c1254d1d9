"""Unexpected exceptions in the logs of a run."""

from pathlib import Path

import orjson

SAID = 3
"""Number of examples to keep."""


def tracebacks(folder: Path) -> list[str]:
    """Return the exceptions in the logs below ``folder``, each as process and last line, without those of brokers."""
    return [
        f"{path.stem}: {_exception(line)}"
        for path in sorted(folder.glob("*.log"))
        if not path.name.startswith(("kafka-", "nginx"))
        for line in path.read_bytes().splitlines()
        if b'"exception":' in line or line.startswith(b"Traceback ")
    ]


def _exception(line: bytes) -> str:
    try:
        said = orjson.loads(line)
    except orjson.JSONDecodeError:
        # Of an interpreter that could not even begin.
        return line.decode(errors="replace")
    return str(said["exception"]).strip().rpartition("\n")[2]
