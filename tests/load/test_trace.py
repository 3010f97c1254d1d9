import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from diem.protocol.traffic import Counted, TrafficEvent, Type, encode
from tests.load.trace import BadTrace, Change, Trace, Visit, Write, read_trace, trace_of

BEGIN = 1_750_000_020_000
END = BEGIN + 10_000


def happened(type_: Type, second: float, client: str = "", *names: str, connection: str = "") -> TrafficEvent:
    whose, of = client.rjust(16, "0"), (connection or client).rjust(16, "0")
    happened.number += 1  # type: ignore[attr-defined]
    number = happened.number  # type: ignore[attr-defined]
    return TrafficEvent(type_, f"{'0' * 12}-{number}", BEGIN + int(second * 1000), "edge", whose, of, names)


happened.number = 0  # type: ignore[attr-defined]


def counted(updates: dict[str, int], edge: str = "edge", since: int = BEGIN, until: int = END) -> TrafficEvent:
    happened.number += 1  # type: ignore[attr-defined]
    found = TrafficEvent(Type.COUNTS, f"{'1' * 12}-{happened.number}", until, edge)  # type: ignore[attr-defined]
    return found._replace(since=since, until=until, updates={name: Counted(n, 0) for name, n in updates.items()})


def came(client: str, *names: str, second: float = 0.0, connection: str = "") -> list[TrafficEvent]:
    return [
        happened(Type.CONNECT, second, client, connection=connection),
        happened(Type.SUBSCRIBE, second, client, *names, connection=connection),
    ]


def of(*events: TrafficEvent | Sequence[TrafficEvent], batch: int = 4) -> Trace:
    flat = [event for each in events for event in ([each] if isinstance(each, TrafficEvent) else each)]
    return trace_of(flat, batch=batch)


def test_client_with_connections_to_two_servers_is_one_visit_that_ends_with_the_last_of_them() -> None:
    trace = of(
        came("a", "/1", connection="b"),
        came("a", "/2", "/3", connection="c"),
        happened(Type.DISCONNECT, 4, "a", connection="b"),
        happened(Type.DISCONNECT, 6, "a", connection="c"),
        counted({"/1": 1}),
    )
    assert trace.visits == [Visit(0.0, ("/1", "/2", "/3"), [Change(4.0, (), ("/1",))], 6.0)]


def test_what_was_before_the_counts_is_the_state_at_the_start_and_those_who_had_left_never_come() -> None:
    trace = of(
        came("a", "/1", "/2", second=-20),
        happened(Type.UNSUBSCRIBE, -10, "a", "/1"),
        came("b", "/1", second=-20),
        happened(Type.DISCONNECT, -1, "b"),
        counted({"/1": 1}),
    )
    assert trace.visits == [Visit(0.0, ("/2",))]


def test_client_that_comes_again_is_another_visit() -> None:
    trace = of(came("a", "/1"), happened(Type.DISCONNECT, 3, "a"), came("a", "/2", second=5), counted({"/1": 1}))
    assert trace.visits == [Visit(0.0, ("/1",), [], 3.0), Visit(5.0, ("/2",))]


def test_updates_that_several_processes_counted_are_written_once_and_evenly() -> None:
    trace = of(counted({"/1": 4, "/2": 2}, "server-1"), counted({"/1": 5}, "server-2"), batch=1)
    times = [write.time for write in trace.writes if write.endpoints == ("/1",)]
    assert trace.updates == 7
    assert len(times) == 5
    assert all(abs(later - earlier - 2.0) < 1e-9 for earlier, later in itertools.pairwise(times))


def test_no_write_has_an_endpoint_twice_and_none_is_lost() -> None:
    trace = of(counted({"/often": 50, **{f"/{number}": 5 for number in range(10)}}), batch=8)
    assert trace.updates == 100
    assert all(len(set(write.endpoints)) == len(write.endpoints) <= 8 for write in trace.writes)
    assert [write.time for write in trace.writes] == sorted(write.time for write in trace.writes)


def test_frames_are_those_of_the_subscriptions_at_the_time_of_each_update() -> None:
    visits = [Visit(0.0, ("/1", "/2"), [Change(5.0, ("/3",), ("/1",))]), Visit(2.0, ("/1",), [], 6.0)]
    writes = [Write(1.0, ("/1", "/2")), Write(4.0, ("/1",)), Write(5.5, ("/1", "/3", "/none")), Write(7.0, ("/1",))]
    trace = Trace(10.0, visits, writes, ["/1", "/2", "/3", "/none"], 3)
    assert trace.frames() == 2 + 2 + 2 + 0
    load = trace.load()
    assert (load.clients, load.updates, load.batch) == (1.4, 0.7, 1.75)
    assert load.frames == pytest.approx(0.6)
    # One client has two endpoints for ten seconds, the other has one for four.
    assert load.subscriptions == pytest.approx(24 / 14)


def test_file_that_is_no_trace_is_refused_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    with pytest.raises(BadTrace, match=r"trace.jsonl: No such file"):
        read_trace(path, batch=1)
    path.write_bytes(encode(counted({"/1": 1})) + b"\n{}\n")
    with pytest.raises(BadTrace, match=r"trace.jsonl, line 2: no such type"):
        read_trace(path, batch=1)
    path.write_bytes(encode(happened(Type.CONNECT, 0, "a")) + b"\n")
    with pytest.raises(BadTrace, match="it counts no updates"):
        read_trace(path, batch=1)
