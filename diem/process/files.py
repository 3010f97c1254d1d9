"""Files for other processes and later runs, replaced atomically; for owner-only files see ``private_files``."""

from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, or create it; readers see the old content or the new one.

    For one writer at a time: the new content is first written to ``.NAME.new`` beside the file, all that a killed
    writer leaves behind.

    Raises:
        OSError: it cannot be written; the file is as it was.
    """
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    new.replace(path)
