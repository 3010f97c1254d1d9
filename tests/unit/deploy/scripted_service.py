"""Scripted metadata services, and snapshots for them."""

from collections.abc import Callable
from typing import Any

import httpx

from deploy.clients.metadata import MetadataService
from diem.protocol.assignment import Clone, Owner, Snapshot
from diem.protocol.partition_map import Entry, Head, PartitionMap

URLS = ("http://one:1", "http://two:2")
Answer = Callable[[httpx.Request], httpx.Response]


def service(answer: Answer, urls: tuple[str, ...] = URLS[:1]) -> MetadataService:
    """Return a client of services with these answers."""
    return MetadataService(urls, lambda: httpx.AsyncClient(transport=httpx.MockTransport(answer)))


def status(name: str = "p-1", **differences: Any) -> dict[str, Any]:
    """Return the status of a plan, as from a metadata service."""
    known = {"state": "ready", "phase": "stable", "epoch": 3, "moves": 0, "waiting_for": None, "epoch_of_plan": 3}
    return {
        "id": name,
        **known,
        "since": None,
        "created": "2026-01-02T03:04:05Z",
        "partitions": 8,
        "endpoints": 5,
        **differences,
    }


def steps(*bodies: dict[str, Any] | None) -> Answer:
    """Return answers in sequence, repeating the last one; None: the service is unreachable."""
    left = list(bodies)

    def answer(_request: httpx.Request) -> httpx.Response:
        body = left.pop(0) if len(left) > 1 else left[0]
        if body is None:
            raise httpx.ConnectError("connection refused")
        return httpx.Response(200, json=body)

    return answer


def running(servers: int = 2, partitions: int = 8, **entries: int) -> Snapshot:
    """Return a group of servers that divide the partitions in ranges."""
    members = {f"b{n}": Owner(f"b{n}", "ws://i", "ws://p") for n in range(servers)}
    owners = {partition: f"b{partition * servers // partitions}" for partition in range(partitions)}
    placed = {f"/{name}".encode(): Entry(home) for name, home in entries.items()}
    return Snapshot(PartitionMap(Head(8, 7), placed), {1: Clone("stable", members, owners)})
