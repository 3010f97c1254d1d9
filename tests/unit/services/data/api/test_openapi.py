"""The OpenAPI file is valid, and states the limits of the code."""

from typing import Any

import jsonschema_rs
import orjson
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError

from diem import __version__
from diem.links.http_updates import MAX_BODY_BYTES
from diem.protocol import messages
from diem.tokens.claims import MAX_PREFIXES
from diem.tokens.verifier import MAX_TOKEN_BYTES
from metadata import locate
from services.data.access.plans import MAX_TOKEN_S, MIN_TOKEN_S
from services.data.api import bulk, files
from services.data.api.catalogue import MAX_ENTRIES
from services.data.api.page import asyncapi, openapi
from services.data.api.problems import _STATUSES
from services.data.api.status import MAX_ENDPOINTS
from services.data.api.tokens import MAX_SUBJECT
from services.data.kinds.series.quantities import MAX_AREA, MAX_QUANTITY
from services.data.kinds.series.units import MAX_UNIT
from services.data.limits import DATASET_BYTES
from tests.support.described import DOCUMENT


def test_openapi_states_the_limits_of_the_code() -> None:
    schemas, paths = DOCUMENT["components"]["schemas"], DOCUMENT["paths"]
    assert DOCUMENT["info"]["version"] == __version__
    assert (schemas["Unit"]["maxLength"], schemas["Quantity"]["maxLength"]) == (MAX_UNIT, MAX_QUANTITY)
    assert _query("area")["maxLength"] == MAX_AREA
    assert schemas["Bulk"]["properties"]["datasets"]["maxItems"] == bulk.MAX_ENDPOINTS
    assert schemas["Usage"]["properties"]["endpoints"]["maxItems"] == MAX_ENDPOINTS
    wanted = schemas["TokenRequest"]["properties"]
    assert (wanted["seconds"]["minimum"], wanted["seconds"]["maximum"]) == (MIN_TOKEN_S, MAX_TOKEN_S)
    assert (wanted["subject"]["maxLength"], wanted["prefixes"]["maxItems"]) == (MAX_SUBJECT, MAX_PREFIXES)
    assert schemas["Token"]["properties"]["token"]["maxLength"] == MAX_TOKEN_BYTES
    assert _body(paths["/v1/data/{endpoint}"]) == f"At most {DATASET_BYTES} bytes (DIEM_DATASET_BYTES)."
    assert (
        _body(paths["/v1/data"])
        == f"At most {2 * DATASET_BYTES} bytes (twice DIEM_DATASET_BYTES), and {bulk.MAX_ENDPOINTS} endpoints."
    )
    _has_limits_of_files(schemas, paths["/v1/files"]["post"])
    (limit,) = (one for one in paths["/v1/endpoints"]["get"]["parameters"] if one.get("name") == "limit")
    assert limit["schema"]["maximum"] == limit["schema"]["default"] == MAX_ENTRIES


def _has_limits_of_files(schemas: dict[str, Any], post: dict[str, Any]) -> None:
    limits = {one["name"]: one["schema"].get("maxLength") for one in post["parameters"] if "name" in one}
    assert (limits["name"], limits["layout"]) == (files.MAX_NAME, files.MAX_LAYOUT)
    size = f"At most {files.DATASETS * DATASET_BYTES} bytes ({files.DATASETS} times DIEM_DATASET_BYTES)."
    assert post["requestBody"]["description"].startswith(size)
    shown = schemas["ConvertedEndpoint"]["properties"]
    assert (shown["first"]["maxItems"], shown["curve"]["maxItems"]) == (files.ENDS, files.CURVE)
    assert schemas["FilePreview"]["properties"]["endpoints"]["maxItems"] == files.SHOWN


def test_every_problem_status_of_the_code_is_described() -> None:
    described = {name.removeprefix("Problem") for name in DOCUMENT["components"]["responses"]}
    assert {str(status) for _, status, _ in _STATUSES} <= described


def test_paths_of_servers_have_their_addresses_and_the_limits_of_the_code() -> None:
    schemas, paths = DOCUMENT["components"]["schemas"], DOCUMENT["paths"]
    wait = schemas["UpdatesRequest"]["properties"]["wait"]
    assert wait["maximum"] == wait["default"] == messages.MAX_WAIT_S
    assert f"At most {MAX_BODY_BYTES} bytes" in paths["/v1/updates"]["post"]["requestBody"]["description"]
    assert schemas["LocateRequest"]["properties"]["endpoints"]["maxItems"] == locate.MAX_NAMES
    assert schemas["Message.ErrorCode"] == asyncapi(())["components"]["schemas"]["ErrorCode"]
    assert [server["url"] for server in paths["/v1/updates"]["servers"]] == ["http://{host}:8101"]
    assert [server["url"] for server in paths["/v1/locate"]["servers"]] == ["http://{host}:8400"]
    behind = openapi([{"url": "wss://edge.example/a/ws"}])["paths"]
    assert behind["/v1/updates"]["servers"] == [{"url": "https://edge.example/a"}]
    assert "/v1/locate" not in behind


@pytest.mark.parametrize(
    ("request_", "is_valid"),
    [
        ({"endpoints": {"/a": None, "bad name": 5}, "data": True, "wait": 0.5, "resynced": ["/a"], "stale": []}, True),
        ({"endpoints": {}, "live": False, "token": "a.b.c", "client": "12345678"}, True),
        ({}, False),
        ({"endpoints": {"/a": -1}}, False),
        ({"endpoints": {}, "wait": 26}, False),
        ({"endpoints": {}, "live": 1}, False),
        ({"endpoints": {}, "stale": "/a"}, False),
        ({"endpoints": {}, "more": 1}, False),
    ],
)
def test_requests_for_updates_fit_if_servers_accept_them(request_: dict[str, Any], *, is_valid: bool) -> None:
    assert _fits("UpdatesRequest", request_) == is_valid
    try:
        messages.parse_updates(orjson.dumps(request_), 1024)
    except messages.MessageError:
        assert not is_valid
    else:
        assert is_valid


@pytest.mark.parametrize(
    ("request_", "is_valid"),
    [
        ({"endpoints": ["/a", "bad name"], "clone": 1}, True),
        ({"endpoints": [], "clone": None}, True),
        ({"endpoints": {}}, False),
        ({"clone": 1}, False),
        ({"endpoints": [], "more": 1}, False),
        ({"endpoints": ["/a"] * (locate.MAX_NAMES + 1)}, False),
    ],
)
def test_requests_to_locate_fit_if_services_accept_them(request_: dict[str, Any], *, is_valid: bool) -> None:
    assert _fits("LocateRequest", request_) == is_valid
    try:
        locate.parse(orjson.dumps(request_))
    except locate.InvalidRequest:
        assert not is_valid
    else:
        assert is_valid


def _fits(schema: str, value: object) -> bool:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole).is_valid(value)


def test_openapi_is_valid() -> None:
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)
    with pytest.raises(OpenAPIValidationError):
        validate({**DOCUMENT, "paths": {"v1": {}}}, cls=OpenAPIV31SpecValidator)


def _query(name: str) -> dict[str, Any]:
    parameters = DOCUMENT["paths"]["/v1/data/{endpoint}"]["put"]["parameters"]
    (found,) = (one["schema"] for one in parameters if one.get("name") == name)
    return dict(found)


def _body(path: dict[str, Any]) -> str:
    return str(path["put"]["requestBody"]["description"])
