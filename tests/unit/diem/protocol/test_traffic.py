"""Traffic events: encoded events are decoded unchanged, anything else is refused."""

import json
import re

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.traffic import (
    CANONICAL,
    MAX_ACCESSED,
    MAX_COUNTED,
    MAX_EVENT_BYTES,
    Accessed,
    BadEvent,
    Counted,
    TrafficEvent,
    Type,
    decode,
    encode,
)

ID, EDGE, CLIENT, CONNECTION = "0123456789ab-7", "websocket-1", "0f" * 8, "1e" * 8
SUBSCRIBED = TrafficEvent(Type.SUBSCRIBE, ID, 1_700_000_000_000, EDGE, CLIENT, CONNECTION, ("/a", "/b/c"))
COUNTED = TrafficEvent(
    Type.COUNTS, ID, 60_000, EDGE, since=0, until=60_000, updates={"/a": Counted(3, 40), "/b": Counted(1, 0)}
)


def changed(event: TrafficEvent, **fields: object) -> bytes:
    return orjson.dumps({**orjson.loads(encode(event)), **fields})


def test_an_event_is_encoded_as_documented() -> None:
    assert orjson.loads(encode(SUBSCRIBED)) == {
        "type": "subscribe",
        "id": ID,
        "time": 1_700_000_000_000,
        "edge": EDGE,
        "client": CLIENT,
        "connection": CONNECTION,
        "endpoints": ["/a", "/b/c"],
    }
    assert orjson.loads(encode(COUNTED)) == {
        "type": "counts",
        "id": ID,
        "time": 60_000,
        "edge": EDGE,
        "since": 0,
        "until": 60_000,
        "updates": {"/a": [3, 40], "/b": [1, 0]},
    }


def test_optional_fields_are_omitted_when_empty() -> None:
    shared = SUBSCRIBED._replace(unknown=("/b/c",), sharers=3)
    assert orjson.loads(encode(shared)) == orjson.loads(encode(SUBSCRIBED)) | {"unknown": [1], "sharers": 3}
    assert decode(encode(shared)) == shared


@pytest.mark.parametrize("unknown", [None, {}, "a", [2], [-1], [0.0], ["/a"], [True]])
def test_places_of_unknown_names_are_places(unknown: object) -> None:
    with pytest.raises(BadEvent, match="unknown"):
        decode(changed(SUBSCRIBED, unknown=unknown))
    unsubscribed = SUBSCRIBED._replace(type=Type.UNSUBSCRIBE)
    assert decode(changed(unsubscribed, unknown=unknown)) == unsubscribed


@pytest.mark.parametrize("sharers", [None, 0, -1, 1.5, "2", True, 2**53])
def test_who_shares_an_address_is_counted(sharers: object) -> None:
    with pytest.raises(BadEvent, match="sharers"):
        decode(changed(SUBSCRIBED, sharers=sharers))


names = st.lists(st.from_regex(r"\A(/[a-z0-9_-]{1,9}){1,3}\Z"), min_size=1, max_size=8, unique=True)
times = st.integers(0, 2**53 - 2)


@given(st.sampled_from([Type.SUBSCRIBE, Type.UNSUBSCRIBE]), times, names)
def test_subscriptions_are_read_as_they_were_written(type_: Type, time: int, endpoints: list[str]) -> None:
    event = SUBSCRIBED._replace(type=type_, time=time, endpoints=tuple(endpoints))
    assert decode(encode(event)) == event


@given(times, names, st.integers(0, 2**53 - 1))
def test_counts_are_read_as_they_were_written(since: int, endpoints: list[str], received: int) -> None:
    updates = {name: Counted(received, number) for number, name in enumerate(endpoints)}
    event = COUNTED._replace(since=since, until=since + 1, updates=updates)
    assert decode(encode(event)) == event


@pytest.mark.parametrize("type_", [Type.CONNECT, Type.DISCONNECT])
def test_coming_and_going_have_no_endpoints(type_: Type) -> None:
    event = SUBSCRIBED._replace(type=type_, endpoints=())
    assert decode(encode(event)) == event


@pytest.mark.parametrize("event", [SUBSCRIBED, SUBSCRIBED._replace(type=Type.CONNECT, endpoints=()), COUNTED])
def test_unknown_fields_of_a_newer_process_are_ignored(event: TrafficEvent) -> None:
    assert decode(changed(event, more={"/a": [None]})) == event


