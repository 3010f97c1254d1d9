"""Media types of data, and the kinds that they name (docs/adr/0031): the type alone decides, never the content."""

from functools import lru_cache
from typing import Final, Literal

SERIES: Final = "application/vnd.diem.series+json"
CSV: Final = "text/csv"
DOCUMENT: Final = "application/json"
NOTICE: Final = "application/vnd.diem.notice+json"
COLLECTION: Final = "application/vnd.diem.collection+json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
POINTS_PATCH: Final = "application/vnd.diem.points+json"

KindName = Literal["series", "document", "bytes", "notice", "collection"]
_OWN: Final[dict[str, KindName]] = {SERIES: "series", CSV: "series", NOTICE: "notice", COLLECTION: "collection"}


def essence(media_type: str) -> str:
    """Return a media type in lower case without its parameters."""
    return media_type.partition(";")[0].strip().lower()


@lru_cache(256)
def kind_of(media_type: str) -> KindName:
    """Return the name of the kind of content with a media type."""
    name = essence(media_type)
    if (own := _OWN.get(name)) is not None:
        return own
    return "document" if name == DOCUMENT or name.endswith("+json") else "bytes"
