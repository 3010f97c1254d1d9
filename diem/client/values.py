"""Values of endpoints by kind, from updates and from answers of ``GET /v1/data`` (docs/protocol.md section 2.1).

| kind | value |
|---|---|
| document | the JSON value |
| series | a dict of unit, resolution and points |
| bytes | str for ``text/*``, otherwise bytes |
| notice | a dict with the URL of the data, if one is configured |
| collection | a dict of members: the names of the endpoints and collections directly below |
"""

import base64
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

import orjson

from diem.protocol.media_types import DOCUMENT, SERIES, essence, kind_of

_ENVELOPE: Final = ("endpoint", "version", "time")
_CHARSET: Final = re.compile(r";\s*charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)


class EndpointSnapshot(NamedTuple):
    """One version of an endpoint."""

    version: int
    time: str
    """Time of the change in RFC 3339."""
    media_type: str
    value: Any

    @classmethod
    def of_answer(cls, headers: Mapping[str, str], body: bytes) -> Self:
        """Return the content of an answer with status 200.

        Args:
            headers: the answer's; names in any case, or as the service writes them.
            body: of the answer.

        Raises:
            ValueError: it is no answer of ``GET /v1/data``, or CSV.
        """
        media_type = headers.get("Content-Type", "")
        kind = kind_of(media_type)
        if kind == "bytes":
            value: Any = _text_or_bytes(media_type, body)
        elif essence(media_type) != DOCUMENT and not essence(media_type).endswith("+json"):
            raise ValueError(f"{media_type[:100]} is no JSON: ask with Accept: */*")
        else:
            value = orjson.loads(body)
            value = value if kind == "document" else _content(value)
        version = headers.get("Diem-Version", "")
        if not (version.isascii() and version.isdigit()):
            raise ValueError("this is no answer of GET /v1/data: it has no Diem-Version")
        return cls(int(version), headers.get("Diem-Time", ""), media_type, value)

    @classmethod
    def of_update(cls, message: Mapping[str, Any]) -> Self | None:
        """Return the data of an update; None if it carries none, or not its own."""
        if "data" not in message:
            return None
        version, media_type, value = message["version"], message.get("media_type", SERIES), message["data"]
        try:
            kind = kind_of(media_type)
            if kind == "bytes":
                coded = message.get("encoding") == "base64"
                body = base64.b64decode(value, validate=True) if coded else value.encode()
                value = _text_or_bytes(media_type, body)
            elif kind != "document":
                if (value["endpoint"], value["version"]) != (message["endpoint"], version):
                    return None
                value = _content(value)
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        return cls(version, message.get("time", ""), media_type, value)


def _content(envelope: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in envelope.items() if name not in _ENVELOPE}


def _text_or_bytes(media_type: str, body: bytes) -> str | bytes:
    if not essence(media_type).startswith("text/"):
        return body
    found = _CHARSET.search(media_type)
    try:
        return body.decode(found[1] if found else "utf-8", errors="replace")
    except LookupError:
        return body.decode(errors="replace")
