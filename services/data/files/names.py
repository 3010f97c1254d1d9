"""Names of endpoints from headings and cells, by templates such as ``{area}/{column}``."""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from services.data.errors import InvalidDataset

COLUMN: Final = "column"
FILE: Final = "file"
_FIELD: Final = re.compile(r"\{([^{}]+)\}")
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9._~-]+")
_LITERAL: Final = re.compile(r"[A-Za-z0-9._~!$'()*+,;=:@/-]*")
_LETTERS: Final = str.maketrans(
    {
        "ß": "ss",
        "æ": "ae",
        "Æ": "Ae",
        "ø": "o",
        "Ø": "O",
        "ł": "l",
        "Ł": "L",
        "đ": "d",
        "Đ": "D",
        "þ": "th",
        "\u0131": "i",
    }
)
"""Letters without a decomposition."""
_BRACKETS: Final = re.compile(r"\s*(?:\[([^\[\]]+)\]|\(([^()]+)\))\s*")


def check_template(template: str) -> str:
    """Return a template of names. Raises ValueError for another text."""
    if _LITERAL.fullmatch(_FIELD.sub("", template)) is None:
        raise ValueError("expected letters, digits, /, and names of columns in braces, such as {area}/{column}")
    return template.strip("/")


def fields_of(template: str) -> set[str]:
    """Return the names in braces."""
    return set(_FIELD.findall(template))


def fill(template: str, fields: Mapping[str, object]) -> str:
    """Return the path that a template makes of the texts of ``fields``.

    Raises:
        InvalidDataset: one has no letter or digit, so that there is no name.
    """
    return _FIELD.sub(lambda match: segment(str(fields[match[1]])), template)


@lru_cache(maxsize=8192)
def segment(text: str) -> str:
    """Return a text as a segment of a name: ``Wind Onshore`` becomes ``Wind-Onshore``, ``Köln`` becomes ``Koln``.

    Accents are left out, and other characters than letters, digits, and ``._~-`` are one ``-``.

    Raises:
        InvalidDataset: no letter or digit is left.
    """
    plain = unicodedata.normalize("NFKD", text.translate(_LETTERS))
    plain = "".join(each for each in plain if not unicodedata.combining(each))
    made = _FOREIGN.sub("-", plain).strip("-.")
    if not made:
        raise InvalidDataset(f"{text[:40]!r} has no letter or digit for a name (key: name)")
    return made


def split_heading(heading: str) -> tuple[str, str]:
    """Return the name and the unit of a heading: ``Load [MW]`` is ``Load`` in ``MW``; without brackets no unit."""
    brackets = list(_BRACKETS.finditer(heading))
    if not brackets:
        return heading.strip(), ""
    match = brackets[-1]
    name = f"{heading[: match.start()]} {heading[match.end() :]}".strip()
    return (name, (match[1] or match[2]).strip()) if name else (heading.strip(), "")
