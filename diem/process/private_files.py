"""Files readable by their owner only, created and replaced atomically."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path


def create_private(path: Path, content: bytes) -> None:
    """Create a file with mode 0600 that survives a power failure; an existing one keeps its content.

    Raises:
        OSError: it cannot be written.
    """
    with _written(path, content, sync=True) as temporary, contextlib.suppress(FileExistsError):
        # A link, unlike a rename, does not replace the file of a faster process.
        os.link(temporary, path)


def replace_private(path: Path, content: bytes, *, sync: bool = False) -> None:
    """Replace a file, or create it, with mode 0600; readers see the old content or the new one.

    Args:
        path: of the file.
        content: all of it.
        sync: return once it survives a power failure.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    with _written(path, content, sync=sync) as temporary:
        temporary.replace(path)


def make_private_directory(path: Path) -> None:
    """Create a directory with mode 0700 if missing; a failure surfaces on the first write into it."""
    with contextlib.suppress(OSError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def open_unblocked(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a named pipe; an opener for :func:`open`."""
    return os.open(path, flags | os.O_NONBLOCK)


@contextlib.contextmanager
def _written(path: Path, content: bytes, *, sync: bool) -> Iterator[Path]:
    """Write a temporary file beside ``path``; remove any remainder."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
            file.write(content)
            if sync:
                file.flush()
                os.fsync(descriptor)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
