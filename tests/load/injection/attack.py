"""Attackers at the public addresses, beside clients that must not notice, and newcomers who are served as before."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import chain, count, cycle
from time import monotonic
from typing import Any, Final

import httpx
import orjson
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.typing import Subprotocol

from diem.client.tokens import NoToken
from diem.protocol.codes import Close
from diem.protocol.messages import SUBPROTOCOL
from tests.load.attackers import BELOW, Plan
from tests.load.bench import Goal
from tests.load.contents import dataset
from tests.load.credentials import Credentials
from tests.load.injection.repartition import lost
from tests.load.injection.scene import Scene
from tests.oracle.history import Fault
from tests.oracle.judge import quantiles
from tests.support.patience import PATIENCE_S
from tests.support.size import sized

ATTACK: Final = "attack"
MORE_SECONDS: Final = 1.0
"""How much longer than without an attack an honest client may wait."""
SECONDS, QUICK_SECONDS = 30.0, sized(6.0, 6.0, 2.0)
"""Duration of the attack."""
CALM_SECONDS, QUICK_CALM_SECONDS = 8.0, sized(3.0, 3.0, 1.0)
"""Duration of the newcomers' visits before and after it."""
CUT_SECONDS: Final = 10.0 + 2.0
"""Longest life of a connection whose second request never ends, with the time to notice its end."""
PER_ADDRESS: Final = 50
"""Connections of an address, also of those of this machine in these runs."""
VISIT_SECONDS: Final = 0.25
ADDRESSES: Final = tuple(f"127.0.2.{number}" for number in range(1, 17))
ATTACKS: Final = (
    *("slow_request", "churn", "burst", "forge_names", "forge_tokens"),
    *("starve", "trickle", "network", "resubscribe", "fill"),
)
PER_MINUTE: Final = 600
"""Quota of the API keys that are attacked; a tenth of it is that of a user."""
QUOTA_PLAN: Final = "quota"
QUOTA_SHARE: Final = 1.1
"""Most data with updates of a key, as a share of its quota."""
MOST_ENDPOINTS, STORE_ENDPOINTS = 1000, 3000
"""Those that the attackers' write key may make, and those of the store, which attackers could fill in seconds."""
PROXIES: Final = "127.0.7.0/24"
FORGING_USERS: Final = 20
CHECKED_SHARE: Final = 0.9
"""Least share of the forgeries that must meet the check of what is forged, not a limit of rates."""
TOKEN_REFUSED: Final = (str(HTTPStatus.UNAUTHORIZED.value), str(Close.UNAUTHORISED.value))
"""Answers to a forged token, in the handshake and in a message."""


def variables_of(names: Sequence[str]) -> dict[str, str]:
    """Return the variables of all processes if there is an attack among ``names``.

    No address has more connections than others, and the store is small.
    """
    limits = ("DIEM_DATA_CONNECTIONS_PER_ADDRESS_LOOPBACK", "DIEM_WEBSOCKET_CONNECTIONS_PER_ADDRESS")
    variables = {**dict.fromkeys(limits, str(PER_ADDRESS)), "DIEM_DATA_MAX_ENDPOINTS": str(STORE_ENDPOINTS)}
    return variables if ATTACK in names else {}


def options_of(names: Sequence[str]) -> list[str]:
    """Return options of ``diem up``: attackers of IPv6 networks come through a proxy."""
    return ["--front-proxy", PROXIES] if ATTACK in names else []


def tables_of(names: Sequence[str]) -> str:
    """Return tables of ``diem.toml``: the plan of the API keys that are attacked."""
    return f'[[plan]]\nname = "{QUOTA_PLAN}"\nper_minute = {PER_MINUTE}\n' if ATTACK in names else ""


@dataclass
class Visits:
    """Newcomers of a time: how long each waited until it was served, in seconds."""

    subscribed: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    logged_in: list[float] = field(default_factory=list)
    made: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def waits(self) -> dict[str, list[float]]:
        """The waits by kind of newcomer."""
        return {"subscribed": self.subscribed, "read": self.read, "logged_in": self.logged_in, "made": self.made}

    @property
    def slowest(self) -> float:
        """The longest of all waits; 0 without any."""
        return max(chain.from_iterable(self.waits.values()), default=0.0)

    def figures(self) -> dict[str, object]:
        """Return the distribution of the waits, and the failures."""
        quantiles_of = {f"{name}_s": quantiles(found) for name, found in self.waits.items()}
        return {**quantiles_of, "failed": dict(self.failed)}


