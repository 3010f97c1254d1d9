"""Pasteable commands of ``diem``: with the path of the program if the shell would not find it."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "diem"
_QUOTED: Final = re.compile(r"`diem (?=[a-z-])")


def diem_command(*arguments: str) -> str:
    """Return the command line of ``diem`` with these arguments, to paste in the current directory."""
    return f"{program()} {shlex.join(arguments)}" if arguments else program()


def pasteable(text: str) -> str:
    """Return a message with its commands, in backticks, in the form of :func:`diem_command`."""
    return _QUOTED.sub(lambda _found: f"`{program()} ", text)


def program() -> str:
    """Return this ``diem`` as started by a shell in the current directory: by name, path or module."""
    script = Path(sys.executable).with_name(NAME)
    if not script.is_file():
        return f"{shlex.quote(sys.executable)} -m deploy"
    found = shutil.which(NAME)
    if found is not None and Path(found).samefile(script):
        return NAME
    return shlex.quote(min(str(script), _relative(script), key=len))


def _relative(script: Path) -> str:
    """Return the path from the current directory, with a slash, lest the shell search its PATH."""
    try:
        path = os.path.relpath(script)
    except OSError:  # the current directory was removed
        return str(script)
    return path if os.sep in path else f"{os.curdir}{os.sep}{path}"
