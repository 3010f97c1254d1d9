"""Times to live in the store: each ends once, through failures, restarts and clocks that were set."""

import pytest

from diem.process.clock import ManualClock
from diem.protocol.update import GONE
from services.data.errors import StoreUnavailable
from services.data.kinds import DOCUMENT, Representation, seal
from services.data.store import index, writer
from services.data.store.index import EndpointHead, StoreIndex
from services.data.store.retention_clock import SLEW, SteadyClock
from services.data.store.store import Store
from tests.support.databases import Databases
from tests.support.patience import until
from tests.unit.services.data.stores import Commit, lose_answers_to_groups, open_store, replace_commit

DAY_S = 24 * 3600


def document(endpoint: str, content: bytes = b"1", ttl_s: int = 0) -> Representation:
    return seal(endpoint, DOCUMENT, content).expiring(ttl_s * 1000)


async def kinds(store: Store, endpoint: str) -> list[int]:
    """Return for each version of an endpoint, newest first, whether it is an update or a deletion."""
    return [version.kind for version in await store.reader.versions(endpoint)]


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "CHECK_EVERY_S", 0.01)


async def test_an_endpoint_expires_once_without_any_write(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await store.writer.put([document("/on/a", ttl_s=30)])
        clock.advance(29.9)
        await store.writer.put([document("/other")])
        assert "/on/" in store.index.heads
        assert not store.index.heads["/on/a"].gone
        clock.advance(0.2)
        await until(lambda: store.index.heads["/on/a"].gone)
        sequence = store.changes.sequence
        await store.writer.put([document("/other", b"2")])
        assert store.changes.sequence == sequence + 1
        assert await kinds(store, "/on/a") == [GONE, 0]


@pytest.mark.parametrize("is_committed", [False, True])
async def test_an_expiry_that_fails_or_whose_answer_is_lost_happens_once(
    databases: Databases, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)

    def failing(_real: Commit) -> Commit:
        async def commit(_database: object, _group: object) -> None:
            raise OSError("disk full")

        return commit  # type: ignore[return-value]

    async with store.serving():
        await store.writer.put([document("/on/a", ttl_s=30)])
        with monkeypatch.context() as patch:
            lose_answers_to_groups(patch) if is_committed else replace_commit(patch, failing)
            clock.advance(31)
            with pytest.raises(StoreUnavailable):
                await store.writer.put([document("/other")])
        await until(lambda: store.index.heads["/on/a"].gone)
        assert await kinds(store, "/on/a") == [GONE, 0]
        assert store.index.heads["/on/"].gone


async def test_a_process_that_ends_before_an_expiry_leaves_it_to_the_next_one(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await store.writer.put([document("/on/a", ttl_s=30), document("/on/b", ttl_s=90), document("/on/c")])
    clock.advance(31)
    for _ in range(2):
        store = await open_store(databases, clock)
        async with store.serving():
            await until(lambda store=store: store.index.heads["/on/a"].gone)  # type: ignore[misc]
            assert store.index.content_of("/on/") == b'{"members":["/on/b","/on/c"]}'
            assert await kinds(store, "/on/a") == [GONE, 0]


async def test_a_patch_keeps_the_time_and_equal_content_extends_it(databases: Databases) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        for _ in range(5):
            (accepted,) = await store.writer.put([document("/on/a", ttl_s=30)])
            clock.advance(20)
        assert not accepted.changed
        await store.writer.put([document("/on/b", ttl_s=30)])
        (last,) = await store.writer.put([document("/on/a", b"2")])
        assert (last.version, store.index.heads["/on/a"].expires_ms) == (accepted.version + 100_000, 0)


@pytest.mark.parametrize(
    ("step_s", "left_s"), [(DAY_S, 0), (-DAY_S, 20), (100 * 365 * DAY_S, 20), (-100 * 365 * DAY_S, 20)]
)
async def test_a_clock_set_while_no_process_ran_delays_no_expiry(
    databases: Databases, step_s: int, left_s: int
) -> None:
    clock = ManualClock()
    store = await open_store(databases, clock)
    async with store.serving():
        await store.writer.put([document("/on/a", ttl_s=30)])
        clock.advance(10)
        await store.writer.put([document("/other")])
    clock.step_wall(step_s)
    store = await open_store(databases, clock)
    async with store.serving():
        if abs(step_s) > DAY_S:
            # Nothing is written by such a clock. It is corrected before anything expires.
            clock.advance(left_s / 2)
            with pytest.raises(StoreUnavailable):
                await store.writer.put([document("/other", b"2")])
            clock.step_wall(-step_s)
            await until(lambda: store.failure is None)
            left_s -= left_s // 2
        if left_s:
            assert not store.index.heads["/on/a"].gone
            # A tenth longer or shorter while a clock is followed.
            clock.advance(left_s * 0.8)
            await store.writer.put([document("/other", b"3")])
            assert not store.index.heads["/on/a"].gone
            clock.advance(left_s * 0.4)
        await until(lambda: store.index.heads["/on/a"].gone)
        assert await kinds(store, "/on/a") == [GONE, 0]


def test_times_to_live_follow_a_clock_that_was_set_by_a_tenth_of_the_time() -> None:
    clock = ManualClock()
    steady, began = SteadyClock(clock, 0), clock.wall_ms()
    for step_s in (3600, -7200):
        before = steady.now_ms()
        clock.step_wall(step_s)
        assert steady.now_ms() == before
        clock.advance(600)
        assert steady.now_ms() == before + 600_000 + (60_000 if step_s > 0 else -60_000)
        clock.advance(7200 * SLEW)
        assert steady.now_ms() == clock.wall_ms()
    assert steady.now_ms() > began


def test_entries_of_expiries_are_bounded_however_often_one_becomes_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "MIN_EXPIRIES", 8)
    made = StoreIndex()

    def put(name: str, expires_ms: int) -> None:
        made.apply([EndpointHead(name, 1, 1, 0, 1, DOCUMENT, "", "", "{}", b"", expires_ms)])

    for expires_ms in range(100_000, 90_000, -10):
        for name in ("/a", "/b"):
            put(name, expires_ms)
        assert len(made._expiries) <= 2 * 2 + 8 + 1
    put("/b", 200_000)
    assert [head.endpoint for head in made.due(90_010, 9)] == ["/a"]
    assert made.due(199_999, 1) == made.due(199_999, 9) == [made.heads["/a"]]
    assert {head.endpoint for head in made.due(200_000, 9)} == {"/a", "/b"}
