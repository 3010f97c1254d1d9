"""Reads of a served topic: answers of the servers that retain it, through their internal listeners."""

import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial

import orjson
import pytest

from diem.fanout.data_budget import DataBudget
from diem.fanout.feed_hub import FeedHub
from diem.fanout.ownership import Ownership
from diem.links.internal import READS, InternalListener
from diem.links.listener import Reply
from diem.process.auth import SharedKey
from diem.process.key_ring import KeyRing
from diem.process.tls import LinkTls
from diem.protocol.feed import Batch
from diem.protocol.partition_map import Head, PartitionMap
from diem.protocol.update import UPDATE, Change, encode
from services.data.access.rights import ReadRights
from services.data.api.catalogue import CataloguePage
from services.data.api.retained import RetainedReads
from services.data.errors import StoreUnavailable, UnknownEndpoint, VersionNotKept
from services.websocket.retained_reads import read_retained

KEY = SharedKey("k" * 43)
VERSION = 1_000_000_000_001
TIME_MS = 1_767_225_600_456


def hub_of(
    *names: str,
    data: bytes = b'{"a": 1}',
    tail: bytes = b',"media_type":"application/json"}',
    stream: str = "orders/0",
) -> FeedHub:
    hub = FeedHub(budget=DataBudget())
    hub.hello("source", [stream])
    changes = [
        Change(1, name.encode(), VERSION, UPDATE, encode(name, VERSION, TIME_MS, data=data)[:-1] + tail)
        for name in names
    ]
    hub.batch(Batch(stream, 2, iter(changes)))
    hub.caught_up(stream)
    return hub


@contextlib.asynccontextmanager
async def reading(*answers: Callable[[str], Reply], partitioned: bool = False) -> AsyncIterator[RetainedReads]:
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for reads in answers:
            made = InternalListener("127.0.0.1", 0, key=KEY, ready=lambda: None, status=dict, reads={READS: reads})
            made.start()
            stack.callback(made.stop)
            urls.append(f"http://127.0.0.1:{made.port}")
        yield RetainedReads(urls, KeyRing.of(KEY), LinkTls(None), partitioned=partitioned)


async def test_document_is_answered_as_it_is_in_the_topic_with_version_and_time() -> None:
    async with reading(partial(read_retained, hub_of("/orders/1"), None)) as reads:
        found = await reads.current("/orders/1")
        assert (found.version, found.changed_ms, found.media_type) == (VERSION, TIME_MS, "application/json")
        assert found.content == b'{"a": 1}'
        assert await reads.version("/orders/1", VERSION) == found
        with pytest.raises(VersionNotKept):
            await reads.version("/orders/1", VERSION - 1)
        with pytest.raises(UnknownEndpoint):
            await reads.current("/orders/2")


@pytest.mark.parametrize(
    ("data", "tail", "content"),
    [
        (b'"a \\"text\\""', b',"media_type":"text/plain"}', b'a "text"'),
        (b'"iVBORw=="', b',"encoding":"base64","media_type":"image/png"}', b"\x89PNG"),
    ],
)
async def test_content_of_other_media_types_is_answered_as_it_is_in_the_topic(
    data: bytes, tail: bytes, content: bytes
) -> None:
    async with reading(partial(read_retained, hub_of("/a/1", data=data, tail=tail), None)) as reads:
        assert (await reads.current("/a/1")).content == content


async def test_of_a_group_the_server_that_has_an_endpoint_answers() -> None:
    servers = []
    for number in range(2):
        ownership = Ownership()
        ownership.set_map(PartitionMap(Head(2, 1)))
        ownership.set_names([f"orders/{number}"])
        servers.append((hub_of(*(f"/orders/{n}" for n in range(8)), stream=f"orders/{number}"), ownership))
    async with reading(*(partial(read_retained, *server) for server in servers), partitioned=True) as reads:
        assert {(await reads.current(f"/orders/{n}")).version for n in range(8)} == {VERSION}
        with pytest.raises(UnknownEndpoint):
            await reads.current("/orders/9")
        # One of them has gained another partition, and reads it.
        for hub, ownership in servers:
            ownership.set_names(["orders/0", "orders/1"])
            hub.hello("source", ["orders/0", "orders/1"])
        assert (await reads.current("/orders/1")).version == VERSION


async def test_unknown_endpoint_is_none_only_once_its_server_has_caught_up() -> None:
    starting, evicted, suspect = FeedHub(), hub_of("/orders/1"), hub_of("/orders/1")
    evicted.state.budget = DataBudget(0)
    evicted.state.mark_suspect([b"/orders/1"])
    evicted.state.suspect.clear()
    suspect.resync([b"/orders/1"])
    for hub, reason in ((starting, "not caught up"), (evicted, "RETAINED_DATA_BYTES"), (suspect, "last record")):
        async with reading(partial(read_retained, hub, None)) as reads:
            with pytest.raises(StoreUnavailable, match=reason):
                await reads.current("/orders/1")
    async with reading() as reads:
        with pytest.raises(StoreUnavailable, match="no server"):
            await reads.current("/orders/1")


async def test_catalogue_lists_what_the_reader_may_see() -> None:
    hub = hub_of("/orders/1", "/orders/2", "/stock/1")
    async with reading(partial(read_retained, hub, None)) as reads:
        whole = orjson.loads(await reads.catalogue(CataloguePage(limit=2)))
        assert ([each["endpoint"] for each in whole["endpoints"]], whole["next"]) == (
            ["/orders/1", "/orders/2"],
            "/orders/2",
        )
        assert whole["endpoints"][0]["kind"] == "document"
        rest = orjson.loads(await reads.catalogue(CataloguePage(after="/orders/1", rights=ReadRights(("/orders",)))))
        assert [each["endpoint"] for each in rest["endpoints"]] == ["/orders/2"]
