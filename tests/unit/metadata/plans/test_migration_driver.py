import asyncio
import contextlib

import pytest

from diem.kafka.map_reader import MapRecord
from diem.process.clock import ManualClock
from diem.protocol.partition_map import PUBLISHER_ACK, Entry, Head, PartitionMap, Phase, encode_ack
from diem.protocol.partitioners import partition_of
from metadata.plans import migration_driver
from tests.support.patience import PATIENCE_S
from tests.unit.metadata.plans.scripted_service import ScriptedDriver, ScriptedReader

ENDPOINT = b"/invented/1"
HOME = partition_of(ENDPOINT, 4)


def test_endpoints_that_move_are_counted() -> None:
    reader = ScriptedReader()
    driver = ScriptedDriver(reader, ManualClock())
    assert (driver.busy, driver.moving) == (False, 0)
    reader.latest = PartitionMap(
        Head(4, 7, Phase.PREPARE, "p"), {ENDPOINT: Entry(HOME, (HOME + 1) % 4), b"/b": Entry(1)}
    )
    assert (driver.busy, driver.moving) == (True, 1)


@pytest.mark.parametrize(
    ("acknowledged", "proceeds", "cancelled"), [(6, False, False), (7, True, True), (8, True, False)]
)
async def test_only_an_acknowledgement_of_this_epoch_cancels_moves_of_unknown_endpoints(
    acknowledged: int, proceeds: bool, cancelled: bool
) -> None:
    reader = ScriptedReader()
    driver = ScriptedDriver(reader, ManualClock())
    reader.latest = PartitionMap(Head(4, 7, Phase.PREPARE, "p"), {ENDPOINT: Entry(HOME, (HOME + 1) % 4)})
    reader.records[PUBLISHER_ACK] = MapRecord(1, encode_ack(acknowledged, (ENDPOINT,)))
    step = await driver._next_step(reader.latest)
    assert (step is not None) is proceeds
    assert step is None or step.records == ({ENDPOINT: None} if cancelled else {})


async def test_a_change_while_a_step_is_computed_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration_driver, "POLL_INTERVAL_S", 1000.0)
    reader = ScriptedReader()
    driver, again, calls = ScriptedDriver(reader, ManualClock()), asyncio.Event(), 0
    reader.latest = PartitionMap(Head(4, 7, Phase.PREPARE, "p"), {ENDPOINT: Entry(HOME, (HOME + 1) % 4)})
    loop = asyncio.get_running_loop()

    def proceed(*_: object) -> None:
        """Compute no step, while the map's topic changes."""
        nonlocal calls
        calls += 1
        loop.call_soon_threadsafe(driver.changed if calls == 1 else again.set)

    monkeypatch.setattr(migration_driver, "proceed", proceed)
    running = asyncio.create_task(driver.run())
    async with asyncio.timeout(PATIENCE_S):
        await again.wait()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
