"""What the processes of a run logged that they never should: exceptions that nobody expected."""

from pathlib import Path

import orjson

SAID = 3
"""Examples that are kept."""


def tracebacks(folder: Path) -> list[str]:
    """The exceptions in the logs below ``folder``, as the process and the last line of each; brokers are not ours."""
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
