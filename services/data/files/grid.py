"""Rows of cells, in whatever format they came, with their places for messages."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

Cell = str | int | float | bool | None
"""Text of formats without types; of others, a number or a truth value. None is no cell at all."""
CHUNK_ROWS: Final = 5_000
"""Rows converted together: what is held of them is bounded, and a turn of a loop costs little for each."""


def cell_text(cell: Cell) -> str:
    """Return a cell as text, without blanks around it; empty for none."""
    return cell.strip() if isinstance(cell, str) else "" if cell is None else str(cell)


def place_of(file: str, noun: str, number: int) -> str:
    """Return a place in messages, such as ``a.csv, line 7``; without the file if it has no name."""
    return f"{file}, {noun} {number}" if file else f"{noun} {number}"


class Chunk(NamedTuple):
    """Consecutive rows, each with one cell for every column, and the number of each row's place.

    ``objects``: of formats with a structure, the value that each row comes from, for documents.
    """

    rows: Sequence[Sequence[Cell]]
    places: Sequence[int]
    objects: Sequence[object] = ()


@dataclass(frozen=True, slots=True)
class Grid:
    """Named columns, and rows in chunks, which are read once.

    Attributes:
        columns: names in the order of the cells; those without one are empty. chunks: raises DataError while iterated.
        place: the noun of a row's place in messages: ``line`` of a text, ``row`` of other formats, followed by its
        number. file: the name of the file or member. own: how many columns, the first ones, are of the rows themselves,
        not of what is around them; None: all.
    """

    columns: Sequence[str]
    chunks: Iterator[Chunk]
    place: str = "line"
    file: str = ""
    own: int | None = None


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file to be read: its name with the suffix, or the path of a URL; its content; its declared media type."""

    name: str
    body: bytes
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Bounds of one file, and of what is decoded from it."""

    decoded_bytes: int = 256 * 1024 * 1024
    members: int = 1000
    rows: int = 2_000_000
    columns: int = 10_000
    cells: int = 20_000_000
    cell_characters: int = 4096
    """Of documents and series: a longer cell is a mistake in the delimiter or the quotes."""
    depth: int = 64
    """Levels of JSON and XML."""
    endpoints: int = 10_000


DEFAULT_LIMITS: Final = FileLimits()
