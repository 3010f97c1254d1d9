"""Routes and error handlers of the REST interface."""

import pytest

from services.data.api.page import openapi
from tests.unit.services.data.conftest import Rest, assert_problem


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/data", {"PUT", "POST"}),
        ("GET", "/v1/data", {"PUT", "POST"}),
        ("POST", "/", {"GET", "HEAD"}),
        ("QUERY", "/v1/data/a", {"GET", "HEAD", "PUT", "PATCH", "POST", "DELETE"}),
        ("DELETE", "/v1/endpoints", {"GET", "HEAD"}),
        ("BREW", "/v1/endpoints", {"GET", "HEAD"}),
    ],
)
async def test_405_lists_the_methods_of_the_path(rest: Rest, method: str, path: str, allow: set[str]) -> None:
    response = await rest.writer.request(method, path)
    assert_problem(response, 405, "method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == allow
    if path != "/":
        assert response.json()["detail"] == f"{method} does not exist here: use {response.headers['allow']}"


async def test_a_write_to_a_path_of_files_names_that_of_endpoints(rest: Rest) -> None:
    response = await rest.writer.put("/game/42", json={})
    assert "/v1/data/my/endpoint" in response.json()["detail"]


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/endpoints/", "/v2/data", "/nothing"])
async def test_an_unknown_path_is_answered_with_the_paths_that_there_are(rest: Rest, path: str) -> None:
    response = await rest.reader.get(path)
    assert_problem(response, 404, "not_found")
    assert {"/v1/endpoints", "/v1/data/{endpoint}", "/v1/sources", "/openapi.json"} < {*response.json()["paths"]}
    assert "/v1/endpoints is the catalogue" in response.json()["detail"]


async def test_every_path_and_method_is_described(rest: Rest) -> None:
    described = openapi()["paths"]
    paths = {*(await rest.reader.get("/nothing")).json()["paths"]} - {"/openapi.json", "/asyncapi.json"}
    assert paths == described.keys()
    for path in paths:
        answer = await rest.writer.request("BREW", path.replace("{endpoint}", "a").replace("{name}", "a"))
        methods = {method.upper() for method in described[path].keys() - {"parameters"}}
        assert {*answer.headers["allow"].split(", ")} - {"HEAD"} == methods, path


async def test_a_defect_gets_a_problem_document_without_details(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_args: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr("services.data.api.data.endpoints.check", broken)
    response = await rest.reader.get("/v1/data/a")
    assert_problem(response, 500, "internal")
    assert "secret" not in response.text
