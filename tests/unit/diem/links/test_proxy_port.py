"""A server's channel for proxies: the client protocol behind the shared key, without the limits of one client."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from diem.fanout.feed_hub import FeedHub
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.links.internal import InternalListener
from diem.links.keepalive import LinkMonitor
from diem.links.mutual_auth import PeerNotAuthenticated
from diem.links.proxy_port import PATH, ProxyPort
from diem.process.auth import SharedKey
from diem.protocol import feed, messages
from diem.protocol.update import Change, encode
from tests.support.internal import InternalConnect
from tests.support.patience import PATIENCE_S, until

V1 = 1_700_000_000_001
KEY = SharedKey("0123456789abcdef0123456789abcdef")


class Served:
    """A server's internal listener with its channel for proxies."""

    def __init__(self) -> None:
        self.hub = FeedHub(limit=2)
        self.edge = Edge(
            self.hub.fanout, Admission(AdmissionRules()), EdgeRules("websocket-1", "z-proxy"), HubService(self.hub)
        )
        self.edge.ready = True
        self.edge.publish_status(live=True, since="-")
        self.end = ProxyPort(self.edge, self.hub)
        self.listener = InternalListener(
            "127.0.0.1", 0, key=KEY, ready=lambda: None, status=dict, channels={PATH: self.end}
        )
        self.hub.hello("source", ["store"])
        self.hub.caught_up("store")

    def dial(self, subprotocol: str = messages.SUBPROTOCOL, key: SharedKey = KEY) -> Any:
        url = f"ws://127.0.0.1:{self.listener.port}{PATH}"
        return InternalConnect(url, key, subprotocols=[Subprotocol(subprotocol)], ping_interval=None)

    def update(self, name: str, version: int) -> None:
        change = Change(version, name.encode(), version, 0, encode(name, version, version))
        self.hub.batch(feed.decode_batch(feed.encode_batch("store", version, [change])))


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    served.listener.start()
    yield served
    served.listener.stop()
    served.end.close()
    await asyncio.sleep(0.02)


async def hear(link: ClientConnection) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return orjson.loads(await link.recv())


async def test_a_proxy_is_welcomed_and_subscribes_beyond_the_limits_of_a_client(served: Served) -> None:
    names = [f"/e/{number}" for number in range(150)]
    served.update(names[0], V1)
    async with served.dial() as link:
        assert (await hear(link))["type"] == "welcome"
        assert (await hear(link))["live"] is True
        await link.send(orjson.dumps({"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(names)}), text=True)
        answer = await hear(link)
        assert len(answer["endpoints"]) == 150
        assert "rejected" not in answer
        assert (await hear(link))["version"] == V1
        served.update(names[3], V1)
        assert (await hear(link))["endpoint"] == names[3]
        await link.send(orjson.dumps({"type": "unsubscribe", "id": 2, "endpoints": names[:100]}), text=True)
        assert (await hear(link))["type"] == "unsubscribed"
        assert served.hub.fanout.registry.entries == 50
    await until(lambda: not served.hub.fanout.registry.entries and not len(served.end))


async def test_bad_input_is_answered_and_the_link_stays(served: Served) -> None:
    async with served.dial() as link:
        await hear(link)
        await hear(link)
        for sent, code in ((b"no json", "bad_json"), (b'{"type":"auth","id":1,"token":"t"}', "unauthorised")):
            await link.send(sent, text=True)
            assert (await hear(link))["code"] == code
        assert len(served.end) == 1


async def test_links_need_the_key_and_the_subprotocol(served: Served) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await served.dial("diem.feed.v1")
    assert refused.value.response.status_code == 400
    with pytest.raises(PeerNotAuthenticated):
        await served.dial(key=SharedKey("a-wrong-key-of-a-test"))


async def test_a_server_that_takes_no_clients_takes_no_proxies(served: Served) -> None:
    served.edge.draining = True
    with pytest.raises(InvalidStatus) as refused:
        await served.dial()
    assert refused.value.response.status_code == 503


async def test_a_proxy_that_does_not_read_is_held_back_to_the_latest(served: Served) -> None:
    async with served.dial() as link:
        await hear(link)
        await hear(link)
        await link.send(orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {"/a": None}}), text=True)
        await hear(link)
        link.transport.pause_reading()
        (session,) = served.hub.fanout.sessions
        version = V1
        async with asyncio.timeout(PATIENCE_S):
            while not session.blocked:
                for _ in range(500):
                    version += 1
                    served.update("/a", version)
                await asyncio.sleep(0)
        for _ in range(500):
            version += 1
            served.update("/a", version)
        assert session.held == 1
        link.transport.resume_reading()
        async with asyncio.timeout(PATIENCE_S):
            while (await hear(link)).get("version") != version:
                pass
        assert served.hub.fanout.stats.conflated > 0


async def test_a_link_that_is_silent_is_cut_and_one_that_answers_is_kept(served: Served) -> None:
    monitor = LinkMonitor("proxy", ping_every_s=1, silence_timeout_s=0.05)
    async with served.dial() as link:
        (connection,) = served.end._sessions
        monitor.add(connection)
        connection.alive = True
        monitor.tick()
        await until(lambda: connection.alive)
        await asyncio.sleep(0.1)
        monitor.tick()
        assert connection.is_open, "its pong has arrived"
        link.transport.pause_reading()
        connection.alive = False
        await asyncio.sleep(0.1)
        monitor.tick()
        monitor.discard(connection)
        link.transport.resume_reading()
        with pytest.raises(ConnectionClosed):
            while True:
                await hear(link)
