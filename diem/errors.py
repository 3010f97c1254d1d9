"""Roots of the errors that DIEM raises on purpose: ``DiemError``, and ``ConfigurationError`` for operators."""

import difflib
from collections.abc import Iterable
from dataclasses import fields
from typing import ClassVar


class DiemError(Exception):
    """An error that a person or a peer can act upon, raised with its text or, in a dataclass, with data and a template.

    The text of ``str(error)`` is complete in itself; data is in attributes. It is mapped to an HTTP status, a close
    code or an exit code at the edge of a process, never here. Subclasses with data are declared with
    ``@dataclass(eq=False)``: errors are compared by identity, as all exceptions.
    """

    retriable: ClassVar[bool] = False
    """Whether the same request may succeed later without being changed."""
    template: ClassVar[str] = ""
    """Format string of the text; its fields are the attributes. Empty: the text is the argument."""

    def __post_init__(self) -> None:
        """Set the arguments that pickle and copy call the constructor with; dataclasses call this."""
        self.args = tuple(getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]

    def __str__(self) -> str:
        """Return one line for a person, or one for each fault."""
        return self.template.format_map(vars(self)) if self.template else super().__str__()


class ConfigurationError(DiemError):
    """The process cannot start as it is configured: repeating the attempt is pointless (exit code 2)."""


class FileError(DiemError):
    """A file cannot be read or written.

    Templates may use ``reason`` and ``prefix``, which is ``FILE: `` or empty where the system does not name the file.
    """

    def __init__(self, error: OSError) -> None:
        """Take both from the error of the system."""
        super().__init__(error)
        self.reason = error.strerror or str(error)
        self.prefix = f"{error.filename}: " if error.filename else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``: did you mean a or b?`` with the known words that are most like another one; nothing without any."""
    near = difflib.get_close_matches(word, sorted(known), n=2)
    return f": did you mean {' or '.join(near)}?" if near else ""
