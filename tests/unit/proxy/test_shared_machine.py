"""Model M5 on the real code: whatever happens, every quiescent subscribed client holds the newest version."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.proxy.world import Client, World, name_of

NAMES = [name_of(0), name_of(0, 1), name_of(1)]
names = st.sampled_from(NAMES)
clients = st.integers(0, 2)
urls = st.integers(0, 1)


class SharedMachine(RuleBasedStateMachine):
    """Two servers, three clients, three endpoints; channels are FIFO, and anything may come between."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World().start()
        self.urls = list(self.world.servers)
        self.clients = [self.world.client() for _ in range(3)]
        for name in NAMES:
            self.world.put(name)

    @rule(name=names)
    def the_endpoint_changes(self, name: str) -> None:
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

    @rule(number=urls)
    def a_link_is_lost(self, number: int) -> None:
        self.world.lose(self.urls[number])

    @rule(number=urls)
    def a_link_is_opened(self, number: int) -> None:
        self.world.open(self.urls[number])

    @rule(partition=urls, number=urls)
    def a_partition_moves(self, partition: int, number: int) -> None:
        self.world.assign(partition, self.urls[number])

    @rule()
    def the_metadata_service_tells(self) -> None:
        self.world.tell()

    @precondition(lambda self: any(server.asked for server in self.world.servers.values()))
    @rule(number=urls)
    def a_server_answers(self, number: int) -> None:
        server = self.world.servers[self.urls[number]]
        if server.asked:
            server.serve()

    @precondition(lambda self: any(server.sent for server in self.world.servers.values()))
    @rule(number=urls, frames=st.integers(1, 4))
    def frames_arrive(self, number: int, frames: int) -> None:
        self.world.servers[self.urls[number]].deliver(frames)

    @rule(seconds=st.sampled_from([0.05, 0.2, 1.0, 4.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.timers.advance(seconds)

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
