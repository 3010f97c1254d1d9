"""The operations of readers."""

from typing import Final

from services.data.api.catalogue import MAX_ENTRIES
from services.data.api.openapi.parameters import if_none_match, version
from services.data.api.openapi.responses import ETAG, RATE_LIMITS, problems
from services.data.api.openapi.schemas import NAME, Json, json_of

_READING: Final[list[dict[str, list[str]]]] = [{}, {"apiKey": []}]
"""Without a key there is the plan of the address, unless the service has none."""


def catalogue() -> Json:
    """``GET /v1/endpoints``."""
    return {
        "operationId": "listEndpoints",
        "summary": "All endpoints, in parts where there are many",
        "description": "In the order of their names. A part may be a second old.",
        "security": _READING,
        "parameters": [
            {
                "name": "gone",
                "in": "query",
                "description": "Whether deleted endpoints are listed too.",
                "schema": {"type": "string", "enum": ["true", "false"], "default": "false"},
            },
            {
                "name": "after",
                "in": "query",
                "description": "The answer begins with the first name after this one: `next` of the part before.",
                "schema": {"type": "string", "pattern": NAME, "maxLength": 256},
            },
            {
                "name": "limit",
                "in": "query",
                "description": "How many endpoints one answer has.",
                "schema": {"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES, "default": MAX_ENTRIES},
            },
            if_none_match(),
        ],
        "responses": {
            "200": {
                "description": "The catalogue, or a part of it.",
                "headers": {"ETag": ETAG},
                "content": json_of("Catalogue"),
            },
            "304": {"description": "The catalogue that the client has is current."},
            **problems(400, 401, 403, 429, 503),
        },
    }


def read() -> Json:
    """``GET /v1/data/{endpoint}``."""
    return {
        "operationId": "readEndpoint",
        "summary": "The data of an endpoint",
        "security": _READING,
        "parameters": [version(), if_none_match()],
        "responses": {
            "200": {
                "description": "The data, as JSON or, by Accept, as CSV with the columns time and value.",
                "headers": {"ETag": ETAG, "Vary": {"schema": {"type": "string"}}},
                "content": {**json_of("Data"), "text/csv": {"schema": {"type": "string"}}},
            },
            "304": {"description": "The data that the client has is current."},
            **problems(400, 401, 403, 404, 406, 410, 429, 503),
        },
    }


def history() -> Json:
    """``GET /v1/history/{endpoint}``."""
    return {
        "operationId": "listVersions",
        "summary": "The versions of an endpoint that are kept",
        "security": _READING,
        "description": "Newest first. The current version is among them; a deletion is a version, too.",
        "parameters": [if_none_match()],
        "responses": {
            "200": {"description": "The versions.", "headers": {"ETag": ETAG}, "content": json_of("History")},
            "304": {"description": "There is no version that the client does not know."},
            **problems(400, 401, 403, 404, 429, 503),
        },
    }


def sources() -> Json:
    """``GET /v1/sources``."""
    return {
        "operationId": "listSources",
        "summary": "How the sources are doing",
        "security": _READING,
        "parameters": [if_none_match()],
        "responses": {
            "200": {
                "description": "Every source, in the order of the configuration.",
                "headers": {"ETag": ETAG},
                "content": json_of("Sources"),
            },
            "304": {"description": "What the client has is current."},
            **problems(400, 401, 403, 429, 503),
        },
    }


def usage() -> Json:
    """``GET /v1/usage``."""
    return {
        "operationId": "readUsage",
        "summary": "What the API key that asks has used today, and what it has left",
        "description": "It costs none of the key's requests.",
        "security": [{"apiKey": []}],
        "responses": {
            "200": {"description": "Today, in UTC.", "headers": RATE_LIMITS, "content": json_of("Usage")},
            **problems(400, 401, 429, 503),
        },
    }


def config() -> Json:
    """``GET /config.json``."""
    return {
        "operationId": "readConfig",
        "summary": "What the page needs to know",
        "responses": {
            "200": {"description": "Mode and servers.", "content": json_of("Config")},
            **problems(400, 429),
        },
    }
