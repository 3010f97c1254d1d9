"""Questions, and the answers that a snapshot gives."""

import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol import endpoints
from diem.protocol.codes import ErrorCode
from diem.protocol.partition_map import partition_of
from metadata import locate
from metadata.directory import Directory
from metadata.locate import MAX_NAMES, MAX_REQUEST_BYTES, InvalidRequest, OwnerLookup
from tests.unit.metadata.made import Said, a_map, asking, clone, server, snapshot

ONE = snapshot(c1=clone(1, 2))
names = st.lists(st.from_regex(r"(/[a-z0-9.]{1,8}){1,3}", fullmatch=True), max_size=20)


def load(_public: str) -> int | None:
    return None


@given(names)
def test_every_name_is_answered_by_the_owner_of_its_partition_or_rejected(asked: list[str]) -> None:
    query = locate.parse(orjson.dumps({"endpoints": asked}))
    answer = locate.answer(query, ONE, 1, [])
    assert set(answer["endpoints"]) | set(answer["rejected"]) == set(asked)
    for name, place in answer["endpoints"].items():
        assert place == {"owner": server(1 + partition_of(name.encode(), 4) % 2).public}
    assert all(not endpoints.is_valid(name) for name in answer["rejected"])


def test_a_hot_endpoint_has_no_owner_and_says_so() -> None:
    assert locate.answer(asking("/hot"), ONE, 1, [])["endpoints"] == {"/hot": {"owner": None, "hot": True}}


def test_a_partition_that_nobody_has_has_no_owner() -> None:
    none = snapshot(c1=clone(1)._replace(owners={}))
    assert locate.answer(asking("/a"), none, 1, [])["endpoints"] == {"/a": {"owner": None}}


def test_an_answer_has_no_internal_url() -> None:
    assert b"internal" not in orjson.dumps(locate.answer(asking("/a", "/b", "/c"), ONE, 1, [server(1).public]))


def test_a_bad_name_is_rejected_and_the_rest_is_answered() -> None:
    query = locate.parse(b'{"endpoints":["bad","/good","/../x"]}')
    answer = locate.answer(query, ONE, 1, [])
    assert list(answer["endpoints"]) == ["/good"]
    assert {name: each["code"] for name, each in answer["rejected"].items()} == {"bad": "bad_name", "/../x": "bad_name"}


