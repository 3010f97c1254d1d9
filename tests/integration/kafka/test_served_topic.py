"""A bridge that serves a topic of other programs as it is, against a real broker (docs/adr/0037)."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import orjson
import pytest

from bridge import topic_watcher
from diem.fanout.data_budget import DataBudget
from diem.fanout.feed_state import FeedState
from diem.kafka.config import KafkaOptions
from diem.protocol.partitioners import partition_of
from tests.load.system import System
from tests.support.bridge import FeedRecorder, RunningBridge, running_bridge
from tests.support.local_cluster import LocalCluster
from tests.support.patience import PATIENCE_S, until
from tests.support.required import in_cluster
from tests.support.served import CompanyTopic, company_topic


def recorder() -> FeedRecorder:
    return FeedRecorder(FeedState(DataBudget()))


def documents(sink: FeedRecorder) -> dict[str, object]:
    found = {name.decode(): orjson.loads(value) for name, (_, value) in sink.state.retained.items()}
    return {name: update.get("data", "gone") for name, update in found.items()}


@pytest.fixture
async def topic(kafka_options: KafkaOptions) -> AsyncIterator[CompanyTopic]:
    name = f"{kafka_options.topic_prefix}orders"
    async with company_topic(kafka_options, name) as made:
        yield made


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the topic every second."""
    monkeypatch.setattr(topic_watcher, "POLL_S", topic_watcher.MIN_POLL_S)


@pytest.fixture
async def running(topic: CompanyTopic, tmp_path: Path) -> AsyncIterator[RunningBridge]:
    options = {"kafka_topic": topic.name, "kafka_topic_key": "/orders/{id}"}
    async with running_bridge(tmp_path, topic.options, watermarks=True, **options) as bridge:
        yield bridge


async def test_topic_is_served_with_its_last_documents_and_what_follows(
    topic: CompanyTopic, running: RunningBridge
) -> None:
    await topic.put("42", {"id": 42, "state": "new"})
    await topic.put("42", {"id": 42, "state": "paid"})
    await topic.put('{"id":43}', {"state": "new"})
    sink = recorder()
    async with running.reading(sink):
        await until(lambda: sink.heartbeats)
        assert documents(sink) == {"/orders/42": {"id": 42, "state": "paid"}, "/orders/43": {"state": "new"}}
        before = sink.state.retained[b"/orders/42"][0]
        await topic.put("42", {"id": 42, "state": "sent"})
        await until(lambda: documents(sink).get("/orders/42") == {"id": 42, "state": "sent"})
        assert sink.state.retained[b"/orders/42"][0] > before
        await topic.put("42", None)
        await until(lambda: "/orders/42" not in sink.names)


async def test_records_that_name_no_endpoint_are_counted_and_skipped(
    topic: CompanyTopic, running: RunningBridge
) -> None:
    sink = recorder()
    async with running.reading(sink):
        await topic.write(b"", b"{}")
        await topic.write(b"a b", b"{}")
        await topic.write(b"1", b"not JSON")
        await topic.write(b"2", b'{"id":3}')
        await topic.put("4", [4])
        await until(lambda: "/orders/4" in sink.names)
        assert (await running.becomes(bad=4))["lag"] == 0
        await until(lambda: sorted(sink.resynced) == ["/orders/1", "/orders/2"])


async def test_topic_made_again_is_served_from_its_beginning_with_greater_versions(
    topic: CompanyTopic, running: RunningBridge
) -> None:
    for number in range(20):
        await topic.put("1", number)
    sink = recorder()
    async with running.reading(sink):
        await until(lambda: documents(sink) == {"/orders/1": 19})
        before = sink.state.retained[b"/orders/1"][0]
        await topic.delete()
        await topic.create()
        await topic.put("1", "again")
        await until(lambda: documents(sink) == {"/orders/1": "again"})
        assert sink.state.retained[b"/orders/1"][0] > before


async def test_key_that_moves_to_an_added_partition_has_its_last_document(
    topic: CompanyTopic, running: RunningBridge
) -> None:
    moved = next(str(n) for n in range(99) if partition_of(b"%d" % n, 4) != partition_of(b"%d" % n, 6))
    for number in range(20):
        await topic.put(moved, number)
    sink = recorder()
    async with running.reading(sink):
        await until(lambda: documents(sink) == {f"/orders/{moved}": 19})
        await topic.grow(6)
        await topic.put(moved, "moved")
        await until(lambda: documents(sink) == {f"/orders/{moved}": "moved"})


async def test_log_that_lost_its_beginning_is_read_again_and_what_it_lost_is_gone(
    topic: CompanyTopic, running: RunningBridge
) -> None:
    one, two = (next(n for n in range(9) if partition_of(b"%d" % n, 4) == place) for place in (0, 1))
    await topic.put(str(one), 1)
    await topic.put(str(two), 2)
    sink = recorder()
    async with running.reading(sink):
        await until(lambda: len(sink.names) == 2 and sink.heartbeats)
        await topic.cut(0, 1)
        await until(lambda: documents(sink) == {f"/orders/{two}": 2})


