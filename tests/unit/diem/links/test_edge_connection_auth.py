"""Clients that authenticate at an edge: what they are sent, refused and no longer sent (docs/reliability.md I12)."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection
from typing import Any

import orjson
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from diem.fanout.feed_hub import FeedHub
from diem.fanout.read_meter import ReadMeters
from diem.links.client_auth import ClientAuth
from diem.links.edge import Admission, AdmissionRules, Edge, EdgeRules, HubService
from diem.links.read_reports import ReadReporter
from diem.process import limits
from diem.process.clock import ManualClock
from diem.process.edge_settings import Anonymous
from diem.protocol.feed import Batch
from diem.protocol.update import Change, encode
from diem.tokens.verifier import Verifier
from tests.support.patience import PATIENCE_S, until
from tests.support.security_events import recorded_events
from tests.support.small import START, Client
from tests.support.tokens import NOW, Issuer
from tests.unit.diem.links.edges import Patient, listening

ISSUER, FOREIGN = Issuer(), Issuer()
FORBIDDEN = {"code": "forbidden", "message": "not covered by the token"}


class Server:
    """A server whose clients need tokens, unless ``anonymous`` says otherwise, on a manual clock."""

    def __init__(
        self,
        *,
        anonymous: Anonymous = "off",
        anonymous_data: Anonymous = "auto",
        everyone: bool = False,
        per_user: int = 20,
        origins: Collection[str] = (),
    ) -> None:
        self.clock = ManualClock(0.0, int(NOW * 1000))
        self.verifier = Verifier([ISSUER.key])
        self.hub = FeedHub(everyone=everyone)
        self.auth = ClientAuth(self.clock, self.verifier)
        admission = Admission(
            AdmissionRules(
                anonymous=anonymous,
                anonymous_data=anonymous_data,
                tokens=True,
                origins=frozenset(origins),
                per_user=per_user,
            )
        )
        self.edge = Edge(self.hub.fanout, admission, EdgeRules("s", "single"), HubService(self.hub), self.auth)
        self.edge.publish_status(live=True, since="-")
        self.edge.ready = True
        self.hub.hello("s", ["store"])
        self.hub.caught_up("store")
        self.changes = 0
        self.port = 0

    def put(self, *names: str) -> None:
        for name in names:
            self.changes += 1
            change = Change(
                self.changes,
                name.encode(),
                START + self.changes,
                0,
                encode(name, START + self.changes, START, data=b'{"points":[]}'),
            )
            self.hub.batch(Batch("store", self.changes + 1, iter([change])))

    @contextlib.asynccontextmanager
    async def client(
        self, token: str | None = None, address: str = "127.0.0.1", origin: str | None = None
    ) -> AsyncIterator[Client]:
        protocols = ["diem.v1.json", *([] if token is None else [f"bearer.{token}"])]
        url = f"ws://127.0.0.1:{self.port}/ws"
        options = {"subprotocols": list(map(Subprotocol, protocols)), "local_addr": (address, 0), "origin": origin}
        async with connect(url, proxy=None, compression=None, **options) as link:  # type: ignore[arg-type]
            client = Client(link)
            welcome = await client.receive()
            assert welcome["authenticated"] is (token is not None)
            assert link.subprotocol == "diem.v1.json"
            yield client


@contextlib.asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Server]:
    server = Server(**options)
    async with listening(server.edge) as server.port:
        yield server


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as running:
        yield running


def auth(request_id: int, token: str) -> dict[str, Any]:
    return {"type": "auth", "id": request_id, "token": token}


def subscribe(request_id: int, *names: str) -> dict[str, Any]:
    return {"type": "subscribe", "id": request_id, "endpoints": dict.fromkeys(names)}


async def closed(client: Client) -> tuple[int, str]:
    """Return code and reason of the close frame; all messages before it are read."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionClosed):
            while True:
                await client.connection.recv()
        await client.connection.wait_closed()
    return client.connection.close_code or 0, client.connection.close_reason or ""


async def test_a_client_without_the_subprotocol_is_told_which(server: Server) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{server.port}/ws", proxy=None)
    assert refused.value.response.status_code == 400
    assert b"missing subprotocol; expected diem.v1.json" in (refused.value.response.body or b"")


