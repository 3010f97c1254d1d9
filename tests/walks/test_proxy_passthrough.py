"""Passthrough mode: a client is current when all is at rest, over the links that it needs and no others."""

from typing import Any, cast

import orjson
from hypothesis import given

from diem.fanout.fanout import Fanout
from diem.protocol.frames import frames_of
from proxy.passthrough import PassthroughProxy
from tests.unit.proxy.world import FakeDialer
from tests.walks import walk_settings
from tests.walks.proxying import Cluster, Line, Walk, WalkClient, hints, walks


class PassthroughClient(WalkClient):
    """Frames come several in one write; what it asked for last counts, in whatever order replies come."""

    def __init__(self, cluster: Cluster) -> None:
        self._left_by: dict[str, int] = {}
        """Endpoint -> the latest request that unsubscribes from it."""
        super().__init__(cluster)

    def unsubscribe(self, *names: str) -> None:
        self._left_by |= dict.fromkeys(names, self.ids + 1)
        # What was said of them goes with them.
        self.affected -= set(names)
        super().unsubscribe(*names)

    def _write(self, frame: bytes) -> None:
        for each in frames_of(frame):
            message = orjson.loads(each[{126: 4, 127: 10}.get(each[1], 2) :])
            match message["type"]:
                case "update" if any(message["endpoint"] in asked for asked in self.unanswered.values()):
                    # Before the answer to its request: no fault.
                    self.held[message["endpoint"]] = self.cluster.latest[message["endpoint"]]
                    self.take(message)
                case "unsubscribed":
                    self.received.append(message)
                    done = {name for name in message["endpoints"] if self._left_by[name] == message["id"]}
                    self.confirmed -= done - self.wanted
                case "update" | "resync":
                    super()._write(each)
                    self.take(message)
                case _:
                    super()._write(each)


class PassthroughCluster(Cluster):
    """As many lines as clients need."""

    shared: PassthroughProxy

    def __init__(self, hints: str) -> None:
        super().__init__(hints)
        self.fanout = Fanout()
        dialer = FakeDialer(lambda url, listener: Line(self.member(url), listener, self.announced))
        self.shared = PassthroughProxy(
            self.fanout.stats, self.router, dialer.itself, self.clock, self.timers.later, upstreams=100
        )

    def lines(self) -> list[Line]:
        return [cast("Line", line) for line in self.shared._slots]

    def client(self) -> WalkClient:
        return PassthroughClient(self)

    def waits(self, client: WalkClient) -> int:
        of_client = self.shared.clients.get(client.edge)
        return 0 if of_client is None else of_client.pending

    def lines_of(self, client: WalkClient) -> list[Line]:
        of_client = self.shared.clients.get(client.edge)
        return [] if of_client is None else [cast("Line", line) for line in of_client.links.values()]

    def concerned(self, line: Line) -> list[WalkClient]:
        return [client for client in self.clients if line in self.lines_of(client)]


class PassthroughWalk(Walk):
    cluster: PassthroughCluster

    def nothing_is_asked_for_in_vain(self) -> None:
        for client in self.clients:
            lines = self.cluster.lines_of(client)
            assert self.registered(lines) == dict.fromkeys(client.wanted, 1)
            assert all(line.link is not None and line.link.endpoints for line in lines), "a link that nothing needs"

    def nothing_is_left(self) -> None:
        assert not self.cluster.lines()
        assert not self.cluster.shared.clients
        assert not self.cluster.shared.load


@walk_settings(examples=200)
@given(walk=walks(), named=hints)
def test_every_client_of_a_passthrough_proxy_is_current_when_all_is_at_rest(
    walk: list[tuple[Any, ...]], named: str
) -> None:
    PassthroughWalk(PassthroughCluster(named), clients=2).run(walk)
