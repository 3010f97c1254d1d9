"""The kind ``collection``: the names of the endpoints directly below a prefix, kept by the store."""

from typing import Any

from diem.protocol.media_types import COLLECTION
from services.data.errors import KeptByStore
from services.data.kinds.kind import Body, DataKind, Format, Stored, envelope
from services.data.kinds.representation import Representation


class CollectionKind(DataKind):
    """A list of names, written by the store alone. Who may read the collection may read its members."""

    name = "collection"
    formats = (Format("json", COLLECTION),)

    def parse(self, endpoint: str, body: Body) -> Representation:
        """Refuse."""
        del body
        raise KeptByStore(endpoint)

    def render(self, endpoint: str, stored: Stored, suffix: str) -> bytes:
        """Return the members with the collection's version."""
        del suffix
        return envelope(endpoint, stored)

    def inline(self, endpoint: str, stored: Stored) -> bytes | None:
        """Return the JSON of an answer, and the media type."""
        return b'%b,"media_type":"%b"' % (envelope(endpoint, stored), COLLECTION.encode())

    def describe(self, content: bytes) -> dict[str, Any]:
        """Return nothing."""
        del content
        return {}
