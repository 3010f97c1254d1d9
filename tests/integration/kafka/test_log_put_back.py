"""A log that was put back to an earlier state, on a real broker: see test_log_cut."""

from functools import partial
from pathlib import Path

import pytest

from diem.kafka.config import KafkaOptions
from services.data.publisher import forgetting
from tests.integration.kafka.test_log_cut import (
    Reader,
    copy_the_logs,
    options,
    reading,
    restore_a_replica,
    until_forgotten,
)
from tests.support.local_cluster import LocalCluster
from tests.support.patience import until
from tests.support.published import MemoryStore
from tests.support.required import in_cluster

__all__ = ["options"]

pytestmark = [
    pytest.mark.takes(25),
    in_cluster("it takes half a minute"),
]


def has_heartbeats(reader: Reader, number: int) -> bool:
    return len(reader.heartbeats) >= number


async def test_a_log_that_was_put_back_shows_no_forgotten_endpoint(
    own_broker: LocalCluster, options: KafkaOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "FORGET_EVERY_S", 0.2)
    store, prepare = MemoryStore(), partial(copy_the_logs, own_broker, options)
    async with reading(options, tmp_path, store, prepare) as (reader, returning, publisher):
        await until_forgotten(store, publisher, "/e/2")
        await restore_a_replica(own_broker, options)
        for fresh in (False, True):
            if fresh:
                reader.__init__(store)  # type: ignore[misc]  # a server that has started anew
            heartbeats = len(reader.heartbeats)
            async with returning():
                await until(partial(has_heartbeats, reader, heartbeats + 3))
            assert (reader.lacks_something, reader.false_heartbeats) == (False, 0)
