"""Check of answers against the OpenAPI document."""

from functools import cache
from typing import Any, Final

import httpx
import jsonschema_rs
import orjson

from services.data.api.page import openapi

DOCUMENT: Final = openapi([{"port": 8101, "path": "/ws"}], [{"port": 8400, "path": "/v1"}])


async def check_described(answer: httpx.Response) -> None:
    """Fail if the document does not describe an answer to GET or POST at one of its paths; a hook of httpx."""
    operation = DOCUMENT["paths"].get(answer.request.url.path, {}).get(answer.request.method.lower())
    if operation is None:
        return
    media_type = answer.headers["Content-Type"].partition(";")[0]
    validator = _validator(answer.request.url.path, answer.request.method.lower(), answer.status_code, media_type)
    if media_type.endswith("json"):
        validator.validate(orjson.loads(await answer.aread()))


@cache
def _validator(path: str, method: str, status: int, media_type: str) -> Any:
    responses = DOCUMENT["paths"][path][method]["responses"]
    response = responses.get(str(status)) or responses[f"{status // 100}XX"]
    if "$ref" in response:
        response = DOCUMENT["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema = response["content"][media_type]["schema"]
    return jsonschema_rs.Draft202012Validator({"allOf": [schema], "components": DOCUMENT["components"]})
