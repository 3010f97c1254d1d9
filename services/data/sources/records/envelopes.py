"""Envelopes around the value of a record: Debezium's change events and CloudEvents."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from services.data.errors import InvalidDataset
from services.data.sources.records.record import MISSING, Record

_ATTRIBUTE: Final = "ce_"
"""Prefix of the attributes of a CloudEvent in header fields (Kafka protocol binding 1.0.2, section 3.2.3)."""


def debezium(record: Record) -> Record | None:
    """Return the row after a change, or the end of it; None for a message that changes no row.

    A schema around the payload, as Kafka Connect's JSON converter writes it, is left out.

    Raises:
        InvalidDataset: it is no change event, or one for a whole table.
    """
    key = _payload(record.key)
    if record.value is MISSING:
        return replace(record, key=key)
    event = _payload(record.value)
    if not isinstance(event, dict) or "op" not in event:
        if isinstance(event, dict) and "databaseName" in event:
            return None  # a schema change
        raise InvalidDataset("it is no change event of Debezium: it has no op (key: envelope)")
    match event["op"]:
        case "c" | "r" | "u":
            return replace(record, key=key, value=event.get("after"), raw=None)
        case "d":
            before = event.get("before")
            known = {**(key if isinstance(key, dict) else {}), **(before if isinstance(before, dict) else {})}
            return replace(record, key=known, value=MISSING, raw=None)
        case "m":
            return None
        case "t":
            raise InvalidDataset("the table was truncated: delete its endpoints, or replay the source")
        case op:
            raise InvalidDataset(f"the operation {str(op)[:20]!r} is none of Debezium")


def _payload(value: Any) -> Any:  # noqa: ANN401  # any JSON value
    return value["payload"] if isinstance(value, dict) and value.keys() == {"schema", "payload"} else value


def cloudevents(record: Record) -> Record | None:
    """Return the data of an event; its attributes are header fields such as ``ce_subject``, in both modes.

    Raises:
        InvalidDataset: it is no CloudEvent.
    """
    if record.value is MISSING or f"{_ATTRIBUTE}specversion" in record.headers:
        return record
    event = record.value
    if not isinstance(event, dict) or "specversion" not in event:
        raise InvalidDataset("it is no CloudEvent: it has no specversion (key: envelope)")
    attributes = {f"{_ATTRIBUTE}{name}": str(text) for name, text in event.items() if name != "data"}
    return replace(record, value=event.get("data", MISSING), raw=None, headers={**record.headers, **attributes})


ENVELOPES: Final[Mapping[str, Callable[[Record], Record | None]]] = {
    "": lambda record: record, "debezium": debezium, "cloudevents": cloudevents
}  # fmt: skip
