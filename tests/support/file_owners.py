"""Files of another user, which only root can create."""

import os
from pathlib import Path

import pytest

OTHER = 12_345
"""User id of `nobody`."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


def give_away(path: Path) -> Path:
    """Give a file or directory to another user."""
    os.chown(path, OTHER, OTHER)
    return path
