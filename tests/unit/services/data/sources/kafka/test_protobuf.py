"""Protocol Buffers as JSON."""

import base64
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from services.data.errors import InvalidDataset
from services.data.sources.kafka.protobuf import decoder

STRING, INT64, MESSAGE = 9, 3, 11


def file(
    name: str, message: str, *fields: tuple[str, int, str], needs: tuple[str, ...] = ()
) -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto(name=name, package="p", syntax="proto3", dependency=needs)
    made.message_type.add(name="Other")
    outer = made.message_type.add(name=message)
    for number, (field, kind, of) in enumerate(fields, start=1):
        outer.field.add(name=field, number=number, type=kind, type_name=of or None, label=1)
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="text", number=1, type=STRING, label=1)
    return made


PLACE = file("place.proto", "Place", ("city", STRING, ""))
ORDER = file(
    "order.proto",
    "Order",
    ("order_id", INT64, ""),
    ("place", MESSAGE, ".p.Place"),
    ("changed", MESSAGE, ".google.protobuf.Timestamp"),
    needs=("place.proto", "google/protobuf/timestamp.proto"),
)
# Two files of one package may not have the same type.
del PLACE.message_type[0]


def text(made: descriptor_pb2.FileDescriptorProto) -> str:
    return base64.b64encode(made.SerializeToString()).decode()


def written(of: str = "p.Order") -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(PLACE)
    pool.Add(ORDER)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(of))


def test_a_message_is_json_with_the_names_of_its_schema() -> None:
    made = written()(order_id=7, place={"city": "Athens"}, changed={"seconds": 1_767_225_600})
    decode = decoder(text(ORDER), {"place.proto": text(PLACE)})
    # Of the second type in the file: one index, 1 in zigzag encoding.
    found = decode(b"\x02\x02" + made.SerializeToString())
    assert found == {"order_id": "7", "place": {"city": "Athens"}, "changed": "2026-01-01T00:00:00Z"}


def test_fields_without_a_value_have_their_default() -> None:
    assert decoder(text(ORDER), {"place.proto": text(PLACE)})(b"\x02\x02") == {"order_id": "0"}


def test_the_type_may_be_nested_or_the_first_one() -> None:
    decode = decoder(text(ORDER), {"place.proto": text(PLACE)})
    inner = written("p.Order.Inner")(text="x")
    assert decode(b"\x04\x02\x00" + inner.SerializeToString()) == {"text": "x"}
    assert decode(b"\x00") == {}


@pytest.mark.parametrize("content", [b"", b"\x02", b"\x02\x08", b"\x02\x01", b"\x02\x02\xff", b"\xff" * 9, b"\x7e"])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidDataset, match="it is no message of its schema"):
        decoder(text(ORDER), {"place.proto": text(PLACE)})(content)


@pytest.mark.parametrize("schema", ['syntax = "proto3";', text(ORDER)])
def test_a_schema_that_is_no_whole_descriptor_is_a_fault_of_its_records(schema: str) -> None:
    with pytest.raises(InvalidDataset, match="its schema cannot be used"):
        decoder(schema, {})
