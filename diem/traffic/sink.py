"""Sink of encoded events."""

from collections.abc import Sequence
from typing import Protocol

from diem.errors import DiemError


class SinkUnavailable(DiemError):
    """Events were not written, or it is not known whether they were; the same ones may be offered again."""

    retriable = True

    def __init__(self, reason: str, text: str) -> None:
        self.reason = reason
        """One word: the label under which losses are counted meanwhile."""
        self.text = text
        super().__init__(reason, text)

    def __str__(self) -> str:
        return self.text


class EventSink(Protocol):
    """Where events go."""

    async def write(self, events: Sequence[bytes]) -> None:
        """Write some events; called every second at least, with none if there are none.

        Raises:
            SinkUnavailable: they may be offered again.
        """
        ...

    async def close(self) -> None:
        """No more events come."""
        ...
