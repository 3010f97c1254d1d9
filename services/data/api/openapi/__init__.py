"""The OpenAPI 3.1 description of the REST interface, as data; a test fuzzes the service by it."""

from services.data.api.openapi.document import document

__all__ = ["document"]
