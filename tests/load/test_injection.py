import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from diem.protocol.update import version_of
from tests.load.injection import (
    ATTACK,
    DRAIN,
    EXPIRY,
    FAULTS,
    LEARNED,
    MODES,
    ONE_BROKER,
    PARTITIONED,
    REPARTITIONS,
    ROLLBACK,
    THREE_BROKERS,
    UPGRADE,
    Scene,
    faults_of,
)
from tests.load.injection.poison import bad_records, unresynced
from tests.load.relay import HOST, Relay
from tests.oracle import Event, History, Kind

SINCE = 100.0


def test_every_fault_of_every_mode_exists() -> None:
    named = {fault for mode in MODES for fault in faults_of(mode)} | {*ONE_BROKER, *THREE_BROKERS}
    named |= {*REPARTITIONS, LEARNED, ATTACK, EXPIRY, DRAIN, UPGRADE, ROLLBACK}
    assert named | {fault for faults in PARTITIONED.values() for fault in faults} == FAULTS.keys()


def test_bad_records_are_no_updates_of_their_keys_and_fit_into_the_topic() -> None:
    records = bad_records("/a", 3, "/b", 1_700_000_000_001)
    assert {partition for partition, _, _ in records} == {3}
    for _, key, value in records:
        assert key is not None
        assert value is not None
        assert version_of(key, value) is None
    assert 100_000 < max(len(value or b"") for _, _, value in records) < 131_072


def missed(*events: Event) -> int:
    return unresynced(History([], {"1": list(events)}, 200), ["/a"], SINCE)


def subscribed(time: float, endpoint: str = "/a") -> Event:
    return Event(time, Kind.SUBSCRIBED, endpoint)


def test_subscriber_of_a_poisoned_endpoint_must_be_told_to_fetch_in_time() -> None:
    assert missed(subscribed(1)) == 1
    assert missed(subscribed(1), Event(101, Kind.RESYNC, "/a")) == 0
    assert missed(subscribed(1), Event(106, Kind.RESYNC, "/a")) == 1
    assert missed(subscribed(1), Event(101, Kind.RESYNC, "/b")) == 1
    assert missed(subscribed(1), Event(99, Kind.RESYNC, "/a")) == 1


def test_who_does_not_look_at_it_need_not_be_told() -> None:
    assert missed(subscribed(1, "/b")) == 0
    assert missed(subscribed(101)) == 0
    assert missed(subscribed(1), Event(101, Kind.SUBSCRIBE, "/a"), subscribed(102)) == 0
    assert missed(Event(1, Kind.SUBSCRIBE, "/a"), subscribed(2)) == 1
    assert missed(subscribed(1), Event(2, Kind.UNSUBSCRIBE, "/a")) == 0
    assert missed(subscribed(1), Event(101, Kind.CLOSE, code=1006)) == 0


async def test_link_is_cut_once_it_is_there() -> None:
    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(listen, HOST, 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with Relay(lambda: (HOST, port)) as relay:
            scene = cast("Scene", SimpleNamespace(relay=None, upstream=relay))
            cutting = asyncio.ensure_future(FAULTS["upstream-reset"](scene))
            await asyncio.sleep(0.05)
            assert not cutting.done()
            reader, first = await asyncio.open_connection(HOST, relay.port)
            with pytest.raises(ConnectionResetError):
                await reader.read()
            _, second = await asyncio.open_connection(HOST, relay.port)
            assert (await cutting).kind == "upstream-reset"
            first.close()
            second.close()
