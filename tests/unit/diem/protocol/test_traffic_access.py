"""Events of type ``access``: what is written is read again, and nothing else is."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol.traffic import MAX_ACCESSED, Accessed, BadEvent, TrafficEvent, Type, decode, encode

FIRST, SECOND = Accessed("abcd1234", "free", "/dam/prices/GR", 40, 2), Accessed("", "anonymous", "", 7, 0)
EVENT = TrafficEvent(Type.ACCESS, "0123456789ab-7", 60_000, "data", since=0, until=60_000, requests=(FIRST, SECOND))

keys = st.from_regex(r"\A([a-z0-9]{8})?\Z")
plans = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,31}\Z")
endpoints = st.from_regex(r"\A(/[a-z0-9_-]{1,9}){0,3}\Z")
counts = st.integers(0, 2**53 - 1)


def changed(**fields: object) -> bytes:
    return orjson.dumps({**orjson.loads(encode(EVENT)), **fields})


def test_the_text_of_an_event_is_what_the_documentation_says() -> None:
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
        decode(changed(**fields))


@pytest.mark.parametrize("name", ["since", "until", "requests"])
def test_a_missing_field_is_named(name: str) -> None:
    fields = orjson.loads(encode(EVENT))
    del fields[name]
    with pytest.raises(BadEvent, match=f"access: missing fields: {name}$"):
        decode(orjson.dumps(fields))
