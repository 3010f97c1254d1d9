"""A suggestion in the making: keys and fields, what the sample shows, and what it does not prove."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.data.files.suggestion import Note, Question


@dataclass
class Draft:
    """A mapping in the making.

    Attributes:
        keys: of the mapping. fields: of the source. notes, questions: as found. problem: why nothing can be read;
        empty: it can. score: of the draft among others of the same file. columns: of its table.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[Note] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    problem: str = ""
    score: float = 0.0
    columns: Sequence[str] = ()

    def note(self, key: str, reason: str) -> None:
        """Add a finding."""
        self.notes.append(Note(key, reason))

    def question(self, key: str, assumed: str, reason: str, others: Sequence[str] = ()) -> None:
        """Add what is unsure."""
        self.questions.append(Question(key, assumed, reason, tuple(others)))
