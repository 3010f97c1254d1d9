"""What may happen to two servers and three endpoints at any time, whatever kind of proxy is between."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.unit.proxy.world import World, name_of

NAMES = [name_of(0), name_of(0, 1), name_of(1)]
names = st.sampled_from(NAMES)
urls = st.integers(0, 1)


class ServersMachine(RuleBasedStateMachine):
    """The rules that servers, links and the metadata service follow; clients and frames are the proxy's matter."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.urls = list(world.servers)

    @rule(name=names)
    def the_endpoint_changes(self, name: str) -> None:
        self.world.put(name)

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

    @rule(seconds=st.sampled_from([0.05, 0.2, 1.0, 4.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.timers.advance(seconds)
