"""Formats of keys and values: bytes as JSON values, text or bytes."""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from services.data.errors import InvalidDataset
from services.data.kinds.json_text import load

HEAD_BYTES: Final = 5
"""Of a value with the id of its schema before it: a zero byte, and 4 bytes (Confluent's wire format)."""


class ValueFormat(Protocol):
    """Decodes keys or values."""

    async def prepare(self, texts: Iterable[bytes | None]) -> None:
        """Fetch what :meth:`decode` needs for these; raises InputFailed if that cannot be reached."""
        ...

    def decode(self, text: bytes) -> Any:  # noqa: ANN401  # any JSON value, or bytes
        """Return the value; raises DataError."""
        ...

    def raw(self, text: bytes) -> bytes | None:
        """Return the JSON text of the value; None: it is of another format."""
        ...


class PlainFormat:
    """A format without schemas."""

    def __init__(self, decode: Callable[[bytes], Any], *, is_json: bool = False) -> None:
        self.decode = decode
        self.raw: Callable[[bytes], bytes | None] = _unframed if is_json else _none

    async def prepare(self, texts: Iterable[bytes | None]) -> None:
        """Do nothing."""


def _none(_text: bytes) -> bytes | None:
    return None


def _unframed(text: bytes) -> bytes:
    """Return JSON without the id of its schema, which brings nothing for its reader."""
    return text[HEAD_BYTES:] if text[:1] == b"\0" else text


def _json(text: bytes) -> Any:  # noqa: ANN401
    return load(_unframed(text))


def _text(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidDataset("it is not text in UTF-8") from None


PLAIN: Final = {
    "json": PlainFormat(_json, is_json=True),
    "text": PlainFormat(_text),
    "bytes": PlainFormat(lambda text: text),
}
