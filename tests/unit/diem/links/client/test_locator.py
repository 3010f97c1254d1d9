"""Answers of the metadata service, and replies that are none."""

import httpx
import pytest

from diem.links.client.link import MAX_REFUSAL_CHARS
from diem.links.client.locator import Locator, NotLocated

HOSTS = frozenset({"edge.example"})


def answering(*replies: httpx.Response) -> httpx.AsyncClient:
    given = list(replies)
    return httpx.AsyncClient(transport=httpx.MockTransport(lambda _request: given.pop(0)))


async def test_servers_that_are_not_trusted_are_left_out_of_an_answer() -> None:
    body = {
        "clone": 3,
        "endpoints": {"/a": {"owner": "ws://edge.example/ws"}, "/hot": {"owner": None, "hot": True}},
        "rejected": {"b": {"code": "bad_name", "message": "m"}},
        "servers": ["ws://edge.example/ws", "ws://evil.example/ws"],
    }
    locator = Locator(["http://home.example/v1"], HOSTS, None)
    async with answering(httpx.Response(200, json=body)) as http:
        answer = await locator.locate(http, ["/a", "/hot", "b"])
    assert answer.owners == {"/a": "ws://edge.example/ws", "/hot": None}
    assert answer.hot == {"/hot"}
    assert answer.servers == ["ws://edge.example/ws"]
    assert answer.rejected["b"]["code"] == "bad_name"
    assert (locator.clone, locator.untrusted) == (3, "ws://evil.example/ws")


@pytest.mark.parametrize(
    ("reply", "after"),
    [
        (httpx.Response(503, headers={"Retry-After": "7"}), 7.0),
        (httpx.Response(503, headers={"Retry-After": "99999"}), 300.0),
        (httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2099 07:28:00 GMT"}), 300.0),
        (httpx.Response(503, headers={"Retry-After": "Wed, 21 Oct 2015 07:28:00 GMT"}), 0.0),
        (httpx.Response(503, headers={"Retry-After": "soon"}), 0.0),
        (httpx.Response(500), 0.0),
        (httpx.Response(200, text="<html>"), 0.0),
        (httpx.Response(200, json=[]), 0.0),
        (httpx.Response(200, json={"endpoints": {"/a": None}}), 0.0),
    ],
)
async def test_whatever_is_no_answer_says_how_long_to_wait(reply: httpx.Response, after: float) -> None:
    async with answering(reply) as http:
        with pytest.raises(NotLocated, match="the metadata service does not answer: ") as caught:
            await Locator(["http://home.example/v1"], HOSTS, None).locate(http, ["/a"])
    assert caught.value.retry_after_s == after


async def test_the_detail_of_a_refusal_is_cut_and_printable() -> None:
    reply = httpx.Response(403, json={"detail": "\x1b[31m" + "x" * 5000})
    async with answering(reply) as http:
        with pytest.raises(NotLocated) as caught:
            await Locator(["http://home.example/v1"], HOSTS, None).locate(http, ["/a"])
    assert caught.value.reason == "HTTP 403: [31m" + "x" * (MAX_REFUSAL_CHARS - 5)


def of_epoch(epoch: object) -> httpx.Response:
    return httpx.Response(200, json={"epoch": epoch, "endpoints": {"/a": {"owner": None}}})


@pytest.mark.parametrize(
    ("epochs", "older"),
    [([3, 3, 4], [False, False, False]), ([4, 3, 4], [False, True, False]), ([4, None, "3"], [False, False, False])],
)
async def test_an_answer_of_an_older_epoch_is_marked(epochs: list[object], older: list[bool]) -> None:
    locator = Locator(["http://home.example/v1"], HOSTS, None)
    async with answering(*map(of_epoch, epochs)) as http:
        assert [(await locator.locate(http, ["/a"])).older for _ in epochs] == older


async def test_after_an_older_answer_another_service_is_asked() -> None:
    retry: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        retry.append(request.url.host)
        return of_epoch(5 - len(retry))

    locator = Locator(["http://one.example/v1", "http://two.example/v1"], HOSTS, None)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as http:
        for _ in range(3):
            await locator.locate(http, ["/a"])
    assert retry[0] == retry[1] != retry[2]
