"""The media type of a file to store: given, or that of its name; never that of its content. Pure."""

import mimetypes
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

import typer

from diem.errors import ConfigurationError
from diem.protocol.media_types import CSV, DOCUMENT, JSON_PATCH, MERGE_PATCH, POINTS_PATCH, SERIES, kind_of

PIPE: Final = "-"
TEXT: Final = "text/plain;charset=utf-8"
TYPES: Final[Mapping[str, str]] = {"json": DOCUMENT, "series": SERIES, "csv": CSV, "text": TEXT}
PATCHES: Final[Mapping[str, str]] = {"merge": MERGE_PATCH, "json-patch": JSON_PATCH, "points": POINTS_PATCH}
_OF_NAMES: Final = mimetypes.MimeTypes()
"""The library's own table, the same on every machine."""


@dataclass(eq=False)
class UnknownType(ConfigurationError):
    """The name of a file does not say what it contains."""

    template = "{file}: {reason}: add --type, as json, series, csv, text, or a media type such as {example}"

    file: str
    reason: str
    example: str = "image/png"


def type_of_file(file: str, content: bytes, given: str | None, of_series: Iterable[str] = ()) -> str:
    """Return the media type of a file.

    Args:
        file: its name, or ``-`` for standard input, which is JSON: nothing else is accepted as that by mistake.
        content: only checked: text without a charset is UTF-8.
        given: value of ``--type``; None: none.
        of_series: options that are for series; with them, a JSON file is one.

    Raises:
        UnknownType: the name has no known suffix.
        typer.BadParameter: the options contradict the type.
    """
    options = tuple(of_series)
    if given is not None:
        found = alias(given, TYPES)
    else:
        found = DOCUMENT if file == PIPE else _type_of_name(file)
        if found == DOCUMENT and options:
            return SERIES
    if options and kind_of(found) != "series":
        raise typer.BadParameter(f"{options[0]} is for series, and {file} is {found}: add --type series or csv")
    if found.startswith("text/") and found != CSV and (given is None or found == TEXT):
        return _with_charset(file, content, found)
    return found


def alias(given: str, names: Mapping[str, str]) -> str:
    """Return the media type of a short name, or the media type itself. Raises ``typer.BadParameter``."""
    if given in names:
        return names[given]
    if "/" not in given:
        raise typer.BadParameter(f"--type is {', '.join(names)} or a media type such as image/png, not {given!r}")
    return given


def _type_of_name(file: str) -> str:
    suffix = PurePath(file).suffix.lower()
    found, coding = _OF_NAMES.guess_type(f"name{suffix}", strict=False)
    if coding is not None:
        raise UnknownType(file, "it is compressed; unpack it, or store it as it is", f"application/{coding}")
    if found is None:
        raise UnknownType(file, f"the suffix {suffix} is unknown" if suffix else "its name has no suffix")
    return found


def _with_charset(file: str, content: bytes, media_type: str) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        essence = media_type.partition(";")[0]
        raise UnknownType(file, "it is not UTF-8", f"'{essence};charset=iso-8859-1'") from None
    return f"{media_type.partition(';')[0]};charset=utf-8"
