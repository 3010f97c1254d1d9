"""Shared mode: whatever happens to servers, links, moves and clients, nobody is left behind, or with what is void."""

from typing import Any

from hypothesis import example, given

from diem.fanout.fanout import Fanout
from proxy.shared import SharedProxy
from tests.walks import walk_settings
from tests.walks.proxying import Cluster, Line, Walk, WalkClient, hints, walks


class SharedClient(WalkClient):
    """Nothing comes before its answer, and versions only grow."""

    def __init__(self, cluster: Cluster) -> None:
        self._newest: dict[str, int] = {}
        """Endpoint -> the last version that came since it was answered."""
        super().__init__(cluster)

    def _write(self, frame: bytes) -> None:
        super()._write(frame)
        message = self.received[-1]
        match message["type"]:
            case "subscribed":
                for name in message["endpoints"]:
                    self._newest.pop(name, None)
            case "update":
                name, version = message["endpoint"], message["version"]
                assert version > self._newest.get(name, 0), "an older version after a newer one"
                self._newest[name] = version
                self.take(message)
            case "resync":
                assert set(message["endpoints"]) <= self.confirmed, "a resync before subscribed, or after unsubscribed"
                self.take(message)


class SharedCluster(Cluster):
    """One line to each server for all clients."""

    shared: SharedProxy

    def __init__(self, hints: str) -> None:
        super().__init__(hints)
        self.fanout = Fanout(framed=True)
        self.shared = SharedProxy(self.fanout, self.router, self.clock, self.timers.later)
        self._lines = {member.url: Line(member, self.shared, self.announced) for member in self.members}

    def lines(self) -> list[Line]:
        return list(self._lines.values())

    def client(self) -> WalkClient:
        return SharedClient(self)

    def waits(self, client: WalkClient) -> int:
        return len(self.shared._pending.by_client.get(client.edge, ()))

    def concerned(self, line: Line) -> list[WalkClient]:
        return [client for client in self.clients if client.wanted]


class SharedWalk(Walk):
    cluster: SharedCluster

    def end(self) -> None:
        assert len(self.cluster.shared.relay.retained) <= len(self.cluster.shared.relocator.routes)
        super().end()

    def nothing_is_asked_for_in_vain(self) -> None:
        wanted = {name for client in self.clients for name in client.wanted}
        assert set(self.cluster.shared.relocator.routes) == wanted
        assert self.registered(self.cluster.lines()) == dict.fromkeys(wanted, 1)

    def nothing_is_left(self) -> None:
        shared = self.cluster.shared
        assert not shared.relay.retained
        assert not self.cluster.fanout.registry.entries
        assert not shared.relocator.routes
        assert not shared.load
        assert not self.registered(self.cluster.lines())


@walk_settings(examples=200)
@given(walk=walks(), named=hints)
@example(
    # A record that nobody can read, behind an update of the same catch-up; the other name keeps the reply waiting.
    walk=[
        ("subscribe", 1, {"/e/2", "/e/6"}),
        ("rebalance", 0, 1),
        ("tell",),
        ("open", 1),
        ("assign", 1, False),
        ("spoil", "/e/2"),
        ("answer", 1),
    ],
    named="public",
)
def test_every_client_of_a_shared_proxy_is_current_when_all_is_at_rest(walk: list[tuple[Any, ...]], named: str) -> None:
    SharedWalk(SharedCluster(named), clients=3).run(walk)