async def test_requests_before_a_token_are_refused_and_after_it_answered(server: Server) -> None:
    server.put("/dam/a")
    async with server.client() as client:
        for request in (subscribe(1, "/dam/a"), {"type": "unsubscribe", "id": 1, "endpoints": ["/dam/a"]}):
            answer = await client.ask(request)
            assert (answer["type"], answer["id"], answer["code"]) == ("error", 1, "unauthorised")
        server.put("/dam/a")
        token = ISSUER.token(exp=int(NOW) + 600)
        assert await client.ask(auth(2, token)) == {"type": "authenticated", "id": 2, "expires": int(NOW) + 600}
        answer = await client.ask(subscribe(3, "/dam/a"))
        assert answer == {"type": "subscribed", "id": 3, "endpoints": {"/dam/a": START + 2}}
        assert (await client.receive())["version"] == START + 2
    assert server.edge.errors == {"unauthorised": 2}


async def test_token_in_the_subprotocols_needs_no_message(server: Server) -> None:
    async with server.client(ISSUER.token()) as client:
        assert (await client.ask(subscribe(1, "/dam/a")))["endpoints"] == {"/dam/a": None}


@pytest.mark.parametrize(
    "token",
    [FOREIGN.token(), "x.y.z", "", ISSUER.token(exp=int(NOW) - 60)],
    ids=["foreign", "malformed", "empty", "expired"],
)
async def test_handshake_with_a_bad_token_is_refused_with_401(server: Server, token: str) -> None:
    with pytest.raises(InvalidStatus) as caught:
        async with server.client(token):
            pass
    assert caught.value.response.status_code == 401
    assert not server.edge.connections
    assert server.edge.refused == {401: 1}
    await until(lambda: not server.edge.admission.open)


@pytest.mark.parametrize(
    ("token", "code"),
    [(FOREIGN.token(), 4501), ("x", 4501), (ISSUER.token(exp=int(NOW) - 60), 4001)],
    ids=["foreign", "malformed", "expired"],
)
@pytest.mark.parametrize("authenticated", [False, True])
async def test_bad_token_in_a_message_closes_the_connection(
    server: Server, token: str, code: int, authenticated: bool
) -> None:
    async with server.client(ISSUER.token() if authenticated else None) as client:
        answer = await client.ask(auth(1, token))
        assert (answer["type"], answer["id"], answer["code"]) == ("error", 1, "unauthorised")
        assert (await closed(client))[0] == code


async def test_client_that_presents_no_token_is_closed_with_4502(server: Server) -> None:
    async with server.client() as client, server.client(ISSUER.token()) as other:
        server.clock.advance(9.5)
        await server.edge.close_due()
        assert (await client.ask(subscribe(1, "/dam/a")))["code"] == "unauthorised"
        server.clock.advance(1.5)
        await server.edge.close_due()
        assert (await closed(client))[0] == 4502
        assert (await other.ask(subscribe(1, "/dam/a")))["type"] == "subscribed"
    assert server.auth.pending == 0


async def test_names_beyond_the_token_are_forbidden_whether_or_not_they_exist(server: Server) -> None:
    server.put("/secret/a")
    async with server.client(ISSUER.token(prefixes=["/dam"])) as client:
        answer = await client.ask(subscribe(1, "/dam/a", "/damage", "/secret/a", "/secret/none", "bad name"))
        assert answer["endpoints"] == {"/dam/a": None}
        bad_name = {"code": "bad_name", "message": "not an endpoint name"}
        assert answer["rejected"] == {
            **dict.fromkeys(("/damage", "/secret/a", "/secret/none"), FORBIDDEN),
            "bad name": bad_name,
        }
        server.put("/secret/a", "/dam/a", "/secret/none", "/damage")
        assert (await client.receive())["endpoint"] == "/dam/a"
        assert await client.receives_nothing()
    assert b"/secret/a" not in server.hub.fanout.registry


async def test_request_for_forbidden_names_alone_is_answered(server: Server) -> None:
    async with server.client(ISSUER.token(prefixes=["/dam"])) as client:
        answer = await client.ask(subscribe(7, "/x"))
        assert answer == {"type": "subscribed", "id": 7, "endpoints": {}, "rejected": {"/x": FORBIDDEN}}


