"""Finds the keys of ``[[source]]`` for a topic in a sample of its records. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from diem.protocol import endpoints
from services.data.errors import DataError
from services.data.sources.kafka.formats import HEAD_BYTES, PLAIN

_IDS: Final = ("id", "uuid", "key", "code", "name", "symbol")
"""Usual names of members that identify a document, in the order of preference."""
_FORMATS: Final = ("json", "text", "bytes")


class TopicSample(NamedTuple):
    """A record of a topic."""

    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]


class TopicSuggestion(NamedTuple):
    """What a sample shows.

    Attributes:
        fields: of the source, without its name and its connection. notes: what they follow from. unsure: what the
        sample does not prove. problem: why there is no suggestion; empty if there is one.
    """

    fields: dict[str, Any]
    notes: Sequence[str] = ()
    unsure: Sequence[str] = ()
    problem: str = ""


class _Found:
    """Fields, notes and open questions, as they are found."""

    def __init__(self) -> None:
        self.fields: dict[str, Any] = {}
        self.notes: list[str] = []
        self.unsure: list[str] = []

    def set(self, key: str, value: str, reason: str) -> None:
        self.fields[key] = value
        self.notes.append(f"{key}: {reason}")


def suggest(topic: str, samples: Sequence[TopicSample], known: Mapping[str, str]) -> TopicSuggestion:
    """Return the fields for a topic; those ``known`` are taken as they are."""
    texts = [each.value for each in samples if each.value is not None]
    if not texts:
        return TopicSuggestion({}, problem="the topic has no record with a value yet")
    found = _Found()
    kind = known.get("format") or _format(texts)
    if kind == "avro" and "registry" not in known:
        return TopicSuggestion(
            {}, problem="its values have the ids of schemas: give the registry with --set registry=URL"
        )
    if kind != "json":
        found.set("format", kind, "the values are no JSON" if kind in PLAIN else "the values have ids of schemas")
    if kind in {"text", "bytes"}:
        found.fields["kind"] = "bytes"
        found.fields["media_type"] = "text/plain" if kind == "text" else "application/octet-stream"
    values = [PLAIN["json"].decode(text) for text in texts] if kind == "json" else []
    _envelope(found, samples, values)
    _endpoint(found, topic, [each.key for each in samples], [*map(_payload, values)], kind)
    if (gone := len(samples) - len(texts)) > 0:
        found.notes.append(f"{gone} of {len(samples)} records have no value: they end their endpoints")
    fields = {**found.fields, **known}
    problem = "" if "endpoint" in fields else "no key and no member names the records: give --set endpoint=/name/{...}"
    return TopicSuggestion(fields, found.notes, found.unsure, problem)


def _format(texts: Sequence[bytes]) -> str:
    for kind in _FORMATS:
        if kind == "text" and all(text[:1] == b"\0" and len(text) >= HEAD_BYTES for text in texts):
            return "avro"
        if all(_decodes(PLAIN[kind].decode, text) for text in texts):
            return kind
    return "bytes"


def _decodes(decode: Callable[[bytes], Any], text: bytes) -> bool:
    try:
        decode(text)
    except (DataError, UnicodeDecodeError, endpoints.BadName):
        return False
    return True


def _payload(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    """Return a value without the schema around it; of a change event, the row."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        value = value["payload"]
    if _is_change(value):
        return value.get("after") or value.get("before")
    return value["data"] if isinstance(value, dict) and "specversion" in value and "data" in value else value


def _is_change(value: Any) -> bool:  # noqa: ANN401
    return (
        isinstance(value, dict) and value.get("op") in {"c", "r", "u", "d"} and bool({"before", "after"} & value.keys())
    )


def _envelope(found: _Found, samples: Sequence[TopicSample], values: Sequence[Any]) -> None:
    inner = [v["payload"] if isinstance(v, dict) and v.keys() == {"schema", "payload"} else v for v in values]
    if inner and all(map(_is_change, inner)):
        found.set("envelope", "debezium", "the values are change events of Debezium")
    elif all("ce_specversion" in each.headers for each in samples if each.value is not None) or (
        inner and all(isinstance(each, dict) and "specversion" in each for each in inner)
    ):
        found.set("envelope", "cloudevents", "the records are CloudEvents")


