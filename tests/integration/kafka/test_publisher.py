"""The publisher against a real broker: through all faults, the topic gets the latest update of every endpoint."""

import asyncio
import time
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import NewPartitions
from aiokafka.producer.message_accumulator import BatchBuilder

from diem.kafka import map_reader
from diem.kafka.client import admin_client
from diem.kafka.config import KafkaOptions
from diem.kafka.errors import WrongTopic
from diem.kafka.map_reader import MapReader, read_map
from diem.kafka.map_writer import change_map, write_map
from diem.kafka.topics import create, ensure, updates_spec
from diem.protocol.partition_map import HOT, PUBLISHER_ACK, Entry, Head, PartitionMap, Phase, encode_entry, parse_ack
from diem.protocol.partitioners import partition_of
from diem.protocol.update import WATERMARK_KEY, encode, has_data
from services.data.publisher import Publisher, refusals, session
from services.data.publisher import publisher as publisher_module
from services.data.publisher.log import open_log
from services.data.publisher.refusals import RecordsRefused
from tests.support.maps import ensure_map
from tests.support.patience import PATIENCE_S, until
from tests.support.published import START, MemoryStore, everything, places, publishing
from tests.support.topics import alter_topic, delete_records

INCOMPRESSIBLE = b'"%b"' % Random(1).randbytes(10_000).hex().encode()
"""JSON that the publisher's codec does not shorten."""


async def last_in_log(options: KafkaOptions) -> dict[bytes, int]:
    """Return the version of the last record of every key, as after compaction; check its partition by the hash."""
    found: dict[bytes, int] = {}
    log = await everything(options)
    partitions = len(log) - 1
    for (topic, number), versions in log.items():
        assert not versions or topic == options.names.updates
        assert {partition_of(key, partitions) for key in versions} <= {number}
        found |= versions
    return found


async def until_placed(options: KafkaOptions, name: str, expected: dict[int, int], within: float = PATIENCE_S) -> None:
    limit = time.monotonic() + within
    while (found := await places(options, name)) != expected:
        assert time.monotonic() < limit, (found, expected)
        await asyncio.sleep(0.05)


async def until_log_is(store: MemoryStore, options: KafkaOptions, within: float = PATIENCE_S) -> None:
    limit = time.monotonic() + within
    while (found := await last_in_log(options)) != store.versions:
        assert time.monotonic() < limit, (found, store.versions)
        await asyncio.sleep(0.05)


async def test_everything_reaches_its_partition_and_changes_follow(kafka_options: KafkaOptions) -> None:
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(100)))
    async with publishing(store, kafka_options) as publisher:
        await until_log_is(store, kafka_options)
        store.put("/e/3", "/e/new")
        publisher.changed()
        await until_log_is(store, kafka_options)
        await until(lambda: publisher.lag == 0)
        assert publisher.status()["published"] == 102


async def test_every_partition_gets_watermarks_while_it_has_everything_accepted(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "WATERMARK_EVERY_S", 0.2)
    store = MemoryStore()
    consumer = AIOKafkaConsumer(**kafka_options.client_arguments(), auto_offset_reset="earliest")
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: publisher.publishing)
        await consumer.start()
        try:
            lanes = [TopicPartition(kafka_options.names.updates, number) for number in range(4)]
            lanes.append(TopicPartition(kafka_options.names.hot, 0))
            consumer.assign(lanes)
            marks = dict.fromkeys(lanes, 0)
            async with asyncio.timeout(PATIENCE_S):
                while min(marks.values()) < 3:
                    for part, records in (await consumer.getmany(timeout_ms=200)).items():
                        marks[part] += sum(record.key == WATERMARK_KEY for record in records)
        finally:
            await consumer.stop()
        assert publisher.status()["published"] == 0, "marks are not updates"
        assert publisher.status()["foreign"] == 0, "marks are our own"


async def test_the_next_publisher_continues_at_the_cursor_and_repeats_the_rest_slowly(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(50)))
    async with publishing(store, kafka_options):
        await until(lambda: store.cursor is not None and store.cursor.sequence == 50)
    store.put("/e/7")
    monkeypatch.setattr(session, "START_SPREAD_S", 6.0)
    began = time.monotonic()
    async with publishing(store, kafka_options) as second:
        await until(lambda: second.lag == 0)
        published, ticks = second.status()["published"], (time.monotonic() - began) / session.TICK_S
        # One endpoint a tick, and the one that is new.
        assert published <= ticks + 2, "what the log has is not sent again in a burst"
        await until(lambda: second.status()["published"] == 51)
    await until_log_is(store, kafka_options)


