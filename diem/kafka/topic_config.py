"""Configuration of the topics (docs/protocol.md section 3): values alone, which need no Kafka client to be read."""

from collections.abc import Mapping
from typing import Final

OFFSETS: Final = "__consumer_offsets"
TRANSACTIONS: Final = "__transaction_state"
INTERNAL: Final = (OFFSETS, TRANSACTIONS)
"""Topics that Kafka creates for itself when they are first needed."""
CODEC: Final = "snappy"
"""Of batches of updates and of traffic: about four times fewer bytes, at the least CPU time (docs/performance.md)."""
MAX_MESSAGE_BYTES: Final = 131072
TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"
"""Brokers set the time of records: no other clock counts for acceptance, compaction and retention."""
UPDATES_CONFIG: Final[Mapping[str, str]] = {
    # Only "compact": with "delete", an endpoint without changes for long would lose its only record.
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "segment.bytes": str(64 * 1024 * 1024),
    "max.compaction.lag.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
    "max.message.bytes": str(MAX_MESSAGE_BYTES),
    # With CreateTime, a host whose clock is an hour ahead can write nothing (message.timestamp.after.max.ms).
    TIMESTAMP_TYPE: LOG_APPEND_TIME,
    "unclean.leader.election.enable": "false",
    # As the publisher compressed it: brokers that recompress may use codecs that not every reader has.
    "compression.type": "producer",
}
"""Settings of each of our topics (docs/protocol.md section 3); ``min.insync.replicas`` follows the replication."""
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
"""Settings of the topic of recorded traffic (docs/traffic.md section 1), which operators may alter."""