def test_as_many_names_as_are_allowed_fit_into_a_question() -> None:
    most = [f"/{number:0{endpoints.MAX_NAME_BYTES - 1}d}" for number in range(MAX_NAMES)]
    body = orjson.dumps({"endpoints": most, "clone": 12})
    assert len(body) <= MAX_REQUEST_BYTES
    assert locate.parse(body).names == most


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ErrorCode.BAD_JSON),
        (b"{", ErrorCode.BAD_JSON),
        (b"\xff", ErrorCode.BAD_JSON),
        (b"[]", ErrorCode.BAD_MESSAGE),
        (b"{}", ErrorCode.BAD_MESSAGE),
        (b'{"endpoints":{}}', ErrorCode.BAD_MESSAGE),
        (b'{"endpoints":[1]}', ErrorCode.BAD_MESSAGE),
        (b'{"endpoints":[],"clone":"1"}', ErrorCode.BAD_MESSAGE),
        (b'{"endpoints":[],"clone":true}', ErrorCode.BAD_MESSAGE),
        (b'{"endpoints":[],"clone":1.0}', ErrorCode.BAD_MESSAGE),
        (b'{"endpoints":[],"other":1}', ErrorCode.BAD_MESSAGE),
        (orjson.dumps({"endpoints": ["/a"] * (MAX_NAMES + 1)}), ErrorCode.TOO_MANY),
    ],
)
def test_each_bad_question_has_one_code(body: bytes, code: ErrorCode) -> None:
    with pytest.raises(InvalidRequest) as raised:
        locate.parse(body)
    assert raised.value.code is code
    assert str(raised.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_whatever_is_asked_is_a_question_or_a_bad_one(body: Any) -> None:
    try:
        query = locate.parse(orjson.dumps({"endpoints": body}, option=orjson.OPT_NON_STR_KEYS))
    except (InvalidRequest, TypeError):
        return
    assert set(query.names) | set(query.rejected) <= set(body)
    assert query.name_count == len(set(body))


def test_many_names_that_are_no_endpoints_are_answered_in_short() -> None:
    """The answer used to be 27 times as long as the request, and to hold 44 times as much."""
    data = orjson.dumps({"endpoints": ["/a", *(f"a{number}" for number in range(999))]})
    query = locate.parse(data)
    answer = locate.answer(query, snapshot(c1=clone(1)), 1, [])
    assert len(answer["rejected"]) == 100
    assert answer["more_rejected"] == 899
    assert {why["code"] for why in answer["rejected"].values()} == {"bad_name"}
    assert list(answer["endpoints"]) == ["/a"]
    assert len(orjson.dumps(answer)) < len(data)
    assert query.name_count == 1000


def test_a_few_names_that_are_no_endpoints_are_all_told() -> None:
    answer = locate.answer(locate.parse(b'{"endpoints":["a","/..","/b"]}'), snapshot(c1=clone(1)), 1, [])
    assert set(answer["rejected"]) == {"a", "/.."}
    assert "more_rejected" not in answer


def test_a_client_stays_with_its_clone() -> None:
    two = snapshot(c1=clone(1), c2=clone(2))
    said = Said(s1=0, s2=100)
    assert all(locate.choose(two, 2, said.of, random.Random(seed)) == 2 for seed in range(20))


@pytest.mark.parametrize("wanted", [None, 7, 0, -1, 3])
def test_who_has_no_clone_gets_the_one_with_the_fewest_clients(wanted: int | None) -> None:
    three = snapshot(c1=clone(1, 2), c2=clone(3), c3=clone())
    said = Said(s1=5, s2=5, s3=9)
    assert locate.choose(three, wanted, said.of, random.Random(1)) == 2


def test_among_equals_chance_decides() -> None:
    two = snapshot(c1=clone(1, 2), c2=clone(3))
    assert {locate.choose(two, None, load, random.Random(seed)) for seed in range(20)} == {1, 2}


def test_a_clone_with_a_server_that_says_nothing_comes_last() -> None:
    two = snapshot(c1=clone(1, 2), c2=clone(3))
    assert locate.choose(two, None, Said(s1=0, s3=50).of, random.Random(1)) == 2


def test_servers_are_listed_by_their_clients_and_the_silent_ones_last() -> None:
    four = snapshot(c1=clone(1, 2, 3, 4))
    listed = locate.servers(four, 1, Said(s1=7, s3=0, s4=3).of, random.Random(1))
    assert listed == [server(number).public for number in (3, 4, 1, 2)]


def test_new_clients_are_shared_out_between_two_looks_at_the_servers() -> None:
    directory = Directory([1, 2])
    directory.update_map(a_map())
    directory.update_group(1, clone(1), 0, 0.0)
    directory.update_group(2, clone(2), 0, 0.0)
    answers = OwnerLookup(directory, Said(s1=0, s2=0), random.Random(1))
    chosen = [(answers.locate(asking("/a")) or {})["clone"] for _ in range(100)]
    assert chosen.count(1) == 50


def test_instances_agree_on_owners_whatever_they_know_of_clients() -> None:
    one = locate.answer(
        asking("/a", "/b", clone=1), ONE, 1, locate.servers(ONE, 1, Said(s1=9, s2=0).of, random.Random(1))
    )
    other = locate.answer(asking("/a", "/b", clone=1), ONE, 1, locate.servers(ONE, 1, load, random.Random(2)))
    assert one["endpoints"] == other["endpoints"]
    assert sorted(one["servers"]) == sorted(other["servers"])


def test_there_is_no_answer_before_there_is_a_snapshot() -> None:
    assert OwnerLookup(Directory([1]), Said(), random.Random(1)).locate(asking("/a")) is None
