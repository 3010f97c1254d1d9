"""Requests of ``make bench-sizing`` and what ``ss`` reports, as bytes and text."""

import struct

from aiokafka.record.memory_records import MemoryRecords

from tests.bench import sizing_wire as wire
from tests.bench.sizing_sockets import between, parse

TWO_ENDS = """\
ESTAB 0 0 127.0.0.1:9092 127.0.0.1:40000 users:(("java",pid=11,fd=5))
\t cubic wscale:7,7 bytes_sent:70 bytes_acked:70 bytes_received:1000 segs_out:9
ESTAB 0 0 [::ffff:127.0.0.1]:40000 [::ffff:127.0.0.1]:9092 users:(("python",pid=22,fd=7))
\t cubic wscale:7,7 bytes_sent:1000 bytes_acked:1000 bytes_received:70 segs_out:9
ESTAB 0 0 127.0.0.1:9092 127.0.0.1:40001 users:(("java",pid=11,fd=6))
\t cubic wscale:7,7 bytes_sent:5 bytes_acked:5 segs_out:9
LISTEN 0 50 *:9092 *:* users:(("java",pid=11,fd=4))
\t cubic cwnd:10
ESTAB 0 0 127.0.0.1:9092 127.0.0.1:40002
\t cubic bytes_received:3
"""


def test_a_batch_is_what_kafka_reads() -> None:
    records = MemoryRecords(wire.batch(b"value", 3))
    batch = records.next_batch()
    assert batch is not None
    assert batch.validate_crc()
    assert [record.value for record in batch] == [b"value"] * 3
    assert records.next_batch() is None


def test_errors_of_every_partition_are_in_the_answer() -> None:
    parts = b"".join(struct.pack(">ihqq", *part) for part in [(4, 0, 17, -1), (9, 6, -1, -1)])
    response = struct.pack(">ih", 1, 3) + b"abc" + struct.pack(">i", 2) + parts + struct.pack(">i", 0)
    answer = wire.produced(response)
    assert answer.errors == {4: 0, 9: 6}
    assert wire.failed(answer) == [6]


def test_the_active_controller_is_the_leader_of_the_metadata_topic() -> None:
    name = bytes([len(wire.METADATA_TOPIC) + 1]) + wire.METADATA_TOPIC
    response = struct.pack(">h", 0) + b"\x02" + name + b"\x02" + struct.pack(">ihi", 0, 0, 5) + b"\0" * 20
    assert wire.quorum_leader(response) == 5
    assert wire.quorum_leader(struct.pack(">h", 41)) == -1


def test_bytes_are_counted_by_the_processes_at_both_ends() -> None:
    assert dict(between(parse(TWO_ENDS))) == {(22, 11): 1000, (11, 22): 70}
