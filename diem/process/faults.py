"""The faults of starting a process that its operator can mend; the life cycle turns them into exit codes."""

import difflib
from collections.abc import Iterable

from diem.errors import DiemError


class ConfigurationError(DiemError):
    """The process cannot start as it is configured: repeating the attempt is pointless (exit code 2)."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``: did you mean a or b?`` with the known words that are most like another one; nothing without any."""
    near = difflib.get_close_matches(word, sorted(known), n=2)
    return f": did you mean {' or '.join(near)}?" if near else ""
