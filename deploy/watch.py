"""`diem watch`: prints the updates of endpoints as they come."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from deploy.found import DataService, DataServiceUnavailable, Edges
from diem.errors import DiemError
from diem.links.client import BaseClient, Event, PartitionedClient, UpdatesClient
from diem.protocol.versions import iso

Say = Callable[[str], None]


@dataclass(eq=False)
class ConnectionRejected(DiemError):
    """The server closed the connection for good."""

    code: int | None
    reason: str

    def __str__(self) -> str:
        """Return the text."""
        return f"the server closed the connection ({self.code}{': ' if self.reason else ''}{self.reason})"


async def unknown_names(service: DataService, names: Sequence[str]) -> list[str]:
    """Return the names that are not in the catalogue. Raises `DataServiceUnavailable`."""
    listed = await service.endpoints()
    return [name for name in names if name not in listed]


async def watch(service: DataService, names: Sequence[str], say: Say, note: Say, *, as_json: bool = False) -> None:
    """Print updates with `say`, and what else there is to know with `note`, until it is cancelled.

    Raises:
        BadName: one of the names is none.
        DataServiceUnavailable: the Data Service does not say where the WebSocket servers are.
        ConnectionRejected: the server does not want this client back.
    """
    edges = await service.edges()
    if not edges.servers:
        raise DataServiceUnavailable(service.base, "it names no WebSocket server")
    for name in await unknown_names(service, names):
        note(f"{name} is not in the catalogue: watching it all the same")
    last: Event | None = None
    live: bool | None = None
    async with client_of(edges, service.origin) as client:
        await client.subscribe(dict.fromkeys(names))
        async for event in client:
            # The server repeats every 25 s that nothing has changed.
            if event.kind == "status" and not event.endpoint:
                if event.live == live:
                    continue
                live = event.live
            text = describe(event)
            if as_json:
                say(json.dumps(as_object(event)))
            elif event.kind == "update":
                say(f"{now()}  {text}")
            elif last is None or text != describe(last):  # one line for any number of failed attempts
                note(f"{now()}  {text}")
            last = event
    raise ConnectionRejected(last.code if last else None, last.message if last else "")


def client_of(edges: Edges, origin: str) -> BaseClient:
    """Return a client that fits the deployment."""
    if not edges.metadata:
        return UpdatesClient(edges.servers, origin=origin)
    hosts = {urlsplit(url).hostname or "" for url in [origin, *edges.servers]}
    return PartitionedClient(edges.metadata, hosts=hosts, origin=origin)


def describe(event: Event) -> str:
    """Return an event as text for the eye."""
    match event.kind:
        case "update":
            version = event.version or 0
            text = f"{event.endpoint}  {'gone' if event.gone else 'version'} {version}  {iso(version)}"
        case "subscribed":
            held = "nothing there yet" if event.version is None else f"version {event.version} is there"
            text = f"{event.endpoint}  subscribed, {held}"
        case "open":
            text = f"connected to {event.message}"
        case "closed":
            why = "no connection" if event.code is None else f"connection closed ({event.code})"
            text = f"{why}{f': {event.message}' if event.message else ''}"
        case "status":
            said = "live" if event.live else "not live: what you see may be old"
            text = f"{event.endpoint}  {said}" if event.endpoint else said
        case "resync":
            text = f"{event.endpoint}  resync: fetch it again"
        case _:
            text = f"{event.endpoint or 'server'}  {event.kind}: {event.message}"
    return text


def as_object(event: Event) -> dict[str, Any]:
    """Return an event as what `--json` prints: without what it does not have."""
    fields = {
        "event": event.kind,
        "endpoint": event.endpoint,
        "version": event.version,
        "gone": event.gone or None,
        "live": event.live,
        "code": event.code,
        "message": event.message or None,
    }
    return {"at": datetime.now(UTC).isoformat(timespec="milliseconds")} | {
        name: value for name, value in fields.items() if value is not None
    }


def now() -> str:
    """Return the local time of day."""
    return datetime.now().astimezone().strftime("%H:%M:%S.%f")[:-3]