def _endpoint(found: _Found, topic: str, keys: Sequence[bytes | None], values: Sequence[Any], kind: str) -> None:
    """Find what names a record: its key, members of it, or a member of its value."""
    first = re.sub("[^A-Za-z0-9_-]+", "-", topic.rpartition(".")[2]).strip("-") or "topic"
    template, reason = _of_key(found, keys, kind)
    if template is None:
        template, reason = _of_value(values)
        found.unsure += [f"endpoint: {reason}"] if template is not None else []
    if template is not None:
        found.set("endpoint", f"/{first}/{template}", reason)


def _of_key(found: _Found, keys: Sequence[bytes | None], kind: str) -> tuple[str | None, str]:
    known = [key for key in keys if key is not None]
    if not known or len(known) < len(keys):
        return None, ""
    if kind == "avro" and all(key[:1] == b"\0" and len(key) >= HEAD_BYTES for key in known):
        found.fields["key_format"] = "avro"
        found.unsure.append("endpoint: the keys have ids of schemas; {key/NAME} is a member of one")
        return "{key}", "the key"
    if all(_decodes(PLAIN["json"].decode, key) for key in known):
        template = _of_members([PLAIN["json"].decode(key) for key in known], found.fields.get("envelope") == "debezium")
        if template == "{key}" and any(key[:1] == b'"' for key in known):
            found.set("key_format", "json", "the keys are texts in quotes")
        return template, "the key" if template == "{key}" else "the members of the key"
    if all(_decodes(lambda key: endpoints.check_written(f"/x/{key.decode()}"), key) for key in known):
        return "{key}", "the key"
    return None, ""


def _of_members(keys: Sequence[Any], are_in_rows: bool) -> str | None:
    keys = [
        each["payload"] if isinstance(each, dict) and each.keys() == {"schema", "payload"} else each for each in keys
    ]
    if all(isinstance(key, str | int) for key in keys):
        return "{key}"
    members = {tuple(key) if isinstance(key, dict) else () for key in keys}
    names = next(iter(members))
    if len(members) > 1 or not names:
        return None
    # Debezium's rows have the members of their keys, and a record without a value those of its key.
    return "/".join(f"{{{name}}}" if are_in_rows else f"{{key/{name}}}" for name in names)


def _of_value(values: Sequence[Any]) -> tuple[str | None, str]:
    rows = [each for each in values if isinstance(each, dict)]
    if not rows or len(rows) < len(values):
        return None, ""
    shared = [name for name in rows[0] if all(isinstance(row.get(name), str | int) for row in rows)]
    usual = [name for name in _IDS if name in shared] + [name for name in shared if re.search("(_id|Id|ID)$", name)]
    for name in usual:
        texts = [str(row[name]) for row in rows]
        if all(endpoints.is_valid(f"/x/{text}") and "/" not in text for text in texts):
            different = len({*texts})
            return f"{{{name}}}", f"the member {name}, of which the sample has {different} in {len(rows)} records"
    return None, ""


def sample_of(raw: Any) -> TopicSample:  # noqa: ANN401  # a record of the client
    """Return the sample for a record of the client."""
    headers = {name: text.decode(errors="replace") for name, text in raw.headers if text is not None}
    return TopicSample(raw.key, raw.value, headers)


def shown(content: bytes, most: int = 100) -> str:
    """Return the beginning of a content."""
    return content[:most].decode(errors="replace") + ("..." if len(content) > most else "")


def as_json(suggestion: TopicSuggestion, table: str, found: Mapping[str, bytes]) -> bytes:
    """Return a suggestion as one JSON object, with the contents of endpoints."""
    return orjson.dumps(
        {
            "toml": table,
            "problem": suggestion.problem or None,
            "notes": suggestion.notes,
            "unsure": suggestion.unsure,
            "endpoints": [{"endpoint": name, "content": shown(content)} for name, content in found.items()],
        }
    )