async def test_refresh_with_fewer_rights_ends_subscriptions_before_it_is_confirmed(server: Server) -> None:
    async with server.client(ISSUER.token(prefixes=["/dam", "/load"])) as client:
        await client.ask(subscribe(1, "/dam/a", "/load/a", "/load/b"))
        ended = await client.ask(auth(9, ISSUER.token(prefixes=["/dam"])))
        rejected = {"/load/a": FORBIDDEN, "/load/b": FORBIDDEN}
        assert ended == {"type": "subscribed", "id": 9, "endpoints": {}, "rejected": rejected}
        assert (await client.receive())["type"] == "authenticated"
        server.put("/load/a", "/dam/a", "/load/b")
        assert (await client.receive())["endpoint"] == "/dam/a"
        assert await client.receives_nothing()
        await client.ask(auth(10, ISSUER.token(prefixes=["/load"])))
        assert (await client.receive())["type"] == "authenticated"
        assert (await client.ask(subscribe(11, "/load/a")))["endpoints"] == {"/load/a": START + 1}


async def test_many_ended_subscriptions_are_announced_in_messages_of_bounded_size(server: Server) -> None:
    names = [f"/load/{number}" for number in range(128)]
    async with server.client(ISSUER.token(prefixes=["/load"])) as client:
        await client.ask(subscribe(1, *names[:100]))
        await client.ask(subscribe(2, *names[100:]))
        await client.send(auth(3, ISSUER.token(prefixes=["/dam"])))
        parts = [await client.receive() for _ in range(3)]
    assert [len(part.get("rejected", ())) for part in parts] == [100, 28, 0]
    assert parts[2]["type"] == "authenticated"
    assert {name for part in parts[:2] for name in part["rejected"]} == set(names)


async def test_connection_outlives_its_token_if_it_is_refreshed_in_time(server: Server) -> None:
    async with server.client(ISSUER.token(exp=int(NOW) + 60)) as client:
        await client.ask(subscribe(1, "/dam/a"))
        server.clock.advance(80)
        await server.edge.close_due()
        later = ISSUER.token(NOW + 80, exp=int(NOW) + 180)
        assert (await client.ask(auth(2, later)))["expires"] == int(NOW) + 180
        server.clock.advance(30)
        await server.edge.close_due()
        server.put("/dam/a")
        assert (await client.receive())["type"] == "update"
        server.clock.advance(96)
        await server.edge.close_due()
        assert (await closed(client))[0] == 4001
    assert not server.hub.fanout.registry.entries


async def test_refused_requests_count_as_errors_and_as_messages(server: Server) -> None:
    server.edge.admission = Admission(Patient(anonymous="off", tokens=True, subscriptions=128))
    async with server.client() as client:
        for number in range(20):
            await client.send(subscribe(number, "/a"))
        assert (await closed(client))[0] == 4509
    with pytest.raises(InvalidStatus) as caught:
        async with server.client(ISSUER.token()):
            pass
    assert caught.value.response.status_code == 429, "the messages of the address are used up"


async def test_anonymous_client_that_presents_a_token_keeps_only_its_rights() -> None:
    async with serving(anonymous="on") as server, server.client() as client:
        assert len((await client.ask(subscribe(1, "/dam/a", "/x")))["endpoints"]) == 2
        ended = await client.ask(auth(2, ISSUER.token(prefixes=["/dam"])))
        assert ended["rejected"] == {"/x": FORBIDDEN}
        assert (await client.receive())["type"] == "authenticated"
        assert server.auth.counts(1) == {"anonymous": 0, "authenticated": 1, "pending": 0}


async def test_all_to_all_sends_restricted_clients_what_they_are_subscribed_to() -> None:
    async with (
        serving(everyone=True) as server,
        server.client() as without,
        server.client(ISSUER.token(prefixes=["/dam"])) as restricted,
        server.client(ISSUER.token(prefixes=["/"])) as everything,
    ):
        await restricted.ask(subscribe(1, "/dam/a", "/secret"))
        server.put("/secret", "/dam/b", "/dam/a")
        server.hub.fanout.resync([b"/secret", b"/dam/a"])
        assert [(await everything.receive())["type"] for _ in range(4)] == ["update"] * 3 + ["resync"]
        assert (await restricted.receive())["endpoint"] == "/dam/a"
        assert (await restricted.receive())["endpoints"] == ["/dam/a"]
        assert await restricted.receives_nothing()
        assert await without.receives_nothing()
        await without.ask(auth(1, ISSUER.token(prefixes=["/"])))
        server.put("/secret")
        assert (await without.receive())["endpoint"] == "/secret"


