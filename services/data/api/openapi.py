"""The OpenAPI 3.1 description of the REST interface, as data; a test fuzzes the service by it."""

from typing import Any, Final

from diem import __version__
from services.data.datasets import MAX_BULK_BYTES, MAX_DATASET_BYTES, MAX_DATASETS, UNITS

_NAME: Final = r"^(/[A-Za-z0-9._~!$'()*+,;=:@-]+)+$"
_TIME: Final = r"^(19[7-9][0-9]|2[01][0-9]{2})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.0{1,9})?)?(Z|\+00:00)$"
_RESOLUTION: Final = r"^(PT([1-9][0-9]{0,3}M|[1-9][0-9]?H)|P1D)$"
_ETAG: Final = {"description": "Version and format.", "schema": {"type": "string"}}
_READING: Final[list[dict[str, list[str]]]] = [{}, {"apiKey": []}]
"""Without a key there is the plan of the address, unless the service has none."""
_RATE_LIMITS: Final = {
    name: {"description": meaning, "schema": {"type": "string"}}
    for name, meaning in (
        ("RateLimit-Policy", "The limits of the plan: quota q within w seconds."),
        ("RateLimit", "What is left of each: r requests; after t seconds there are more."),
    )
}
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
    "error": {"type": ["string", "null"], "description": "What is wrong; the last good data is still served."},
    "last_success": {"type": ["string", "null"], "format": "date-time"},
    "failures": {"type": "integer", "minimum": 0},
    "endpoints": {"type": "integer", "minimum": 0, "description": "That it brought since the process started."},
}

Json = dict[str, Any]


