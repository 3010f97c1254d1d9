"""The OpenAPI 3.1 description of the REST interface, as data; a test fuzzes the service by it."""

from typing import Any, Final

from diem import __version__
from services.data.datasets import MAX_BULK_BYTES, MAX_DATASET_BYTES, MAX_DATASETS, UNITS

_NAME: Final = r"^(/[A-Za-z0-9._~!$'()*+,;=:@-]+)+$"
_TIME: Final = r"^(19[7-9][0-9]|2[01][0-9]{2})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.0{1,9})?)?(Z|\+00:00)$"
_RESOLUTION: Final = r"^(PT([1-9][0-9]{0,3}M|[1-9][0-9]?H)|P1D)$"
_ETAG: Final = {"description": "Version and format.", "schema": {"type": "string"}}

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
            "/config.json": {"get": _config()},
        },
        "components": {
            "securitySchemes": {"writeKey": {"type": "http", "scheme": "bearer", "description": "The write key."}},
            "schemas": _schemas(),
            "responses": _responses(),
        },
    }


def _catalogue() -> Json:
    return {
        "operationId": "listEndpoints",
        "summary": "All endpoints",
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
            **_problems(400, 401, 429),
        },
    }


def _read() -> Json:
    return {
        "operationId": "readEndpoint",
        "summary": "The data of an endpoint",
        "parameters": [_if_none_match()],
        "responses": {
            "200": {
                "description": "The data, as JSON or, by Accept, as CSV with the columns time and value.",
                "headers": {"ETag": _ETAG, "Vary": {"schema": {"type": "string"}}},
                "content": {**_json("Data"), "text/csv": {"schema": {"type": "string"}}},
            },
            "304": {"description": "The data that the client has is current."},
            **_problems(400, 401, 404, 406, 410, 429, 503),
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
            **_problems(400, 401, 408, 409, 413, 415, 422, 429, 503),
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
            **_problems(400, 401, 408, 409, 413, 415, 422, 429, 503),
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
            **_problems(400, 401, 404, 409, 410, 422, 429, 503),
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
        "unit": _ref("Unit"),
        "resolution": _ref("Resolution"),
        "version": version,
        "time": time,
        "source": {"type": "string", "description": "The source that keeps it; empty when it came by PUT."},
        "gone": {"type": "boolean"},
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
        "Accepted": _object(accepted),
        "BulkAccepted": _object({"accepted": {"type": "array", "items": _ref("Accepted")}}),
        "Catalogue": _object({"endpoints": {"type": "array", "items": _object(entry)}}),
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
    401: "The write key is missing or wrong.",
    404: "There is no such endpoint.",
    406: "The client accepts neither JSON nor CSV.",
    408: "The body did not arrive in time.",
    409: "A source keeps the endpoint.",
    410: "The endpoint was deleted.",
    413: "The body is too large.",
    415: "The body is of another type.",
    422: "The body is no valid dataset, or not one of this endpoint; or the Idempotency-Key was used before.",
    429: "Too many requests from this address.",
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
