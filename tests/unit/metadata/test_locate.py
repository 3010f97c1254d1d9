import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diem.protocol import endpoints
from diem.protocol.codes import ErrorCode
from diem.protocol.partitioners import partition_of
from metadata import locate
from metadata.directory import Directory
from metadata.locate import MAX_NAMES, MAX_REQUEST_BYTES, InvalidRequest, OwnerLookup
from tests.unit.metadata.snapshots import FixedLoads, a_map, clone, query, server, snapshot

ONE = snapshot(c1=clone(1, 2))
names = st.lists(st.from_regex(r"(/[a-z0-9.]{1,8}){1,3}", fullmatch=True), max_size=20)


def load(_public: str) -> int | None:
    return None


@given(names)
def test_every_name_is_answered_with_the_owner_of_its_partition_or_rejected(requested: list[str]) -> None:
    answer = locate.answer(locate.parse(orjson.dumps({"endpoints": requested})), ONE, 1, [])
    assert set(answer["endpoints"]) | set(answer["rejected"]) == set(requested)
    for name, owner in answer["endpoints"].items():
        assert owner == {"owner": server(1 + partition_of(name.encode(), 4) % 2).public}
    assert all(not endpoints.is_valid(name) for name in answer["rejected"])


def test_a_hot_endpoint_has_no_owner_but_a_flag() -> None:
    assert locate.answer(query("/hot"), ONE, 1, [])["endpoints"] == {"/hot": {"owner": None, "hot": True}}


def test_the_owner_of_an_unassigned_partition_is_null() -> None:
    none = snapshot(c1=clone(1)._replace(owners={}))
    assert locate.answer(query("/a"), none, 1, [])["endpoints"] == {"/a": {"owner": None}}


def test_an_answer_has_no_internal_urls() -> None:
    assert b"internal" not in orjson.dumps(locate.answer(query("/a", "/b", "/c"), ONE, 1, [server(1).public]))


def test_invalid_names_are_rejected_and_the_others_answered() -> None:
    answer = locate.answer(locate.parse(b'{"endpoints":["bad","/good","/../x"]}'), ONE, 1, [])
    assert list(answer["endpoints"]) == ["/good"]
    assert {name: each["code"] for name, each in answer["rejected"].items()} == {"bad": "bad_name", "/../x": "bad_name"}


def test_a_query_of_the_longest_names_is_within_the_size_limit() -> None:
    longest = [f"/{number:0{endpoints.MAX_NAME_BYTES - 1}d}" for number in range(MAX_NAMES)]
    body = orjson.dumps({"endpoints": longest, "clone": 12})
    assert len(body) <= MAX_REQUEST_BYTES
    assert locate.parse(body).names == longest


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
def test_an_invalid_query_is_refused_with_its_code(body: bytes, code: ErrorCode) -> None:
    with pytest.raises(InvalidRequest) as raised:
        locate.parse(body)
    assert raised.value.code is code
    assert str(raised.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_a_query_or_an_invalid_request(body: Any) -> None:
    try:
        parsed = locate.parse(orjson.dumps({"endpoints": body}, option=orjson.OPT_NON_STR_KEYS))
    except (InvalidRequest, TypeError):
        return
    assert set(parsed.names) | set(parsed.rejected) <= set(body)
    assert parsed.name_count == len(set(body))


def test_of_many_invalid_names_the_answer_lists_the_first_and_counts_the_rest() -> None:
    """With all of them listed, the answer was 27 times as long as the request, and took 44 times as much memory."""
    data = orjson.dumps({"endpoints": ["/a", *(f"a{number}" for number in range(999))]})
    parsed = locate.parse(data)
    answer = locate.answer(parsed, snapshot(c1=clone(1)), 1, [])
    assert len(answer["rejected"]) == 100
    assert answer["more_rejected"] == 899
    assert {why["code"] for why in answer["rejected"].values()} == {"bad_name"}
    assert list(answer["endpoints"]) == ["/a"]
    assert len(orjson.dumps(answer)) < len(data)
    assert parsed.name_count == 1000


def test_a_few_invalid_names_are_all_listed() -> None:
    answer = locate.answer(locate.parse(b'{"endpoints":["a","/..","/b"]}'), snapshot(c1=clone(1)), 1, [])
    assert set(answer["rejected"]) == {"a", "/.."}
    assert "more_rejected" not in answer


def test_a_client_stays_with_its_clone() -> None:
    two = snapshot(c1=clone(1), c2=clone(2))
    loads = FixedLoads(s1=0, s2=100)
    assert all(locate.choose_clone(two, 2, loads.of, random.Random(seed)) == 2 for seed in range(20))


@pytest.mark.parametrize("current", [None, 7, 0, -1, 3])
def test_a_client_without_a_usable_clone_gets_the_one_with_the_fewest_clients(current: int | None) -> None:
    three = snapshot(c1=clone(1, 2), c2=clone(3), c3=clone())
    loads = FixedLoads(s1=5, s2=5, s3=9)
    assert locate.choose_clone(three, current, loads.of, random.Random(1)) == 2


def test_ties_between_clones_are_broken_at_random() -> None:
    two = snapshot(c1=clone(1, 2), c2=clone(3))
    assert {locate.choose_clone(two, None, load, random.Random(seed)) for seed in range(20)} == {1, 2}


def test_a_clone_with_a_server_of_unknown_load_comes_last() -> None:
    two = snapshot(c1=clone(1, 2), c2=clone(3))
    assert locate.choose_clone(two, None, FixedLoads(s1=0, s3=50).of, random.Random(1)) == 2


def test_servers_are_sorted_by_load_with_unknown_loads_last() -> None:
    four = snapshot(c1=clone(1, 2, 3, 4))
    listed = locate.sort_servers(four, 1, FixedLoads(s1=7, s3=0, s4=3).of, random.Random(1))
    assert listed == [server(number).public for number in (3, 4, 1, 2)]


def test_new_clients_are_balanced_between_two_polls_of_the_servers() -> None:
    directory = Directory([1, 2])
    directory.update_map(a_map())
    directory.update_group(1, clone(1), 0, 0.0)
    directory.update_group(2, clone(2), 0, 0.0)
    owners = OwnerLookup(directory, FixedLoads(s1=0, s2=0), random.Random(1))
    chosen = [(owners.locate(query("/a")) or {})["clone"] for _ in range(100)]
    assert chosen.count(1) == 50


def test_instances_agree_on_owners_whatever_loads_they_know() -> None:
    one = locate.answer(
        query("/a", "/b", clone=1), ONE, 1, locate.sort_servers(ONE, 1, FixedLoads(s1=9, s2=0).of, random.Random(1))
    )
    other = locate.answer(query("/a", "/b", clone=1), ONE, 1, locate.sort_servers(ONE, 1, load, random.Random(2)))
    assert one["endpoints"] == other["endpoints"]
    assert sorted(one["servers"]) == sorted(other["servers"])


def test_without_a_snapshot_there_is_no_answer() -> None:
    assert OwnerLookup(Directory([1]), FixedLoads(), random.Random(1)).locate(query("/a")) is None
