"""Passthrough mode: a client is current when all is at rest, over the links that it needs and no others."""

from collections.abc import Callable
from typing import Any, cast

import orjson
from hypothesis import given

from diem.fanout.fanout import Fanout
from diem.fanout.session import Session
from proxy.frames import frames_of
from proxy.passthrough import PassthroughProxy
from proxy.upstream import Receiver
from proxy.upstream_pool import Dialler
from proxy.upstream_pool import UpstreamLink as RealLine
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
                    self.heard.append(message)
                    done = {name for name in message["endpoints"] if self._left_by[name] == message["id"]}
                    self.confirmed -= done - self.wanted
                case "update" | "resync":
                    super()._write(each)
                    self.take(message)
                case _:
                    super()._write(each)


class LinedPassthrough(PassthroughProxy):
    """The real one, but for the sockets of its lines."""

    make: Callable[[str, Receiver], Line]

    def _make_line(self, url: str, receiver: Receiver, session: Session) -> RealLine:
        line = cast("RealLine", self.make(url, receiver))
        self._slots[line] = 0
        self.load[url] += 1
        return line

    def _drop_line(self, line: RealLine) -> None:
        del self._slots[line]
        self.load -= {line.url: 1}
        cast("Line", line).hang_up()


class PassthroughCluster(Cluster):
    """As many lines as clients need."""

    shared: LinedPassthrough

    def __init__(self, hints: str) -> None:
        super().__init__(hints)
        self.fanout = Fanout()
        self.shared = LinedPassthrough(
            self.fanout.stats, self.router, cast("Dialler", None), self.clock, self.timers.later, upstreams=100
        )
        self.shared.make = lambda url, receiver: Line(self.member(url), receiver, self.announced)

    def lines(self) -> list[Line]:
        return [cast("Line", line) for line in self.shared._slots]

    def client(self) -> WalkClient:
        return PassthroughClient(self)

    def waits(self, client: WalkClient) -> int:
        passenger = self.shared.passengers.get(client.edge)
        return 0 if passenger is None else passenger.pending

    def lines_of(self, client: WalkClient) -> list[Line]:
        passenger = self.shared.passengers.get(client.edge)
        return [] if passenger is None else [cast("Line", line) for line in passenger.lines.values()]

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
        assert not self.cluster.shared.passengers
        assert not self.cluster.shared.load


@walk_settings(examples=200)
@given(walk=walks(), named=hints)
def test_every_client_of_a_passthrough_proxy_is_current_when_all_is_at_rest(
    walk: list[tuple[Any, ...]], named: str
) -> None:
    PassthroughWalk(PassthroughCluster(named), clients=2).run(walk)
