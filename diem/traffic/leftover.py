"""Completes files of traffic that a process left behind when it was killed."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

BLOCK: Final = 64 * 1024


def complete(path: Path) -> None:
    """Let readers see a file that was left behind, without a line that was cut short; nothing if its process lives.

    Raises:
        OSError: it cannot be read or renamed.
    """
    with suppress(FileNotFoundError), path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # its process lives
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - BLOCK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
        if end:
            path.rename(path.with_name(path.name.removeprefix(".")))
        else:
            path.unlink()