async def test_user_has_a_number_of_connections_whatever_the_way_of_the_token() -> None:
    alice, bob = ISSUER.token(), ISSUER.token(sub="bob")
    async with serving(per_user=2) as server:
        users = server.edge.admission.users
        async with server.client(alice) as first, server.client() as second:
            await second.ask(auth(1, alice))
            # A refresh is no further connection.
            await first.ask(auth(2, ISSUER.token(prefixes=["/load"])))
            with pytest.raises(InvalidStatus) as refused:
                async with server.client(alice):
                    pass
            assert refused.value.response.status_code == 429
            assert refused.value.response.headers["Retry-After"] == "30"
            with recorded_events() as events:
                async with server.client() as third:
                    await third.send(auth(1, alice))
                    assert await closed(third) == (4003, "retry=30000")
            assert [(line["kind"], line["code"]) for line in events.all()] == [("rate_exceeded", 4003)]
            async with server.client(bob) as other:
                # With a token of another user it is a connection of theirs.
                await second.ask(auth(2, bob))
                async with server.client(alice):
                    pass
                await other.send(auth(3, alice))
                await other.receive()
        await until(lambda: not users.open("alice") and not users.open("bob"))


async def test_holder_of_an_api_key_is_no_user() -> None:
    token = ISSUER.token(sub="k3v9x0ab")
    async with serving(per_user=1) as server, server.client(token), server.client(token), server.client() as third:
        await third.ask(auth(1, token))
        assert not len(server.edge.admission.users)


async def test_user_who_has_sent_all_messages_is_refused_at_another_address_whatever_the_way_of_the_token() -> None:
    alice, there = ISSUER.token(), "127.0.0.2"
    async with serving() as server:
        server.edge.admission = Admission(Patient(anonymous="off", tokens=True))
        async with server.client(alice) as first:
            with contextlib.suppress(ConnectionClosed):
                while True:
                    await first.ask(subscribe(1, "/dam/a"))
        await until(lambda: not server.edge.admission.users.open("alice"))
        with pytest.raises(InvalidStatus) as refused:
            async with server.client(alice, there):
                pass
        assert refused.value.response.status_code == 429
        assert refused.value.response.body == b"too many messages of this user\n"
        assert int(refused.value.response.headers["Retry-After"]) > 1
        async with server.client(None, there) as second:
            await second.send(auth(1, alice))
            code, reason = await closed(second)
            assert (code, reason.partition("=")[0]) == (4003, "retry")
        async with server.client(ISSUER.token(sub="bob"), there) as other:
            assert (await other.ask(subscribe(1, "/dam/a")))["type"] == "subscribed"


def asking(request_id: int, *names: str) -> dict[str, Any]:
    return {**subscribe(request_id, *names), "data": True}


@pytest.mark.parametrize("rule", ["auto", "on", "off"])
async def test_data_is_sent_without_a_token_only_as_the_setting_says(rule: Anonymous) -> None:
    async with serving(anonymous="auto", anonymous_data=rule) as server:
        server.put("/dam/a")
        async with server.client() as client:
            await client.ask(asking(1, "/dam/a"))
            assert ("data" in await client.receive()) is (rule != "off")
            server.put("/dam/a")
            assert ("data" in await client.receive()) is (rule != "off")


async def test_a_token_gives_data_of_what_it_covers() -> None:
    async with serving(anonymous="auto", anonymous_data="off") as server:
        server.put("/dam/a", "/load/a")
        async with server.client(ISSUER.token()) as client:
            answer = await client.ask(asking(1, "/dam/a", "/load/a"))
            assert answer["rejected"] == {"/load/a": FORBIDDEN}
            update = await client.receive()
            assert (update["endpoint"], update["data"]) == ("/dam/a", {"points": []})
            server.put("/load/a")
            assert await client.receives_nothing()


async def test_a_token_that_comes_later_gives_data_to_later_subscriptions() -> None:
    async with serving(anonymous="auto", anonymous_data="off") as server:
        server.put("/dam/a")
        async with server.client() as client:
            await client.ask(asking(1, "/dam/a"))
            assert "data" not in await client.receive()
            await client.ask(auth(2, ISSUER.token()))
            await client.ask(asking(3, "/dam/a"))
            assert "data" in await client.receive()


