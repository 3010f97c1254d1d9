"""Lag of the pipeline in a source; needs no Spark."""

from pathlib import Path
from typing import NamedTuple

from metadata.jobs.logs import read_files
from metadata.jobs.sources import complete_files


class SourceLag(NamedTuple):
    """What there is to read: files of a folder, or records of a topic."""

    unread: int
    lost: int = 0
    """Records that the broker deleted before they were read."""


def unread_files(folder: Path, checkpoint: Path) -> SourceLag:
    """Return how many complete files are not read yet."""
    return SourceLag(len(set(complete_files(folder)) - set(read_files(checkpoint))))
