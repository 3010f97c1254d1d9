"""Avro as JSON, by fastavro. Pure."""

import base64
import io
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import fastavro
import orjson

from services.data.errors import InvalidDataset

_NO_JSON: Final = ('"bytes"', '"fixed"', '"logicalType"')
"""Texts of schemas whose values have other types than JSON."""


def decoder(text: str, references: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Return the decoder for a schema, whose references come first; raises InvalidDataset.

    Bytes become base64, decimals text, and dates and times ISO 8601, in UTC unless they are local.
    """
    named: dict[str, Any] = {}
    try:
        for each in references.values():
            fastavro.parse_schema(orjson.loads(each), named_schemas=named)
        schema = fastavro.parse_schema(orjson.loads(text), named_schemas=named)
    except Exception as error:
        # Of several types, whatever is wrong with a schema.
        raise InvalidDataset(f"its schema cannot be used: {type(error).__name__}: {error}"[:300]) from error
    converts = any(mark in each for mark in _NO_JSON for each in (text, *references.values()))

    def decode(content: bytes) -> Any:  # noqa: ANN401  # any JSON value
        stream = io.BytesIO(content)
        try:
            value = fastavro.schemaless_reader(stream, schema, None)
        except Exception as error:
            # EOFError, IndexError, UnicodeDecodeError, ...
            raise InvalidDataset(f"it is no Avro of its schema: {type(error).__name__}: {error}"[:300]) from error
        if stream.tell() < len(content):
            raise InvalidDataset("it is no Avro of its schema: it is longer")
        return _plain(value) if converts else value

    return decode


def _plain(value: Any) -> Any:  # noqa: ANN401, PLR0911  # a case for each type
    match value:
        case str() | int() | float() | None:
            return value
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list():
            return [_plain(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            if value.tzinfo is None:
                return value.isoformat()
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case UUID():
            return str(value)
    raise InvalidDataset(f"it has a value of the type {type(value).__name__}, which JSON does not have")
