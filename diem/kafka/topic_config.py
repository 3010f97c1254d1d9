"""Configuration of the topics (docs/internals.md section 3): plain values, importable without a Kafka client."""

from collections.abc import Mapping
from typing import Final

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
INTERNAL: Final = (OFFSETS, TRANSACTIONS)
"""Kafka's internal topics, created on first use."""
CODEC: Final = "snappy"
"""Compression of updates and traffic: about a quarter of the bytes, at the least CPU time (docs/performance.md)."""
MAX_MESSAGE_BYTES: Final = 131072
TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"
"""Brokers set record timestamps: no other clock affects acceptance, compaction or retention."""
UPDATES_CONFIG: Final[Mapping[str, str]] = {
    # Only "compact": with "delete", a rarely changing endpoint would lose its only record.
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    # With CreateTime, a host with its clock an hour ahead could write nothing (message.timestamp.after.max.ms).
    TIMESTAMP_TYPE: LOG_APPEND_TIME,
    "unclean.leader.election.enable": "false",
    # The publisher's compression: a recompressing broker may use a codec that some reader lacks.
    "compression.type": "producer",
}
"""Settings of each of our topics (docs/internals.md section 3); ``min.insync.replicas`` follows the replication."""
TRAFFIC_PARTITIONS: Final = 12
TRAFFIC_BATCH_BYTES: Final = 256 * 1024
TRAFFIC_CONFIG: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 3600 * 1000),
    # Only closed segments are deleted.
    "segment.ms": str(24 * 3600 * 1000),
    "max.message.bytes": str(2 * TRAFFIC_BATCH_BYTES),
    TIMESTAMP_TYPE: LOG_APPEND_TIME,
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
    "compression.type": "producer",
}
"""Settings of the topic of recorded traffic (docs/traffic.md section 1); operators may change them."""
