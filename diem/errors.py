"""The root of every error that DIEM raises on purpose."""

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
