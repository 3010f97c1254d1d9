"""Protocol Buffers as JSON, by the descriptors of a registry. Pure."""

import base64
import binascii
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format, message, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from services.data.errors import InvalidDataset

_KNOWN: Final = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
}
"""Files that every program has, so that registries have them not."""
_OWN: Final = "schema.proto"
MAX_DEPTH: Final = 32


def decoder(text: str, references: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Return the decoder for a descriptor in base64, whose references come first; raises InvalidDataset.

    Values are as in the JSON mapping of the language, with the names of fields as in the schema.
    """
    try:
        pool = descriptor_pool.DescriptorPool()
        for name, each in references.items():
            _add(pool, name, each)
        _add(pool, _OWN, text)
        types = [*pool.FindFileByName(_OWN).message_types_by_name.values()]
    except (TypeError, KeyError, binascii.Error, message.DecodeError) as error:
        remedy = "the registry must give descriptors (?format=serialized)"
        raise InvalidDataset(f"its schema cannot be used: {remedy}: {error}"[:300]) from error

    def decode(content: bytes) -> Any:  # noqa: ANN401  # any JSON value
        try:
            path, at = _indexes(content)
            found = types[path[0]]
            for index in path[1:]:
                found = found.nested_types[index]
            made = message_factory.GetMessageClass(found)()
            made.ParseFromString(content[at:])
            return json_format.MessageToDict(
                made, preserving_proto_field_name=True, always_print_fields_with_no_presence=True, descriptor_pool=pool
            )
        except (IndexError, TypeError, ValueError, message.DecodeError, json_format.Error, RecursionError) as error:
            raise InvalidDataset(f"it is no message of its schema: {error}"[:300]) from error

    return decode


def _add(pool: descriptor_pool.DescriptorPool, name: str, text: str) -> None:
    file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    file.name = name
    for needed in file.dependency:
        if needed in _KNOWN:
            known = import_module(_KNOWN[needed])
            pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())


def _indexes(content: bytes) -> tuple[list[int], int]:
    """Return the path of the message's type in its file, and where the message begins."""
    count, at = _varint(content, 0)
    if not count:
        return [0], at
    if not 0 < count <= MAX_DEPTH:
        raise ValueError("its type is nested too deep")
    path = []
    for _ in range(count):
        index, at = _varint(content, at)
        if index < 0:
            raise ValueError("its type has a negative index")
        path.append(index)
    return path, at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and the place after it."""
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 28:
            raise ValueError("a number is too long")
