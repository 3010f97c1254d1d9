"""Endpoints of a served topic by the keys of its records, and where producers place these."""

import pytest

from diem.protocol.assignment import Clone, Owner, Snapshot, decode, encode
from diem.protocol.keys import BadKeyTemplate, KeyTemplate, encode_keys
from diem.protocol.partition_map import HEAD_KEY, Head, MapBuilder, PartitionMap, encode_head
from diem.protocol.partitioners import Partitioner


def test_crc32_is_that_of_librdkafka() -> None:
    assert Partitioner.CRC32.place(b"123456789", 1 << 32) == 0xCBF43926


@pytest.mark.parametrize(
    ("text", "template"),
    [(None, "/orders/{key}"), ("{id}", "/orders/{id}"), ("/shop/{id}/state", "/shop/{id}/state")],
)
def test_template_without_a_slash_is_below_the_name_of_the_topic(text: str | None, template: str) -> None:
    assert KeyTemplate.of("orders", text).text == template


@pytest.mark.parametrize("text", ["/orders", "/or ders/{key}", "/orders/{key}/..", "//{key}"])
def test_template_that_names_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(BadKeyTemplate, match=r"it needs a placeholder|it is no name"):
        KeyTemplate(text)


@pytest.mark.parametrize(
    ("text", "key", "endpoint"),
    [
        ("{key}", b"42", b"/orders/42"),
        ("{id}", b"42", b"/orders/42"),
        ("{id}", b'{"id":42,"shop":"a"}', b"/orders/42"),
        ("{shop}/{id}", b'{"id":42,"shop":"a"}', b"/orders/a/42"),
        ("{id}", b'{"shop":"a"}', None),
        ("{id}", b'{"id":true}', None),
        ("{key}", b"", None),
        ("{key}", b"a b", None),
        ("{key}", b"a/", None),
        ("{key}", b"\xff", None),
    ],
)
def test_key_names_the_endpoint(text: str, key: bytes, endpoint: bytes | None) -> None:
    name = KeyTemplate.of("orders", text).name(key)
    assert (name and name.endpoint) == endpoint


def test_value_with_another_member_than_the_key_is_of_another_endpoint() -> None:
    name = KeyTemplate.of("orders", "{id}").name(b"42")
    assert name is not None
    assert [name.contradicts(value) for value in ({"id": 42}, {"id": "42"}, {}, [43], {"id": 43})] == [
        *[False] * 4,
        True,
    ]


def test_owner_of_an_endpoint_is_found_by_its_key() -> None:
    keys = encode_keys(Partitioner.CRC32, KeyTemplate("/orders/{key}"))
    map_ = PartitionMap(Head(12, 1, keys=keys))
    assert map_.home(b"/orders/42") == Partitioner.CRC32.place(b"42", 12)
    builder = MapBuilder()
    builder.apply(HEAD_KEY, encode_head(map_.head))
    assert builder.map == map_
    snapshot = Snapshot(map_, {1: Clone("stable", {"b001": Owner("b001", "ws://a/ws", "ws://b/ws")}, {0: "b001"})})
    assert decode(encode(snapshot)) == snapshot


@pytest.mark.parametrize(
    ("template", "endpoint", "key"),
    [
        (KeyTemplate("/orders/{key}"), b"/orders/a/1", b"a/1"),
        (KeyTemplate("/orders/{id}", '{"id":{id}}'), b"/orders/42", b'{"id":42}'),
        (KeyTemplate("/{shop}/{id}", '{"shop":"{shop}","id":{id}}'), b"/a/42", b'{"shop":"a","id":42}'),
        (KeyTemplate("/{shop}/{id}"), b"/a/42", b"/a/42"),
        (KeyTemplate("/orders/{key}"), b"/stock/42", b"/stock/42"),
    ],
)
def test_key_of_an_endpoint_has_the_form_of_keys(template: KeyTemplate, endpoint: bytes, key: bytes) -> None:
    assert template.key(endpoint) == key
    map_ = PartitionMap(Head(12, 1, keys=encode_keys(Partitioner.MURMUR2, template)))
    assert map_.home(endpoint) == Partitioner.MURMUR2.place(key, 12)


def test_form_with_other_placeholders_than_the_template_is_refused() -> None:
    with pytest.raises(BadKeyTemplate, match="the same placeholders: id, key"):
        KeyTemplate("/orders/{key}", '{"id":{id}}')
