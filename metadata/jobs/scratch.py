"""A folder for the temporary files of one session; what killed processes left in theirs is removed by the next one."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_PREFIX: Final = "diem-spark-"
_LOCK: Final = "lock"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Give a folder, which is removed with what is in it."""
    _remove_left_behind(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name, _held(Path(name)):
        yield Path(name)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Hold a folder as long as this process lives."""
    new = folder / f"{_LOCK}.new"
    with new.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Under its name it is held from the first moment on.
        new.rename(folder / _LOCK)
        yield


def _remove_left_behind(temporary: Path) -> None:
    for lock in temporary.glob(f"{_PREFIX}*/{_LOCK}"):
        # Those of other users, and what another process has just removed.
        with suppress(OSError):
            _remove_unless_held(lock)


def _remove_unless_held(lock: Path) -> None:
    # Anybody may make such folders where all have their temporary files: neither links nor what is not ours.
    file = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        folder = lock.parent
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(file)
