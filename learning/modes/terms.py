"""Amounts of work with their constants: linear forms of ``learning.costs``, written only here.

With U updates that servers consume and F frames a second, and k connections, servers with their bridges take
a U + b F + kappa k, and w for waking up for a write. In mode x each of S servers consumes every update; servers that
divide the endpoints consume an update once, and those of hot endpoints S times.
"""

from collections.abc import Iterable

from learning.costs import Amounts


def consumed_updates(updates: float, hot: float, servers: int) -> float:
    """Return the updates a second that all servers consume; each consumes the ``hot`` ones, part of ``updates``."""
    return updates + hot * (servers - 1)


def pairs(consumed: float, frames: float, connections: float) -> Amounts:
    """Return the work of servers with their bridges, except waking up, in the constants of ``Costs``."""
    return {"update_us": consumed, "delivery_us": frames, "connection_us_per_s": connections}


def server(updates: float, parts: float) -> Amounts:
    """Return the work of a server, excluding its clients; a write arrives in ``parts``, one per partition."""
    return {"server_update_us": updates, "server_part_us": parts, "server_idle_us_per_s": 1.0}


def framed(watched: float) -> Amounts:
    """Return the work of a server for updates that any of its clients or proxies is subscribed to."""
    return {"server_watched_update_us": watched}


def clients_of(frame: str, sends: float, frames: float, connections: float, inline: float) -> Amounts:
    """Return the work for clients of a server or proxy: ``frames`` in ``sends``, ``inline`` of them with data.

    ``frame`` is the constant for a send with one frame.
    """
    return {
        frame: sends,
        "merged_frame_us": max(0.0, frames - sends),
        "inline_frame_us": inline,
        "connection_us_per_s": connections,
    }


def bridge(updates: float, parts: float) -> Amounts:
    """Return the work of a bridge with its own consumer group."""
    return {"bridge_update_us": updates, "bridge_part_us": parts, "bridge_idle_us_per_s": 1.0}


def member(updates: float, parts: float) -> Amounts:
    """Return the work of a bridge that shares the partitions with others."""
    return {**bridge(updates, parts), "bridge_group_us_per_s": 1.0}


def links(sends: float) -> Amounts:
    """Return the work of a server for proxies."""
    return {"link_delivery_us": sends}


def proxy(updates: float, wakes: float) -> Amounts:
    """Return the work of a proxy, but for its clients.

    ``updates`` are those that any of them is subscribed to, ``wakes`` writes times the servers that each touches.
    """
    return {
        "proxy_update_us": updates,
        "proxy_write_us": wakes,
        "proxy_idle_us_per_s": 1.0,
    }


def idle(kind: str) -> Amounts:
    """Return the work of a process whose load does not depend on updates: ``metadata`` or ``composite``."""
    return {f"{kind}_idle_us_per_s": 1.0}


def data_service(updates: float, writes: float, gets: float) -> Amounts:
    """Return the work of the Data Service with one reader of its feed."""
    return {
        "data_update_us": updates,
        "data_write_us": writes,
        "data_get_us": gets,
        "data_idle_us_per_s": 1.0,
    }


def publisher(updates: float, writes: float) -> Amounts:
    """Return the Data Service's additional work for publishing to Kafka."""
    return {"publisher_update_us": updates, "publisher_write_us": writes, "publisher_idle_us_per_s": 1.0}


def feed_readers(readers: float, updates: float, writes: float) -> Amounts:
    """Return the work of a feed for its readers; the Data Service and the Broadcast node serve the same feed."""
    return {"broadcast_reader_update_us": readers * updates, "broadcast_reader_write_us": readers * writes}


def broadcast(updates: float, writes: float) -> Amounts:
    """Return the work of the Broadcast node, excluding its readers."""
    return {"broadcast_update_us": updates, "broadcast_write_us": writes, "broadcast_idle_us_per_s": 1.0}


def brokers(updates: float, parts: float, readers: float, bridges: float) -> Amounts:
    """Return the work of one broker for ``bridges``, of which ``readers`` read each part; one is in the others."""
    return {
        "broker_update_us": updates,
        "broker_part_us": parts,
        "broker_reader_part_us": max(0.0, readers - 1) * parts,
        "broker_bridge_us_per_s": max(0.0, bridges - 1),
        "broker_idle_us_per_s": 1.0,
    }


def nginx(sends: float, writes: float, inline: float, gets: float) -> Amounts:
    """Return the work of all workers of nginx."""
    return {
        "nginx_frame_us": sends,
        "nginx_inline_frame_us": inline,
        "nginx_write_us": writes,
        "nginx_get_us": gets,
        "nginx_idle_us_per_s": 1.0,
    }


def added(forms: Iterable[Amounts]) -> Amounts:
    """Return the sum of linear forms."""
    total: dict[str, float] = {}
    for form in forms:
        for name, amount in form.items():
            total[name] = total.get(name, 0.0) + amount
    return total
