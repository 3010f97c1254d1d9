"""Files for other processes and later runs, replaced as a whole; those for their owner alone: ``private_files``."""

from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, or create it; readers see the old content or the new one.

    For one writer at a time: the new content is first ``.NAME.new`` beside the file, all that a killed writer leaves.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
