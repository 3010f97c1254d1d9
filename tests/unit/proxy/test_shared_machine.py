"""Model M5 on the real code: whatever happens, every quiescent subscribed client holds the newest version."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from tests.unit.proxy.machine import NAMES, ServersMachine, names, urls
from tests.unit.proxy.world import Client, World

clients = st.integers(0, 2)


class SharedMachine(ServersMachine):
    """Two servers, three clients, three endpoints; channels are FIFO, and anything may come between."""

    def __init__(self) -> None:
        super().__init__(World().start())
        self.clients = [self.world.client() for _ in range(3)]
        for name in NAMES:
            self.world.put(name)

    @rule(number=clients, wanted=st.sets(names, min_size=1))
    def a_client_subscribes(self, number: int, wanted: set[str]) -> None:
        self.clients[number].subscribe(*sorted(wanted))

    @rule(number=clients, unwanted=st.sets(names, min_size=1))
    def a_client_unsubscribes(self, number: int, unwanted: set[str]) -> None:
        self.clients[number].unsubscribe(*sorted(unwanted))

    @rule(number=clients, name=names)
    def a_client_fetches_by_itself(self, number: int, name: str) -> None:
        self.clients[number].held[name] = self.world.latest[name]

    @rule(number=clients)
    def a_client_leaves_and_comes_back_with_what_it_holds(self, number: int) -> None:
        before = self.clients[number]
        before.leave()
        self.clients[number] = self.world.client()
        self.clients[number].held = before.held

    @precondition(lambda self: any(server.sent for server in self.world.servers.values()))
    @rule(number=urls, frames=st.integers(1, 4))
    def frames_arrive(self, number: int, frames: int) -> None:
        self.world.servers[self.urls[number]].deliver(frames)

    @invariant()
    def only_what_somebody_wants_is_retained(self) -> None:
        assert len(self.world.hub.state.retained) <= len(self.world.shared.follower)

    def teardown(self) -> None:
        world = self.world
        world.tell()
        world.settle()
        for client in self.clients:
            self._holds_the_newest(client)
        held = {name for client in self.clients for name in client.wanted}
        assert set(world.shared.follower) == held
        for server in world.servers.values():
            assert server.subscribed == {name for name in held if server.owns(name)}
        for client in self.clients:
            client.leave()
        world.settle()
        assert not world.hub.state.retained
        assert not world.hub.registry.entries
        assert not len(world.shared.follower)
        assert not world.shared.load
        assert not any(server.subscribed for server in world.servers.values())

    def _holds_the_newest(self, client: Client) -> None:
        assert not any(client.unanswered.values()), "a client waits for its reply for ever"
        for name in client.wanted:
            assert name in client.confirmed
            assert client.held.get(name, 0) == self.world.latest[name], "behind, and never told"
            assert name not in client.affected, "stale for ever"


SharedMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
TestShared = SharedMachine.TestCase
