"""The kind ``document``: any JSON value."""

import orjson

from diem.protocol.media_types import JSON_PATCH, MERGE_PATCH
from services.data.kinds import json_patch
from services.data.kinds.json_text import canonical, load, written
from services.data.kinds.kind import Body, DataKind, Format, Stored
from services.data.kinds.representation import Representation, seal


class DocumentKind(DataKind):
    """A JSON value, answered as it is."""

    name = "document"
    formats = (Format("json"),)
    patches = frozenset({MERGE_PATCH, JSON_PATCH})

    def parse(self, endpoint: str, body: Body) -> Representation:
        """Check the JSON and write it in one form."""
        return seal(endpoint, body.media_type, canonical(body.content), body.title)

    def patch(self, endpoint: str, stored: Stored, body: Body) -> Representation:
        """Apply a Merge Patch (RFC 7396) or a JSON Patch (RFC 6902)."""
        patch = load(body.content)
        written(patch, body.content)
        apply = json_patch.merge if body.media_type == MERGE_PATCH else json_patch.apply
        made = json_patch.write(apply(orjson.loads(stored.content), patch))
        return seal(endpoint, stored.media_type, made, body.title)

    def inline(self, endpoint: str, stored: Stored) -> bytes | None:
        """Return the document, and its media type."""
        del endpoint
        return b'%b,"media_type":"%b"' % (stored.content, stored.media_type.encode())
