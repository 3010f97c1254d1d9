"""Streams of writes: a line for each line, in order, once it is on the disk."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from services.data.api.write_stream import WINDOW
from tests.unit.services.data.conftest import BODY, Rest, assert_problem

NDJSON = {"Content-Type": "application/x-ndjson"}


async def send(rest: Rest, *lines: object) -> list[dict[str, Any]]:
    """Send lines in one body; return the answers."""
    content = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    answer = await rest.writer.post("/v1/data", content=content, headers=NDJSON)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


async def test_every_effect_has_a_line(rest: Rest) -> None:
    answers = await send(
        rest,
        {"endpoint": "/doc", "value": {"x": 1}},
        {"endpoint": "/series", "series": BODY},
        {"endpoint": "/news", "notice": True},
        {"endpoint": "/doc", "merge": {"y": 2}},
        {"endpoint": "/doc", "patch": [{"op": "remove", "path": "/x"}]},
        {"endpoint": "/series", "delete": True},
    )
    assert [(answer["line"], answer["endpoint"], answer["changed"]) for answer in answers] == [
        (1, "/doc", True),
        (2, "/series", True),
        (3, "/news", True),
        (4, "/doc", True),
        (5, "/doc", True),
        (6, "/series", True),
    ]
    assert (await rest.reader.get("/v1/data/doc")).json() == {"y": 2}
    assert (await rest.reader.get("/v1/data/series")).status_code == 410


@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        ("{", 400, "malformed"),
        ("[]", 422, "invalid_dataset"),
        ({"endpoint": "/a"}, 422, "invalid_dataset"),
        ({"endpoint": "/a", "value": 1, "delete": True}, 422, "invalid_dataset"),
        ({"endpoint": "/a", "value": 1, "more": 1}, 422, "invalid_dataset"),
        ({"value": 1}, 422, "invalid_dataset"),
        ({"endpoint": "a", "value": 1}, 400, "bad_name"),
        ({"endpoint": "/a/", "value": 1}, 409, "collection"),
        ({"endpoint": "/owned", "value": 1}, 409, "owned_by_source"),
        ({"endpoint": "/none", "delete": True}, 404, "unknown_endpoint"),
        ({"endpoint": "/a", "value": 1, "ttl": 0}, 422, "invalid_dataset"),
        ({"endpoint": "/a", "value": 1, "if_match": 7}, 412, "precondition_failed"),
        ({"endpoint": "/a", "value": 1, "if_match": [7]}, 422, "invalid_dataset"),
        ({"endpoint": "/a", "value": 1, "key": ""}, 400, "malformed"),
        ('{"endpoint":"/a","value":{"x":1,"x":2}}', 422, "invalid_dataset"),
        # The value that is used is there as it is stored.
        ('{"endpoint":"/a","value":{"x":{"x":1},"x":1}}', 422, "invalid_dataset"),
        ('{"endpoint":"/a","value":1,"value":2}', 422, "invalid_dataset"),
        ('{"endpoint":"/a","endpoint":"/c","value":2}', 422, "invalid_dataset"),
        ({"endpoint": "/a", "value": 1, "title": {"x": 1}}, 422, "invalid_dataset"),
        ('{"endpoint":"/a","value":123456789012345678901}', 400, "malformed"),
    ],
)
async def test_a_refused_line_is_answered_and_does_not_affect_the_others(
    rest: Rest, line: object, status: int, code: str
) -> None:
    refused, accepted = await send(rest, line, {"endpoint": "/b", "value": 1})
    assert (refused["line"], refused["status"], refused["code"]) == (1, status, code)
    assert refused["detail"]
    assert (accepted["line"], accepted["changed"]) == (2, True)


async def test_a_line_with_its_key_is_stored_once(rest: Rest) -> None:
    line = {"endpoint": "/a", "value": 1, "key": "once"}
    (first,) = await send(rest, line)
    await send(rest, {"endpoint": "/a", "value": 2})
    (again,) = await send(rest, line)
    assert again == first
    assert (await rest.reader.get("/v1/data/a")).json() == 2


async def test_a_long_stream_keeps_its_order_with_bounded_writes_in_progress(rest: Rest) -> None:
    count = 3 * WINDOW
    answers = await send(rest, *({"endpoint": "/a", "value": n} for n in range(count)), "")
    assert [answer["line"] for answer in answers] == list(range(1, count + 1))
    versions = [answer["version"] for answer in answers]
    assert versions == sorted(set(versions))
    assert (await rest.reader.get("/v1/data/a")).json() == count - 1


async def test_lines_may_be_cut_anywhere(rest: Rest) -> None:
    text = "".join(json.dumps({"endpoint": f"/a{n}", "value": n}) + "\r\n" for n in range(3)).encode()

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(text), 7):
            yield text[at : at + 7]
            await asyncio.sleep(0)

    answer = await rest.writer.post("/v1/data", content=pieces(), headers=NDJSON)
    assert [json.loads(line)["endpoint"] for line in answer.text.splitlines()] == ["/a0", "/a1", "/a2"]


async def test_a_long_line_is_not_copied_for_each_of_its_pieces(rest: Rest) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b'{"endpoint":"/a","value":"'
        for _ in range(7000):
            yield b"x" * 500
        yield b'"}'

    writer = rest.make(headers=dict(rest.writer.headers), options={"dataset_bytes": 4_000_000})
    began = time.thread_time()
    answer = await writer.post("/v1/data", content=pieces(), headers=NDJSON)
    assert answer.json()["endpoint"] == "/a"
    assert time.thread_time() - began < 2


async def test_a_stream_needs_a_write_key_and_its_media_type_and_no_coding(rest: Rest) -> None:
    assert_problem(await rest.reader.post("/v1/data", content=b"{}", headers=NDJSON), 401, "unauthorised")
    answer = await rest.writer.post("/v1/data", content=b"{}", headers={"Content-Type": "application/json"})
    assert "application/x-ndjson" in assert_problem(answer, 415, "unsupported_media_type")["detail"]
    answer = await rest.writer.post("/v1/data", content=b"", headers={**NDJSON, "Content-Encoding": "gzip"})
    assert "send it without" in assert_problem(answer, 415, "unsupported_coding")["detail"]
    assert answer.headers["accept-encoding"] == "identity"


async def test_a_line_beyond_twice_the_largest_content_ends_the_stream(rest: Rest) -> None:
    (cut,) = await send(rest, "x" * 200_000)
    assert cut["status"] == 400
