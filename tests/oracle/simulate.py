"""A small DIEM in simulated time: random, but correct by construction, so its histories must be clean."""

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.oracle.history import Accepted, Event, Fault, History, Kind, Snapshot
from tests.oracle.values import applied, fingerprint

TICK = 0.1
TTL = 2.0
"""Seconds until what is below ``/t/`` expires."""
_KINDS = "edtc"
"""First segment of the names: numbers alone, documents, endpoints that expire, members that come and go."""
_LATE = 2.0
"""Longest delay of an update, well within T_conv."""
_RESTART = 1012


@dataclass
class Client:
    """One simulated client, which holds the announced versions, like the load clients."""

    wants: list[str]
    with_data: bool
    compressed: bool
    events: list[Event] = field(default_factory=list)
    known: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    subscribed: dict[str, float] = field(default_factory=dict)
    """Endpoint -> time since which the client is behind the latest version."""
    away_until: float | None = 0.0
    silent_until: float = 0.0
    raw: int = 0

    def log(self, time: float, kind: Kind, endpoint: str = "", version: int = 0, code: int = 0) -> None:
        """Record an event."""
        self.events.append(Event(time, kind, endpoint, version, code))


class Simulation:
    """Changing endpoints, clients that come and go, optionally one fault. Deterministic by its ``random``."""

    def __init__(
        self, random: Random, *, endpoints: int, clients: int, subscriptions: int, rate: float = 0.3, churn: float = 1.0
    ) -> None:
        self.random = random
        self.names = [f"/{_KINDS[number % len(_KINDS)]}/{number}" for number in range(endpoints)]
        self.accepted: list[Accepted] = []
        self.lists: dict[int, list[str]] = {}
        self._collections = sorted({name[:3] for name in self.names})
        wanted = self.names + self._collections
        self._clients = [
            Client(random.sample(wanted, subscriptions), with_data=bool(number % 2), compressed=bool(number // 2 % 2))
            for number in range(clients)
        ]
        limited = self._collections[0]
        self._clients[0].wants = [name for name in wanted if name.startswith(limited)]
        self.rights = {"000": [limited.rstrip("/")]}
        self._latest: dict[str, int] = defaultdict(int)
        self._stamps: dict[str, int] = {}
        self._documents: dict[str, dict[str, int] | None] = {}
        self._expiries: dict[str, float] = {}
        self._listed: dict[str, list[str]] = defaultdict(list)
        self._rate = rate
        self._churn = churn
        self._restless = True
        self.frozen = False

    def run(self, seconds: float, *, fault: Fault | None = None, quiet: float = 8.0) -> History:
        """Run ``seconds`` with changes, then ``quiet`` seconds without, in which all clients converge."""
        now = 0.0
        while now < seconds + quiet:
            self._restless = now < seconds
            self.frozen = fault is not None and fault.start <= now < fault.end
            self._tick(now)
            now = round(now + TICK, 3)
        for client in self._clients:
            client.log(now, Kind.RAW, code=client.raw)
        clients = {f"{number:03}": client.events for number, client in enumerate(self._clients)}
        forwarded = sum(client.raw for client in self._clients)
        snapshots = [Snapshot("websocket-1", forwarded + 3, forwarded, 2, 1, 0)]
        faults = [fault] if fault else []
        latest, lists, rights = dict(self._latest), self.lists, self.rights
        return History(self.accepted, clients, now, faults, [], snapshots, latest, lists, rights)

    def _tick(self, now: float) -> None:
        for name in [name for name, due in self._expiries.items() if due <= now]:
            del self._expiries[name]
            self._next(name, now, 0)
        for name in self.names:
            # What expires is written less often, so that it does.
            if self._restless and self.random.random() < self._rate * (0.1 if name[1] == "t" else 1.0):
                self._change(name, now)
        for name in self._collections:
            listed = sorted(each for each in self.names if each.startswith(name) and self._stamps.get(each))
            if listed != self._listed[name]:
                self._listed[name] = listed
                stamp = fingerprint(listed) if listed else 0
                self._next(name, now, stamp)
                self.lists |= {stamp: listed} if listed else {}
        for client in self._clients:
            self._step(client, now)

    def _next(self, name: str, now: float, stamp: int) -> None:
        self._latest[name] = max(self._latest[name] + 1, int(now * 1000) + 1_700_000_000_000)
        self._stamps[name] = stamp

    def _change(self, name: str, now: float) -> None:
        number, change, gone, ttl = len(self.accepted) + 1, None, False, 0.0
        match name[1]:
            case "d":
                change = self._document(name, number)
                gone, stamp = change is None, 0
                value = self._documents[name] = None if change is None else applied(self._documents.get(name), change)
                self._next(name, now, 0 if value is None else fingerprint(value))
            case "c" if self._stamps.get(name):
                gone, stamp = True, 0
                self._next(name, now, 0)
            case kind:
                ttl, stamp = (TTL if kind == "t" else 0.0), number
                self._next(name, now, stamp)
                self._expiries |= {name: now + ttl} if ttl else {}
        key, version = f"{name} {now}", self._latest[name]
        self.accepted.append(Accepted(name, version, now, gone, key, stamp, change, begun=now, ttl=ttl))

    def _document(self, name: str, number: int) -> dict[str, Any] | None:
        """Return the next change of a document; None: it is deleted."""
        known, chance = self._documents.get(name), self.random.random()
        if known is None or chance < 0.1:
            return {"put": {"last": number, "before": 0, "parts": {}}}
        if chance < 0.2:
            return None
        if chance < 0.6:
            return {"merge": {"last": number, "parts": {f"p{number % 3}": number, f"p{(number + 1) % 3}": None}}}
        copy = {"op": "copy", "from": "/last", "path": "/before"}
        return {"json": [copy, {"op": "replace", "path": "/last", "value": number}]}

    def _step(self, client: Client, now: float) -> None:
        if client.away_until is not None:
            if now >= client.away_until and not self.frozen:
                self._connect(client, now)
            return
        chance = self.random.random() / self._churn if self._restless and self._churn else 1.0
        if chance < 0.005:
            client.log(now, Kind.RAW, code=client.raw)
            client.raw = 0
            client.log(now, Kind.CLOSE, code=_RESTART)
            client.subscribed.clear()
            client.away_until = now + self.random.uniform(0.1, 4)
        elif chance < 0.01 and now >= client.silent_until:
            client.log(now, Kind.STATUS, code=0)
            client.silent_until = now + self.random.uniform(0.1, 4)
        elif chance < 0.03 and client.subscribed:
            name = self.random.choice(sorted(client.subscribed))
            client.log(now, Kind.UNSUBSCRIBED, name)
            del client.subscribed[name]
        elif chance < 0.1:
            self._subscribe(client, now, self.random.choice(client.wants))
        self._deliver(client, now)

    def _connect(self, client: Client, now: float) -> None:
        client.away_until = None
        client.silent_until = 0.0
        client.log(now, Kind.OPEN, code=int(client.compressed))
        for name in client.wants:
            self._subscribe(client, now, name)

    def _subscribe(self, client: Client, now: float, name: str) -> None:
        client.log(now, Kind.SUBSCRIBE, name, client.known[name])
        client.log(now, Kind.SUBSCRIBED, name, self._latest[name])
        client.subscribed[name] = now

    def _deliver(self, client: Client, now: float) -> None:
        if self.frozen or now < client.silent_until:
            return
        if client.silent_until:
            client.silent_until = 0.0
            client.log(now, Kind.STATUS, code=1)
        for name, since in client.subscribed.items():
            if self._latest[name] <= client.known[name]:
                client.subscribed[name] = now
            elif now - since >= _LATE or self.random.random() < 0.3:
                client.known[name] = self._latest[name]
                client.raw += 1
                client.log(now, Kind.UPDATE, name, self._latest[name])
                # Some come without data, and this client does not fetch.
                if client.with_data and (not self._stamps[name] or self._stamps[name] % 5):
                    client.log(now, Kind.HELD, name, self._latest[name], self._stamps[name])
                client.subscribed[name] = now