async def test_a_topic_that_was_recreated_gets_everything_at_once(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(50)))
    async with publishing(store, kafka_options) as publisher:
        await until_log_is(store, kafka_options)
        first = publisher.status()["source"]
        async with admin_client(kafka_options) as admin:
            await admin.delete_topics([kafka_options.names.updates])
        await until(lambda: publisher.status()["source"] != first and publisher.lag == 0)
        await until_log_is(store, kafka_options)


async def test_a_late_foreign_record_is_superseded(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CHECK_EVERY_S", 0.5)
    store = MemoryStore()
    store.put("/e/1", "/e/2", "/e/1")
    async with publishing(store, kafka_options) as publisher:
        await until_log_is(store, kafka_options)
        late = encode("/e/1", START + 1, START)
        producer = AIOKafkaProducer(**kafka_options.client_arguments())
        await producer.start()
        try:
            assert kafka_options.partitions is not None
            home = partition_of(b"/e/1", kafka_options.partitions)
            await producer.send_and_wait(kafka_options.names.updates, late, b"/e/1", partition=home)
        finally:
            await producer.stop()
        await until(lambda: publisher.status()["foreign"])
        await until_log_is(store, kafka_options)


async def test_a_new_store_on_a_topic_with_records_logs_a_warning(kafka_options: KafkaOptions) -> None:
    old, new = MemoryStore(), MemoryStore()
    old.put("/e/1")
    with structlog.testing.capture_logs() as said:
        async with publishing(old, kafka_options):
            await until(lambda: old.cursor is not None and old.cursor.sequence == 1)
        async with publishing(old, kafka_options) as again:
            await until(lambda: again.publishing)
        assert not [line for line in said if "never published" in line["event"]]
        async with publishing(new, kafka_options) as publisher:
            await until(lambda: publisher.publishing and any("never published" in line["event"] for line in said))


async def test_a_lost_store_leaves_in_the_log_what_it_has_not_written_again(kafka_options: KafkaOptions) -> None:
    old, new = MemoryStore(), MemoryStore()
    old.put("/e/1", "/e/2")
    async with publishing(old, kafka_options):
        await until_log_is(old, kafka_options)
    new.version_floor = START + 1_000  # that of the mark beside the lost store
    new.put("/e/2")
    async with publishing(new, kafka_options) as publisher:
        await until(lambda: publisher.publishing and publisher.lag == 0)
    assert await last_in_log(kafka_options) == old.versions | new.versions


@pytest.fixture
def _any_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong topic ends the process even if Kafka takes long for its first answer."""
    monkeypatch.setattr(publisher_module, "STARTUP_S", PATIENCE_S)


@pytest.mark.usefixtures("_any_start")
async def test_a_topic_that_would_lose_updates_is_refused(kafka_options: KafkaOptions) -> None:
    spec = updates_spec(kafka_options, 1)
    await create(kafka_options, replace(spec, config={**spec.config, "cleanup.policy": "compact,delete"}))
    with pytest.raises(WrongTopic, match=r"cleanup\.policy is compact,delete"):
        async with asyncio.timeout(PATIENCE_S):
            await Publisher(MemoryStore(), kafka_options).run()


async def alter(options: KafkaOptions, **changes: str) -> None:
    """Set the settings of the updates topic, with ``changes``, as an operator may while a publisher runs."""
    config = {**updates_spec(options, 1).config, **{name.replace("_", "."): value for name, value in changes.items()}}
    await alter_topic(options, options.names.updates, config)


async def test_a_topic_altered_to_lose_updates_gets_none_until_it_is_corrected_and_then_all(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHECK_EVERY_S", "TOPIC_CHECK_EVERY_S"):
        monkeypatch.setattr(session, name, 0.2)
    monkeypatch.setattr(publisher_module, "CHECK_EVERY_S", 0.2)
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(50)))
    async with publishing(store, kafka_options) as publisher:
        await until_log_is(store, kafka_options)
        await alter(kafka_options, cleanup_policy="compact,delete")
        await until(lambda: "cleanup.policy is compact,delete" in (publisher.failure or ""))
        written = publisher.status()["published"]
        assert (publisher.status()["state"], publisher.publishing) == ("waiting", False)
        store.put("/e/1", "/e/new")
        publisher.changed()
        await alter(kafka_options)
        await until(lambda: publisher.publishing and publisher.lag == 0)
        assert publisher.status()["published"] == written + 51
        await until_log_is(store, kafka_options)


@pytest.mark.usefixtures("_any_start")
async def test_a_topic_altered_before_the_start_gets_everything_when_it_is_corrected(
    kafka_options: KafkaOptions,
) -> None:
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(50)))
    async with publishing(store, kafka_options):
        await until(lambda: store.cursor is not None and store.cursor.sequence == 50)
    await alter(kafka_options, cleanup_policy="compact,delete")
    with pytest.raises(WrongTopic, match=r"cleanup\.policy is compact,delete"):
        async with asyncio.timeout(PATIENCE_S):
            await Publisher(store, kafka_options).run()
    assert store.cursor is not None
    assert store.cursor.sequence == 0, "a mark may not speak for what the topic has lost"
    await alter(kafka_options)
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: publisher.lag == 0)
        assert publisher.status()["published"] == 50


@pytest.mark.usefixtures("_any_start")
async def test_another_number_of_partitions_than_configured_is_refused(kafka_options: KafkaOptions) -> None:
    await ensure(kafka_options)
    with pytest.raises(WrongTopic, match="4 partitions, 5 are configured"):
        async with asyncio.timeout(PATIENCE_S):
            await Publisher(MemoryStore(), replace(kafka_options, partitions=5)).run()


async def test_without_kafka_the_publisher_waits_and_reports_it() -> None:
    store = MemoryStore()
    store.put("/a")
    async with publishing(store, KafkaOptions("127.0.0.1:1")) as publisher:
        await until(lambda: publisher.failure and "127.0.0.1:1" in publisher.failure)
        assert publisher.lag == 1


async def test_more_partitions_are_noticed_and_left_empty_until_the_map_uses_them(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(session, "START_SPREAD_S", 1.0)
    options = replace(kafka_options, partitions=None)
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(50)))
    await create(kafka_options, updates_spec(kafka_options, 1))
    with structlog.testing.capture_logs() as said:
        async with publishing(store, options) as publisher:
            await until(lambda: store.cursor is not None and store.cursor.sequence == 50)
            async with admin_client(options) as admin:
                await admin.create_partitions({options.names.updates: NewPartitions(8)})
            await until(lambda: publisher.opened >= 2 and publisher.publishing)
            store.put(*(f"/new/{n}" for n in range(50)))
            publisher.changed()
            await until(lambda: publisher.lag == 0)
            log = await everything(options)
            written = {key: number for (_, number), versions in log.items() for key in versions}
            assert written == {name: partition_of(name, 4) for name in store.versions}
            await write_map(options, {b"/e/1": encode_entry(Entry(7))}, Head(4, 1))
            await until_placed(options, "/e/1", {7: START + 2})
    assert [(line["partitions"], line["used"]) for line in said if "more partitions" in line["event"]] == [(8, 4)]


async def test_the_publisher_stops_in_time_while_brokers_are_away(kafka_options: KafkaOptions) -> None:
    publisher = Publisher(MemoryStore(), replace(kafka_options, bootstrap_servers="127.0.0.1:1"))
    task = asyncio.create_task(publisher.run())
    await until(lambda: publisher.failure and "127.0.0.1:1" in publisher.failure)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
    assert done


@pytest.mark.usefixtures("_any_start")
async def test_a_topic_that_recompresses_batches_is_refused(kafka_options: KafkaOptions) -> None:
    spec = updates_spec(kafka_options, 1)
    await create(kafka_options, replace(spec, config={**spec.config, "compression.type": "zstd"}))
    with pytest.raises(WrongTopic, match=r"compression\.type is zstd"):
        async with asyncio.timeout(PATIENCE_S):
            await Publisher(MemoryStore(), kafka_options).run()


async def with_data_in_log(options: KafkaOptions) -> dict[bytes, bool]:
    """Return whether the last record of each endpoint of partition 0 carries data."""
    consumer = AIOKafkaConsumer(**options.client_arguments(), auto_offset_reset="earliest")
    await consumer.start()
    try:
        part = TopicPartition(options.names.updates, 0)
        consumer.assign([part])
        end, found = (await consumer.end_offsets([part]))[part], dict[bytes, bool]()
        while await consumer.position(part) < end:
            for record in (await consumer.getmany(part, timeout_ms=500)).get(part, []):
                if record.key != WATERMARK_KEY and record.value:
                    found[record.key] = has_data(record.key, record.value)
        return found
    finally:
        await consumer.stop()


async def test_an_update_that_the_broker_refuses_goes_without_its_data_and_holds_back_no_other(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)
    options = replace(kafka_options, partitions=1)
    store = MemoryStore()
    async with publishing(store, options) as publisher:
        await until(lambda: publisher.publishing)
        await alter(options, max_message_bytes="4096")
        opened = publisher.opened
        store.put(*(f"/e/{n}" for n in range(100)))
        store.put("/big", data=INCOMPRESSIBLE)
        publisher.changed()
        await until_log_is(store, options)
        await until(lambda: publisher.lag == 0)
        assert await with_data_in_log(options) == dict.fromkeys(store.versions, False)
        status = publisher.status()
        topic = options.names.updates
        remedy = f"kafka-configs.sh --alter --topic {topic} --add-config max.message.bytes=131072"
        assert (status["state"], status["failure"], status["foreign"]) == ("publishing", None, 0)
        assert [line for line in status["warnings"] if "without their data" in line and remedy in line]
        await until(
            lambda: any("max.message.bytes is 4096, it should be" in line for line in publisher.status()["warnings"])
        )
        assert publisher.opened == opened
        await alter(options)
        monkeypatch.setattr(refusals, "DATA_RETRY_S", 0.0)
        store.put("/next", data=INCOMPRESSIBLE)
        publisher.changed()
        await until_log_is(store, options)
        assert (await with_data_in_log(options))[b"/next"]


async def test_a_record_that_the_broker_refuses_even_without_data_waits_alone(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "RETRY_S", 0.5)
    monkeypatch.setattr(session, "WATERMARK_EVERY_S", 0.2)
    options = replace(kafka_options, partitions=1)
    store, long = MemoryStore(), "/" + INCOMPRESSIBLE[1:201].decode()
    async with publishing(store, options) as publisher:
        await until(lambda: publisher.publishing)
        await alter(options, max_message_bytes="300")
        store.put(long, *(f"/e/{n}" for n in range(20)))
        publisher.changed()
        await until(lambda: "max.message.bytes is too small" in (publisher.status()["failure"] or ""))
        others = {name: version for name, version in store.versions.items() if name != long.encode()}
        while await last_in_log(options) != others:
            await asyncio.sleep(0.05)
        assert publisher.lag > 0
        await alter(options)
        await until_log_is(store, options)
        await until(lambda: publisher.lag == 0 and publisher.status()["failure"] is None)
        assert publisher.opened == 1


async def test_a_host_whose_clock_is_ahead_publishes_and_is_told_where_the_topic_does_not_let_it(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(self: Any, **given: Any) -> Any:
        return of_library(self, **given | {"timestamp": int((time.time() + 2 * 3600) * 1000)})

    of_library = BatchBuilder.append
    monkeypatch.setattr(BatchBuilder, "append", append)
    monkeypatch.setattr(refusals, "RETRY_S", 0.5)
    monkeypatch.setattr(session, "CHECK_EVERY_S", 0.2)
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)
    store = MemoryStore()
    store.put("/a", "/b")
    async with publishing(store, kafka_options) as publisher:
        await until_log_is(store, kafka_options)
        await alter(kafka_options, message_timestamp_type="CreateTime")
        store.put("/a")
        publisher.changed()
        topic = kafka_options.names.updates
        remedy = f"kafka-configs.sh --alter --topic {topic} --add-config message.timestamp.type=LogAppendTime"
        await until(lambda: "refuses the time of records: the clocks" in (publisher.status()["failure"] or ""))
        assert remedy in publisher.status()["failure"]
        await until(lambda: any(remedy in line for line in publisher.status()["warnings"]))
        await alter(kafka_options)
        await until_log_is(store, kafka_options)
        await until(lambda: publisher.publishing and publisher.status()["failure"] is None)
        assert publisher.opened == 1


async def test_a_record_that_fails_the_validation_of_the_broker_is_known_by_its_code(
    kafka_options: KafkaOptions,
) -> None:
    await ensure(kafka_options)
    async with open_log(kafka_options, 5) as log:
        without_key: Any = None
        with pytest.raises(RecordsRefused, match="INVALID_RECORD"):
            await log.write(0, [(without_key, b"x")])
        assert await log.write(0, [(b"/a", b"x")]) == (0, 1)


async def test_hot_endpoints_are_in_the_hot_topic_and_nowhere_else(kafka_options: KafkaOptions) -> None:
    store = MemoryStore()
    store.put("/hot", "/cold", "/hot")
    async with publishing(store, kafka_options, hot=["/hot"]) as publisher:
        await until_placed(kafka_options, "/hot", {HOT: START + 3})
        await until_placed(kafka_options, "/cold", {partition_of(b"/cold", 4): START + 2})
        assert publisher.status()["epoch"] == 0
        await until(lambda: publisher.lag == 0)
    assert await read_map(kafka_options) == PartitionMap(Head(4, 0, Phase.STABLE), {b"/hot": Entry(HOT)})


async def test_configured_hot_endpoints_do_not_change_an_existing_map(kafka_options: KafkaOptions) -> None:
    first = await ensure_map(kafka_options, 4, ["/first"])
    store = MemoryStore()
    store.put("/first", "/second")
    with structlog.testing.capture_logs() as said:
        async with publishing(store, kafka_options, hot=["/second"]):
            await until_placed(kafka_options, "/first", {HOT: START + 1})
            await until_placed(kafka_options, "/second", {partition_of(b"/second", 4): START + 2})
    (line,) = [line for line in said if "hot" in line["event"]]
    assert (line["not_hot"], line["not_configured"]) == (["/second"], ["/first"])
    assert await read_map(kafka_options) == first


async def test_a_newer_map_has_the_current_update_written_to_the_new_partition(kafka_options: KafkaOptions) -> None:
    store = MemoryStore()
    store.put("/a", "/b", "/a")
    home = partition_of(b"/a", 4)
    target = (home + 1) % 4
    async with publishing(store, kafka_options) as publisher:
        await until_log_is(store, kafka_options)
        await write_map(kafka_options, {b"/a": encode_entry(Entry(home, target))}, Head(4, 1, Phase.PREPARE))
        await until_placed(kafka_options, "/a", {home: START + 3, target: START + 3})
        assert publisher.status()["epoch"] == 1
        store.put("/a")
        publisher.changed()
        await until_placed(kafka_options, "/a", {home: START + 4, target: START + 4})
        await write_map(kafka_options, {b"/a": encode_entry(Entry(home, target))}, Head(4, 1, Phase.RETIRE))
        await write_map(
            kafka_options, {b"/a": encode_entry(Entry(target)), b"/b": encode_entry(Entry(HOT))}, Head(4, 2)
        )
        await until_placed(kafka_options, "/b", {HOT: START + 2})
        store.put("/a", "/b")
        publisher.changed()
        await until_placed(kafka_options, "/a", {target: START + 5})
        await until_placed(kafka_options, "/b", {HOT: START + 6})
        await until(lambda: publisher.lag == 0)
        assert publisher.status()["foreign"] == 0


async def until_acknowledged(options: KafkaOptions, epoch: int, within: float = PATIENCE_S) -> None:
    limit = time.monotonic() + within
    while True:
        reader = MapReader(options)
        await reader.read()
        record = reader.records.get(PUBLISHER_ACK)
        if record is not None and parse_ack(record.value) == epoch:
            return
        assert time.monotonic() < limit, record
        await asyncio.sleep(0.05)


async def test_a_move_is_acknowledged_when_targets_are_current_and_when_homes_are_empty(
    kafka_options: KafkaOptions,
) -> None:
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(40)), "/e/3")
    moves = {f"/e/{n}".encode(): encode_entry(Entry(partition_of(f"/e/{n}".encode(), 4), n % 4)) for n in range(20)}
    moves[b"/not/here/yet"] = encode_entry(Entry(partition_of(b"/not/here/yet", 4), HOT))
    async with publishing(store, kafka_options):
        await until_log_is(store, kafka_options)
        await write_map(kafka_options, moves, Head(4, 1, Phase.PREPARE))
        await until_acknowledged(kafka_options, 1)
        home, target = partition_of(b"/e/3", 4), 3
        assert await places(kafka_options, "/e/3") == {home: START + 41, target: START + 41}
    # The next publisher does not know how far this one has come.
    await write_map(kafka_options, {}, Head(4, 2, Phase.RETIRE))
    async with publishing(store, kafka_options):
        await until_acknowledged(kafka_options, 2)
        assert await places(kafka_options, "/e/3") == {target: START + 41}


async def test_the_successor_of_a_publisher_that_died_before_the_acknowledgement_writes_again_and_acknowledges(
    kafka_options: KafkaOptions,
) -> None:
    store = MemoryStore()
    store.put("/a", "/b")
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: publisher.lag == 0 and store.cursor is not None)
    home = partition_of(b"/a", 4)
    await write_map(kafka_options, {b"/a": encode_entry(Entry(home, (home + 1) % 4))}, Head(4, 1, Phase.PREPARE))
    async with publishing(store, kafka_options):
        await until_acknowledged(kafka_options, 1)
        assert await places(kafka_options, "/a") == {home: START + 1, (home + 1) % 4: START + 1}


async def test_a_deleted_map_is_written_again_unchanged(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)
    store = MemoryStore()
    store.put("/a")
    async with publishing(store, kafka_options, hot=["/hot"]) as publisher:
        await until_log_is(store, kafka_options)
        await write_map(kafka_options, {b"/a": encode_entry(Entry(2))}, Head(4, 5))
        await until(lambda: publisher.status()["epoch"] == 5)
        # It follows the map before it sends what has another place there, and keeps its cursor afterwards.
        while (await places(kafka_options, "/a")).get(2) != START + 1:
            await asyncio.sleep(0.05)
        await until(lambda: publisher.lag == 0 and store.cursor is not None)
        published = publisher.status()["published"]
        async with admin_client(kafka_options) as admin:
            await admin.delete_topics([kafka_options.names.partition_map])
        await until(lambda: publisher.opened >= 2 and publisher.publishing)
        expected = PartitionMap(Head(4, 5), {b"/a": Entry(2), b"/hot": Entry(HOT)})
        assert await read_map(kafka_options) == expected
        store.put("/a")
        publisher.changed()
        await until(lambda: (store.cursor and store.cursor.sequence) == 2)
        assert (await places(kafka_options, "/a"))[2] == START + 2
        assert publisher.status()["published"] <= published + 2, "the log is the same: it has everything"


async def test_a_map_whose_records_were_deleted_is_written_again(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(map_reader, "CHECK_EVERY_S", 0.2)
    store = MemoryStore()
    store.put("/a")
    target = (partition_of(b"/a", 4) + 1) % 4
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: publisher.publishing)
        assert await change_map(kafka_options, Head(4, 0), {b"/a": encode_entry(Entry(target))}, Head(4, 1))
        await until(lambda: publisher.status()["epoch"] == 1)
        await delete_records(kafka_options, kafka_options.names.partition_map)
        await until(lambda: (publisher.status()["epoch"] or 0) > 1 and publisher.publishing)
        found = await read_map(kafka_options)
        assert found is not None
        assert found.entries == {b"/a": Entry(target)}
        opened = publisher.opened
        store.put("/a")
        publisher.changed()
        await until_placed(kafka_options, "/a", {target: START + 2})
        assert publisher.opened == opened


async def test_a_map_that_was_lost_while_no_publisher_ran_has_everything_sent_where_the_new_one_has_it(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The regular resend after a start would hide it.
    monkeypatch.setattr(session, "START_SPREAD_S", 3600.0)
    store = MemoryStore()
    store.put(*(f"/e/{n}" for n in range(50)))
    home = partition_of(b"/e/7", 4)
    target = (home + 1) % 4
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: publisher.publishing)
        assert await change_map(kafka_options, Head(4, 0), {b"/e/7": encode_entry(Entry(target))}, Head(4, 1))
        await until(lambda: publisher.status()["epoch"] == 1 and publisher.lag == 0)
        store.put("/e/7")
        publisher.changed()
        await until(lambda: store.cursor is not None and store.cursor.sequence == 51)
    async with admin_client(kafka_options) as admin:
        await admin.delete_topics([kafka_options.names.partition_map])
    async with publishing(store, kafka_options) as publisher:
        await until_placed(kafka_options, "/e/7", {home: START + 51, target: START + 51})
        assert publisher.status()["epoch"] == 0


async def test_a_hot_topic_that_was_recreated_gets_everything_at_once(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "TOPIC_CHECK_EVERY_S", 0.2)
    store = MemoryStore()
    store.put("/hot", "/cold")
    with structlog.testing.capture_logs() as said:
        async with publishing(store, kafka_options, hot=["/hot"]) as publisher:
            await until_placed(kafka_options, "/hot", {HOT: START + 1})
            await until(lambda: store.cursor is not None)
            async with admin_client(kafka_options) as admin:
                await admin.delete_topics([kafka_options.names.hot])
            await until(lambda: publisher.opened >= 2 and publisher.lag == 0)
            await until_placed(kafka_options, "/hot", {HOT: START + 1})
    assert not [line for line in said if "never published" in line["event"]]


async def test_a_topic_with_fewer_partitions_than_the_map_is_refused_with_the_remedy(
    kafka_options: KafkaOptions,
) -> None:
    await ensure(kafka_options)
    await ensure_map(kafka_options, 6)
    topic = kafka_options.names.updates
    remedy = f"partition map uses 6: kafka-topics.sh --alter --topic {topic} --partitions 6"
    with pytest.raises(WrongTopic, match=remedy):
        async with asyncio.timeout(PATIENCE_S):
            await Publisher(MemoryStore(), kafka_options).run()


async def test_a_map_that_outgrows_the_topic_stops_the_publishing_until_the_topic_has_grown(
    kafka_options: KafkaOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher_module, "CHECK_EVERY_S", 0.2)
    options = replace(kafka_options, partitions=None)
    store = MemoryStore()
    store.put("/a")
    await ensure(kafka_options)
    async with publishing(store, options) as publisher:
        await until_log_is(store, options)
        await write_map(options, {b"/a": encode_entry(Entry(5))}, Head(4, 1))
        await until(lambda: "it has 4 partitions, the partition map uses 6" in (publisher.failure or ""))
        opened = publisher.opened
        store.put("/a")
        publisher.changed()
        async with admin_client(options) as admin:
            await admin.create_partitions({options.names.updates: NewPartitions(6)})
        await until_placed(options, "/a", {partition_of(b"/a", 4): START + 1, 5: START + 2})
        assert publisher.opened == opened + 1, "nothing was published by the old map meanwhile"


@pytest.mark.parametrize("name", ["/a", "/b"], ids=["known", "unknown"])
async def test_a_store_that_was_put_back_with_its_guard_is_found_by_its_log(
    name: str, kafka_options: KafkaOptions
) -> None:
    store, copy = MemoryStore(), MemoryStore()
    for each in (store, copy):
        each.put("/a")
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: store.cursor is not None and store.cursor.sequence == 1)
        copy.cursor = store.cursor
        store.put(name)
        publisher.changed()
        await until(lambda: store.cursor is not None and store.cursor.sequence == 2)
    async with publishing(copy, kafka_options) as publisher:
        await until(lambda: copy.ahead)
        assert copy.ahead[0] == (name, store.versions[name.encode()])
        await until(lambda: publisher.failure is not None and "has a later version" in publisher.failure)
        assert not publisher.publishing


async def test_a_killed_publishers_successor_finds_its_own_records_in_the_log(kafka_options: KafkaOptions) -> None:
    store = MemoryStore()
    store.put("/a")
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: store.cursor is not None and store.cursor.sequence == 1)
        kept = store.cursor
        store.put("/a", "/b")
        publisher.changed()
        await until(lambda: publisher.lag == 0)
    store.cursor = kept
    async with publishing(store, kafka_options) as publisher:
        await until(lambda: publisher.publishing and publisher.lag == 0)
    assert store.ahead == []