class Newcomers:
    """Honest clients that come while others attack, every quarter of a second four.

    One subscribes and one reads; one is a new user of the API key of an attacker: it needs a token, and reads with it;
    and an importer makes a new endpoint.
    """

    def __init__(self, scene: Scene, token: str, users: Credentials) -> None:
        host, port, path = scene.system.servers[0]
        self._websocket = f"ws://{host}:{port}{path}"
        self._rest = "http://{}:{}".format(*scene.system.page)
        self._write_key = scene.system.write_key
        self._names = cycle(scene.writer.endpoints)
        self._addresses = cycle(ADDRESSES)
        self._token = token
        self._users = users
        self._numbers = count()

    async def visit(self, seconds: float) -> Visits:
        """Send newcomers for some time; return when all have been served, or have given up."""
        visits, end = Visits(), monotonic() + seconds
        async with asyncio.TaskGroup() as tasks:
            while monotonic() < end:
                address = next(self._addresses)
                tasks.create_task(self._timed(self._subscribe(address), visits.subscribed, visits))
                tasks.create_task(self._timed(self._read(address, self._token), visits.read, visits))
                tasks.create_task(self._timed(self._log_in(address), visits.logged_in, visits))
                tasks.create_task(self._timed(self._make(address), visits.made, visits))
                await asyncio.sleep(VISIT_SECONDS)
        return visits

    async def _timed(self, visit: Coroutine[Any, Any, None], waits: list[float], visits: Visits) -> None:
        start = monotonic()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await visit
        except (OSError, TimeoutError, WebSocketException, httpx.HTTPError, NoToken) as error:
            visits.failed[f"{type(error).__name__}: {error}"[:100]] += 1
        waits.append(monotonic() - start)

    async def _subscribe(self, address: str) -> None:
        protocols = [Subprotocol(SUBPROTOCOL), Subprotocol(f"bearer.{self._token}")]
        async with connect(
            self._websocket, proxy=None, compression=None, subprotocols=protocols, local_addr=(address, 0)
        ) as link:
            await link.send(
                orjson.dumps({"type": "subscribe", "id": 1, "endpoints": {next(self._names): None}}).decode()
            )
            while orjson.loads(await link.recv())["type"] != "subscribed":
                pass

    async def _log_in(self, address: str) -> None:
        token = await self._users.token(subject=f"user {next(self._numbers)}")
        await self._read(address, token)

    async def _make(self, address: str) -> None:
        endpoint = f"/importer/{next(self._numbers)}"
        async with self._http(address, self._write_key) as http:
            (await http.put("/v1/data", json={"datasets": [dataset(endpoint, 1, 1)]})).raise_for_status()

    def _http(self, address: str, bearer: str) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(local_address=address, verify=False)
        headers = {"Authorization": f"Bearer {bearer}"}
        return httpx.AsyncClient(
            base_url=self._rest, transport=transport, headers=headers, timeout=PATIENCE_S, trust_env=False
        )

    async def _read(self, address: str, token: str) -> None:
        async with self._http(address, token) as http:
            answer = await http.get(f"/v1/data{next(self._names)}")
            if answer.status_code not in (httpx.codes.OK, httpx.codes.GONE):
                answer.raise_for_status()


async def attacked(scene: Scene) -> Fault:
    """Attack for a time. No honest client may notice, and newcomers are served before, meanwhile and afterwards."""
    async with httpx.AsyncClient(base_url=scene.system.rest, trust_env=False) as http:
        # The backend of a page, of whose users one attacks it.
        page = Credentials(http, await scene.system.create_api_key(QUOTA_PLAN))
        token = await Credentials(http, await scene.system.create_api_key()).token()
        return await _attacked(scene, Newcomers(scene, token, page), await _plan(scene, http, page))


async def _plan(scene: Scene, http: httpx.AsyncClient, page: Credentials) -> Plan:
    """Return what is attacked, with tokens of users of their own: the limits of users concern no newcomer."""
    system, names = scene.system, scene.writer.endpoints[:1]
    customers = Credentials(http, await system.create_api_key())
    subjects = ["bursting", *(f"forging {number}" for number in range(FORGING_USERS))]
    users = [await customers.token(subject=subject, prefixes=names) for subject in subjects]
    return Plan(
        websocket=system.servers[0],
        rest=system.page,
        token=users[0],
        other_tokens=users[1:],
        user_token=await page.token(subject="mallory"),
        quota_token=await Credentials(http, await system.create_api_key(QUOTA_PLAN)).token(),
        write_key=await system.create_write_key(BELOW, MOST_ENDPOINTS),
        endpoints=scene.writer.endpoints,
        seed=scene.seed,
    )


async def _attacked(scene: Scene, newcomers: Newcomers, plan: Plan) -> Fault:
    seconds, calm = (QUICK_SECONDS, QUICK_CALM_SECONDS) if scene.quick else (SECONDS, CALM_SECONDS)
    before = await newcomers.visit(calm)
    start = monotonic()
    async with _attackers(plan) as counts:
        during = await newcomers.visit(seconds)
    end = monotonic()
    after = await newcomers.visit(calm)
    visits = {"before": before, "during": during, "after": after}
    scene.figures[ATTACK] = {
        "seconds": round(end - start, 1),
        "answers": _answers(counts),
        "newcomers": {name: each.figures() for name, each in visits.items()},
    }
    scene.goals.extend(goals_of(counts, visits, seconds))
    scene.later.append(
        lambda history: Goal("attack, connections of honest clients lost", "", 0, lost(history, start, end))
    )
    return Fault(ATTACK, "public addresses", start, end, excuses=False)


