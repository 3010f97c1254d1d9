"""The kind ``notice``: only the news of a change; the data lives elsewhere."""

from typing import Any

import orjson

from diem.protocol.media_types import NOTICE
from services.data.kinds.kind import Body, DataKind, Format, Stored, envelope
from services.data.kinds.representation import Representation


class NoticeKind(DataKind):
    """A version, and the URL of the data if one is configured."""

    name = "notice"
    formats = (Format("json", NOTICE),)

    def parse(self, endpoint: str, body: Body) -> Representation:
        """Make a change; its content is the field ``url``, as JSON."""
        url = body.fields.get("url", "")
        content = orjson.dumps({"url": url}) if url else b"{}"
        # Without a digest: every notice is a change.
        return Representation(endpoint, NOTICE, content, b"", body.title)

    def render(self, endpoint: str, stored: Stored, suffix: str) -> bytes:
        """Return version, time and URL."""
        del suffix
        return envelope(endpoint, stored)

    def inline(self, endpoint: str, stored: Stored) -> bytes | None:
        """Return the JSON of an answer, and the media type."""
        return b'%b,"media_type":"%b"' % (envelope(endpoint, stored), NOTICE.encode())

    def describe(self, content: bytes) -> dict[str, Any]:
        """Return nothing."""
        del content
        return {}
