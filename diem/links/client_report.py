"""The clients of one endpoint at this process, and those that left, for ``diem why``: read on the internal listener.

Beside ``/status``, which counts clients and names none.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import orjson

from diem.links.listener import Reply

if TYPE_CHECKING:
    from diem.links.edge import Edge

PATH: Final = "/v1/clients"
"""Path before ``/CLIENT/ENDPOINT``; the client is percent-encoded."""
EVERYBODY: Final = "*"
MAX_CLIENTS: Final = 100
"""Clients in an answer, which has the number of all."""
MAX_NAMED: Final = 3
"""Clients with the names of their other subscriptions."""
MAX_DEPARTURES: Final = 256
"""Departures that an edge remembers, the latest."""


class Departure(NamedTuple):
    """A client that was refused, or whose connection has closed."""

    at_s: float
    """Time of the event loop."""
    session: str
    """Empty for a refused client."""
    address: str
    user: str
    status: int
    """HTTP status of the refusal; 0 for a closed connection."""
    close: int
    """Close code; 0 for a refused client."""
    detail: str
    by_client: bool = False
    """The client closed the connection."""


class Departures:
    """The last :data:`MAX_DEPARTURES` clients that left an edge."""

    def __init__(self) -> None:
        self._latest: deque[Departure] = deque(maxlen=MAX_DEPARTURES)

    def add(self, departure: Departure) -> None:
        """Remember a departure, instead of the oldest if there are too many."""
        self._latest.append(departure)

    def of(self, client: str, now_s: float) -> Iterator[dict[str, Any]]:
        """Yield the departures of a client as JSON values, the latest first, with their age."""
        for each in reversed(self._latest):
            if client in {EVERYBODY, each.session, each.address, each.user}:
                yield {"ago_s": round(now_s - each.at_s, 1)} | each._asdict()


def read_clients(
    edge: "Edge", now_s: Callable[[], float], place: Callable[[bytes], Mapping[str, Any]], path: str
) -> Reply:
    """Return an endpoint's place and subscribers here, with the clients and departures that match.

    Args:
        edge: the clients.
        now_s: returns the time of the event loop.
        place: returns what the process knows of an endpoint, its ``version`` for example.
        path: ``/CLIENT/ENDPOINT``; a client is its session, address or user, or :data:`EVERYBODY` who subscribes.
    """
    client, _, rest = path.removeprefix("/").partition("/")
    client, endpoint = unquote(client), f"/{rest}".encode("ascii", "replace")
    found = list(_matching(edge, client, endpoint))
    return Reply(
        200,
        orjson.dumps(
            {
                **place(endpoint),
                "subscribers": len(edge.fanout.registry.subscribers(endpoint)),
                "matching": len(found),
                "clients": [each.describe(endpoint, named=n < MAX_NAMED) for n, each in enumerate(found[:MAX_CLIENTS])],
                "departures": [*islice(edge.departures.of(client, now_s()), MAX_CLIENTS)],
            }
        ),
        "application/json",
    )


def _matching(edge: "Edge", client: str, endpoint: bytes) -> Iterator[Any]:
    for each in edge.connections:
        if client in each.names() if client != EVERYBODY else endpoint in each.session.endpoints:
            yield each
