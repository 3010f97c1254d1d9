"""A source of topics: every record once, in the order of its partition, whatever happens to topic, broker and store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import NewPartitions

from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from services.data.sources.kafka import source
from services.data.sources.records.applier import IN_FLIGHT
from services.data.sources.runner import SourceRunner
from services.data.store import Checkpoint, Write
from tests.support.kafka_source import create_topic, produce, producer, reading, source_of, table_of
from tests.support.patience import PATIENCE_S, until
from tests.support.topics import delete_records


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "CHECK_EVERY_S", 0.1)


async def test_the_latest_value_of_every_key_is_stored_and_a_tombstone_deletes(
    kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = await create_topic(kafka_options, "orders", 3)
    await produce(kafka_options, topic, [(f"k{n % 7}", {"n": n}) for n in range(100)])
    async with reading(table_of(kafka_options, topic), tmp_path) as running:
        await running.caught_up()
        assert [await running.content(f"/t/k{n}") for n in range(7)] == [{"n": n} for n in (98, 99, 93, 94, 95, 96, 97)]
        assert running.intake.records == 100
        await produce(kafka_options, topic, [("k0", None), ("k1", {"n": 100})])
        await running.until_content({"/t/k0": None, "/t/k1": {"n": 100}})
        assert running.store.index.heads["/t/k0"].gone


async def test_a_source_goes_on_at_its_stored_position(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "orders", 3)
    table = table_of(kafka_options, topic)
    await produce(kafka_options, topic, [(f"k{n}", {"n": n}) for n in range(50)])
    async with reading(table, tmp_path) as running:
        await running.caught_up()
        sequence = running.store.index.changes.sequence
    await produce(kafka_options, topic, [("k1", {"n": 51})])
    async with reading(table, tmp_path) as running:
        await running.until_content({"/t/k1": {"n": 51}})
        await running.caught_up()
        assert (running.intake.records, running.store.index.changes.sequence) == (1, sequence + 1)


@pytest.mark.parametrize("start", ["latest", "time"])
async def test_a_source_begins_at_the_end_or_at_a_time_and_leaves_out_nothing_after_it(
    start: str, kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = await create_topic(kafka_options, "orders", 2)
    await produce(kafka_options, topic, [("old", 1), ("older", 1)], timestamp_ms=1_700_000_000_000)
    table = table_of(kafka_options, topic, start="2025-01-01T00:00:00Z" if start == "time" else start)
    if start == "time":
        await produce(kafka_options, topic, [("new", 2)])
        async with reading(table, tmp_path) as running:
            await running.until_content({"/t/new": 2})
            assert running.store.index.names == ["/t/new"]
        return
    async with reading(table, tmp_path) as running:
        await running.caught_up()
    await produce(kafka_options, topic, [("new", 2)])
    async with admin_client(kafka_options) as admin:
        await admin.create_partitions({topic: NewPartitions(3)})
    async with producer(kafka_options) as made:
        await made.send_and_wait(topic, b"3", b"newer", partition=2)
    # Away when they were written: the source has begun, so that nothing later is left out.
    async with reading(table, tmp_path) as running:
        await running.until_content({"/t/new": 2, "/t/newer": 3})
        assert running.store.index.names == ["/t/new", "/t/newer"]


async def test_partitions_and_topics_that_appear_are_read_from_their_beginning(
    kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = await create_topic(kafka_options, "orders.eu", 1)
    pattern = kafka_options.topic_prefix.replace(".", r"\.") + "orders.*"
    table = table_of(kafka_options, "", pattern=pattern, endpoint="/t/{topic}/{key}", start="latest")
    async with reading(table, tmp_path) as running:
        await running.caught_up()
        async with admin_client(kafka_options) as admin:
            await admin.create_partitions({topic: NewPartitions(2)})
        other = await create_topic(kafka_options, "orders.us", 1)
        async with producer(kafka_options) as made:
            await made.send_and_wait(topic, b"1", b"a", partition=1)
        await produce(kafka_options, other, [("b", 2)])
        await running.until_content({f"/t/{topic}/a": 1, f"/t/{other}/b": 2})


async def test_a_topic_made_again_is_read_from_its_beginning(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "orders", 1)
    await produce(kafka_options, topic, [(f"k{n}", {"n": n}) for n in range(5)])
    async with reading(table_of(kafka_options, topic), tmp_path) as running:
        await running.caught_up()
        async with admin_client(kafka_options) as admin:
            await admin.delete_topics([topic])
        await running.failed("there is no topic")
        await create_topic(kafka_options, "orders", 1)
        await produce(kafka_options, topic, [("k0", {"new": 1}), ("k9", {"new": 2})])
        async with asyncio.timeout(20):
            while await running.content("/t/k9") is None:
                await asyncio.sleep(0.02)
        assert await running.content("/t/k0") == {"new": 1}
        assert await running.content("/t/k1") == {"n": 1}, "it stays: the new topic says nothing of it"
        assert running.intake.lost == 0


async def test_records_that_the_log_no_longer_has_are_counted(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "orders", 1, cleanup_policy="delete")
    table = table_of(kafka_options, topic)
    await produce(kafka_options, topic, [("a", n) for n in range(10)])
    async with reading(table, tmp_path) as running:
        await running.caught_up()
    await produce(kafka_options, topic, [("a", n) for n in range(10, 30)])
    await delete_records(kafka_options, topic, before=25)
    async with reading(table, tmp_path) as running:
        await running.until_content({"/t/a": 29})
        await running.caught_up()
        assert (running.intake.lost, running.intake.records) == (15, 5)
    async with reading(table, tmp_path) as running:
        await running.caught_up()
        assert (running.intake.lost, running.intake.records) == (0, 0), "said once"


async def test_only_committed_records_are_read_and_their_markers_are_no_lag(
    kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = await create_topic(kafka_options, "orders", 1)
    async with producer(kafka_options, transactional_id=kafka_options.topic_prefix + "writer") as made:
        for number in range(4):
            await made.begin_transaction()
            await made.send_and_wait(topic, b"%d" % number, b"a")
            await (made.commit_transaction() if number % 2 else made.abort_transaction())
        async with reading(table_of(kafka_options, topic), tmp_path) as running:
            await running.caught_up()
            assert await running.content("/t/a") == 3
            assert running.intake.records == 2
            await made.begin_transaction()
            await made.send_and_wait(topic, b"4", b"a")
            await asyncio.sleep(0.3)
            assert await running.content("/t/a") == 3, "not committed"
            await made.commit_transaction()
            await running.until_content({"/t/a": 4})
            await until(lambda: running.intake.records == 3)


async def test_gaps_of_a_compacted_log_are_no_loss(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    """Every aborted transaction leaves a gap as compaction does: offsets without a record."""
    topic = await create_topic(kafka_options, "orders", 1)
    await produce(kafka_options, topic, [("a", 1)])
    table = table_of(kafka_options, topic)
    async with reading(table, tmp_path) as running:
        await running.caught_up()
    async with producer(kafka_options, transactional_id=kafka_options.topic_prefix + "writer") as made:
        await made.begin_transaction()
        await made.send_and_wait(topic, b"2", b"a")
        await made.abort_transaction()
    await produce(kafka_options, topic, [("a", 3)])
    async with reading(table, tmp_path) as running:
        await running.until_content({"/t/a": 3})
        await running.caught_up()
        assert (running.intake.records, running.intake.lost) == (1, 0)
        assert next(iter((await running.store.reader.positions("t")).values())).endswith(":4")


@pytest.mark.parametrize("policy", ["stop", "skip"])
async def test_a_record_that_is_no_json_stops_the_source_or_is_skipped(
    policy: str, kafka_options: KafkaOptions, tmp_path: Path
) -> None:
    topic = await create_topic(kafka_options, "orders", 1)
    await produce(kafka_options, topic, [("a", 1), ("b", b"{"), ("c", 3)])
    async with reading(table_of(kafka_options, topic, on_invalid=policy), tmp_path) as running:
        if policy == "skip":
            await running.until_content({"/t/c": 3})
            await running.caught_up()
            assert running.intake.refused == 1
            assert "not JSON" in running.intake.last_refusal
        else:
            await running.failed("/0, offset ")
            assert "not JSON" in str(running.source.health.error)
            assert running.store.index.names == ["/t/a"]


async def test_a_trial_shows_what_would_be_published_and_stores_nothing(kafka_options: KafkaOptions) -> None:
    topic = await create_topic(kafka_options, "orders", 2)
    await produce(kafka_options, topic, [(f"k{n}", {"n": n}) for n in range(4)] + [("bad", b"{")])
    kept = source_of(table_of(kafka_options, topic))
    found: list[str] = []

    async def record(datasets: Any, *, source: str) -> None:
        found.extend(each.endpoint for each in datasets)

    await SourceRunner([kept]).try_once(record)
    assert sorted(found) == [f"/t/k{n}" for n in range(4)]
    assert "1 of the last 5 records cannot be stored: " in str(kept.health.error)
    missing = source_of(table_of(kafka_options, topic + "x"))
    await SourceRunner([missing]).try_once(record)
    assert missing.health.error == f"there is no topic {topic}x"


async def test_an_offset_is_a_position_of_the_topic_that_is_there(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "orders", 1)
    await produce(kafka_options, topic, [("a", 1), ("a", 2)])
    async with reading(table_of(kafka_options, topic), tmp_path) as running:
        await running.caught_up()
        stored = await running.store.reader.positions("t")
        assert {f"{topic}/0": await running.source.position_at(f"{topic}/0", "2")} == stored


async def test_a_position_after_the_end_is_the_end(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "orders", 1)
    await produce(kafka_options, topic, [("a", 1)])
    table = table_of(kafka_options, topic)
    async with reading(table, tmp_path) as running:
        await running.caught_up()
        part = f"{topic}/0"
        before = (await running.store.reader.positions("t"))[part]
        after = before.replace(":1", ":7")
        await running.store.writer.submit(Write([], "t", checkpoint=Checkpoint(part, before, after)))
    async with reading(table, tmp_path) as running:
        await running.caught_up()
        await produce(kafka_options, topic, [("a", 2)])
        await running.until_content({"/t/a": 2})


async def test_a_slow_store_slows_the_reading(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = await create_topic(kafka_options, "orders", 2)
    await produce(kafka_options, topic, [(f"k{n % 50}", {"n": n}) for n in range(6000)])
    async with reading(table_of(kafka_options, topic), tmp_path) as running:
        database = running.store.writer._database
        commit = database.commit
        open_ = asyncio.Event()

        async def slow(group: Any) -> Any:
            await open_.wait()
            return await commit(group)

        running.store.writer._database.commit = slow  # type: ignore[method-assign]
        await asyncio.sleep(0.5)
        # Of each partition, the batches on their way and one more.
        assert len(running.store.writer) <= 2 * (IN_FLIGHT + 1)
        open_.set()
        await running.caught_up()
        assert running.intake.records == 6000
        assert await running.content("/t/k49") == {"n": 5999}


async def test_two_readers_of_one_store_apply_every_record_once(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    """As if a stand-by read, too: each batch is refused that does not follow the stored position."""
    topic = await create_topic(kafka_options, "orders", 1)
    table = table_of(kafka_options, topic)
    async with reading(table, tmp_path) as running:
        second = source_of(table)
        task = asyncio.create_task(SourceRunner([second]).run(running.store.writer.put, None, running.store))
        for turn in range(10):
            await produce(kafka_options, topic, [("a", {"n": 30 * turn + n}) for n in range(30)])
        async with asyncio.timeout(PATIENCE_S):
            while await running.content("/t/a") != {"n": 299}:
                await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.wait([task])
        # The only endpoint, and its collection.
        assert running.store.index.changes.sequence == 301
