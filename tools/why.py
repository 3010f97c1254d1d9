"""Why a client has not got an update: the hops from an endpoint to a client, and the first that explains it; pure.

Hops of processes are the operator page's findings about them; this adds the endpoint, its source, and the client.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from deploy.admin.findings import UNREACHABLE, Finding, Situation, each_finding, listed
from deploy.admin.health import HealthLevel, health
from deploy.system.description import with_children
from deploy.terminal import amount
from deploy.topology import Mode
from diem.protocol.assignment import Snapshot
from diem.protocol.codes import Close, reconnects
from diem.protocol.endpoints import is_collection
from diem.protocol.partition_map import HOT
from diem.protocol.partitioners import partition_of
from tools.diagnosis import Diagnosis, State, fault, note, ok

ON_THE_WAY_MS: Final = 2000
"""Age until which an update may still be on its way."""
SIMILAR: Final = 0.8
SERVED: Final = "topic "
"""Start of the owner of endpoints of a topic that is served as it is, which no Data Service stores."""
_CHAIN: Final = ("kafka", "publisher", "broadcast", "metadata", "bridge", "websocket", "proxy", "composite", "nginx")
"""Kinds of hops between the store and the clients, in the order of an update."""
_CLOSES: Final[Mapping[int, tuple[str, str]]] = {
    Close.SLOW: ("it did not read for 10 s", "Look at its network, or at a tab that is suspended."),
    Close.RATE: ("it sent more messages than one client may", "Correct what makes the page subscribe so often."),
    Close.MOVED: ("its endpoint is at another server now", ""),
    Close.RESTART: ("the server stopped", ""),
    Close.TOKEN_EXPIRED: ("its token expired", "The page must request a new one: docs/access.md."),
    Close.AUTH_TIMEOUT: ("it presented no token in time", "The page must present one: docs/access.md."),
    Close.UNAUTHORISED: (
        "its token is not accepted",
        "Look at issuer, audience and keys of the token: docs/access.md.",
    ),
    Close.LOGGED_OUT: ("the API key of its token was revoked", "Give it a new key: `diem keys create`."),
    Close.INTERNAL_ERROR: ("it did not answer a ping, or the server failed", "Look at its network."),
    1006: ("the connection broke", "Look at its network, or at proxies between it and the server."),
}


class Evidence(NamedTuple):
    """Documents of a running system."""

    endpoint: str
    client: str | None
    """Session, address or user; None: any client."""
    situation: Situation
    stored: Mapping[str, Any] | None
    """What the Data Service has of the endpoint; None without an answer."""
    edges: Mapping[str, Mapping[str, Any] | None]
    """What each server and proxy has of endpoint and client, by process; None without an answer."""
    snapshot: Snapshot | None = None
    """The partition map with its owners; None where there is none."""


def hops(evidence: Evidence) -> list[Diagnosis]:
    """Return the hops of an update, from the Data Service to the client."""
    found = each_finding(evidence.situation)
    rows = list(with_children(evidence.situation.status["processes"]))
    chain = [
        *(_process(found, name, row) for name, row in rows if row["process"] == "data"),
        *_stored(evidence),
        *_source(evidence),
    ]
    for kind in _CHAIN:
        if kind == "publisher":
            chain += _publisher(found, evidence)
        chain += (
            _edge(evidence, _process(found, name, row))
            for name, row in rows
            if row["process"] == kind and _is_on_the_way(evidence, name, kind)
        )
    return _one_of_several([*chain, _client(evidence)])


def cause_of(chain: Iterable[Diagnosis]) -> Diagnosis | None:
    """Return the hop that explains it: the first at fault, else worth a look, else unknown; None if all is well."""
    ranked = [hop for state in (State.FAULT, State.NOTE, State.UNKNOWN) for hop in chain if hop.state is state]
    return ranked[0] if ranked else None


# Processes


def _process(found: Iterable[Finding], name: str, row: Mapping[str, Any]) -> Diagnosis:
    mine = next((each for each in found if name in each.processes and not _is_publisher(each)), None)
    if mine is None:
        return ok(name, health(dict(row)).word)
    if mine.kind == UNREACHABLE:
        return Diagnosis(name, State.UNKNOWN, f"{mine.title}. {mine.detail}", mine.action)
    critical = mine.level is HealthLevel.CRITICAL
    return Diagnosis(name, State.FAULT if critical else State.NOTE, f"{mine.title}. {mine.detail}", mine.action)


def _is_publisher(finding: Finding) -> bool:
    return finding.kind.startswith("publisher") or finding.kind == "source"


def _publisher(found: Iterable[Finding], evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield the hop from the Data Service to Kafka, if there is one, with the partition of the endpoint."""
    reports = (row.get("report") or {} for _, row in with_children(evidence.situation.status["processes"]))
    publisher = next((report["publisher"] for report in reports if report.get("publisher")), None)
    if publisher is None:
        return
    mine = next((each for each in found if each.kind.startswith("publisher")), None)
    if mine is not None:
        critical = mine.level is HealthLevel.CRITICAL
        yield Diagnosis(
            "publisher", State.FAULT if critical else State.NOTE, f"{mine.title}. {mine.detail}", mine.action
        )
        return
    name = evidence.endpoint.encode()
    if evidence.snapshot is not None:
        place = evidence.snapshot.map.home(name)
        owners = [
            owner.server for number in evidence.snapshot.clones if (owner := evidence.snapshot.owner(name, number))
        ]
        partition = (
            "the topic of hot updates" if place == HOT else f"partition {place}, of {', '.join(owners) or 'nobody'}"
        )
    else:
        partition = f"partition {partition_of(name, int(publisher.get('partitions') or 1))}"
    yield ok("publisher", f"{partition}; lag {publisher.get('lag') or 0:,}")


