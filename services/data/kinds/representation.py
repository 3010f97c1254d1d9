"""The content of an endpoint for the core: bytes with a media type, and labels for the catalogue."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Self

import orjson

from services.data.errors import DatasetTooLarge
from services.data.limits import SMALLER

MAX_MEDIA_TYPE: Final = 100
"""Longest media type in characters, parameters included."""
NO_LABELS: Final = "{}"


# Not frozen: every write makes several, and a frozen one takes five times as long.
@dataclass(slots=True)
class Representation:
    """New content of an endpoint.

    Attributes:
        endpoint: its name. media_type: in canonical form; names the kind. content: in the kind's canonical form: equal
        data, equal content. digest: of the content; empty: a change even if the content is equal. title: empty keeps
        the stored one. labels: of the catalogue, as :func:`label_text` returns them; missing ones keep their stored
        values. ttl_ms: time until the endpoint expires; 0: never. undo: of a patch, what its kind makes the previous
        content of; empty: none.
    """

    endpoint: str
    media_type: str
    content: bytes
    digest: bytes
    title: str = ""
    labels: str = NO_LABELS
    ttl_ms: int = 0
    undo: bytes = field(default=b"", compare=False)

    def expiring(self, ttl_ms: int) -> Self:
        """Return the representation with a time to live."""
        return self if ttl_ms == self.ttl_ms else replace(self, ttl_ms=ttl_ms)

    def check_size(self, max_bytes: int) -> None:
        """Raise DatasetTooLarge if the content has more than ``max_bytes``."""
        if len(self.content) > max_bytes:
            found = f"{self.endpoint} would have {len(self.content)} bytes"
            raise DatasetTooLarge(f"{found}, at most are {max_bytes}: {SMALLER}")

    @property
    def size(self) -> int:
        """Length of the content in bytes."""
        return len(self.content)

    def label(self, name: str) -> str:
        """Return one label; empty if missing."""
        return labels_of(self.labels).get(name, "")


def seal(endpoint: str, media_type: str, content: bytes, title: str = "", labels: str = NO_LABELS) -> Representation:
    """Make a representation, with the digest of its content."""
    return Representation(endpoint, media_type, content, digest_of(content), title, labels)


def digest_of(content: bytes) -> bytes:
    """Return the digest that decides about equal content."""
    return blake2b(content, digest_size=16).digest()


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels without empty ones as canonical JSON, which is stored."""
    # PostgreSQL cannot store NUL characters in text.
    given = {name: value.replace("\0", "") for name, value in labels.items() if value}
    return orjson.dumps(given, option=orjson.OPT_SORT_KEYS).decode() if given else NO_LABELS


@lru_cache(maxsize=4096)
def labels_of(text: str) -> Mapping[str, str]:
    """Return labels by name; not to be changed."""
    found: dict[str, str] = orjson.loads(text)
    return found


@lru_cache(maxsize=4096)
def merge_labels(new: str, stored: str) -> str:
    """Return the ``new`` labels, and those of the ``stored`` ones that they lack."""
    return label_text({**labels_of(stored), **labels_of(new)})