def document() -> Json:
    """The whole description."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "DIEM Data Service",
            "version": __version__,
            "description": "Datasets with versions. A WebSocket server tells when one has a newer version.",
            "license": {"name": "See the repository"},
        },
        "paths": {
            "/v1/endpoints": {"get": _catalogue()},
            "/v1/data/{endpoint}": {
                "parameters": [_endpoint_parameter()],
                "get": _read(),
                "put": _put(),
                "delete": _delete(),
            },
            "/v1/data": {"put": _put_bulk()},
            "/v1/history/{endpoint}": {"parameters": [_endpoint_parameter()], "get": _history()},
            "/v1/sources": {"get": _sources()},
            "/v1/usage": {"get": _usage()},
            "/config.json": {"get": _config()},
        },
        "components": {
            "securitySchemes": {
                "writeKey": {"type": "http", "scheme": "bearer", "description": "The write key."},
                "apiKey": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, diem_<id>_<secret>: for reading, under its plan.",
                },
            },
            "schemas": _schemas(),
            "responses": _responses(),
        },
    }


def _catalogue() -> Json:
    return {
        "operationId": "listEndpoints",
        "summary": "All endpoints",
        "security": _READING,
        "parameters": [
            {
                "name": "gone",
                "in": "query",
                "description": "Whether deleted endpoints are listed too.",
                "schema": {"type": "string", "enum": ["true", "false"], "default": "false"},
            },
            _if_none_match(),
        ],
        "responses": {
            "200": {
                "description": "The catalogue.",
                "headers": {"ETag": _ETAG},
                "content": _json("Catalogue"),
            },
            "304": {"description": "The catalogue that the client has is current."},
            **_problems(400, 401, 403, 429, 503),
        },
    }


def _read() -> Json:
    return {
        "operationId": "readEndpoint",
        "summary": "The data of an endpoint",
        "security": _READING,
        "parameters": [_version_parameter(), _if_none_match()],
        "responses": {
            "200": {
                "description": "The data, as JSON or, by Accept, as CSV with the columns time and value.",
                "headers": {"ETag": _ETAG, "Vary": {"schema": {"type": "string"}}},
                "content": {**_json("Data"), "text/csv": {"schema": {"type": "string"}}},
            },
            "304": {"description": "The data that the client has is current."},
            **_problems(400, 401, 403, 404, 406, 410, 429, 503),
        },
    }


def _history() -> Json:
    return {
        "operationId": "listVersions",
        "summary": "The versions of an endpoint that are kept",
        "security": _READING,
        "description": "Newest first. The current version is among them; a deletion is a version, too.",
        "parameters": [_if_none_match()],
        "responses": {
            "200": {"description": "The versions.", "headers": {"ETag": _ETAG}, "content": _json("History")},
            "304": {"description": "There is no version that the client does not know."},
            **_problems(400, 401, 403, 404, 429, 503),
        },
    }


def _put() -> Json:
    query = [
        {"name": "unit", "in": "query", "description": "For CSV: the unit.", "schema": _ref("Unit")},
        {"name": "resolution", "in": "query", "description": "For CSV: the resolution.", "schema": _ref("Resolution")},
    ]
    return {
        "operationId": "putEndpoint",
        "summary": "Make an endpoint, or replace its data",
        "description": "An existing endpoint keeps its unit and resolution. Unchanged data keeps its version.",
        "security": [{"writeKey": []}],
        "parameters": [*query, _idempotency_key()],
        "requestBody": {
            "required": True,
            "description": f"At most {MAX_DATASET_BYTES} bytes.",
            "content": {**_json("Dataset"), "text/csv": {"schema": {"type": "string", "pattern": "time,value"}}},
        },
        "responses": {
            "200": {"description": "Committed.", "content": _json("Accepted")},
            **_problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
        },
    }


def _put_bulk() -> Json:
    return {
        "operationId": "putEndpoints",
        "summary": "Make or replace several endpoints, all or none",
        "security": [{"writeKey": []}],
        "parameters": [_idempotency_key()],
        "requestBody": {
            "required": True,
            "description": f"At most {MAX_BULK_BYTES} bytes.",
            "content": _json("Bulk"),
        },
        "responses": {
            "200": {"description": "Committed.", "content": _json("BulkAccepted")},
            **_problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
        },
    }


def _delete() -> Json:
    return {
        "operationId": "deleteEndpoint",
        "summary": "Delete an endpoint",
        "description": "The deletion has a version of its own; reading answers 410 from then on.",
        "security": [{"writeKey": []}],
        "parameters": [_idempotency_key()],
        "responses": {
            "200": {"description": "Committed.", "content": _json("Accepted")},
            **_problems(400, 401, 403, 404, 409, 410, 422, 429, 503),
        },
    }


def _usage() -> Json:
    return {
        "operationId": "readUsage",
        "summary": "What the API key that asks has used today, and what it has left",
        "description": "It costs none of the key's requests.",
        "security": [{"apiKey": []}],
        "responses": {
            "200": {"description": "Today, in UTC.", "headers": _RATE_LIMITS, "content": _json("Usage")},
            **_problems(400, 401, 429, 503),
        },
    }


def _sources() -> Json:
    return {
        "operationId": "listSources",
        "summary": "How the sources are doing",
        "security": _READING,
        "parameters": [_if_none_match()],
        "responses": {
            "200": {
                "description": "Every source, in the order of the configuration.",
                "headers": {"ETag": _ETAG},
                "content": _json("Sources"),
            },
            "304": {"description": "What the client has is current."},
            **_problems(400, 401, 403, 429, 503),
        },
    }


def _config() -> Json:
    return {
        "operationId": "readConfig",
        "summary": "What the page needs to know",
        "responses": {
            "200": {"description": "Mode and servers.", "content": _json("Config")},
            **_problems(400, 429),
        },
    }


def _endpoint_parameter() -> Json:
    return {
        "name": "endpoint",
        "in": "path",
        "required": True,
        "description": "The endpoint without its first slash; its other slashes stay as they are.",
        "schema": {
            "type": "string",
            "pattern": _NAME.replace("^(/", "^[A-Za-z0-9_~!$'()*+,;=:@-]+(/"),
            "maxLength": 255,
        },
    }


def _version_parameter() -> Json:
    return {
        "name": "version",
        "in": "query",
        "description": "A version of the history; without it, the current one.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
    }


def _if_none_match() -> Json:
    return {
        "name": "If-None-Match",
        "in": "header",
        "description": "ETags that the client has.",
        "schema": {"type": "string"},
    }


def _idempotency_key() -> Json:
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The same key with the same request has the same answer, for 24 hours.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "minLength": 1, "maxLength": 255},
    }


def _schemas() -> Json:
    dataset = {"unit": _ref("Unit"), "resolution": _ref("Resolution"), "points": _ref("Points")}
    version = {"type": "integer", "minimum": 1, "description": "Grows with every change; contains its time."}
    time = {"type": "string", "format": "date-time"}
    name = {"type": "string", "pattern": _NAME, "maxLength": 256}
    entry = {
        "endpoint": name,
        "title": {"type": "string"},
        "area": {"type": "string", "description": "Such as GR; empty where it is not known."},
        "quantity": {"type": "string", "description": "Such as price; empty where it is not known."},
        "unit": _ref("Unit"),
        "resolution": _ref("Resolution"),
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
        "Point": _object(
            {
                "time": {"type": "string", "pattern": _TIME, "description": "UTC, on the grid of the resolution."},
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
            "items": _ref("Point"),
            "minItems": 1,
            "description": "In strictly ascending order of time.",
        },
        "Dataset": _object(dataset),
        "Bulk": _object(
            {
                "datasets": {
                    "type": "array",
                    "items": _object({"endpoint": name, **dataset}),
                    "minItems": 1,
                    "maxItems": MAX_DATASETS,
                }
            }
        ),
        "Data": _object({"endpoint": name, "version": version, "time": time, **dataset}),
        "History": _object({"endpoint": name, "versions": {"type": "array", "items": _object(kept)}}),
        "Accepted": _object(accepted),
        "BulkAccepted": _object({"accepted": {"type": "array", "items": _ref("Accepted")}}),
        "Catalogue": _object({"endpoints": {"type": "array", "items": _object(entry)}}),
        "Usage": _object(
            {
                "key": {"type": "string", "pattern": "^[a-z0-9]{8}$", "description": "Its id."},
                "name": {"type": "string"},
                "plan": {"type": "string"},
                "prefixes": {"type": "array", "items": name, "description": "Endpoints of the plan; none: all."},
                "day": {"type": "string", "format": "date"},
                "requests": {"type": "integer", "minimum": 0},
                "limits": {"type": "array", "items": _object(_LIMIT)},
                "since": {**time, "description": "Since when endpoints are counted: they are of this process."},
                "endpoints": {
                    "type": "array",
                    "maxItems": 100,
                    "items": _object({"endpoint": {"type": "string"}, "requests": {"type": "integer"}}),
                    "description": "Those that were read most; an empty name is for what has no endpoint.",
                },
            }
        ),
        "Sources": _object({"sources": {"type": "array", "items": _object(_SOURCE)}}),
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
                    "items": _object({"where": {"type": "string"}, "detail": {"type": "string"}}),
                    "description": "Where in the body: a JSON path or a line.",
                },
            },
        },
    }


_MEANINGS: Final = {
    400: "The request cannot be read: bad name, bad JSON, wrong Host.",
    401: "The key is missing or wrong.",
    403: "The plan of the API key does not have it, or a write was asked for with an API key.",
    404: "There is no such endpoint, or this version of it is not kept.",
    406: "The client accepts neither JSON nor CSV.",
    408: "The body did not arrive in time.",
    409: "A source keeps the endpoint.",
    410: "The endpoint was deleted.",
    413: "The body is too large.",
    415: "The body is of another type.",
    422: "The body is no valid dataset, or not one of this endpoint; or the Idempotency-Key was used before.",
    429: "Too many requests of this address or API key.",
    503: "The store cannot commit now; nothing was changed.",
}


def _responses() -> Json:
    responses: Json = {}
    for status, meaning in _MEANINGS.items():
        response: Json = {
            "description": meaning,
            "content": {"application/problem+json": {"schema": _ref("Problem")}},
        }
        if status in {429, 503}:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
        responses[f"Problem{status}"] = response
    return responses


def _problems(*statuses: int) -> Json:
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(name: str) -> Json:
    return {"application/json": {"schema": _ref(name)}}


def _object(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
