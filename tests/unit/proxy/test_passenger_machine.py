"""Passthrough mode: whatever happens, a client holds the newest version, over the links that it needs and no others."""

from collections.abc import Mapping
from typing import Any, cast

import orjson
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from diem.fanout.session import Session
from proxy.frames import frames_of
from proxy.line import Dialler, Line
from proxy.passthrough import Passthrough
from proxy.requests import MAX_PENDING
from proxy.upstream import Receiver
from tests.unit.proxy.machine import NAMES, ServersMachine, names, urls
from tests.unit.proxy.world import Client, Server, Transport, World


class Link:
    """As ``Upstream``: the world's channel to a server."""

    def __init__(self, world: "OneClient", url: str) -> None:
        self._world = world
        self._url = url
        self.transport = Transport()

    def subscribe(self, known: Mapping[str, int | None]) -> int | None:
        return self._world.ask(self._url, known)

    def unsubscribe(self, unwanted: list[str]) -> int | None:
        return self._world.drop(self._url, unwanted)


class ALine:
    """As ``Line``: dialled when the world opens it."""

    def __init__(self, url: str, receiver: Receiver) -> None:
        self.url = url
        self.receiver = receiver
        self.link: Link | None = None


class Rides(Passthrough):
    """The real one, but for its sockets."""

    world: "OneClient"

    def _make_line(self, url: str, receiver: Receiver, _session: Session) -> Line:
        self.load[url] += 1
        line = self.world.lines[url] = ALine(url, receiver)
        return cast("Line", line)

    def _drop_line(self, line: Line) -> None:
        self.load -= {line.url: 1}
        del self.world.lines[line.url]
        self.world.hang_up(line.url)

    def updates(self, url: str, data: bytes, frames: int) -> None:
        self.world.lines[url].receiver.updates(url, data, frames)

    def heard(self, url: str, message: Any) -> None:
        self.world.lines[url].receiver.heard(url, message)


class Rider(Client):
    """The client. Frames come several in one write; what it asked for last counts, in whatever order replies come."""

    def __init__(self, world: World, number: int) -> None:
        self.left_by: dict[str, int] = {}
        """Endpoint -> the latest request that unsubscribes from it."""
        super().__init__(world, number)

    def unsubscribe(self, *unwanted: str) -> None:
        self.left_by |= dict.fromkeys(unwanted, self.ids + 1)
        # What was said of them goes with them.
        self.affected -= set(unwanted)
        super().unsubscribe(*unwanted)

    def _write(self, frame: bytes) -> None:
        for each in frames_of(frame):
            message = orjson.loads(each[{126: 4, 127: 10}.get(each[1], 2) :])
            name = message.get("endpoint")
            if message["type"] == "update" and any(name in asked for asked in self.unanswered.values()):
                # Before the answer to its request: no fault.
                self.held[name] = max(self.held.get(name, 0), self.world.latest[name])
            elif message["type"] == "unsubscribed":
                self.heard.append(message)
                done = {name for name in message["endpoints"] if self.left_by[name] == message["id"]}
                self.confirmed -= done - self.wanted
            else:
                super()._write(each)


class OneClient(World):
    """Two servers and one client, whose links are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, ALine] = {}
        self.rides = Rides(
            self.hub.accounts,
            self.router,
            cast("Dialler", None),
            self.clock,
            self.timers.later,
            upstreams=100,
        )
        self.rides.world = self
        self.shared = self.rides  # type: ignore[assignment]  # what the world tells

    def client(self) -> Client:
        return Rider(self, 0)

    def hang_up(self, url: str) -> Server:
        """The link is gone, and what was on it."""
        server = self.servers[url]
        server.open = False
        server.asked.clear()
        server.sent.clear()
        server.subscribed.clear()
        return server

    def open(self, url: str) -> None:
        line, server = self.lines.get(url), self.servers[url]
        if line is not None and not server.open:
            server.open = True
            line.link = Link(self, url)
            line.receiver.opened(url)

    def lose(self, url: str) -> None:
        if self.servers[url].open:
            self.hang_up(url)
            self.lines[url].link = None
            self.lines[url].receiver.lost(url)

    def reads(self, url: str) -> bool:
        line = self.lines.get(url)
        return line is not None and line.link is not None and line.link.transport.reading


class PassengerMachine(ServersMachine):
    """One client, two servers, three endpoints; channels are FIFO, and anything may come between."""

    world: OneClient

    def __init__(self) -> None:
        super().__init__(OneClient().start())
        self.client = self.world.client()
        for name in NAMES:
            self.world.put(name)

    def may_ask(self) -> bool:
        """Whether its requests are read, and not refused because too many wait."""
        passenger = self.world.rides.passengers.get(self.client.edge)
        return not self.client.session.blocked and (passenger is None or passenger.pending < MAX_PENDING)

    @rule(wanted=st.sets(names, min_size=1))
    def the_client_subscribes(self, wanted: set[str]) -> None:
        if self.may_ask():
            self.client.subscribe(*sorted(wanted))

    @rule(unwanted=st.sets(names, min_size=1))
    def the_client_unsubscribes(self, unwanted: set[str]) -> None:
        if self.may_ask():
            self.client.unsubscribe(*sorted(unwanted))

    @rule()
    def the_client_takes_no_more(self) -> None:
        if not self.client.session.blocked:
            self.client.session.block()
            self.world.rides.blocked(self.client.edge)

    @rule()
    def the_client_takes_data_again(self) -> None:
        if self.client.session.blocked:
            self.client.session.unblock()
            # The status that it is given speaks for all.
            self.client.affected.clear()
            self.world.rides.unblocked(self.client.edge)

    @rule()
    def the_client_leaves_and_comes_back_with_what_it_holds(self) -> None:
        before = self.client
        before.leave()
        assert not self.world.lines
        self.client = self.world.client()
        self.client.held = before.held

    @precondition(lambda self: any(server.sent for server in self.world.servers.values()))
    @rule(number=urls, frames=st.integers(1, 4))
    def frames_arrive(self, number: int, frames: int) -> None:
        if self.world.reads(self.urls[number]):
            self.world.servers[self.urls[number]].deliver(frames)

    def teardown(self) -> None:
        world, client = self.world, self.client
        self.the_client_takes_data_again()
        world.tell()
        world.settle()
        assert not any(client.unanswered.values()), "a client waits for its reply for ever"
        for name in client.wanted:
            assert name in client.confirmed
            assert client.held.get(name, 0) == world.latest[name], "behind, and never told"
            assert name not in client.affected, "stale for ever"
        for server in world.servers.values():
            assert server.subscribed == {name for name in client.wanted if server.owns(name)}
        assert set(world.lines) == {world.server_of(name).url for name in client.wanted}, "a link that nothing needs"
        client.leave()
        world.settle()
        assert not world.lines
        assert not world.rides.passengers


PassengerMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestPassenger = PassengerMachine.TestCase
