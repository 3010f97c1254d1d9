from typing import Any

import httpx
import pytest

from deploy.clients.data_service import ServiceRefused
from deploy.clients.metadata import MetadataUnavailable, PlanStatus
from tests.unit.deploy.scripted_service import URLS, service, status


async def test_request_and_status_of_a_plan() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=status(more="than is known"))

    assert (await service(answer).plan("p-1")).state == "ready"
    assert [(each.method, str(each.url)) for each in seen] == [("GET", "http://one:1/v1/plans/p-1")]


@pytest.mark.parametrize("failure", [503, httpx.ConnectError("refused"), httpx.ReadTimeout("silence")])
async def test_next_service_is_asked_if_one_does_not_answer(failure: int | Exception) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "two":
            return httpx.Response(200, json={"plans": [status()]})
        if isinstance(failure, Exception):
            raise failure
        return httpx.Response(failure, json={"detail": "the map is not known yet"})

    assert [plan.id for plan in await service(answer, URLS).plans()] == ["p-1"]


async def test_request_that_may_have_been_executed_is_not_retried() -> None:
    hosts: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        raise httpx.ReadTimeout("silence")

    with pytest.raises(MetadataUnavailable, match="silence"):
        await service(answer, URLS).apply("p-1")
    assert hosts == ["one"]


async def test_request_that_was_not_sent_is_retried_elsewhere() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "one":
            raise httpx.ConnectError("refused")
        return httpx.Response(202, json=status(state="preparing"))

    assert (await service(answer, URLS).apply("p-1")).state == "preparing"


@pytest.mark.parametrize("code", [404, 409, 422, 507])
async def test_refusal_has_the_detail_of_the_service(code: int) -> None:
    with pytest.raises(ServiceRefused, match="made for epoch 2") as caught:
        await service(lambda _: httpx.Response(code, json={"detail": "made for\nepoch 2"})).rollback("p-1")
    assert caught.value.status == code


@pytest.mark.parametrize("content", [b"", b"[]", b"<html>"])
async def test_invalid_response_counts_as_unavailable(content: bytes) -> None:
    with pytest.raises(MetadataUnavailable):
        await service(lambda _: httpx.Response(200, content=content)).plans()
    with pytest.raises(MetadataUnavailable):
        await service(lambda _: httpx.Response(200, content=content)).snapshot()


@pytest.mark.parametrize(
    ("differences", "outdated"),
    [
        ({}, False),
        ({"epoch": 4}, True),
        ({"epoch": 4, "state": "applied"}, False),
        ({"epoch": None, "phase": None}, False),
    ],
)
def test_a_plan_is_outdated_when_the_map_has_changed_since(differences: dict[str, Any], outdated: bool) -> None:
    assert PlanStatus.of(status(**differences)).is_outdated is outdated
