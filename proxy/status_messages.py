"""Messages that a proxy sends of its own accord: partial status, and errors of whole requests."""

from collections.abc import Sequence

from diem.links.edge_connection import EdgeConnection
from diem.process.clock import Clock
from diem.protocol import messages
from diem.protocol.codes import ErrorCode
from diem.protocol.messages import MAX_NAMES
from diem.protocol.update import iso
from proxy.requests import MAX_PENDING


def say_status(client: EdgeConnection, names: Sequence[str], clock: Clock, *, live: bool) -> None:
    """Some endpoints are stale, or not any more. Who is blocked is told when he is not."""
    if client.session.blocked:
        return
    since = iso(clock.wall_ms())
    for start in range(0, len(names), MAX_NAMES):
        client.respond(messages.status(live=live, since=since, endpoints=names[start : start + MAX_NAMES]))


def too_many(client: EdgeConnection, request_id: int) -> None:
    """Refuse a request because too many of this client wait."""
    text = f"more than {MAX_PENDING} requests that wait for servers"
    client.respond(messages.error(ErrorCode.LIMIT, text, request_id))