def _is_on_the_way(evidence: Evidence, name: str, kind: str) -> bool:
    """Return whether updates of the endpoint go through a process: by owner, and by where the client is."""
    visited = {edge for edge, found in evidence.edges.items() if evidence.client and found and found["matching"]}
    composite = name.rpartition("/")[0]
    if composite and visited and all(edge.rpartition("/")[0] != composite for edge in visited):
        return False
    if kind not in {"bridge", "websocket", "proxy"}:
        return True
    server = name.replace("bridge-", "websocket-")
    if kind == "proxy" or not Mode(evidence.situation.status["mode"]).partitioned:
        return not visited or server in visited
    roles = {edge: found.get("role") for edge, found in evidence.edges.items() if found}
    return roles.get(server, "serving" if "serving" not in roles.values() else None) in {"serving", "draining"}


def _edge(evidence: Evidence, hop: Diagnosis) -> Diagnosis:
    """Return the hop of a server or proxy with what it has of the endpoint."""
    place = evidence.edges.get(hop.name)
    if place is None or hop.state is State.FAULT:
        return hop
    if place.get("stale"):
        return hop._replace(
            state=State.FAULT,
            text=f"its server of the endpoint, {place.get('server') or 'which nobody is'}, is silent or unreachable",
            remedy="Look at the servers and bridges above.",
        )
    stored, version = evidence.stored or {}, place.get("version")
    newest = stored.get("version")
    if "role" not in place or newest is None or stored.get("gone") or (version or 0) >= newest:
        return hop._replace(text=f"{hop.text}; version {version}" if version else hop.text)
    behind = f"it has version {version}, the Data Service {newest}"
    if evidence.situation.now_ms - _ms(stored["time"]) < ON_THE_WAY_MS:
        return hop._replace(state=State.NOTE, text=f"{behind}, which may be on its way", remedy="Ask again.")
    log = evidence.situation.log(hop.name)
    remedy = f"Look at the lag of what feeds it, then read {log}; a restart makes it read everything again."
    return hop._replace(state=State.FAULT, text=behind, remedy=remedy)


