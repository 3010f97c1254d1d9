"""``make bench-codecs``: bytes and CPU time of Kafka's batches of updates, by codec.

A batch is built as the publisher's client library does, and read as each bridge does, in this process and without a
broker: what it takes beyond no codec is what compression costs. The codec in use is ``CODEC``.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

import orjson
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from diem.kafka.topic_config import CODEC
from diem.protocol.update import encode
from services.data.publisher.log import BATCH_BYTES
from tests.bench.report import Report
from tests.load.bench import Goal, exit_code, write
from tests.support.commandline import parser
from tests.support.size import sized

CODECS: Final = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Numbers of the codecs in Kafka's batches."""
CPU_S: Final = sized(0.5, 0.2, 0.01)
"""CPU time of one measurement."""
START: Final = 1_750_000_000_000


class Kind(NamedTuple):
    """Batches of ``updates``, each with the data of so many ``points``; 0: without data."""

    updates: int
    points: int

    def __str__(self) -> str:
        """Return a name for people."""
        return f"{self.updates} a batch, " + (f"data of {self.points} points" if self.points else "without data")


KINDS: Final = sized(
    [Kind(1, 0), Kind(10, 0), Kind(100, 0), Kind(500, 0), Kind(1, 96), Kind(15, 96)],
    [Kind(1, 0), Kind(100, 0), Kind(15, 96)],
    [Kind(10, 0)],
)


def records(kind: Kind) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values as the publisher writes them."""
    random = Random(1)
    for _ in range(kind.updates):
        name, version = f"/market/prices/zone-{random.randrange(10_000):06d}", START + random.randrange(10**9)
        yield name.encode(), encode(name, version, version, data=_dataset(random, kind.points) if kind.points else None)


def _dataset(random: Random, points: int) -> bytes:
    """Return a load curve of quarter hours in MW, in the canonical form."""
    load, found = 5000.0, []
    for number in range(points):
        load += random.uniform(-80, 80)
        time_ = f"2026-01-{1 + number // 96:02d}T{number // 4 % 24:02d}:{15 * (number % 4):02d}:00Z"
        found.append({"time": time_, "value": round(load, 2)})
    return orjson.dumps({"unit": "MW", "resolution": "PT15M", "points": found})


def build(written: Sequence[tuple[bytes, bytes]], codec: int) -> bytes:
    """Return a batch as it is sent."""
    batch = BatchBuilder(BATCH_BYTES, codec)
    for key, value in written:
        if batch.append(key=key, value=value, timestamp=None) is None:
            raise ValueError("the batch is full")
    return bytes(batch._build())


def read(batch: bytes) -> int:
    """Read all records of a batch; return their number."""
    records_ = MemoryRecords(batch)
    count = 0
    while records_.has_next():
        found = records_.next_batch()
        count += sum(1 for _ in found or ())
    return count


def cpu_us(work: Callable[[], object], updates: int) -> float:
    """Return the CPU time of a call for each update, in microseconds, as a mean over ``CPU_S``."""
    calls, began = 0, time.process_time()
    while (spent := time.process_time() - began) < CPU_S:
        work()
        calls += 1
    return spent / calls / updates * 1e6


def measure(kind: Kind) -> dict[str, dict[str, float]]:
    """Return bytes, and CPU time for each update to build and to read, of each codec."""
    written = list(records(kind))
    found = {}
    for name, codec in CODECS.items():
        batch = build(written, codec)
        if read(batch) != kind.updates:
            raise AssertionError(f"{name}: not what was written")
        found[name] = {
            "bytes": len(batch),
            "build, us": round(cpu_us(lambda codec=codec: build(written, codec), kind.updates), 2),  # type: ignore[misc]
            "read, us": round(cpu_us(lambda batch=batch: read(batch), kind.updates), 2),  # type: ignore[misc]
        }
    return found


def judged(figures: dict[str, dict[str, dict[str, float]]]) -> list[Goal]:
    """Return the goals: where there is more than one update in a batch, ours is short and cheap."""
    goals = []
    for kind in (each for each in KINDS if each.updates > 1):
        none, ours = figures[str(kind)]["none"], figures[str(kind)][CODEC]
        goals.append(Goal(f"{CODEC}, {kind}: bytes to none", "x", 0.45, ours["bytes"] / none["bytes"]))
        more = ours["build, us"] + ours["read, us"] - none["build, us"] - none["read, us"]
        goals.append(Goal(f"{CODEC}, {kind}: CPU more than none", "us an update", 20.0 if kind.points else 3.0, more))
    return goals


def main(argv: Sequence[str] | None = None) -> int:
    parser(__spec__, __doc__, report="build/bench/codecs.json", quick="").parse_args(argv)
    figures: dict[str, Any] = {}
    with Report(len(KINDS)) as report:
        for kind in KINDS:
            report.step(str(kind))
            figures[str(kind)] = measure(kind)
            report.rows(str(kind), figures[str(kind)])
        goals = judged(figures)
        report.goals(goals)
    print(f"written: {write('codecs', {'figures': figures}, goals)}")
    return exit_code(goals)


if __name__ == "__main__":
    sys.exit(main())