def goals_of(counts: Counter[str], visits: dict[str, Visits], seconds: float) -> Iterable[Goal]:
    """Yield the goals of an attack of so many seconds, besides those of the oracle."""
    before, during = visits["before"], visits["during"]
    idle = [name for name in ATTACKS if not counts[f"{name}: attempts"]]
    failed = sum(during.failed.values()) + sum(visits["after"].failed.values())
    yield Goal(
        "attack, longest wait of a newcomer, more than before",
        "s",
        MORE_SECONDS,
        round(during.slowest - before.slowest, 2),
    )
    yield Goal("attack, newcomers that were not served", "", 0, failed)
    yield Goal("attack, forged tokens that were accepted", "", 0, counts["forge_tokens: ACCEPTED"])
    refused = sum(counts[f"forge_tokens: {answer}"] for answer in TOKEN_REFUSED)
    yield Goal("attack, forged tokens that were refused as such", "", 1, refused, at_least=True)
    for forgery, met in (("forge_tokens", refused), ("forge_names", counts["forge_names: admitted"])):
        share = round(met / max(1, counts[f"{forgery}: attempts"]), 3)
        yield Goal(f"attack, share of {forgery} that met the check itself", "", CHECKED_SHARE, share, at_least=True)
    minutes = 1 + seconds / 60
    of_user, data = counts["starve: 200"] + counts["starve: 410"], counts["resubscribe: data"]
    yield Goal("attack, requests of one user of a key", "", round(PER_MINUTE / 10 * minutes), of_user)
    yield Goal("attack, data with updates of one key", "", round(QUOTA_SHARE * PER_MINUTE * minutes), data)
    yield Goal("attack, data with updates was asked for", "", 1, data, at_least=True)
    yield Goal("attack, endpoints of one write key", "", MOST_ENDPOINTS, counts["fill: endpoints"])
    yield Goal("attack, endpoints beyond it were refused", "", 1, counts["fill: 422"], at_least=True)
    yield Goal("attack, clients of a /56 that were admitted", "", 1, counts["network: admitted"], at_least=True)
    yield Goal("attack, bursts that were ended", "", 1, _refused(counts, "burst"), at_least=True)
    yield Goal("attack, clients of one address at a time", "", PER_ADDRESS, counts["hold websocket: at most"])
    yield Goal(f"attack, kinds that attempted nothing {idle or ''}".strip(), "", 0, len(idle))
    if seconds > CUT_SECONDS:
        longest = counts["slow_request: longest, ms"] / 1000
        yield Goal("attack, longest life of a request that never ends", "s", CUT_SECONDS, longest)
        ended = counts["slow_request: ended by the server"]
        yield Goal("attack, requests that never end were ended", "", 1, ended, at_least=True)
        yield Goal(
            "attack, longest life of a body without a key", "s", CUT_SECONDS, counts["trickle: longest, ms"] / 1000
        )
        yield Goal(
            "attack, bodies without a key were ended", "", 1, counts["trickle: ended by the server"], at_least=True
        )


def _answers(counts: Counter[str]) -> dict[str, dict[str, int]]:
    """Return the answers by attack, the most frequent ones first."""
    answers: dict[str, dict[str, int]] = {}
    for name, times in counts.most_common():
        attack, _, answer = name.partition(": ")
        answers.setdefault(attack, {})[answer] = times
    return dict(sorted(answers.items()))


def table(figures: Mapping[str, Any]) -> str:
    """Return what each attack of a run met, as text; empty if there was none."""
    answers = figures.get(ATTACK, {}).get("answers", {})
    return "\n".join(
        f"  {attack}: " + ", ".join(f"{count} {answer}" for answer, count in met.items())
        for attack, met in answers.items()
    )


def _refused(counts: Counter[str], attack: str) -> int:
    """Return how often the server refused or closed, by status and close code."""
    return sum(counts[name] for name in counts if name.startswith(f"{attack}: ") and name.split()[-1].isdigit())


@asynccontextmanager
async def _attackers(plan: Plan) -> AsyncIterator[Counter[str]]:
    """Run the attackers until the block ends; the counts are complete afterwards."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.load.attackers", stdin=pipe, stdout=pipe
    )
    assert process.stdin is not None
    counts: Counter[str] = Counter()
    try:
        process.stdin.write(plan.model_dump_json().encode() + b"\n")
        yield counts
        process.stdin.close()
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            counts.update(orjson.loads(await process.stdout.read()))
    finally:
        if process.returncode is None:
            process.stdin.close()
            try:
                await asyncio.wait_for(process.wait(), PATIENCE_S)
            except TimeoutError:
                process.kill()
                await process.wait()
