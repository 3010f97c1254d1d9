"""Kinds of data: what an endpoint may hold, and how bodies become representations. Pure.

Reading order: ``representation`` (what the core carries), ``kind`` (the interface), ``series``, ``document``
(``json_text``, ``json_patch``), ``octets``, ``notice``, ``collection``; ``prefixes`` (rules of ``diem.toml``). A new
kind has its name and media type in ``diem.protocol.media_types``, a module here, and an entry in ``_ALL``.
"""

import re
from functools import lru_cache
from typing import Final

from diem.protocol import media_types
from diem.protocol.media_types import COLLECTION, CSV, DOCUMENT, NOTICE, SERIES
from services.data.kinds.collection import CollectionKind
from services.data.kinds.document import DocumentKind
from services.data.kinds.kind import Body, DataKind, Format, Stored
from services.data.kinds.notice import NoticeKind
from services.data.kinds.octets import OCTETS, OctetsKind, is_shown
from services.data.kinds.representation import (
    MAX_MEDIA_TYPE,
    NO_LABELS,
    Representation,
    labels_of,
    merge_labels,
    seal,
)
from services.data.kinds.series.kind import SeriesKind

__all__ = [
    "COLLECTION",
    "CSV",
    "DOCUMENT",
    "KINDS",
    "MAX_MEDIA_TYPE",
    "NOTICE",
    "NO_LABELS",
    "OCTETS",
    "PATCHES",
    "SERIES",
    "Body",
    "DataKind",
    "Format",
    "Representation",
    "Stored",
    "is_shown",
    "kind_of",
    "labels_of",
    "media_type",
    "merge_labels",
    "seal",
]

_ALL: Final[tuple[DataKind, ...]] = (SeriesKind(), DocumentKind(), OctetsKind(), NoticeKind(), CollectionKind())
KINDS: Final = {each.name: each for each in _ALL}
PATCHES: Final = frozenset().union(*(each.patches for each in _ALL))
"""Media types of all PATCH bodies."""
_NAME: Final = r"[A-Za-z0-9!#$&^_.+-]+"
_MEDIA_TYPE: Final = re.compile(rf"{_NAME}/{_NAME}")
_PARAMETER: Final = re.compile(rf"\s*({_NAME})=(?:({_NAME})|\"({_NAME})\")\s*")


@lru_cache(256)
def kind_of(name: str) -> DataKind:
    """Return the kind of a canonical media type (docs/adr/0031): the type alone decides, never the content."""
    return KINDS[media_types.kind_of(name)]


@lru_cache(256)
def media_type(text: str) -> str:
    """Return the canonical form of a media type (RFC 9110 section 8.3.1); empty for another text.

    Names are in lower case, without blanks and quotes; JSON and CSV are in UTF-8 and have no charset.
    """
    essence, *parameters = text.split(";")
    essence = essence.strip().lower()
    if _MEDIA_TYPE.fullmatch(essence) is None:
        return ""
    made = [essence]
    for parameter in parameters:
        if not parameter.strip():
            continue
        match = _PARAMETER.fullmatch(parameter)
        if match is None:
            return ""
        name, value = match[1].lower(), match[2] or match[3]
        if media_types.kind_of(essence) != OCTETS:
            if name == "charset" and value.lower() not in {"utf-8", "utf8", "us-ascii"}:
                return ""
        else:
            made.append(f"{name}={value.lower() if name == 'charset' else value}")
    canonical = ";".join(made)
    return canonical if len(canonical) <= MAX_MEDIA_TYPE else ""