@in_cluster("it restarts a broker twice")
async def test_log_that_was_put_back_is_read_again_with_greater_versions(
    own_broker: LocalCluster, own_broker_options: KafkaOptions, tmp_path: Path
) -> None:
    """The broker's disk is that of an earlier time, and what was written since is written differently."""
    name, sink = f"{own_broker_options.topic_prefix}orders", recorder()
    data, copies = own_broker.directory / "kafka-1" / "data", tmp_path / "copies"
    logs = [data / f"{name}-{number}" for number in range(4)]
    async with company_topic(own_broker_options, name) as topic:
        for number in range(10):
            await topic.put("1", number)
        await topic.close()
        own_broker.kill(1)
        for log in logs:
            shutil.copytree(log, copies / log.name)
        await own_broker.restart(1)
        options = {"kafka_topic": name, "kafka_topic_key": "/orders/{id}"}
        async with (
            running_bridge(tmp_path, topic.options, watermarks=True, **options) as bridge,
            bridge.reading(sink),
        ):
            await topic.put("1", "lost")
            await topic.put("1", "lost, too")
            await until(lambda: documents(sink) == {"/orders/1": "lost, too"})
            before = sink.state.retained[b"/orders/1"][0]
            await topic.close()
            own_broker.kill(1)
            for log in logs:
                shutil.rmtree(log)
                shutil.copytree(copies / log.name, log)
            await own_broker.restart(1)
            await until(lambda: documents(sink) == {"/orders/1": 9})
            await topic.put("1", "instead")
            await until(lambda: documents(sink) == {"/orders/1": "instead"})
            assert sink.state.retained[b"/orders/1"][0] > before


async def test_topic_that_is_not_compacted_is_refused(kafka_options: KafkaOptions, tmp_path: Path) -> None:
    topic = CompanyTopic(kafka_options, f"{kafka_options.topic_prefix}events")
    await topic.create(cleanup_policy="delete")
    async with running_bridge(tmp_path, kafka_options, watermarks=True, kafka_topic=topic.name) as bridge:
        await until_refused(bridge, "cleanup.policy is delete")


async def test_topic_of_epochs_that_loses_them_is_refused(topic: CompanyTopic, tmp_path: Path) -> None:
    epochs = CompanyTopic(topic.options, f"{topic.options.topic_prefix}{topic.name}.epochs", partitions=1)
    await epochs.create(cleanup_policy="delete", retention_ms="604800000")
    async with running_bridge(tmp_path, topic.options, watermarks=True, kafka_topic=topic.name) as bridge:
        await until_refused(bridge, "retention.ms is 604800000, it must be -1")


async def until_refused(bridge: RunningBridge, why: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while why not in await reason(bridge):
            await asyncio.sleep(0.05)


async def reason(bridge: RunningBridge) -> str:
    """Return why it is not ready; empty if it does not answer yet."""
    with contextlib.suppress(httpx.ConnectError):
        return (await bridge.get("/readyz")).text
    return ""


@in_cluster("it starts a system")
@pytest.mark.parametrize("mode", ["single", "z-proxy"])
async def test_data_service_answers_with_what_the_servers_retain(
    topic: CompanyTopic, tmp_path: Path, mode: str
) -> None:
    # Keys in JSON, whose partitions clients of a group find by their form.
    offsets = [await topic.put(f'{{"id":{number}}}', {"id": number}) for number in range(8)]
    names = ("--topic", topic.name, "--key", "/orders/{id}", "--topic-key-form", '{"id":{id}}')
    given = (*names, "--bootstrap-servers", topic.options.bootstrap_servers)
    async with (
        System(mode, tmp_path, given) as system,
        httpx.AsyncClient(base_url=system.rest, trust_env=False) as http,
    ):
        answers = [await http.get(f"/v1/data/orders/{number}") for number in range(8)]
        assert [answer.json() for answer in answers] == [{"id": number} for number in range(8)]
        versions = [int(answer.headers["diem-version"]) for answer in answers]
        assert [version - versions[0] for version in versions] == [offset - offsets[0] for offset in offsets]
        current = await http.get(f"/v1/data/orders/1?version={versions[1]}")
        assert (current.headers["etag"], current.json()) == (f'"{versions[1]}-json"', {"id": 1})
        unchanged = await http.get("/v1/data/orders/1", headers={"If-None-Match": current.headers["etag"]})
        unknown = await http.get("/v1/data/orders/99")
        older = await http.get(f"/v1/data/orders/1?version={versions[1] - 1}")
        refused = await http.put("/v1/data/orders/1", json={}, headers={"Authorization": f"Bearer {system.write_key}"})
        statuses = [answer.status_code for answer in (unchanged, unknown, older, refused)]
        assert statuses == [304, 404, 404, 409], refused.text
        listed = (await http.get("/v1/endpoints")).json()["endpoints"]
        assert [each["endpoint"] for each in listed] == [f"/orders/{number}" for number in range(8)]
