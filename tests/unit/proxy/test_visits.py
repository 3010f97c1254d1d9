"""What proxies write down of their clients: which names somebody has published, as far as servers said."""

from collections.abc import Collection, Sequence

from diem.fanout.session import DeliveryStats, Session
from proxy import passthrough
from tests.unit.proxy.world import Server, World, name_of

A, B, INVENTED = name_of(0), name_of(0, 1), name_of(1)


class Visit:
    def __init__(self) -> None:
        self.said: list[tuple[list[bytes], list[bytes]]] = []

    def subscribed(self, endpoints: Sequence[bytes], unknown: Collection[bytes] = ()) -> None:
        self.said.append((sorted(endpoints), sorted(unknown)))

    def unsubscribed(self, endpoints: Sequence[bytes]) -> None:
        self.said.append((sorted(endpoints), []))

    def ended(self) -> None:
        """Of no interest here."""


def run(server: Server) -> None:
    while server.asked or server.sent:
        while server.asked:
            server.serve()
        server.deliver(5)


def test_shared_proxy_believes_the_version_of_a_server_before_its_update_has_come() -> None:
    world, visit = World().start(), Visit()
    world.put(A)
    client, server = world.client(), world.server_of(A)
    client.session.trace = visit
    client.subscribe(A, B)
    server.serve()
    server.deliver()
    assert world.shared.relay.version(A) is None
    assert visit.said == [([A.encode(), B.encode()], [B.encode()])]
    run(server)
    second = world.client()
    second.session.trace = again = Visit()
    second.subscribe(A)
    assert again.said == [([A.encode()], [])]


def test_shared_proxy_forgets_what_nobody_wants() -> None:
    world = World().start()
    world.put(A)
    client = world.client()
    client.subscribe(A)
    run(world.server_of(A))
    assert world.shared.relay.has_version(A.encode())
    client.unsubscribe(A)
    assert not world.shared.relay.has_version(A.encode())


def test_passthrough_proxy_writes_down_what_servers_answered() -> None:
    session, visit = Session(lambda _: None, lambda _: None, DeliveryStats()), Visit()
    session.trace = visit
    passthrough.trace_subscribed(session, {A: 7, INVENTED: None})
    passthrough.trace_subscribed(session, {A: None, B: 0})
    assert visit.said == [
        (sorted([A.encode(), INVENTED.encode()]), [INVENTED.encode()]),
        ([B.encode()], []),
    ]
