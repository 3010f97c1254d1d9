"""Roots of DIEM's own errors: ``DiemError``, and ``ConfigurationError`` for operators."""

import difflib
from collections.abc import Iterable
from dataclasses import fields
from typing import ClassVar, Final

DISTRIBUTION: Final = "diem-realtime"
"""Name on the Python package index, where ``diem`` is another project (ADR 45)."""


class DiemError(Exception):
    """An expected error, raised with its text or, as a dataclass, with data for a template.

    ``str(error)`` is complete in itself; data is in attributes. Only the edge of a process maps errors to an HTTP
    status, a close code or an exit code. Subclasses with data are declared with ``@dataclass(eq=False)``, because
    exceptions are compared by identity.
    """

    retriable: ClassVar[bool] = False
    """The same request may succeed later, unchanged."""
    template: ClassVar[str] = ""
    """Format string of the text; its fields are the attributes. Empty: the text is the argument."""

    def __post_init__(self) -> None:
        """Set ``args``, the constructor's arguments for pickle and copy; called by dataclasses."""
        self.args = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        """Return one line, or one line for each fault."""
        return self.template.format_map(vars(self)) if self.template else super().__str__()


class ConfigurationError(DiemError):
    """The process cannot start with its configuration, and a retry would fail as well (exit code 2)."""


class FileError(DiemError):
    """A file cannot be read or written.

    Templates may use ``reason`` and ``prefix``: ``FILE: ``, or empty if the system does not name the file.
    """

    def __init__(self, error: OSError) -> None:
        """Take both from the ``OSError``."""
        super().__init__(error)
        self.reason = error.strerror or str(error)
        self.prefix = f"{error.filename}: " if error.filename else ""


def install_command(*extras: str) -> str:
    """Return the command that installs DIEM with some extras."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` (did you mean `a` or `b`?)`` with the known words most similar to ``word``; empty without any."""
    near = difflib.get_close_matches(word, sorted(known), n=2)
    return f" (did you mean {' or '.join(f'`{each}`' for each in near)}?)" if near else ""
