"""The C programs of the benchmarks, compiled on demand: the floor and the load clients."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.load.bench import FOLDER

HERE = Path(__file__).parent


class NoCompiler(Exception):
    """There is no C compiler, hence no floor."""

    def __str__(self) -> str:
        return "this benchmark needs a C compiler: on Debian, apt install gcc libc6-dev"


def program(name: str, build: Path = FOLDER) -> Path:
    """Compile ``name``.c into ``build``, unless it is up to date; return the program.

    Raises:
        NoCompiler: there is none.
    """
    source, target = HERE / f"{name}.c", build / name
    written = max(file.stat().st_mtime for file in (source, *HERE.glob("*.h")))
    if target.exists() and target.stat().st_mtime > written:
        return target
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise NoCompiler
    build.mkdir(parents=True, exist_ok=True)
    # Another benchmark may compile it, too, or run it.
    with tempfile.TemporaryDirectory(dir=build) as folder:
        new = Path(folder) / name
        subprocess.run([compiler, "-O2", "-Wall", "-Wextra", "-o", new, source], check=True)
        new.replace(target)
    return target
