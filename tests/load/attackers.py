"""The process of the attackers: everything that strangers and a malicious customer may try at public addresses.

The first line of standard input is a :class:`Plan`; the process attacks until its input ends, then writes what it has
counted as one line of JSON. Most attacks have two loopback addresses each, which are bound by the limits of addresses.
Forgers have addresses and users enough to stay below these limits, so that the checks of names and tokens refuse them.
"""

import asyncio
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle, repeat
from random import Random
from typing import Any, Final

import httpx
import jwt
import orjson
import uvloop
from pydantic import BaseModel

from diem.client.tokens import AUTH_ID
from diem.protocol.update import DATA_FIELD
from tests.load import wire
from tests.load.contents import dataset
from tests.support.commandline import parser
from tests.support.size import sized
from tests.support.tokens import Issuer, base64url

SOCKETS: Final = sized(1000, 1000, 100)
"""Sockets that one address opens at the WebSocket port, and as many at the REST port."""
SLOW_REQUESTS: Final = sized(40, 40, 5)
"""Connections of each of two addresses whose second request never ends."""
CHURNING, PAUSE_S = sized(12, 12, 2), 0.1
"""Loops of each of two addresses that connect and leave, and their pause: 240 attempts a second at most."""
BURSTING, BURST = sized(4, 4, 1), 300
"""Loops of each of two addresses that send so many messages at once."""
FORGING, FORGERS = 4, 250
"""Loops of each kind of forgery, and the addresses that each kind takes in turn."""
STARVING, HEADS = 2, 50
"""Loops of each of two addresses that read with the token of one user, and the requests of each at once."""
TRICKLING: Final = 40
"""Requests of each of two addresses without a key whose body never ends."""
NETWORKS, IN_56 = 32, 64
"""Loops that connect and leave, and the /64 networks of one /56 that they come from in turn."""
RESUBSCRIBING, TIMES, NAMES = 10, 12, 15
"""Loops of each of two addresses that subscribe to so many endpoints with their data, so many times at once."""
FILLING, NEW_NAMES = 2, 50
"""Loops of each of two addresses that make endpoints with one write key, and the new ones of each request."""
BELOW: Final = "/mal"
"""Prefix of that write key."""
BODY_BYTES: Final = 1 << 20
OPEN_SECONDS: Final = 5.0
ADDRESS: Final = "127.0.4.{}"
NAMES_ADDRESS, TOKENS_ADDRESS = "127.0.5.{}", "127.0.6.{}"
PROXY_ADDRESS: Final = "127.0.7.1"
"""Of a trusted proxy, which passes on the addresses of the networks."""
_ANSWER_BYTES: Final = 65536


class Plan(BaseModel, frozen=True):
    """What is attacked, and with which rights."""

    websocket: tuple[str, int, str]
    """Host, port and path."""
    rest: tuple[str, int]
    """Host and port."""
    token: str
    """A valid token, as a malicious customer has: for bursts."""
    other_tokens: list[str]
    """Those of other users: for forged names, which the limits of one user would keep out."""
    user_token: str
    """Of one user of an API key that others use as well: for reading more than a user may."""
    quota_token: str
    """Of an API key of a plan with a quota: for data with updates beyond it."""
    write_key: str
    """Of a customer: for more endpoints than a write key may make."""
    endpoints: list[str]
    seed: int = 0


class Refused(Exception):
    """The connection or the handshake was refused."""

    def __init__(self, status: str) -> None:
        super().__init__(status)
        self.status = status


