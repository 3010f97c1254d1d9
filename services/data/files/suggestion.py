"""A suggested source, with findings and questions: what ``suggest`` makes, apart from the code that makes it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from services.data.files.grid import InputFile
from services.data.files.mapping import Mapping
from services.data.files.target import FileTarget
from services.data.kinds import Representation

ANSWERS: Final = ("zone", "unit", "resolution", "time_format", "decimal", "stamp")
"""What a user may state, because a file does not prove it."""


class Question(NamedTuple):
    """What the sample does not prove. ``key``: of the source or its mapping. ``assumed``: what the suggestion has."""

    key: str
    assumed: str
    reason: str
    others: tuple[str, ...] = ()


class Note(NamedTuple):
    """What the sample shows."""

    key: str
    reason: str


@dataclass(frozen=True)
class Suggestion:
    """A source for a file.

    Attributes:
        fields: of the table ``[[source]]``. keys: of its mapping. preset: instead of all keys and some fields. notes:
        what the file shows. questions: what it does not prove. found: what would be published. problem: why nothing
        would be.
    """

    name: str
    fields: dict[str, Any]
    keys: dict[str, Any] = field(default_factory=dict)
    preset: str = ""
    notes: Sequence[Note] = ()
    questions: Sequence[Question] = ()
    found: Sequence[Representation] = ()
    problem: str = ""

    @property
    def layout(self) -> dict[str, Any]:
        """The fields without the endpoints."""
        return {key: value for key, value in self.fields.items() if key not in {"endpoint", "prefix"}}

    @property
    def is_several(self) -> bool:
        """True if there are several endpoints, below a prefix."""
        return "prefix" in self.fields


class FileWork(Protocol):
    """Work on files beside the event loop, as of a ``FileReader``."""

    async def convert(self, file: InputFile, mapping: Mapping, target: FileTarget, /) -> list[Representation]:
        """Do what :func:`services.data.files.convert.convert` does."""
        ...

    async def suggest(self, file: InputFile, /) -> Suggestion:
        """Do what :func:`services.data.files.suggest.suggest` does."""
        ...
