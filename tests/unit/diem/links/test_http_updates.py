"""Long polls and event streams at a real socket: docs/protocol.md section 1.8."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import orjson
import pytest

from diem.fanout.feed_hub import FeedHub
from diem.links import http_updates
from diem.links.client_auth import ClientAuth
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService, Subscriber
from diem.links.http_clients import GATHER_S
from diem.links.keepalive import HEARTBEAT_CHECK_S
from diem.links.shared_polls import KEPT_S
from diem.process.clock import SystemClock
from diem.protocol import messages
from diem.protocol.codes import Close
from diem.protocol.events import EventCache
from diem.protocol.feed import Batch
from diem.protocol.frames import text_frame
from diem.protocol.update import Change, encode
from diem.tokens.verifier import Verifier
from tests.support.described import check_described
from tests.support.patience import PATIENCE_S, until
from tests.support.tokens import Issuer
from tests.unit.diem.links.edges import Patient, listening

PAGE = {"Origin": "http://localhost:8000"}
VERSION = 1_700_000_000_000


class World:
    """A hub with a listener, and a client of it."""

    def __init__(self, hub: FeedHub, edge: Edge, client: httpx.AsyncClient, port: int) -> None:
        self.hub = hub
        self.edge = edge
        self.client = client
        self.port = port
        self.sequence = 0

    def put(self, *names: str, version: int = VERSION, gone: bool = False) -> int:
        changes = []
        for name in names:
            self.sequence += 1
            value = encode(name, version, version, gone=gone)
            changes.append(Change(self.sequence, name.encode(), version, int(gone), value))
        self.hub.batch(Batch("store", self.sequence + 1, iter(changes)))
        return version

    async def poll(self, *, headers: dict[str, str] | None = None, **body: Any) -> list[dict[str, Any]]:
        answer = await self.client.post("/v1/updates", content=orjson.dumps(body), headers=headers)
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()["messages"]
        return messages

    async def waiting(self, clients: int = 1) -> None:
        await until(lambda: len(self.edge.connections) == clients)


@contextlib.asynccontextmanager
async def worlds(rules: AdmissionRules) -> AsyncIterator[World]:
    hub = FeedHub()
    edge = Edge(hub.fanout, Admission(rules), EdgeRules("test", "single"), HubService(hub))
    hub.hello("store", ["store"])
    hub.caught_up("store")
    edge.ready = True
    edge.publish_status(live=True, since="-")
    hooks = {"response": [check_described]}
    async with (
        listening(edge) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", event_hooks=hooks) as client,
    ):
        yield World(hub, edge, client, port)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with worlds(AdmissionRules(page_port=8000)) as made:
        yield made


def kinds(messages: list[dict[str, Any]]) -> list[str]:
    return [message["type"] for message in messages]


async def test_a_newer_version_is_answered_at_once(world: World) -> None:
    world.put("/a")
    messages = await world.poll(endpoints={"/a": None, "/b": 5})
    assert kinds(messages) == ["welcome", "status", "subscribed", "update"]
    assert messages[2] == {"type": "subscribed", "id": 0, "endpoints": {"/a": VERSION, "/b": None}}
    assert messages[3]["version"] == VERSION


async def test_a_poll_of_what_is_known_waits_for_the_next_version(world: World) -> None:
    world.put("/a")
    poll = asyncio.create_task(world.poll(endpoints={"/a": VERSION}))
    await world.waiting()
    assert not poll.done()
    world.put("/a", version=VERSION + 1)
    assert [each.get("version") for each in await poll][3:] == [VERSION + 1]


async def test_updates_that_follow_shortly_are_in_one_answer_each_endpoint_once(world: World) -> None:
    poll = asyncio.create_task(world.poll(endpoints={"/a": None, "/b": None}))
    await world.waiting()
    world.put("/a")
    for number in range(50):
        world.put("/a", "/b", version=VERSION + 1 + number)
    updates = (await poll)[3:]
    assert {each["endpoint"]: each["version"] for each in updates} == {"/a": VERSION + 50, "/b": VERSION + 50}
    assert len(updates) <= 3, "the first, and the latest of each endpoint"


class Behind(HubService):
    """As a proxy: it has the answer of a server before the retained update."""

    def subscribe(self, client: Subscriber, request: messages.Subscribe) -> None:
        answer = self._hub.subscribe(client.session, request.endpoints, with_data=request.data)
        client.respond(messages.subscribed(request.id, answer.endpoints, {}))
        asyncio.get_running_loop().call_later(3 * GATHER_S, lambda: client.session.send_many(answer.replay))


@pytest.mark.parametrize("wait", [0, 25])
async def test_a_poll_waits_for_the_retained_update_also_if_others_have_news(world: World, wait: int) -> None:
    world.edge.service = Behind(world.hub)
    world.put("/a")
    poll = asyncio.create_task(world.poll(endpoints={"/a": None, "/b": None}, wait=wait))
    await world.waiting()
    world.put("/b", version=VERSION + 1)
    updates = (await poll)[3:]
    assert {each["endpoint"]: each["version"] for each in updates} == {"/a": VERSION, "/b": VERSION + 1}


async def test_without_news_it_is_answered_after_its_wait_whatever_that_of_the_one_before(world: World) -> None:
    for wait in (0.02, 0.1, 0.03):
        began = asyncio.get_running_loop().time()
        messages = await world.poll(endpoints={"/a": None}, wait=wait)
        assert kinds(messages) == ["welcome", "status", "subscribed"]
        assert wait <= asyncio.get_running_loop().time() - began < PATIENCE_S


@pytest.mark.parametrize("body", [{"endpoints": {"/a": None}, "wait": 0}, {"endpoints": {}}])
async def test_a_poll_that_waits_for_nothing_is_answered_at_once(world: World, body: dict[str, Any]) -> None:
    assert kinds(await world.poll(**body))[:2] == ["welcome", "status"]


@pytest.mark.parametrize("others", [{}, {"no name": None}], ids=["shared", "own"])
async def test_only_its_subscription_is_left_of_a_poll_and_not_for_long(world: World, others: dict[str, None]) -> None:
    for _ in range(3):
        await world.poll(endpoints={"/a": None} | others, wait=0)
    edge = world.edge
    assert not edge.connections
    assert (len(edge.fanout.sessions), edge.polls.idle) == (1, 1)
    assert edge.polls.is_expiring
    assert edge.polls.expire(asyncio.get_running_loop().time() + KEPT_S) is None
    assert not edge.fanout.sessions
    assert (len(edge.polls), edge.polls.idle) == (0, 0)
    assert not edge.fanout.registry.entries
    assert edge.admission.open == 0
    assert len(edge.pending_handshakes) == 1, "the connection is kept for the next request of any client"
    assert edge.received == {"poll": 3}


async def test_equal_polls_share_a_subscription_and_others_have_their_own(world: World) -> None:
    world.put("/a")
    equal = [asyncio.create_task(world.poll(endpoints={"/a": VERSION})) for _ in range(3)]
    await world.waiting(3)
    assert world.edge.fanout.registry.entries == 1
    assert kinds(await world.poll(endpoints={"/a": VERSION - 1}))[3:] == ["update"], "at once"
    assert kinds(await world.poll(endpoints={"/a": VERSION + 9}, wait=0.01)) == ["welcome", "status", "subscribed"]
    world.put("/a", version=VERSION + 1)
    for answer in await asyncio.gather(*equal):
        assert [each.get("version") for each in answer][3:] == [VERSION + 1]
    stats = world.edge.fanout.stats
    assert (stats.sent, stats.held) == (4, 0)
    again = asyncio.create_task(world.poll(endpoints={"/a": VERSION + 1}))
    await world.waiting()
    assert world.edge.fanout.registry.entries == 1, "the one before"
    world.hub.resync([b"/a"])
    assert kinds(await again)[3:] == ["resync"]
    assert not len(world.edge.polls), "of what is suspect each has its own"


async def test_a_poll_that_shares_the_subscription_of_gathered_news_has_what_follows(world: World) -> None:
    known = VERSION
    for _ in range(2):
        poll = asyncio.create_task(world.poll(endpoints={"/a": known}))
        await world.waiting()
        world.put("/a", version=known + 1)
        world.put("/a", version=known + 2)
        known = max(each["version"] for each in (await poll)[3:])
        assert len(world.edge.polls) == 1
    assert known == VERSION + 4


async def test_a_client_that_goes_leaves_nothing(world: World) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b'POST /v1/updates HTTP/1.1\r\nHost: localhost\r\nContent-Length: 23\r\n\r\n{"endpoints":{"/a":0}} ')
    await world.waiting()
    writer.close()
    await world.waiting(0)
    assert world.edge.admission.open == 0
    assert not world.edge.pending_handshakes


async def test_a_status_that_changes_is_news(world: World) -> None:
    poll = asyncio.create_task(world.poll(endpoints={"/a": None}))
    await world.waiting()
    world.edge.publish_status(live=False, since="-")
    assert [each["live"] for each in await poll if each["type"] == "status"] == [False]


@pytest.mark.parametrize("told", [True, False])
async def test_a_poll_of_a_client_with_another_status_is_answered_at_once(world: World, told: bool) -> None:
    world.put("/a")
    known = {"/a": VERSION}
    first = asyncio.create_task(world.poll(endpoints=known))
    await world.waiting()
    if told:
        world.edge.publish_status(live=False, since="-")
        await first
    assert [each["live"] for each in (await world.poll(endpoints=known, live=told))[1:2]] == [not told]
    second = asyncio.create_task(world.poll(endpoints=known, live=not told))
    await world.waiting(1 if told else 2)
    assert not second.done()
    world.put("/a", version=VERSION + 1)
    assert kinds(await second)[-1] == "update"


class Stale(HubService):
    """As a proxy whose server of all endpoints is not live."""

    def _tell(self, client: Subscriber) -> None:
        names = [endpoint.decode() for endpoint in client.session.endpoints] or ["/a"]
        client.respond(messages.status(live=False, since="-", endpoints=names))

    def subscribe(self, client: Subscriber, request: messages.Subscribe) -> None:
        self._tell(client)
        super().subscribe(client, request)

    def unblocked(self, client: Subscriber) -> None:
        self._tell(client)


async def test_a_poll_is_answered_at_once_unless_it_knows_the_stale_names(world: World) -> None:
    world.edge.service = Stale(world.hub)
    world.put("/a")
    known = {"/a": VERSION}
    answer = await world.poll(endpoints=known)
    assert [each.get("endpoints") for each in answer if each["type"] == "status"] == [None, ["/a"]]
    poll = asyncio.create_task(world.poll(endpoints=known, stale=["/a"]))
    await world.waiting()
    assert not poll.done()
    world.put("/a", version=VERSION + 1)
    assert "update" in kinds(await poll), "the stale names are stated again with it"


async def test_names_that_are_rejected_are_news(world: World) -> None:
    messages = await world.poll(endpoints={"/a": None, "no name": None})
    assert messages[2]["rejected"]["no name"]["code"] == "bad_name"


async def test_a_resync_is_news_once(world: World) -> None:
    world.put("/a")
    world.hub.resync([b"/a"])
    known = {"/a": VERSION}
    assert kinds(await world.poll(endpoints=known))[3:] == ["resync"]
    poll = asyncio.create_task(world.poll(endpoints=known, resynced=["/a"]))
    await world.waiting()
    world.put("/a", version=VERSION + 1)
    assert kinds(await poll)[-1] == "update"


async def test_a_server_that_stops_answers_with_the_close(world: World) -> None:
    poll = asyncio.create_task(world.client.post("/v1/updates", json={"endpoints": {"/a": None}}))
    await world.waiting()
    await world.edge.drain(0.1)
    answer = await poll
    assert answer.json()["close"] == {"code": 1012, "reason": "retry=500"}
    assert answer.headers["connection"] == "close"
    assert (await world.client.post("/v1/updates", json={"endpoints": {}})).status_code == 503


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b"x"),
        (400, b"[]"),
        (400, b"{}"),
        (400, b'{"endpoints":{},"more":1}'),
        (400, b'{"endpoints":{},"wait":26}'),
        (400, b'{"endpoints":{"/a":-1}}'),
        (400, b'{"endpoints":{},"resynced":"/a"}'),
        (400, b'{"endpoints":{},"stale":["/a",1]}'),
        (400, b'{"endpoints":{},"live":0}'),
        (413, orjson.dumps({"endpoints": {f"/{number}": None for number in range(1025)}})),
        (413, b" " * (128 * 1024 + 1)),
    ],
)
async def test_a_bad_request_has_an_answer_that_any_page_may_read(world: World, status: int, body: bytes) -> None:
    answer = await world.client.post("/v1/updates", content=body)
    assert answer.status_code == status
    assert answer.headers["access-control-allow-origin"] == "*"
    assert answer.json()["detail"]
    assert not world.edge.connections


@pytest.mark.parametrize("fields", [b"Transfer-Encoding: chunked", b"Content-Length: 2\r\nContent-Length: 3", b"x"])
async def test_what_frames_a_request_in_another_way_is_refused(world: World, fields: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"POST /v1/updates HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\n\r\n")
    assert (await reader.readline()).split()[1] in {b"400", b"411"}
    assert b"Connection: close" in await reader.read()
    writer.close()


async def test_a_request_that_arrives_in_pieces_is_the_same(world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    request = b'POST /v1/updates HTTP/1.0\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{"endpoints":{}}'
    for start in range(len(request)):
        writer.write(request[start : start + 1])
        await asyncio.sleep(0)
        await writer.drain()
    assert b"welcome" in await reader.read(), "HTTP/1.0: the connection ends with the answer"
    writer.close()


async def test_a_second_request_before_the_answer_ends_the_connection(world: World) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b'POST /v1/updates HTTP/1.1\r\nHost: localhost\r\nContent-Length: 22\r\n\r\n{"endpoints":{"/a":0}}')
    await world.waiting()
    writer.write(b"GET / HTTP/1.1\r\n\r\n")
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    await world.waiting(0)
    writer.close()


async def test_pages_of_the_origins_that_may_open_a_websocket_may_read_the_answer(world: World) -> None:
    answer = await world.client.post("/v1/updates", json={"endpoints": {}}, headers=PAGE)
    assert answer.headers["access-control-allow-origin"] == PAGE["Origin"]
    other = await world.client.post("/v1/updates", json={"endpoints": {}}, headers={"Origin": "http://other.example"})
    assert (other.status_code, other.json()["code"]) == (403, "origin")
    asked = await world.client.options("/v1/updates", headers={"Access-Control-Request-Headers": "authorization"})
    assert asked.status_code == 204
    assert "authorization" in asked.headers["access-control-allow-headers"]


async def test_a_name_that_resolves_to_this_machine_is_no_way_around_origins(world: World) -> None:
    answer = await world.client.get("/v1/updates?wait=0", headers={"Host": "rebound.example"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    ("host", "site", "status"),
    [
        ("app.example", "same-origin", 200),
        ("app.example", "cross-site", 401),
        ("other.example", "same-origin", 403),
    ],
)
async def test_a_get_of_a_page_of_the_same_origin_needs_no_origin(host: str, site: str, status: int) -> None:
    rules = AdmissionRules(origins=frozenset({"https://app.example"}), anonymous="on", tokens=True)
    headers = {"Host": host, "Sec-Fetch-Site": site, "Via": "1.1 front"}
    async with worlds(rules) as world:
        answer = await world.client.get("/v1/updates?endpoint=/a&wait=0", headers=headers)
        assert answer.status_code == status


async def test_the_query_of_a_get_is_a_request(world: World) -> None:
    world.put("/a")
    answer = await world.client.get("/v1/updates?endpoint=/a&endpoint=/b&after=5")
    assert answer.json()["messages"][3]["version"] == VERSION
    for query in ("after=x", "wait=x", "data=1", "token=x"):
        assert (await world.client.get(f"/v1/updates?{query}")).status_code == 400


async def test_what_follows_a_version_may_be_stored_where_all_may_read_it() -> None:
    async with worlds(AdmissionRules(anonymous="on", tokens=True)) as world:
        world.put("/a", "/b")
        for query, stored in (
            (f"endpoint=/a&after={VERSION - 1}", True),
            (f"endpoint=/a&after={VERSION - 1}&data=true", False),
            (f"endpoint=/a&endpoint=/b&after={VERSION - 1}", True),
            ("endpoint=/a", False),
            (f"endpoint=/a&after={VERSION}&wait=0", True),
            (f"endpoint=/a/*&after={VERSION - 1}", False),
        ):
            answer = await world.client.get(f"/v1/updates?{query}")
            assert (answer.headers["cache-control"] == "public, max-age=1") is stored, query
            if stored:
                assert answer.headers["vary"] == "Origin"
        query = f"/v1/updates?endpoint=/a&after={VERSION}"
        polls = [asyncio.create_task(world.client.get(query)) for _ in range(2)]
        await world.waiting(2)
        world.put("/a", version=VERSION + 1)
        assert {each.headers["cache-control"] for each in await asyncio.gather(*polls)} == {"public, max-age=1"}
        world.hub.resync([b"/a"])
        assert (await world.client.get(query)).headers["cache-control"] == "no-store"
    async with worlds(AdmissionRules(page_port=8000)) as world:
        world.put("/a")
        answer = await world.client.get(f"/v1/updates?endpoint=/a&after={VERSION - 1}")
        assert answer.headers["cache-control"] == "no-store", "only this machine may read without a token"


async def test_polls_use_up_the_messages_of_an_address_and_not_its_connections() -> None:
    async with worlds(Patient(rate_per_address=0.001)) as world:
        statuses = [
            (await world.client.post("/v1/updates", json={"endpoints": {"/a": None}, "wait": 0})).status_code
            for _ in range(40)
        ]
        assert statuses[:30] == [200] * 30, "more than the burst of new connections"
        assert statuses[-1] == 429


async def test_an_address_has_so_many_polls_at_once() -> None:
    async with worlds(AdmissionRules(per_address=2)) as world:
        polls = [asyncio.create_task(world.poll(endpoints={"/a": None})) for _ in range(2)]
        await world.waiting(2)
        answer = await world.client.post("/v1/updates", json={"endpoints": {"/a": None}})
        assert (answer.status_code, answer.json()["code"], answer.headers["retry-after"]) == (429, "limit", "10")
        world.put("/a")
        await asyncio.gather(*polls)


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, str]]:
    """Iterate over the kinds and data of events; of comments too."""
    async for line in response.aiter_lines():
        if line:
            kind, _, data = line.partition(":")
            yield kind, data.strip()


async def test_a_stream_has_an_event_for_each_message_until_the_server_ends_it(world: World) -> None:
    world.put("/a")
    headers = {**PAGE, "Accept": "text/event-stream"}
    async with world.client.stream("GET", "/v1/updates?endpoint=/a", headers=headers) as response:
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["access-control-allow-origin"] == PAGE["Origin"]
        received = events(response)
        first = [orjson.loads((await anext(received))[1]) for _ in range(4)]
        assert kinds(first) == ["welcome", "status", "subscribed", "update"]
        world.put("/a", version=VERSION + 1)
        assert orjson.loads((await anext(received))[1])["version"] == VERSION + 1
        for _ in range(12):
            world.edge.wheel.tick()
            world.edge.send_heartbeats(HEARTBEAT_CHECK_S)
        assert await anext(received) == ("", ""), "a comment"
        await world.edge.drain(0.1)
        assert ("event", "close") in [each async for each in received]
    assert world.edge.admission.open == 0
    assert world.edge.closes == {1012: 1}


async def test_a_stream_that_is_not_read_is_conflated_and_then_closed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diem.links.admitted_client.STALL_TIMEOUT_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1024)
    writer.write(b"GET /v1/updates?endpoint=/a HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n")
    await world.waiting()
    (client,) = world.edge.connections
    number = 0
    async with asyncio.timeout(PATIENCE_S):
        while not client.session.blocked:
            number += 1
            world.put("/a", version=VERSION + number)
            if number % 1000 == 0:
                await asyncio.sleep(0)
    for _ in range(10):
        number += 1
        world.put("/a", version=VERSION + number)
    assert client.session.held == 1
    await world.waiting(0)
    assert world.edge.closes == {4002: 1}
    await until(lambda: world.edge.admission.open == 0)
    del reader
    writer.close()


def test_a_frame_is_converted_once_for_all_streams() -> None:
    cache = EventCache()
    frame = text_frame(b'{"type":"update","data":\r\n1}')
    assert cache[frame] == b'data: {"type":"update","data":  1}\n\n'
    assert cache[frame] is cache[frame]
    assert cache[frame + frame] == 2 * cache[frame]
    for number in range(1000):
        assert cache[text_frame(b"x" * 1000 + b"%d" % number)]
    assert sum(len(each) for pair in cache.items() for each in pair) <= 512 * 1024


def test_the_first_bytes_decide_which_protocol_a_connection_has() -> None:
    assert http_updates.is_request(b"POST /v1/updates HTTP/1.1")
    assert http_updates.is_request(b"GET /v1/up") is None
    assert http_updates.is_request(b"GET /ws") is False
    assert http_updates.is_request(b"") is None


ISSUER = Issuer()


@contextlib.asynccontextmanager
async def guarded() -> AsyncIterator[World]:
    """Serve clients with tokens only."""
    async with worlds(AdmissionRules(page_port=8000, anonymous="off", tokens=True)) as world:
        world.edge.auth = ClientAuth(SystemClock(), Verifier([ISSUER.key]))
        yield world


async def test_a_token_in_the_body_or_the_head_gives_its_rights_to_one_request() -> None:
    token = ISSUER.token(time.time(), prefixes=["/a"])
    async with guarded() as world:
        world.put("/a", "/b")
        for more in ({"token": token}, {}):
            headers = {} if more else {"Authorization": f"Bearer {token}"}
            names = dict.fromkeys(("/a", "/a/", "/b", "/b/"))
            messages = await world.poll(endpoints=names, headers=headers, **more)
            assert kinds(messages) == ["welcome", "status", "authenticated", "subscribed", "update"]
            assert messages[0]["authenticated"] is True
            rejected = messages[3]["rejected"]
            assert {name: each["code"] for name, each in rejected.items()} == {"/b": "forbidden", "/b/": "forbidden"}
        answer = await world.client.post("/v1/updates", json={"endpoints": {"/a": None}})
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorised")
        assert world.edge.auth.authenticated == 0
        (welcome, _) = await world.poll(endpoints={})
        assert welcome["authenticated"] is False, "where to present one can be found out without"


async def test_a_refused_token_has_the_code_by_which_a_websocket_would_be_closed() -> None:
    old = ISSUER.token(time.time() - 3600, changes={"exp": int(time.time()) - 60})
    async with guarded() as world:
        for token, code in ((old, 4001), ("x.y.z", 4501)):
            answer = await world.client.post("/v1/updates", json={"endpoints": {}, "token": token})
            assert (answer.status_code, answer.json()["close"]) == (401, code)
        assert world.edge.admission.open == 0


async def test_a_stream_ends_when_its_token_has_expired() -> None:
    token = ISSUER.token(time.time(), prefixes=["/a"])
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
    async with (
        guarded() as world,
        world.client.stream("POST", "/v1/updates", json={"endpoints": {"/a": None}}, headers=headers) as response,
    ):
        received = events(response)
        await anext(received)
        (client,) = world.edge.connections
        client.close(Close.TOKEN_EXPIRED, "the token has expired")
        assert ("data", '{"code":4001,"reason":"the token has expired"}') in [each async for each in received]
        assert world.edge.auth.authenticated == 0
