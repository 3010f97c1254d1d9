"""Requests to a Kafka broker as bytes: one produce request for any number of partitions, and what to know of a quorum.

A client library takes longer for a request with a thousand partitions than the broker does. Here, requests are made
beforehand, and the clock runs from the first byte sent to the last byte received.

Versions are the oldest that Kafka 4 has, which are the simplest: Produce 3, CreateTopics 2, DescribeQuorum 0.
"""

import asyncio
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

from aiokafka.record.default_records import DefaultRecordBatchBuilder

PRODUCE: Final = (0, 3)
CREATE_TOPICS: Final = (19, 2)
DESCRIBE_QUORUM: Final = (55, 0)
METADATA_TOPIC: Final = b"__cluster_metadata"
ALL: Final = -1
"""Acknowledgements of all replicas in sync."""
TIMEOUT_MS: Final = 30_000
_CLIENT: Final = b"bench"
_PART: Final = struct.Struct(">ihqq")
"""Of a produce response: partition, error, offset, time."""


class Answer(NamedTuple):
    """Errors by partition; 0 for a record that is acknowledged."""

    errors: dict[int, int]


class BadAnswer(Exception):
    """A response that does not belong to the request."""


def batch(value: bytes, records: int = 1) -> bytes:
    """Return a record batch of equal values."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for number in range(records):
        builder.append(number, timestamp=1_750_000_000_000, key=None, value=value, headers=[])
    return bytes(builder.build())


def produce(topic: str, partitions: Sequence[int], records: bytes, acks: int) -> bytes:
    """Return the body of a request that appends ``records`` to each partition."""
    parts = (struct.pack(">ii", partition, len(records)) + records for partition in partitions)
    head = struct.pack(">hhii", -1, acks, TIMEOUT_MS, 1)
    return b"".join((head, _text(topic.encode()), struct.pack(">i", len(partitions)), *parts))


def produced(response: bytes) -> Answer:
    """Parse the response to :func:`produce`."""
    (topics,) = struct.unpack_from(">i", response)
    at, errors = 4, dict[int, int]()
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", response, at)
        (parts,) = struct.unpack_from(">i", response, at + 2 + length)
        begin = at + 6 + length
        at = begin + parts * _PART.size
        errors |= {part: error for part, error, _, _ in _PART.iter_unpack(response[begin:at])}
    return Answer(errors)


def validate_topic(topic: str) -> bytes:
    """Return the body of a request that has a controller check if a topic could be created, and creates none."""
    name = _text(topic.encode())
    return struct.pack(">i", 1) + name + struct.pack(">ihiii?", 1, 1, 0, 0, TIMEOUT_MS, True)


def validated(response: bytes) -> int:
    """Parse the response to :func:`validate_topic`: its error, 0 if a controller has answered."""
    (length,) = struct.unpack_from(">h", response, 8)
    return int(struct.unpack_from(">h", response, 10 + length)[0])


def describe_quorum() -> bytes:
    """Return the body of a request for the leader of the metadata quorum."""
    # Compact arrays and strings have their length plus one; the zeros are tags, of which there are none.
    return b"\x02" + bytes([len(METADATA_TOPIC) + 1]) + METADATA_TOPIC + b"\x02" + struct.pack(">i", 0) + b"\0\0\0"


def quorum_leader(response: bytes) -> int:
    """Parse the response to :func:`describe_quorum`: the active controller, -1 if there is none."""
    (error,) = struct.unpack_from(">h", response)
    if error:
        return -1
    # Its topic, one partition: number, error, leader.
    return int(struct.unpack_from(">ihi", response, 2 + 1 + 1 + len(METADATA_TOPIC) + 1)[2])


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


class Connection:
    """One connection to a broker: one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to a broker of this machine. Raises OSError."""
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=1 << 24))

    async def request(self, kind: tuple[int, int], body: bytes) -> bytes:
        """Send a request, and return the body of its response.

        Raises:
            OSError, asyncio.IncompleteReadError: the broker ends the connection.
        """
        self._number += 1
        flexible = kind == DESCRIBE_QUORUM
        head = struct.pack(">hhi", *kind, self._number) + _text(_CLIENT) + (b"\0" if flexible else b"")
        self._writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        await self._writer.drain()
        (length,) = struct.unpack(">i", await self._reader.readexactly(4))
        response = await self._reader.readexactly(length)
        (number,) = struct.unpack_from(">i", response)
        if number != self._number:
            raise BadAnswer(f"response {number} to request {self._number}")
        return response[5 if flexible else 4 :]

    def close(self) -> None:
        """Close it at once."""
        self._writer.transport.abort()


def failed(answer: Answer) -> list[int]:
    """Return the errors of an answer."""
    return [error for error in answer.errors.values() if error]
