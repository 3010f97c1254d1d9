"""Responses other than data: problems by their statuses, and header fields."""

from typing import Final

from services.data.api.openapi.schemas import Json, ref

ETAG: Final = {"description": "Version and format.", "schema": {"type": "string"}}
RATE_LIMITS: Final = {
    name: {"description": meaning, "schema": {"type": "string"}}
    for name, meaning in (
        ("RateLimit-Policy", "The limits of the plan: quota q within w seconds."),
        ("RateLimit", "What is left of each: r requests; after t seconds there are more."),
    )
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


def problems(*statuses: int) -> Json:
    """The answers with these statuses, by reference."""
    return {str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in statuses}


def responses() -> Json:
    """The problems that there are, by the names that they are referred to."""
    responses: Json = {}
    for status, meaning in _MEANINGS.items():
        response: Json = {
            "description": meaning,
            "content": {"application/problem+json": {"schema": ref("Problem")}},
        }
        if status in {429, 503}:
            response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
        responses[f"Problem{status}"] = response
    return responses
