"""The operations of writers, who hold the write key."""

from services.data.api.openapi.parameters import idempotency_key
from services.data.api.openapi.responses import problems
from services.data.api.openapi.schemas import Json, json_of, ref
from services.data.datasets import MAX_BULK_BYTES, MAX_DATASET_BYTES


def put() -> Json:
    """``PUT /v1/data/{endpoint}``."""
    query = [
        {"name": "unit", "in": "query", "description": "For CSV: the unit.", "schema": ref("Unit")},
        {"name": "resolution", "in": "query", "description": "For CSV: the resolution.", "schema": ref("Resolution")},
    ]
    return {
        "operationId": "putEndpoint",
        "summary": "Make an endpoint, or replace its data",
        "description": "An existing endpoint keeps its unit and resolution. Unchanged data keeps its version.",
        "security": [{"writeKey": []}],
        "parameters": [*query, idempotency_key()],
        "requestBody": {
            "required": True,
            "description": f"At most {MAX_DATASET_BYTES} bytes.",
            "content": {**json_of("Dataset"), "text/csv": {"schema": {"type": "string", "pattern": "time,value"}}},
        },
        "responses": {
            "200": {"description": "Committed.", "content": json_of("Accepted")},
            **problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
        },
    }


def put_bulk() -> Json:
    """``PUT /v1/data``."""
    return {
        "operationId": "putEndpoints",
        "summary": "Make or replace several endpoints, all or none",
        "security": [{"writeKey": []}],
        "parameters": [idempotency_key()],
        "requestBody": {
            "required": True,
            "description": f"At most {MAX_BULK_BYTES} bytes.",
            "content": json_of("Bulk"),
        },
        "responses": {
            "200": {"description": "Committed.", "content": json_of("BulkAccepted")},
            **problems(400, 401, 403, 408, 409, 413, 415, 422, 429, 503),
        },
    }


def delete() -> Json:
    """``DELETE /v1/data/{endpoint}``."""
    return {
        "operationId": "deleteEndpoint",
        "summary": "Delete an endpoint",
        "description": "The deletion has a version of its own; reading answers 410 from then on.",
        "security": [{"writeKey": []}],
        "parameters": [idempotency_key()],
        "responses": {
            "200": {"description": "Committed.", "content": json_of("Accepted")},
            **problems(400, 401, 403, 404, 409, 410, 422, 429, 503),
        },
    }
