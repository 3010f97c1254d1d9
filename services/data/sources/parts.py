"""Joins parts of series: pages of one answer, and answers for single days with what is stored. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from services.data.errors import InvalidDataset
from services.data.kinds import SERIES, Representation
from services.data.kinds.representation import digest_of
from services.data.kinds.series import points_patch
from services.data.kinds.series.form import POINTS

_EARLIEST: Final = b"0"
"""Sorts before every time."""


def join(pages: Sequence[Sequence[Representation]]) -> list[Representation]:
    """Return the contents of several pages as one: of points at the same time, and of documents, the last one counts.

    Raises:
        InvalidDataset: pages differ in the unit or resolution of a series.
    """
    if len(pages) == 1:
        return list(pages[0])
    joined: dict[str, Representation] = {}
    for each in (one for page in pages for one in page):
        before = joined.get(each.endpoint)
        if before is None or each.media_type != SERIES or before.media_type != SERIES:
            joined[each.endpoint] = each
        elif not _fits(before.content, each.content):
            raise InvalidDataset(f"{each.endpoint} has another unit or resolution than on a page before")
        else:
            content = points_patch.splice(before.content, points_patch.changes_of(each.content)).content
            joined[each.endpoint] = replace(each, content=content, digest=digest_of(content))
    return list(joined.values())


def insert(part: Representation, stored: bytes | None, keep_from: str) -> Representation | None:
    """Return a stored series with a part of it replaced: all points from the first to the last one of the part.

    Args:
        part: what replaces it; other data than series replaces all that is stored.
        stored: the content; None if there is none.
        keep_from: points before this time are left out.

    Returns:
        None if nothing is left.
    """
    if part.media_type != SERIES:
        return part
    earliest = keep_from.encode()
    changes = [change for change in points_patch.changes_of(part.content) if change[0] >= earliest]
    if not changes:
        return None
    if stored is None or not _fits(stored, part.content):
        # The store refuses another unit or resolution.
        content = points_patch.splice(part.content, [(time, None) for time in _before(part.content, earliest)]).content
        return replace(part, content=content, digest=digest_of(content))
    gone = {*_before(stored, earliest), *points_patch.times_between(stored, changes[0][0], changes[-1][0])}
    gone.difference_update(time for time, _ in changes)
    made = points_patch.splice(stored, sorted([*changes, *((time, None) for time in gone)]))
    undo = points_patch.pack(made.undo)
    return replace(part, content=made.content, digest=digest_of(made.content), undo=undo)


def _before(content: bytes, time: bytes) -> list[bytes]:
    return [each for each in points_patch.times_between(content, _EARLIEST, time) if each < time]


def _fits(one: bytes, other: bytes) -> bool:
    """Return whether two contents have the same unit and resolution."""
    return one[: one.index(POINTS)] == other[: other.index(POINTS)]