async def test_a_page_gets_in_only_with_a_token_for_its_origin() -> None:
    mine, other = "https://app.example", "https://other.example"
    token = ISSUER.token(origins=[mine])
    async with serving(origins={mine, other}) as server:
        for origin in (mine, None):
            async with server.client(token, origin=origin) as client:
                assert (await client.ask(subscribe(1, "/dam/a")))["endpoints"].keys() == {"/dam/a"}
        with pytest.raises(InvalidStatus) as refused:
            async with server.client(token, origin=other):
                pass
        assert refused.value.response.status_code == 403
        async with server.client(origin=other) as client:
            assert (await client.ask(auth(1, token)))["code"] == "unauthorised"
            with pytest.raises(ConnectionClosed) as closed:
                await client.receive()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4501
        async with server.client(ISSUER.token(), origin=other) as client:
            # A refreshed token is one for pages, too.
            assert (await client.ask(auth(1, token)))["code"] == "unauthorised"


async def test_data_counts_to_the_key_of_the_latest_token_and_stops_with_its_quota() -> None:
    async with serving() as server:
        meters, used_up, reports = ReadMeters(), list[str](), list[dict[str, int]]()
        server.edge.read_meters = meters

        async def post(_url: str, body: bytes) -> bytes:
            report = orjson.loads(body)
            reports.append(report["reads"])
            accounts = {**report["reads"], **report["wanted"]}
            return orjson.dumps({"exhausted": used_up, "leases": {key: 0 if key in used_up else 9 for key in accounts}})

        reporter = ReadReporter(meters, server.edge, ["http://data/reads"], post)
        server.put("/dam/a")
        async with server.client(ISSUER.token(key="first")) as client:
            await client.send(asking(1, "/dam/a"))
            # The first client of a key waits for its lease; one that has authenticated again does not.
            await until(lambda: meters.of("first").wanted)
            await reporter.report()
            assert (await client.receive())["type"] == "subscribed"
            assert "data" in await client.receive()
            server.put("/dam/a")
            assert "data" in await client.receive()
            assert (await client.ask(auth(2, ISSUER.token(key="second"))))["type"] == "authenticated"
            await reporter.report()
            assert reports == [{}, {"first": 2}]
            server.put("/dam/a")
            assert "data" in await client.receive()
            used_up.append("second")
            await reporter.report()
            assert reports.pop() == {"second": 1}
            server.put("/dam/a")
            assert "data" not in await client.receive()
            await client.send(asking(3, "/dam/a"))
            assert (await client.receive())["type"] == "subscribed"
            assert "data" not in await client.receive()
            used_up.clear()
            await reporter.report()
            assert reports.pop() == {}
            server.put("/dam/a")
            assert "data" in await client.receive()
            assert len(meters) == 1


async def test_data_of_another_issuers_token_counts_to_no_key() -> None:
    async with serving() as server:
        meters = server.edge.read_meters = ReadMeters()
        server.verifier = server.auth._verifier = Verifier([ISSUER.key], issuers=["diem", "https://login.example"])
        server.put("/dam/a")
        async with server.client(ISSUER.token(iss="https://login.example", key="first")) as client:
            await client.send(asking(1, "/dam/a"))
            assert (await client.receive())["type"] == "subscribed"
            assert "data" in await client.receive()
        assert len(meters) == 0


async def test_retained_updates_beyond_what_a_client_may_be_sent_have_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPLY_DATA_BURST", 200)
    monkeypatch.setattr(limits, "REPLY_DATA_RATE_PER_S", 1e-6)
    async with serving(anonymous="auto") as server:
        server.put("/dam/a", "/dam/b", "/dam/c")
        async with server.client() as client:
            await client.send(asking(1, "/dam/a", "/dam/b", "/dam/c"))
            assert (await client.receive())["endpoints"].keys() == {"/dam/a", "/dam/b", "/dam/c"}
            assert ["data" in await client.receive() for _ in range(3)] == [True, False, False]
            server.put("/dam/c")
            assert "data" in await client.receive()
            assert server.hub.fanout.stats.replies_without_data == 2
