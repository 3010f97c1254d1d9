"""Messages of a broker as records. Pure."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from services.data.errors import DataError, InvalidDataset
from services.data.kinds.json_text import load
from services.data.sources.mqtt.table import MqttTable
from services.data.sources.records.record import MISSING, Record

MAX_SHOWN: Final = 100
"""Longest part of a topic in positions, in characters."""


class Message(NamedTuple):
    """A message.

    Attributes:
        topic: its topic. payload: its content. qos: quality of service of its delivery. id: of that, to acknowledge it.
        retained: it was sent for the subscription, not when it was published. repeated: it was sent before. headers:
        user properties.
    """

    topic: str
    payload: bytes
    qos: int
    id: int
    retained: bool
    repeated: bool
    headers: Mapping[str, str]

    @property
    def position(self) -> str:
        """A text for it and its repetitions: messages have no position."""
        digest = blake2b(self.topic.encode() + b"\0" + self.payload, digest_size=8)
        return f"{self.topic[:MAX_SHOWN]} {digest.hexdigest()}"


class MessageDecoder:
    """Makes records of messages."""

    def __init__(self, table: MqttTable) -> None:
        self._decode = _FORMATS[table.format]
        self._is_json = table.format == "json"

    def record(self, message: Message, time_ms: int) -> Record:
        """Return the record of a message that arrived at ``time_ms``; one without content ends its endpoint."""
        value: Any = MISSING
        raw = fault = None
        if payload := message.payload:
            try:
                value, raw = self._decode(payload), payload if self._is_json else None
            except DataError as error:
                fault = InvalidDataset(f"{error} (key: format)")
        names = _names(message.topic)
        return Record(message.position, value, None, raw, message.headers, names, time_ms, fault)


@lru_cache(10_000)
def _names(topic: str) -> Mapping[str, str]:
    """Return the names of a topic's levels, counted from 1."""
    return {"topic": topic, **{f"topic/{level}": text for level, text in enumerate(topic.split("/"), 1)}}


def _text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        raise InvalidDataset("it is not text in UTF-8") from None


_FORMATS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "json": load, "text": _text, "bytes": lambda payload: payload
}  # fmt: skip