def test_fields_of_another_type_are_passed_over() -> None:
    connected = SUBSCRIBED._replace(type=Type.CONNECT, endpoints=())
    assert decode(changed(connected, endpoints=["no name"])) == connected
    assert decode(changed(COUNTED, client="me@example.com")) == COUNTED


@pytest.mark.parametrize("event", [SUBSCRIBED, COUNTED])
def test_an_event_without_one_of_its_fields_is_refused_with_the_name_of_it(event: TrafficEvent) -> None:
    fields = orjson.loads(encode(event))
    for name in fields.keys() - {"type"}:
        with pytest.raises(BadEvent, match=f"{event.type}: missing fields: {name}$"):
            decode(orjson.dumps({key: value for key, value in fields.items() if key != name}))


def test_counts_of_nothing_are_a_sign_of_life() -> None:
    assert decode(encode(COUNTED._replace(updates={}))).updates == {}


def test_an_id_contains_the_incarnation() -> None:
    assert SUBSCRIBED.incarnation == "0123456789ab"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (encode(SUBSCRIBED)[:-1], "not JSON"),
        (b"[1]", "a JSON object"),
        (b"{}", "no such type"),
        (changed(SUBSCRIBED, type=["subscribe"]), "no such type"),
        (changed(SUBSCRIBED, type="resubscribe"), "no such type"),
        (changed(SUBSCRIBED, id="0123456789ab"), "id"),
        (changed(SUBSCRIBED, id=7), "id"),
        (changed(SUBSCRIBED, edge="../x"), "edge"),
        (changed(SUBSCRIBED, time=1.5), "time"),
        (changed(SUBSCRIBED, time=True), "time"),
        (changed(SUBSCRIBED, time=-1), "time"),
        (changed(SUBSCRIBED, client="me@example.com"), "client"),
        (changed(SUBSCRIBED, connection=CONNECTION[1:]), "connection"),
        (changed(SUBSCRIBED, endpoints=[]), "endpoints"),
        (changed(SUBSCRIBED, endpoints="/a"), "endpoints"),
        (changed(SUBSCRIBED, endpoints=["/a"] * 101), "endpoints"),
        (changed(SUBSCRIBED, endpoints=["a"]), "not an endpoint"),
        (changed(SUBSCRIBED, endpoints=[{}]), "not an endpoint"),
        (changed(COUNTED, since=60_000), "until is not after"),
        (changed(COUNTED, updates=[]), "updates"),
        (changed(COUNTED, updates={f"/{n}": [1, 1] for n in range(201)}), "updates"),
        (changed(COUNTED, updates={"": [1, 1]}), "not an endpoint"),
        (changed(COUNTED, updates={"/a": [1]}), "two counts"),
        (changed(COUNTED, updates={"/a": [1, -1]}), "two counts"),
        (b" " * MAX_EVENT_BYTES + encode(SUBSCRIBED), "longer than"),
    ],
)
def test_whatever_else_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadEvent, match=reason):
        decode(data)


def test_the_longest_event_is_not_too_long() -> None:
    updates = {f"/{n:0255}": Counted(2**53 - 1, 2**53 - 1) for n in range(MAX_COUNTED)}
    event = COUNTED._replace(updates=updates, edge="e" * 64)
    assert decode(encode(event)) == event


FIRST, SECOND = Accessed("abcd1234", "free", "/dam/prices/GR", 40, 2), Accessed("", "anonymous", "", 7, 0)
EVENT = TrafficEvent(Type.ACCESS, "0123456789ab-7", 60_000, "data", since=0, until=60_000, requests=(FIRST, SECOND))

keys = st.from_regex(r"\A([a-z0-9]{8})?\Z")
plans = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z")
endpoints = st.from_regex(r"\A(/[a-z0-9_-]{1,9}){0,3}\Z")
counts = st.integers(0, 2**53 - 1)


def changed_access(**fields: object) -> bytes:
    return orjson.dumps({**orjson.loads(encode(EVENT)), **fields})


def test_an_access_event_is_encoded_as_documented() -> None:
    assert orjson.loads(encode(EVENT)) == {
        "type": "access",
        "id": "0123456789ab-7",
        "time": 60_000,
        "edge": "data",
        "since": 0,
        "until": 60_000,
        "requests": [["abcd1234", "free", "/dam/prices/GR", 40, 2], ["", "anonymous", "", 7, 0]],
    }


