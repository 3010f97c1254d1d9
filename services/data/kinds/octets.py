"""The kind ``bytes``: content with any media type, which the system does not look into."""

import base64
from typing import Final

import orjson

from services.data.kinds.kind import Body, DataKind, Format, Stored
from services.data.kinds.representation import Representation, seal

_SHOWN: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain", "audio/", "video/")


OCTETS: Final = "bytes"
"""Name of the kind, and suffix of its entity tags."""


class OctetsKind(DataKind):
    """Bytes with their media type."""

    name = OCTETS
    formats = (Format(OCTETS),)

    def parse(self, endpoint: str, body: Body) -> Representation:
        """Take the body unchanged."""
        return seal(endpoint, body.media_type, body.content, body.title)

    def inline(self, endpoint: str, stored: Stored) -> bytes | None:
        """Return a string, the text itself or base64, with encoding and media type."""
        del endpoint
        encoding = b""
        try:
            text = stored.content.decode()
        except UnicodeDecodeError:
            text, encoding = base64.b64encode(stored.content).decode(), b',"encoding":"base64"'
        return b'%b%b,"media_type":"%b"' % (orjson.dumps(text), encoding, stored.media_type.encode())


def is_shown(media_type: str) -> bool:
    """Return whether a browser shows content of this media type without running anything; else it is an attachment."""
    return media_type.startswith(_SHOWN)
