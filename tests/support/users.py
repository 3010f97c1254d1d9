"""Files of another user, which only root can make."""

import os
from pathlib import Path

import pytest

OTHER = 12_345
"""Nobody's number."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def give_away(path: Path) -> Path:
    """Make a file or directory another user's."""
    os.chown(path, OTHER, OTHER)
    return path
