"""The Metadata API in version 12, as structures (Kafka protocol guide, "Metadata Request/Response (Version: 12)").

aiokafka's own Metadata ends at version 5, which does not know topic ids.
"""

import uuid
from io import BytesIO
from typing import ClassVar, Final

from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

METADATA: Final = 3


class _Uuid(AbstractType[uuid.UUID]):
    """A UUID as its 16 bytes."""

    @classmethod
    def encode(cls, value: uuid.UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> uuid.UUID:
        return uuid.UUID(bytes=data.read(16))


NO_ID: Final = uuid.UUID(int=0)


class _Answer(Response):
    API_KEY = METADATA
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString()),
                ("port", Int32),
                ("rack", CompactString()),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString()),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString()),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition_index", Int32),
                        ("leader_id", Int32),
                        ("leader_epoch", Int32),
                        ("replica_nodes", CompactArray(Int32)),
                        ("isr_nodes", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Structure(RequestStruct):
    FLEXIBLE_VERSION: ClassVar[bool] = True
    API_KEY = METADATA
    API_VERSION = 12
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", _Uuid), ("name", CompactString()), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class MetadataRequest(Request[_Structure]):
    """Asks for topics (None: all), each as id, name and tagged fields."""

    API_KEY = METADATA

    def __init__(self, topics: list[tuple[uuid.UUID, str, dict[int, bytes]]] | None) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[_Structure]) -> _Structure:
        """Make the structure, as the library's connections ask for it."""
        # Never creates a topic: that is for :mod:`diem.kafka.topics`, with its configuration.
        return request_struct_class(self._topics, False, False, {})