@given(st.lists(st.builds(Accessed, keys, plans, endpoints, counts, counts), min_size=1, max_size=5))
def test_requests_are_read_as_they_were_written(requests: list[Accessed]) -> None:
    event = EVENT._replace(requests=tuple(requests))
    assert decode(encode(event)) == event


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"until": 0}, "until is not after since"),
        ({"requests": []}, "requests: not 1 to 150"),
        ({"requests": {}}, "requests: not 1 to 150"),
        ({"requests": [[*FIRST]] * (MAX_ACCESSED + 1)}, "requests: not 1 to 150"),
        ({"requests": [[*FIRST][:4]]}, "requests: "),
        ({"requests": ["x"]}, "requests: 'x'"),
        ({"requests": [[*FIRST._replace(key="a secret")]]}, "key: 'a secret'"),
        ({"requests": [[*FIRST._replace(plan="")]]}, "plan: ''"),
        ({"requests": [[*FIRST._replace(endpoint="x")]]}, "not an endpoint: 'x'"),
        ({"requests": [["", "free", 0, 1, 1]]}, "not an endpoint: '0'"),
        ({"requests": [["", "free", None, 1, 1]]}, "not an endpoint: 'None'"),
        ({"requests": [[*FIRST._replace(answered=-1)]]}, "answered: '-1'"),
        ({"requests": [["", "free", "", 1, True]]}, "refused: 'True'"),
    ],
)
def test_what_is_no_event_is_refused_with_its_reason(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(BadEvent, match=reason):
        decode(changed_access(**fields))


@pytest.mark.parametrize("name", ["since", "until", "requests"])
def test_a_missing_field_is_named(name: str) -> None:
    fields = orjson.loads(encode(EVENT))
    del fields[name]
    with pytest.raises(BadEvent, match=f"access: missing fields: {name}$"):
        decode(orjson.dumps(fields))


CANONICAL_LINE = re.compile(CANONICAL)
RECORDED = [
    SUBSCRIBED._replace(unknown=("/a", "/b/c"), sharers=30),
    SUBSCRIBED._replace(type=Type.UNSUBSCRIBE),
    SUBSCRIBED._replace(type=Type.CONNECT, endpoints=()),
    SUBSCRIBED._replace(type=Type.DISCONNECT, endpoints=(), sharers=2),
    COUNTED,
    COUNTED._replace(updates={}),
    COUNTED._replace(updates={f"/{'n' * 250}{n:05}": Counted(10**14, n) for n in range(MAX_COUNTED)}),
]


@pytest.mark.parametrize("number", range(len(RECORDED)))
def test_lines_are_written_in_the_canonical_form(number: int) -> None:
    line = encode(RECORDED[number]).decode()
    assert CANONICAL_LINE.fullmatch(line)
    assert not any(CANONICAL_LINE.fullmatch(odd) for odd in (f"{line}\n", f" {line}", line.replace(",", ", ")))


@pytest.mark.parametrize("name", ["/a/..", "/.", "/.a", "/" + "a" * 256, "/a//", "a", "/a//b", "/\u00e4", r"/\u0061"])
def test_a_canonical_line_has_valid_endpoints_only(name: str) -> None:
    for event in (SUBSCRIBED, COUNTED):
        assert not CANONICAL_LINE.fullmatch(encode(event).decode().replace('"/a"', f'"{name}"'))


@given(st.sampled_from(RECORDED), st.data())
def test_canonical_lines_are_events_with_the_fields_that_json_gives(event: TrafficEvent, data: st.DataObject) -> None:
    line = encode(event).decode()
    at, length = data.draw(st.integers(0, len(line))), data.draw(st.integers(0, 3))
    other = data.draw(st.sampled_from(["", "0", "1", ".", "/", "a", "A", '"', ",", "}", "-", "1e1", '"/a":[1,1],']))
    line = line[:at] + other + line[at + length :]
    if CANONICAL_LINE.fullmatch(line) is None:
        return
    found = json.loads(line)
    try:
        assert json.loads(encode(decode(line))) == found
    except BadEvent as error:
        is_outside = max(found.get("unknown", [0])) >= len(found.get("endpoints", [0]))
        assert is_outside if "unknown" in str(error) else found["since"] >= found["until"], line