class Attackers:
    """All attacks; ``counts`` has what came of them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.counts: Counter[str] = Counter()
        """Answers to each attack, as ``"attack: answer"``: an HTTP status, a close code, an error, or an outcome."""
        self.random = Random(plan.seed)
        self._held: dict[str, int] = {}
        self._burst = b"".join(self._subscribe(number) for number in range(BURST))
        self.tokens: list[tuple[str, str]] = []
        self._users = cycle(plan.other_tokens)
        self._neighbour = 0
        self._made = 0

    async def run(self) -> None:
        """Attack until cancelled."""
        attacks: list[Callable[[str], Awaitable[None]]] = [
            *[self.slow_request] * SLOW_REQUESTS * 2,
            *[self.churn] * CHURNING * 2,
            *[self.burst] * BURSTING * 2,
            *[self.starve] * STARVING * 2,
            *[self.trickle] * TRICKLING * 2,
            *[self.resubscribe] * RESUBSCRIBING * 2,
            *[self.fill] * FILLING * 2,
        ]
        async with asyncio.TaskGroup() as tasks:
            for number, attack in enumerate(attacks):
                address = ADDRESS.format(1 + 2 * _kinds(attacks).index(attack.__name__) + number % 2)
                tasks.create_task(self._again(attack, repeat(address)))
            for _ in range(NETWORKS):
                tasks.create_task(self._again(self.network, repeat(PROXY_ADDRESS)))
            for forge, pool in ((self.forge_names, NAMES_ADDRESS), (self.forge_tokens, TOKENS_ADDRESS)):
                addresses = cycle(pool.format(1 + number) for number in range(FORGERS))
                for _ in range(FORGING):
                    tasks.create_task(self._again(forge, addresses))
            for target in ("websocket", "rest"):
                for _ in range(SOCKETS):
                    tasks.create_task(self.hold(target, ADDRESS.format(100 + (target == "rest"))))

    async def _again(self, attack: Callable[[str], Awaitable[None]], addresses: Iterator[str]) -> None:
        name = attack.__name__
        while True:
            self.counts[f"{name}: attempts"] += 1
            try:
                await attack(next(addresses))
            except Refused as refused:
                self.counts[f"{name}: {refused.status}"] += 1
            except (OSError, EOFError, TimeoutError, wire.WireError):
                self.counts[f"{name}: cut"] += 1
            await asyncio.sleep(PAUSE_S)

    # The attacks: one attempt each

    async def slow_request(self, address: str) -> None:
        """Send one whole request, then the next one a byte a second."""
        async with self._connected(self.plan.rest, address) as (reader, writer):
            writer.write(b"GET /v1/endpoints?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            async with asyncio.timeout(OPEN_SECONDS):
                await reader.readuntil(b"\r\n\r\n")
            began = time.monotonic()
            reading = asyncio.create_task(_until_closed(reader))
            writer.write(b"GET /v1/endpoints HTTP/1.1\r\nX-Slow: ")
            try:
                while not reading.done():
                    await asyncio.wait({reading}, timeout=1.0)
                    if not writer.transport.is_closing():
                        writer.write(b"x")
            finally:
                reading.cancel()
            self._longest("slow_request", time.monotonic() - began)
            self.counts["slow_request: ended by the server"] += 1

    async def churn(self, address: str) -> None:
        """Connect and leave."""
        async with self._client(address):
            self.counts["churn: admitted"] += 1

    async def burst(self, address: str) -> None:
        """Send messages with 100 invented names each, as fast as the connection takes them, until it is closed."""
        async with self._client(address, self.plan.token) as (reader, writer):
            writer.write(self._burst)
            await self._until_close("burst", reader)

    async def starve(self, address: str) -> None:
        """Use up the quota of an API key with the token of one of its users."""
        head = f"HEAD /v1/data{self.plan.endpoints[0]} HTTP/1.1\r\nHost: localhost\r\n"
        request = f"{head}Authorization: Bearer {self.plan.user_token}\r\n\r\n".encode()
        async with self._connected(self.plan.rest, address) as (reader, writer):
            for _ in range(HEADS):
                writer.write(request)
                async with asyncio.timeout(OPEN_SECONDS):
                    answer = await reader.readuntil(b"\r\n\r\n")
                self.counts[f"starve: {answer.split(maxsplit=2)[1].decode()}"] += 1

    async def trickle(self, address: str) -> None:
        """Send most of a body without a key, then a byte a second, until there is an answer."""
        head = f"PUT /v1/data HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n"
        async with self._connected(self.plan.rest, address) as (reader, writer):
            began = time.monotonic()
            writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + b" " * (BODY_BYTES - 4096))
            answered = asyncio.create_task(reader.read(_ANSWER_BYTES))
            try:
                while not answered.done():
                    await asyncio.wait({answered}, timeout=1.0)
                    if not writer.transport.is_closing():
                        writer.write(b" ")
            finally:
                answered.cancel()
            self._longest("trickle", time.monotonic() - began)
            self.counts["trickle: ended by the server"] += 1

    async def network(self, address: str) -> None:
        """Connect and leave as one of many clients of one /56."""
        self._neighbour = (self._neighbour + 1) % IN_56
        async with self._client(address, forwarded_for=f"2001:db8:0:{self._neighbour:x}::1"):
            self.counts["network: admitted"] += 1

    async def resubscribe(self, address: str) -> None:
        """Subscribe with data and unsubscribe again and again, for the same retained data each time."""
        names = self.plan.endpoints[:NAMES]
        async with self._client(address, self.plan.quota_token) as (reader, writer):
            for number in range(TIMES):
                subscribe = {"type": "subscribe", "id": number, "endpoints": dict.fromkeys(names), "data": True}
                writer.write(wire.frame(orjson.dumps(subscribe)))
                writer.write(wire.frame(orjson.dumps({"type": "unsubscribe", "id": number, "endpoints": names})))
            data, last = b"", b'"type":"unsubscribed","id":%d,' % (TIMES - 1)
            try:
                async with asyncio.timeout(OPEN_SECONDS):
                    while last not in data and (chunk := await reader.read(_ANSWER_BYTES)):
                        data += chunk
            finally:
                self.counts["resubscribe: data"] += data.count(DATA_FIELD)

    async def fill(self, address: str) -> None:
        """Make endpoints with a write key, and delete one of them, for as long as the store has room."""
        self._made += NEW_NAMES
        names = [f"{BELOW}/{self._made + number}" for number in range(NEW_NAMES)]
        body = orjson.dumps({"datasets": [dataset(name, 1, 1) for name in names]})
        answer = await self._write(address, f"PUT /v1/data HTTP/1.1\r\nContent-Length: {len(body)}\r\n", body)
        self.counts[f"fill: {answer}"] += 1
        if answer == "200":
            self.counts["fill: endpoints"] += NEW_NAMES
            await self._write(address, f"DELETE /v1/data{names[0]} HTTP/1.1\r\n")

    async def _write(self, address: str, head: str, body: bytes = b"") -> str:
        """Return the status of a request with the write key."""
        head += f"Host: localhost\r\nAuthorization: Bearer {self.plan.write_key}\r\nConnection: close\r\n"
        async with self._connected(self.plan.rest, address) as (reader, writer):
            writer.write(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            async with asyncio.timeout(OPEN_SECONDS):
                answer = await reader.readuntil(b"\r\n\r\n")
        return answer.split(maxsplit=2)[1].decode()

    async def forge_names(self, address: str) -> None:
        """Send names and messages that are none, beside endpoints that exist."""
        async with self._client(address, next(self._users)) as (reader, writer):
            self.counts["forge_names: admitted"] += 1
            closed = asyncio.create_task(self._until_close("forge_names", reader))
            try:
                for payload, opcode in _forged(self.plan.endpoints, self.random):
                    writer.write(wire.frame(payload, opcode))
                    await asyncio.wait({closed}, timeout=0.2)
                    if closed.done():
                        return
                await asyncio.wait({closed}, timeout=1.0)
            finally:
                closed.cancel()

    async def forge_tokens(self, address: str) -> None:
        """Present tokens that nobody issued, in the handshake and in a message."""
        kind, token = self.random.choice(await self._load_tokens(address))
        self.counts[f"forge_tokens: presented, {kind}"] += 1
        if self.random.random() < 0.5:
            async with self._client(address, token):
                self.counts["forge_tokens: ACCEPTED"] += 1
        async with self._client(address) as (reader, writer):
            writer.write(wire.frame(orjson.dumps({"type": "auth", "id": AUTH_ID, "token": token})))
            await self._until_close("forge_tokens", reader)

    async def hold(self, target: str, address: str) -> None:
        """Hold a connection for as long as it lasts: every second one with a whole first request, the others silent."""
        at = self.plan.websocket[:2] if target == "websocket" else self.plan.rest
        while True:
            silent = self.random.random() < 0.5
            with suppress(OSError, EOFError, TimeoutError, wire.WireError, Refused):
                if silent or target == "rest":
                    async with self._connected(at, address) as (reader, writer):
                        writer.write(
                            b"" if silent else b"GET /v1/endpoints?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\nG"
                        )
                        self.counts[f"hold {target}: connected"] += 1
                        await _until_closed(reader)
                else:
                    async with self._client(address) as (reader, _), self._counted(target):
                        await _until_closed(reader)
            await asyncio.sleep(5 + 10 * self.random.random())

    # Their means

    def _subscribe(self, number: int) -> bytes:
        names = [f"/load-test/{self.random.getrandbits(32):08x}" for _ in range(100)]
        return wire.frame(orjson.dumps({"type": "subscribe", "id": number, "endpoints": dict.fromkeys(names)}))

    @asynccontextmanager
    async def _connected(
        self, at: tuple[str, int], address: str
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with asyncio.timeout(OPEN_SECONDS):
            reader, writer = await asyncio.open_connection(*at, local_addr=(address, 0))
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    @asynccontextmanager
    async def _client(
        self, address: str, token: str = "", *, forwarded_for: str = ""
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """Open a WebSocket. Raises ``Refused``."""
        host, port, path = self.plan.websocket
        async with self._connected((host, port), address) as (reader, writer):
            request = wire.Handshake(host, port, path, token).request
            if forwarded_for:
                request = request.replace(b"\r\n\r\n", f"\r\nX-Forwarded-For: {forwarded_for}\r\n\r\n".encode())
            writer.write(request)
            async with asyncio.timeout(OPEN_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status = head.split(maxsplit=2)[1].decode()
            if status != "101":
                raise Refused(status)
            yield reader, writer

    async def _until_close(self, attack: str, reader: asyncio.StreamReader) -> None:
        """Read until the server closes, and count its code.

        Of a forger, the errors and rejected names are counted as well, and the tokens that are accepted.
        """
        data = b""
        async with asyncio.timeout(OPEN_SECONDS):
            while chunk := await reader.read(_ANSWER_BYTES):
                data += chunk
                end, _, specials = wire.walk(data)
                data = data[end:]
                for special in specials:
                    if special.opcode == wire.CLOSE:
                        # The server waits for an answer: leaving instead is one more kind of churn.
                        self.counts[f"{attack}: {int.from_bytes(special.payload[:2], 'big')}"] += 1
                        return
                    if special.opcode == wire.TEXT and attack.startswith("forge_"):
                        self._count_answer(attack, orjson.loads(special.payload))
                        if self.counts["forge_tokens: ACCEPTED"]:
                            # One is enough: this server would not close.
                            return

    def _count_answer(self, attack: str, message: dict[str, Any]) -> None:
        if message["type"] == "authenticated" and attack == "forge_tokens":
            self.counts["forge_tokens: ACCEPTED"] += 1
        elif message["type"] == "error":
            self.counts[f"{attack}: error {message['code']}"] += 1
        for why in message.get("rejected", {}).values():
            self.counts[f"{attack}: name rejected, {why['code']}"] += 1

    @asynccontextmanager
    async def _counted(self, target: str) -> AsyncIterator[None]:
        """Count an admitted connection, and the most at a time."""
        self._held[target] = self._held.get(target, 0) + 1
        self.counts[f"hold {target}: at most"] = max(self.counts[f"hold {target}: at most"], self._held[target])
        try:
            yield
        finally:
            self._held[target] -= 1

    def _longest(self, attack: str, seconds: float) -> None:
        name = f"{attack}: longest, ms"
        self.counts[name] = max(self.counts[name], round(seconds * 1000))

    async def _load_tokens(self, address: str) -> list[tuple[str, str]]:
        """Return tokens of many kinds, with the id of the key that signs now."""
        if not self.tokens:
            host, port = self.plan.rest
            transport = httpx.AsyncHTTPTransport(local_address=address)
            async with httpx.AsyncClient(transport=transport, timeout=OPEN_SECONDS, trust_env=False) as http:
                (key, *_) = (await http.get(f"http://{host}:{port}/v1/tokens/keys")).json()["keys"]
            self.tokens = forged_tokens(self.plan.token, key["kid"], key["x"])
        return self.tokens


def forged_tokens(valid: str, kid: str, public: str) -> list[tuple[str, str]]:
    """Return tokens of many kinds that must not be accepted.

    Args:
        valid: a valid token, whose claims are used.
        kid: the id of the key that signed it.
        public: that key, in base64url as in a JWK Set.
    """
    now = time.time()
    claims = jwt.decode(valid, options={"verify_signature": False}) | {"prefixes": ["/"]}
    other, secret = Issuer(kid), Issuer(kid, "HS256")
    secret.private = public.encode().ljust(32, b"=")
    header, _, signature = valid.split(".")
    payload = base64url(orjson.dumps(claims))
    return [
        ("alg=none", jwt.encode(claims, "", "none", headers={"kid": kid})),
        ("alg=none, unsigned", f"{base64url(orjson.dumps({'alg': 'none', 'kid': kid}))}.{payload}."),
        ("swapped key", jwt.encode(claims, other.private, "EdDSA", headers={"kid": kid})),
        ("swapped key without id", jwt.encode(claims, other.private, "EdDSA")),
        ("public key as secret", jwt.encode(claims, secret.private, "HS256", headers={"kid": kid})),
        ("other claims", f"{header}.{payload}.{signature}"),
        ("expired", jwt.encode(claims | {"exp": int(now) - 3600}, other.private, "EdDSA", headers={"kid": kid})),
    ]


def _forged(endpoints: Sequence[str], random: Random) -> list[tuple[bytes, int]]:
    """Return messages with forged names, and other bad input, with their opcodes."""
    here = random.choice(endpoints)
    names = [f"{here}/..", f"{here}//", here[1:], f"{here}\\u0000", f"{here}%2e", "/" + "x" * 300, f"{here}\u202e", ""]
    # Well-formed: one that exists, mostly not covered by the token, and one that does not exist.
    names += [here, "/load-test/none"]
    subscribe = [{"type": "subscribe", "id": n, "endpoints": {name: None}} for n, name in enumerate(names)]
    more = [
        {"type": "subscribe", "id": 1, "endpoints": dict.fromkeys(f"/n/{n}" for n in range(101))},
        {"type": "subscribe", "id": 1, "endpoints": {here: 2**60}},
        {"type": "subscribe", "id": -1, "endpoints": {here: None}},
        {"type": "update", "endpoint": here, "version": 9_999_999_999_999},
        {"type": "moved", "endpoints": [here], "owner": "ws://127.0.0.1:1/ws"},
    ]
    texts = [*map(orjson.dumps, [*subscribe, *more]), b"[" * 20_000, b'{"type":"subscribe"', b"\xff\xfe"]
    random.shuffle(texts)
    return [(text, wire.TEXT) for text in texts] + [(b"binary", 0x2)]


def _kinds(attacks: Sequence[Callable[[str], Awaitable[None]]]) -> list[str]:
    return list(dict.fromkeys(attack.__name__ for attack in attacks))


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(_ANSWER_BYTES):
        pass


async def serve() -> Counter[str]:
    """Attack until standard input ends."""
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    attackers = Attackers(Plan.model_validate_json(await orders.readline()))
    attacking = asyncio.create_task(attackers.run())
    await asyncio.wait({attacking, ended := asyncio.create_task(orders.read())}, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    attacking.cancel()
    with suppress(asyncio.CancelledError):
        await attacking
    return attackers.counts


def main(argv: Sequence[str] | None = None) -> int:
    """Attack until standard input ends; print the counts."""
    parser(__spec__, __doc__).parse_args(argv)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192) if most > 0 else 8192, most))
    # Attackers have machines of their own: here they get what the system and its clients leave.
    os.nice(10)
    counts = uvloop.run(serve())
    sys.stdout.write(orjson.dumps(counts, option=orjson.OPT_SORT_KEYS).decode() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
