"""Build an instance from a window: its statistics, in files or in memory, or its events."""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

import numpy as np
import orjson

from diem.protocol.traffic import decode
from metadata.placement.blocks import Block
from metadata.placement.instance import Instance
from metadata.statistics import plain
from metadata.statistics.figures import Statistics
from metadata.statistics.window import Window


def from_events(lines: Iterable[bytes | str], window: Window) -> Instance:
    """From traffic events (docs/traffic.md section 1), one a line, in any order.

    Raises:
        BadEvent: a line is none.
    """
    events = (decode(line) for line in lines)
    return of_statistics(plain.statistics((plain.Arrival(event, event.time) for event in events), window))


def of_statistics(found: Statistics) -> Instance:
    """From statistics in memory."""
    names, rates = [row.endpoint for row in found.endpoints], [row.rate for row in found.endpoints]
    sets = Block(
        np.array([pin for row in found.sets for pin in row.endpoints], np.int32),
        np.array([len(row.endpoints) for row in found.sets], np.int32),
        np.array([row.weight for row in found.sets], np.int64),
    )
    return Instance.of(names, rates, [row.subscribers for row in found.endpoints], sets, found.window.ms / 1000)


def read_statistics(folder: Path) -> Instance:
    """From the files of a window (docs/traffic.md section 3.4). Needs pyarrow.

    Raises:
        OSError: one of them is missing.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - only the extra "spark" has it

    sets = pq.read_table(folder / "sets.parquet", columns=["endpoints", "weight"])
    lists = sets.column("endpoints").combine_chunks()
    block = Block(
        lists.flatten().to_numpy(zero_copy_only=False).astype(np.int32),
        lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int32),
        sets.column("weight").to_numpy().astype(np.int64),
    )
    return _with(folder, block)


def read_endpoints(folder: Path) -> Instance:
    """The same without any sets: for when these stay where they are. Needs pyarrow.

    Raises:
        OSError: a file is missing.
    """
    return _with(folder, Block(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int64)))


def _with(folder: Path, sets: Block) -> Instance:
    import pyarrow.parquet as pq  # noqa: PLC0415

    endpoints = pq.read_table(folder / "endpoints.parquet", columns=["endpoint", "rate", "subscribers"])
    rate, subscribers = (endpoints.column(name).to_numpy() for name in ("rate", "subscribers"))
    return Instance.of(
        endpoints.column("endpoint").to_pylist(), rate, subscribers, sets, _seconds(folder / "window.json")
    )


def _seconds(path: Path) -> float:
    window = orjson.loads(path.read_bytes())
    start, end = (datetime.fromisoformat(window[name]) for name in ("from", "to"))
    return (end - start).total_seconds()
