"""Connections to an internal listener that have not proved a key: their number, that of an address, and their time."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import pytest

from diem.links import internal, refused_peers
from diem.links import listener as listener_module
from diem.links.dialer import LinkConnection
from diem.links.dialer import dial as dial_link
from diem.links.internal import InternalConnection, InternalListener
from diem.links.mutual_auth import DialerAuth, IncompatiblePeer, ListenerAuth
from diem.process.auth import SharedKey
from diem.protocol.compatibility import OURS, Versions
from tests.support.internal import InternalConnect, http_client
from tests.support.patience import FACTOR, PATIENCE_S
from tests.support.security_events import recorded_events

KEY = SharedKey("k" * 43)
Dialled = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Dial = Callable[[str], Awaitable[Dialled]]


class Channel:
    """Accepts links, and reads nothing."""

    subprotocol = "test"
    accepting = True

    def opened(self, connection: InternalConnection) -> None: ...
    def received(self, connection: InternalConnection, data: bytes) -> None: ...
    def blocked(self, connection: InternalConnection) -> None: ...
    def resumed(self, connection: InternalConnection) -> None: ...
    def closed(self, connection: InternalConnection) -> None: ...


@pytest.fixture
async def listener(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[InternalListener]:
    monkeypatch.setattr(internal, "MAX_UNPROVED", 5)
    monkeypatch.setattr(internal, "MAX_UNPROVED_PER_ADDRESS", 3)
    # Nothing is evicted unless a test says so.
    monkeypatch.setattr(internal, "GRACE_S", 1e6)
    made = InternalListener("127.0.0.1", 0, key=KEY, ready=lambda: None, status=dict, channels={"/feed": Channel()})
    made.start()
    yield made
    made.stop()


@pytest.fixture
async def dial(listener: InternalListener) -> AsyncIterator[Dial]:
    """Connect from an address of this machine, and send nothing."""
    writers = []

    async def dial(address: str) -> Dialled:
        before = len(listener.unproved)
        made = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(address, 0))
        writers.append(made[1])
        async with asyncio.timeout(PATIENCE_S):
            while len(listener.unproved) == before and not made[0].at_eof() and not made[0]._buffer:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
        return made

    yield dial
    for writer in writers:
        writer.close()


async def status_of(dialled: Dialled) -> bytes:
    return (await asyncio.wait_for(dialled[0].read(), PATIENCE_S)).partition(b"\r\n")[0]


async def test_silent_connections_of_an_address_are_bounded_and_others_are_served(
    listener: InternalListener, dial: Dial
) -> None:
    with recorded_events() as events:
        for _ in range(3):
            await dial("127.0.0.2")
        assert await status_of(await dial("127.0.0.2")) == b"HTTP/1.1 503 Service Unavailable"
        async with http_client(KEY) as http:
            assert (await http.get(f"http://127.0.0.1:{listener.port}/status")).status_code == 200
    (line,) = events.of("rate_exceeded")
    assert (line["address"], line["code"]) == ("127.0.0.2", 503)


async def test_silent_connections_are_bounded_in_all(listener: InternalListener, dial: Dial) -> None:
    for number in range(5):
        await dial(f"127.0.0.{10 + number}")
    assert await status_of(await dial("127.0.0.2")) == b"HTTP/1.1 503 Service Unavailable"
    assert len(listener.unproved) == 5


async def test_links_that_have_proved_the_key_take_no_places_and_lose_none(
    listener: InternalListener, dial: Dial
) -> None:
    url = f"ws://127.0.0.1:{listener.port}/feed"
    links = [await InternalConnect(url, KEY, subprotocols=["test"]) for _ in range(8)]
    assert not len(listener.unproved)
    for number in range(7):
        await dial(f"127.0.0.{10 + number}")
    for link in links:
        await asyncio.wait_for(await link.ping(), PATIENCE_S)
        await link.close()


async def test_a_silent_connection_gives_way_to_a_peer_after_its_first_second(
    listener: InternalListener, dial: Dial
) -> None:
    listener.unproved._grace_s = 0.0
    silent = [await dial("127.0.0.1") for _ in range(3)]
    async with http_client(KEY) as http:
        assert (await http.get(f"http://127.0.0.1:{listener.port}/status")).status_code == 200
    assert await status_of(silent[0]) == b""


async def test_connection_without_a_proof_ends_in_time(
    listener: InternalListener, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "HANDSHAKE_TIMEOUT_S", 0.2 * FACTOR)
    assert await status_of(await dial("127.0.0.1")) == b""
    assert not len(listener.unproved)


async def test_a_proved_client_without_a_version_in_common_is_refused_in_one_line_and_sees_the_status(
    listener: InternalListener, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    later, refused = Versions(OURS.newest + 1, OURS.newest + 1), list[tuple[str, Versions]]()
    monkeypatch.setattr(refused_peers, "refuse_versions", lambda *refusal: refused.append(refusal))
    answers = []
    with recorded_events() as events:
        for target in ("/feed", "/status"):
            reader, writer = await dial("127.0.0.2")
            client = DialerAuth(KEY, f"127.0.0.1:{listener.port}")
            ours, theirs = f'"{OURS.announcement}"'.encode(), f'"{later.announcement}"'.encode()
            writer.write(client.challenge("h").replace(ours, theirs))
            client.verify(await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE_S))
            authorization = client.authorization("GET", target)
            writer.write(f"GET {target} HTTP/1.1\r\nHost: h\r\nAuthorization: {authorization}\r\n\r\n".encode())
            answers.append(await status_of((reader, writer)))
    assert answers == [b"HTTP/1.1 400 Bad Request", b"HTTP/1.1 200 OK"]
    assert refused == [("the client of /feed at 127.0.0.2", later)]
    assert not events.of("wrong_internal_key")


async def test_a_listener_without_a_version_in_common_is_not_sent_the_request(
    listener: InternalListener, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, later = ListenerAuth.answer, Versions(OURS.newest + 1, OURS.newest + 3)
    ours, theirs = OURS.announcement.encode(), later.announcement.encode()
    monkeypatch.setattr(ListenerAuth, "answer", lambda auth: answer(auth).replace(ours, theirs))
    url = f"ws://127.0.0.1:{listener.port}/feed"
    with pytest.raises(IncompatiblePeer, match="replace this process first") as refused:
        await dial_link(url, KEY, partial(LinkConnection, url))
    assert refused.value.versions == later
    async with http_client(KEY) as http:
        assert (await http.get(f"http://127.0.0.1:{listener.port}/status")).status_code == 200
