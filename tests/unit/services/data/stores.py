"""A store with everything that a backup must contain."""

from dataclasses import replace

from diem.process.clock import ManualClock
from services.data.datasets import Dataset, Point, build
from services.data.store import IdempotencyKey, Store
from services.data.store.tables import Cursor

NOW = 1_700_000_000_000
LATER = NOW + 3_600_000


def dataset(endpoint: str, value: float = 1) -> Dataset:
    return build(endpoint, "°C", "PT1H", [Point(0, value)])


async def filled(url: str, clock: ManualClock | None = None) -> Store:
    """Make a store with every kind of row, and close it."""
    store = await Store.open(url, clock=clock or ManualClock(wall_ms=NOW))
    async with store.serving():
        await store.writer.put([dataset("/a", 1), dataset("/gone")])
        await store.writer.put([replace(dataset("/b"), title="Tität", area="GR", quantity="load")])
        await store.writer.put([dataset("/a", 2)], source="market", key=IdempotencyKey("k", b"\x00\xff"))
        await store.writer.delete("/gone")
        store.keep_cursor(Cursor("log", 3))
    return store
