"""The clients of one endpoint at this process, and those that left, for ``diem why``: read on the internal listener.

Beside ``/status``, which counts clients and names none.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

import orjson

from diem.links.edge import Edge
from diem.links.listener import Reply

PATH: Final = "/v1/clients"
"""Path before ``/CLIENT/ENDPOINT``; the client is percent-encoded."""
EVERYBODY: Final = "*"
MAX_CLIENTS: Final = 100
"""Clients in an answer, which has the number of all."""
MAX_NAMED: Final = 3
"""Clients with the names of their other subscriptions."""


def read_clients(
    edge: Edge, now_s: Callable[[], float], place: Callable[[bytes], Mapping[str, Any]], path: str
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
    departures = edge.departures.of(None if client == EVERYBODY else client, now_s())
    return Reply(
        200,
        orjson.dumps(
            {
                **place(endpoint),
                "subscribers": len(edge.fanout.registry.subscribers(endpoint)),
                "matching": len(found),
                "clients": [each.describe(endpoint, named=n < MAX_NAMED) for n, each in enumerate(found[:MAX_CLIENTS])],
                "departures": [*islice(departures, MAX_CLIENTS)],
            }
        ),
        "application/json",
    )


def _matching(edge: Edge, client: str, endpoint: bytes) -> Iterator[Any]:
    for each in edge.connections:
        if client in each.names() if client != EVERYBODY else endpoint in each.session.endpoints:
            yield each