def _one_of_several(chain: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Return the chain where the loss of one of several brokers is no fault, as long as the publisher writes."""
    brokers = [hop for hop in chain if hop.name.startswith("kafka-")]
    down = [hop for hop in brokers if hop.state is State.FAULT]
    writes = any(hop.name == "publisher" and hop.state is State.OK for hop in chain)
    tolerated = set(down) if writes and len(down) < len(brokers) else set()
    return [hop._replace(state=State.NOTE) if hop in tolerated else hop for hop in chain]


# Endpoint and source


def _stored(evidence: Evidence) -> Iterator[Diagnosis]:
    stored = evidence.stored
    if stored is None:
        yield Diagnosis("endpoint", State.UNKNOWN, "the Data Service does not answer")
    elif stored["gone"]:
        yield fault("endpoint", f"it was deleted at {stored['time']}", "Write it again, if it should exist.")
    elif stored["version"] is not None:
        of_members = (
            ": its news are members that come and go, not their values" if is_collection(evidence.endpoint) else ""
        )
        yield ok("endpoint", f"version {stored['version']} of {stored['time']}{of_members}")
    elif str(stored["source"]).startswith(SERVED):
        served = max((place.get("version") or 0 for place in evidence.edges.values() if place), default=0)
        text = f"version {served}, of {stored['source']}" if served else f"{stored['source']} has no record of it"
        yield Diagnosis(
            "endpoint", State.OK if served else State.FAULT, text, "" if served else "Look at its producers."
        )
    else:
        similar = get_close_matches(evidence.endpoint, stored["near"], n=3, cutoff=SIMILAR)
        refused = stored["refused"]
        if refused and not similar:
            yield fault("endpoint", f"it was never stored: the last write ({refused['time']}) was refused: "
                f"{refused['detail']}", "Correct the write."
            )  # fmt: skip
            return
        meant = f"; did you mean {' or '.join(similar)}?" if similar else ""
        remedy = (
            "Correct the name in the page." if similar else "`diem put` writes it; the catalogue is at /v1/endpoints."
        )
        yield fault("endpoint", f"there is no such endpoint{meant}", remedy)


def _source(evidence: Evidence) -> Iterator[Diagnosis]:
    """Yield the source of an endpoint, or the refused write after its last version."""
    stored = evidence.stored
    if stored is None or stored["version"] is None:
        return
    refused = stored["refused"]
    if refused and _ms(refused["time"]) > _ms(stored["time"]):
        text = f"a write at {refused['time']}, after the last version, was refused: {refused['detail']}"
        yield fault("write", text, "Correct what the writer sends, or its key.")
    name = stored["source"]
    rows = with_children(evidence.situation.status["processes"])
    sources = [source for _, row in rows for source in (row.get("report") or {}).get("sources") or ()]
    source = next((each for each in sources if each.get("name") == name), None)
    if source is None:
        return
    if source.get("error"):
        text = f"source {name} fails: {source['error']}. What was read before stays"
        remedy = "Correct what it reads, or its table in diem.toml (`diem sources check`); it is tried again by itself."
        yield fault("source", text, remedy)
    elif source.get("refused"):
        text = f"source {name}: {source['refused']} records refused, the last: {source.get('last_refusal')}"
        yield note("source", text, "Correct them at their origin.")
    else:
        yield ok("source", f"{name}, last read {source.get('last_success')}")


# The client


def _client(evidence: Evidence) -> Diagnosis:
    places = [place for place in evidence.edges.values() if place is not None]
    silent = _silent(evidence)
    if not places:
        text = f"{listed(silent)} cannot be asked" if silent else "no server answers"
        return Diagnosis("client", State.UNKNOWN, text)
    found = _found(evidence, places)
    if not silent or any(place["matching"] for place in places):
        return found
    # It may be connected there: nothing that the others know of it is the cause then.
    return found._replace(state=State.UNKNOWN, text=f"{found.text}, unless at {listed(silent)}, which cannot be asked")


def _silent(evidence: Evidence) -> list[str]:
    """Return the processes with clients that gave no answer; a composite, if it named no children."""
    rows = list(with_children(evidence.situation.status["processes"]))
    kind = "proxy" if any(row["process"] == "proxy" for _, row in rows) else "websocket"
    return [
        name
        for name, row in rows
        if (row["process"] == kind and evidence.edges.get(name) is None)
        or (row["process"] == "composite" and not row.get("report"))
    ]


def _found(evidence: Evidence, places: Sequence[Mapping[str, Any]]) -> Diagnosis:
    """Return what is known of the client at the processes that answer."""
    if evidence.client is None:
        return _any_client(sum(place["matching"] for place in places))
    clients = [(name, client) for name, place in evidence.edges.items() if place for client in place["clients"]]
    subscribed = [(name, client) for name, client in clients if client["subscribed"]]
    if not clients:
        return _departed(places)
    if not subscribed:
        return _not_subscribed(evidence.endpoint, [client for _, client in clients])
    for name, client in subscribed:
        if client["blocked"]:
            text = f"it reads too slowly: {amount(client['unsent'], 'update')} wait for it at {name}"
            remedy = f"It gets the latest of each endpoint once it reads. {_CLOSES[Close.SLOW][1]}"
            return fault("client", text, remedy)
    where = ", ".join(dict.fromkeys(name for name, _ in subscribed))
    of = f", {len(subscribed)} of its {len(clients)} connections" if len(clients) > 1 else ""
    return ok("client", f"subscribed at {where}{of}")


def _any_client(subscribed: int) -> Diagnosis:
    if subscribed:
        return ok("clients", f"{amount(subscribed, 'client')} subscribed; --client names one")
    remedy = "The page must subscribe; `diem why ENDPOINT --client ADDRESS` looks at one client."
    return note("clients", "nobody is subscribed to the endpoint", remedy)


def _not_subscribed(endpoint: str, clients: Sequence[Mapping[str, Any]]) -> Diagnosis:
    if not any(client["allowed"] for client in clients):
        if clients[0]["user"] is None:
            return fault("client", "it has presented no token yet", "The page must present one: docs/access.md.")
        text = f"the token of {clients[0]['user']} does not cover {endpoint}"
        return fault("client", text, "Issue a token, or an API key of a plan, with this prefix: docs/access.md.")
    names = [name for client in clients for name in client["names"]]
    if within := next((name for name in names if is_collection(name) and endpoint.startswith(name)), None):
        text = f"it is subscribed to the collection {within}, whose news are members that come and go, not their values"
        return fault("client", text, f"The page must subscribe to {endpoint} itself.")
    if similar := get_close_matches(endpoint, names, n=1, cutoff=SIMILAR):
        return fault("client", f"it is subscribed to {similar[0]} instead", "Correct the name in the page.")
    others = amount(sum(client["subscriptions"] for client in clients), "other endpoint")
    return fault("client", f"connected, and not subscribed to it: to {others}", "The page must subscribe to it.")


def _departed(places: Sequence[Mapping[str, Any]]) -> Diagnosis:
    left = min((each for place in places for each in place["departures"]), key=lambda each: each["ago_s"], default=None)
    if left is None:
        remedy = (
            "Look at its console and network panel: another address, a proxy in between, or no connection at all. "
            "A client is its session in `welcome`, its address as servers see it, or the user of its token."
        )
        return fault("client", "it is not connected, and was not lately", remedy)
    when = f"{left['ago_s']:.0f} s ago"
    if left["status"]:
        return fault("client", f"refused {when} with {left['status']}: {left['detail']}", "Do what it says.")
    code = left["close"]
    if left["by_client"]:
        text = f"it left {when} ({code}): its page was closed, or closed the connection"
        return fault("client", text, "Open the page again.")
    meaning, remedy = _CLOSES.get(code, (left["detail"] or "see the close codes in docs/protocol.md section 1", ""))
    again = "It reconnects by itself." if reconnects(code) else "It does not reconnect by itself: reload the page."
    return fault("client", f"closed {when} with {code}: {meaning}", f"{remedy} {again}".strip())


def _ms(time: str) -> float:
    return datetime.fromisoformat(time).timestamp() * 1000
