"""Arrays that Spark's tasks keep between jobs, in files: each task maps its own into memory instead of receiving them.

For sessions in local mode, where driver and workers have one file system. As many tasks as cores: an array in more
pieces costs a worker's round trip each (about 50 ms) and gains nothing.
"""

import gc
import itertools
import os
import pickle
import zipimport
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Arrays = Sequence[npt.NDArray[Any]]

T = TypeVar("T")
_CALL: Final = "call"


class BlockFiles:
    """``count`` pieces of named tuples of arrays in a folder, and the functions of them that Spark runs."""

    def __init__(self, spark: "SparkSession", folder: Path, count: int) -> None:
        self.count = count
        self.folder = folder
        self._numbers = spark.sparkContext.parallelize(range(count), count)
        self._calls = itertools.count()

    def call(self, function: Callable[[int], Any]) -> Iterator[Any]:
        """``function`` of the number of each piece, in their order; all have run when this returns.

        What it takes and gives goes through files: a result may be larger than the JVM's heap.
        """
        call = self.folder / f"{_CALL}-{next(self._calls)}"
        _dump(call, function)
        try:
            self._numbers.foreach(partial(_run, call))
        finally:
            call.unlink()
        return (_taken(_result(call, number)) for number in range(self.count))

    def map(self, function: Callable[..., Any], *names: str) -> Iterator[Any]:
        """``function`` of each piece: of the tuples of arrays with these names."""
        return self.call(partial(_apply, self.folder, function, names))

    def keep(self, name: str, function: Callable[[int], Arrays]) -> None:
        """Make a tuple of arrays: ``function`` of the number of each piece."""
        for _ in self.call(partial(_keep, self.folder, name, function)):
            pass

    def derive(self, name: str, function: Callable[..., Arrays], *names: str) -> None:
        """Make a tuple of arrays: ``function`` of those with other ``names``."""
        self.keep(name, partial(_apply, self.folder, function, names))

    def exchange(
        self,
        name: str,
        split: Callable[[Arrays], Sequence[Arrays]],
        join: Callable[[Sequence[Arrays]], Arrays],
        of: str,
    ) -> None:
        """Make a tuple of arrays: piece n is ``join`` of the n-th of what ``split`` makes of each piece."""
        for _ in self.call(partial(_split, self.folder, name, split, of)):
            pass
        self.keep(name, partial(_join, self.folder, name, join, self.count))
        self.forget(f"{name}-*")

    def forget(self, name: str) -> None:
        """Remove a tuple of arrays."""
        for file in self.folder.glob(f"{name}.*.npy"):
            file.unlink()


def _run(call: Path, number: int) -> None:
    """What a worker does."""
    _quicken()
    _dump(_result(call, number), _load(call)(number))


@cache
def _quicken() -> None:
    """Once in a worker: without it, a task that does nothing keeps it busy for 15 ms and more."""
    # Workers collect garbage after each task, and all that is imported is gone through then.
    gc.freeze()
    # PySpark 4.0 makes each task read its two archives again; 4.2 does not.
    zipimport.zipimporter.invalidate_caches = _nothing  # type: ignore[assignment]


def _nothing(_: zipimport.zipimporter) -> None:
    pass


def _result(call: Path, number: int) -> Path:
    return call.with_name(f"{call.name}.{number}")


def _apply(folder: Path, function: Callable[..., T], names: Sequence[str], number: int) -> T:
    return function(*(_mapped(folder, name, number) for name in names))


def _keep(folder: Path, name: str, function: Callable[[int], Arrays], number: int) -> None:
    _save(folder, name, number, function(number))


def _split(folder: Path, name: str, split: Callable[[Arrays], Sequence[Arrays]], of: str, number: int) -> None:
    for goal, arrays in enumerate(split(_mapped(folder, of, number))):
        _save(folder, f"{name}-{goal}", number, arrays)


def _join(folder: Path, name: str, join: Callable[[Sequence[Arrays]], Arrays], count: int, number: int) -> Arrays:
    return join([_mapped(folder, f"{name}-{number}", source) for source in range(count)])


def _save(folder: Path, name: str, number: int, arrays: Arrays) -> None:
    for at, array in enumerate(arrays):
        with _replacing(folder / f"{name}.{number}.{at}.npy") as new, new.open("wb") as file:
            np.save(file, array)


def _mapped(folder: Path, name: str, number: int) -> list[npt.NDArray[Any]]:
    files = sorted(folder.glob(f"{name}.{number}.*.npy"))
    return [np.asarray(np.load(file, mmap_mode="r")) for file in files]


def _dump(path: Path, content: object) -> None:
    with _replacing(path) as new, new.open("wb") as file:
        pickle.dump(content, file, pickle.HIGHEST_PROTOCOL)


def _load(path: Path) -> Any:  # noqa: ANN401 - what was dumped
    # Written by this session, in a folder that is its user's alone.
    with path.open("rb") as file:
        return pickle.load(file)  # noqa: S301


def _taken(path: Path) -> Any:  # noqa: ANN401 - likewise
    content = _load(path)
    path.unlink()
    return content


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file under another name until it is complete: Spark may run a task twice."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    yield new
    new.replace(path)
