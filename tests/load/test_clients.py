from pathlib import Path

import httpx

from diem.protocol.traffic import Counted, TrafficEvent, Type
from tests.load.clients import ClientPool, Plan
from tests.load.locator import Locator
from tests.load.trace import write_trace
from tests.oracle import History, Kind, judge
from tests.oracle.history import Accepted
from tests.support.patience import PATIENCE_S, until
from tests.support.small import small_system

BEGIN = 1_750_000_020_000


def trace() -> list[TrafficEvent]:
    """One client stays and changes its endpoint, one leaves, one comes."""
    types = [
        (Type.SUBSCRIBE, 0, "a", "/1"),
        (Type.SUBSCRIBE, 0, "b", "/1"),
        (Type.SUBSCRIBE, 100, "a", "/2"),
        (Type.UNSUBSCRIBE, 100, "a", "/1"),
        (Type.DISCONNECT, 150, "b", ""),
        (Type.SUBSCRIBE, 200, "c", "/1"),
    ]
    events = [
        TrafficEvent(type_, f"{'0' * 12}-{number}", BEGIN + ms, "edge", who * 16, who * 16, (name,) if name else ())
        for number, (type_, ms, who, name) in enumerate(types)
    ]
    counts = TrafficEvent(Type.COUNTS, f"{'0' * 12}-9", BEGIN + 300, "edge", since=BEGIN, until=BEGIN + 300)
    return [*events, counts._replace(updates={"/1": Counted(1, 0)})]


async def test_clients_of_a_trace_come_change_their_endpoints_and_leave(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.jsonl", iter(trace()))
    async with small_system(tmp_path) as system, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        plan = Plan(
            servers=[("127.0.0.1", system.settings.port, "/ws")],
            rest="",
            endpoints=["/1", "/2"],
            start_seconds=0.0,
            trace=tmp_path / "trace.jsonl",
        )
        pool = ClientPool(plan, http, Locator(http))
        pool.start()
        await until(lambda: pool.figures()["connected"] == 2)
        assert [client.wants for client in pool.present] == [{b"/1"}, {b"/1"}]
        await pool.play()
        await until(lambda: pool.figures()["connected"] == pool.figures()["present"] == 2)
        assert [client.wants for client in pool.present] == [{b"/2"}, {b"/1"}]
        versions = {name: system.feed.put(name) for name in ("/1", "/2")}
        pool.expected = {name.encode(): version for name, version in versions.items()}
        await until(lambda: pool.behind() == 0)
        for client in pool.present:
            client.leave()
        await until(lambda: all("close" in {event.kind for event in client.events()} for client in pool.clients))
        # Who has left is sent nothing.
        assert not any(event.kind == Kind.UPDATE for event in pool.clients[1].events())
        events = {client.name: client.events() for client in pool.clients}
        accepted = [Accepted(name, version, 0) for name, version in versions.items()]
        assert judge(History(accepted, events, max(each[-1].time for each in events.values()))).clean
