"""Old versions as undos: what makes one of the next newer version, in place of its whole content. Pure.

A change of one point of a large series would else copy all of it into the history, which costs more than the rest of
the write. An old version goes before those that it is made of: the oldest are deleted first.
"""

from typing import Final

from services.data.kinds import kind_of
from services.data.store.index import EndpointHead, StoredVersion

UNDO: Final = "application/vnd.diem.undo"
"""Media type of such rows of the history; nobody else sees it."""
LEAST_BYTES: Final = 16 * 1024
"""Size of contents from which undos are stored: smaller ones are cheaper to read as they are."""
_SHARE: Final = 4
"""Undos are at most this part of the content: a fourth."""


def is_worthwhile(undo: bytes, content: bytes) -> bool:
    """Return whether an undo replaces a content; an empty one never does."""
    return bool(undo) and len(content) >= LEAST_BYTES and len(undo) * _SHARE <= len(content)


def pack(head: EndpointHead, undo: bytes, newer: int) -> tuple[EndpointHead, bytes]:
    """Return the row of an old version, made of the version ``newer``."""
    return head._replace(media_type=UNDO), b"%d %b\n%b" % (newer, head.media_type.encode(), undo)


def newer_of(stored: StoredVersion) -> int | None:
    """Return the version of which a row is made; None: it is complete."""
    return int(stored.content.partition(b" ")[0]) if stored.media_type == UNDO else None


def apply(stored: StoredVersion, newer: StoredVersion) -> StoredVersion:
    """Return the complete version of a row; ``newer`` is complete, and the one of :func:`newer_of`."""
    terms, _, undo = stored.content.partition(b"\n")
    media_type = terms.partition(b" ")[2].decode()
    return stored._replace(media_type=media_type, content=kind_of(media_type).undo(newer.content, undo))
