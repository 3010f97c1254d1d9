"""The kind ``bytes``: content with any media type, which the system does not look into."""

import base64
import re
from typing import Final

import orjson

from diem.protocol.media_types import essence
from services.data.errors import ScriptRefused
from services.data.kinds.kind import Body, DataKind, Format, Stored
from services.data.kinds.representation import Representation, seal

# Not those with +xml, which browsers run as documents.
_SHOWN: Final = re.compile(r"image/(?:png|jpeg|gif|webp|avif)|text/plain|(?:audio|video)/[a-z0-9.-]+")
# https://mimesniff.spec.whatwg.org/#javascript-mime-type
_SCRIPT: Final = re.compile(
    r"(?:application|text)/(?:x-)?(?:ecma|java)script|text/(?:javascript1\.[0-5]|jscript|livescript)"
)

OCTETS: Final = "bytes"
"""Name of the kind, and suffix of its entity tags."""


class OctetsKind(DataKind):
    """Bytes with their media type."""

    name = OCTETS
    formats = (Format(OCTETS),)

    def parse(self, endpoint: str, body: Body) -> Representation:
        """Take the body unchanged, unless it is a script: no header field of an answer prevents ``<script src>``."""
        if _SCRIPT.fullmatch(essence(body.media_type)) is not None:
            raise ScriptRefused(body.media_type)
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
    return _SHOWN.fullmatch(essence(media_type)) is not None
