"""The whole description: paths, and what they refer to."""

from diem import __version__
from services.data.api.openapi import parameters, reading, writing
from services.data.api.openapi.responses import responses
from services.data.api.openapi.schemas import Json, schemas


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
            "/v1/endpoints": {"get": reading.catalogue()},
            "/v1/data/{endpoint}": {
                "parameters": [parameters.endpoint()],
                "get": reading.read(),
                "put": writing.put(),
                "delete": writing.delete(),
            },
            "/v1/data": {"put": writing.put_bulk()},
            "/v1/history/{endpoint}": {"parameters": [parameters.endpoint()], "get": reading.history()},
            "/v1/sources": {"get": reading.sources()},
            "/v1/usage": {"get": reading.usage()},
            "/config.json": {"get": reading.config()},
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
            "schemas": schemas(),
            "responses": responses(),
        },
    }
