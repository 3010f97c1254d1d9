"""Schemas of request and response bodies, and references to them."""

from typing import Any, Final

from services.data.datasets import MAX_DATASETS, UNITS

NAME: Final = r"^(/[A-Za-z0-9._~!$'()*+,;=:@-]+)+$"
"""Of an endpoint."""
_TIME: Final = r"^(19[7-9][0-9]|2[01][0-9]{2})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.0{1,9})?)?(Z|\+00:00)$"
_RESOLUTION: Final = r"^(PT([1-9][0-9]{0,3}M|[1-9][0-9]?H)|P1D)$"
_LIMIT: Final = {
    "name": {"type": "string", "enum": ["minute", "day"]},
    **{
        field: {"type": "integer", "minimum": 0, "description": meaning}
        for field, meaning in (
            ("quota", "Requests."),
            ("window", "Seconds."),
            ("remaining", "Requests that are left."),
            ("reset", "Seconds until there are more."),
        )
    },
}
_SOURCE: Final = {
    "name": {"type": "string"},
    "type": {"type": "string", "description": "http, directory, simulation, or what a plug-in adds."},
    "ok": {"type": "boolean", "description": "Whether the last attempt succeeded."},
    "error": {"type": ["string", "null"], "description": "What is wrong, in general words; old data stays."},
    "last_success": {"type": ["string", "null"], "format": "date-time"},
    "failures": {"type": "integer", "minimum": 0},
    "endpoints": {"type": "integer", "minimum": 0, "description": "That it brought since the process started."},
}

Json = dict[str, Any]


def ref(name: str) -> Json:
    """A reference to a schema."""
    return {"$ref": f"#/components/schemas/{name}"}


def json_of(name: str) -> Json:
    """The content of a body that is JSON of a schema."""
    return {"application/json": {"schema": ref(name)}}


def object_of(properties: Json) -> Json:
    """An object that has all of these fields, and no other."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def schemas() -> Json:
    """The schemas by their names."""
    dataset = {"unit": ref("Unit"), "resolution": ref("Resolution"), "points": ref("Points")}
    version = {"type": "integer", "minimum": 1, "description": "Grows with every change; contains its time."}
    time = {"type": "string", "format": "date-time"}
    name = {"type": "string", "pattern": NAME, "maxLength": 256}
    entry = {
        "endpoint": name,
        "title": {"type": "string"},
        "area": {"type": "string", "description": "Such as GR; empty where it is not known."},
        "quantity": {"type": "string", "description": "Such as price; empty where it is not known."},
        "unit": ref("Unit"),
        "resolution": ref("Resolution"),
        "version": version,
        "time": time,
        "source": {"type": "string", "description": "The source that keeps it; empty when it came by PUT."},
        "gone": {"type": "boolean"},
    }
    kept = {
        "version": version,
        "time": time,
        "gone": {"type": "boolean"},
        "points": {"type": "integer", "minimum": 0},
        "revised": {
            "type": ["integer", "null"],
            "minimum": 0,
            "description": "Times with another value than in the version before; null where that is not kept.",
        },
    }
    accepted = {"endpoint": name, "version": version, "changed": {"type": "boolean"}}
    return {
        "Unit": {"type": "string", "enum": sorted(UNITS)},
        "Resolution": {"type": "string", "pattern": _RESOLUTION},
        "Point": object_of(
            {
                "time": {
                    "type": "string",
                    "pattern": _TIME,
                    "description": "UTC, on the grid of the resolution; P1D of a source may have the days of its zone.",
                },
                "value": {
                    "type": ["number", "null"],
                    "exclusiveMinimum": -1e15,
                    "exclusiveMaximum": 1e15,
                    "description": "null is a gap.",
                },
            }
        ),
        "Points": {
            "type": "array",
            "items": ref("Point"),
            "minItems": 1,
            "description": "In strictly ascending order of time.",
        },
        "Dataset": object_of(dataset),
        "Bulk": object_of(
            {
                "datasets": {
                    "type": "array",
                    "items": object_of({"endpoint": name, **dataset}),
                    "minItems": 1,
                    "maxItems": MAX_DATASETS,
                }
            }
        ),
        "Data": object_of({"endpoint": name, "version": version, "time": time, **dataset}),
        "History": object_of({"endpoint": name, "versions": {"type": "array", "items": object_of(kept)}}),
        "Accepted": object_of(accepted),
        "BulkAccepted": object_of({"accepted": {"type": "array", "items": ref("Accepted")}}),
        "Catalogue": {
            "type": "object",
            "properties": {
                "endpoints": {"type": "array", "items": object_of(entry)},
                "next": {**name, "description": "There are more: ask again with after=next."},
            },
            "required": ["endpoints"],
            "additionalProperties": False,
        },
        "Usage": object_of(
            {
                "key": {"type": "string", "pattern": "^[a-z0-9]{8}$", "description": "Its id."},
                "name": {"type": "string"},
                "plan": {"type": "string"},
                "prefixes": {"type": "array", "items": name, "description": "Endpoints of the plan; none: all."},
                "day": {"type": "string", "format": "date"},
                "requests": {"type": "integer", "minimum": 0},
                "limits": {"type": "array", "items": object_of(_LIMIT)},
                "since": {**time, "description": "Since when endpoints are counted: they are of this process."},
                "endpoints": {
                    "type": "array",
                    "maxItems": 100,
                    "items": object_of({"endpoint": {"type": "string"}, "requests": {"type": "integer"}}),
                    "description": "Those that were read most; an empty name is for what has no endpoint.",
                },
            }
        ),
        "Sources": object_of({"sources": {"type": "array", "items": object_of(_SOURCE)}}),
        "Config": {
            "type": "object",
            "required": ["mode", "servers", "rest"],
            "properties": {
                "mode": {"type": "string"},
                "servers": {"type": "array", "items": {"type": "object"}},
                "rest": {"type": "string"},
                "metadata": {
                    "type": "array",
                    "items": {"type": "object"},
                    "description": "In mode z-client: the metadata services.",
                },
            },
            "additionalProperties": False,
        },
        "Problem": {
            "type": "object",
            "description": "RFC 9457; code is stable, detail is for people.",
            "required": ["type", "title", "status", "code", "detail"],
            "properties": {
                "type": {"type": "string"},
                "title": {"type": "string"},
                "status": {"type": "integer"},
                "code": {"type": "string"},
                "detail": {"type": "string"},
                "errors": {
                    "type": "array",
                    "items": object_of({"where": {"type": "string"}, "detail": {"type": "string"}}),
                    "description": "Where in the body: a JSON path or a line.",
                },
            },
        },
    }
