"""Parameters that several operations share."""

from services.data.api.openapi.schemas import NAME, Json


def endpoint() -> Json:
    """The endpoint that a path names."""
    return {
        "name": "endpoint",
        "in": "path",
        "required": True,
        "description": "The endpoint without its first slash; its other slashes stay as they are.",
        "schema": {
            "type": "string",
            "pattern": NAME.replace("^(/", "^[A-Za-z0-9_~!$'()*+,;=:@-]+(/"),
            "maxLength": 255,
        },
    }


def version() -> Json:
    """Which version is wanted."""
    return {
        "name": "version",
        "in": "query",
        "description": "A version of the history; without it, the current one.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 10**18 - 1},
    }


def if_none_match() -> Json:
    """What makes a read conditional."""
    return {
        "name": "If-None-Match",
        "in": "header",
        "description": "ETags that the client has.",
        "schema": {"type": "string"},
    }


def idempotency_key() -> Json:
    """What makes a write repeatable."""
    return {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "The same key with the same request has the same answer, for 24 hours.",
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9_-]+$", "minLength": 1, "maxLength": 255},
    }
