"""What every mode promises its clients, at the real system (docs/protocol.md section 1).

The client is the same in all modes; in z-client it asks first who has an endpoint, because there that is its task.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson
import pytest
from websockets.exceptions import ConnectionClosed

from diem.client import BaseClient, Event
from diem.links.admitted_client import STALL_TIMEOUT_S
from tests.e2e.contract.mode import ModeUnderTest
from tests.support.described import check_described
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

EVENTS = {"Accept": "text/event-stream"}
NOT_READING = 4.0
"""Seconds of writing to a client that does not read."""


async def test_subscribed_says_the_retained_version_and_each_later_update_follows(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    version = (await mode.put(name))[name]
    async with mode.raw(name) as client:
        answer = await client.answer(await client.send("subscribe", {name: None}))
        assert answer["type"] == "subscribed"
        assert answer["endpoints"][name] in {version, None}, "None: it is still on its way"
        assert "rejected" not in answer
        await client.update(name, version)
        later = (await mode.put(name))[name]
        update = await client.update(name, later)
        assert list(update) == ["type", "endpoint", "version", "time"]


def last_status(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the members of a poll that state the status in an answer: with another one it would not wait."""
    everything, *single = [each for each in messages if each["type"] == "status"]
    stale: set[str] = set()
    for each in single:
        (stale.difference_update if each["live"] else stale.update)(each["endpoints"])
    return {"live": everything["live"], "stale": sorted(stale)}


async def test_served_descriptions_are_valid_and_name_what_answers(mode: ModeUnderTest) -> None:
    http, page = mode.system.http, mode.system.page
    document = (await http.get(f"{page}openapi.json")).json()
    assert ("/v1/locate" in document["paths"]) == mode.partitioned_client
    if mode.partitioned_client:
        # It has all that those of other modes have; each worker would import this for 0.2 s of CPU time.
        from openapi_spec_validator import OpenAPIV31SpecValidator, validate  # noqa: PLC0415

        validate(document, cls=OpenAPIV31SpecValidator)
    host = str(urlsplit(page).hostname)
    for path, body in {"/v1/updates": {"endpoints": {}, "wait": 0}, "/v1/locate": {"endpoints": []}}.items():
        named = [server["url"].replace("{host}", host) for server in document["paths"].get(path, {}).get("servers", [])]
        answers = 0
        for url in named:
            with contextlib.suppress(httpx.ConnectError):  # z-client names those of `diem scale`, too
                answer = await http.post(url + path, json=body)
                assert answer.status_code == 200, answer.text
                await check_described(answer)
                answers += 1
        assert answers or not named
    messages = (await http.get(f"{page}asyncapi.json")).json()
    assert len(messages["servers"]) == len(document["paths"]["/v1/updates"]["servers"])


async def test_a_poll_is_answered_with_what_is_newer_at_once_or_with_the_next_update(mode: ModeUnderTest) -> None:
    name, other = await mode.together(2)
    version = (await mode.put(name))[name]
    known: dict[str, int | None] = {name: None, other: None}
    told: dict[str, Any] = {}
    url = (await mode.owner(name)).replace("ws", "http", 1).replace("/ws", "/v1/updates")

    async def poll(wait: int) -> list[dict[str, Any]]:
        answer = await mode.system.http.post(
            url, json={"endpoints": known, "wait": wait} | told, timeout=PATIENCE_S + wait
        )
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["messages"]
        assert [each["type"] for each in found[:2]] == ["welcome", "status"]
        updates = {each["endpoint"]: each["version"] for each in found if each["type"] == "update"}
        assert updates.keys() <= known.keys()
        known.update(updates)
        told.update(last_status(found))
        return found

    async with asyncio.timeout(PATIENCE_S):
        while known[name] != version:  # it may still be on its way
            await poll(25)
    for changed in (other, name):
        polling = asyncio.create_task(poll(25))
        await asyncio.sleep(0.3)
        later = (await mode.put(changed))[changed]
        await polling
        while known[changed] != later:  # a proxy repeats what another client has got
            await poll(25)
    registered = [each["endpoints"] for each in await poll(0) if each["type"] == "subscribed"]
    assert {each for endpoints in registered for each in endpoints} == {name, other}


async def test_a_stream_has_each_update(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    url = (await mode.owner(name)).replace("ws", "http", 1).replace("/ws", "/v1/updates")
    async with (
        asyncio.timeout(PATIENCE_S),
        mode.system.http.stream("GET", url, params={"endpoint": name}, headers=EVENTS) as response,
    ):
        events = (orjson.loads(line[6:]) async for line in response.aiter_lines() if line.startswith("data: "))
        async for event in events:
            if event["type"] == "subscribed":
                break
        for _ in range(3):
            version = (await mode.put(name))[name]
            async for event in events:
                if event["type"] == "update" and event["version"] == version:
                    break


async def members_by_poll(mode: ModeUnderTest, url: str, name: str) -> AsyncGenerator[list[str], None]:
    body: dict[str, Any] = {"endpoints": {name: None}, "data": True}
    while True:
        answer = await mode.system.http.post(url, json=body, timeout=2 * PATIENCE_S)
        assert answer.status_code == 200, answer.text
        messages = answer.json()["messages"]
        body |= last_status(messages)
        for each in messages:
            if each["type"] == "update":
                body["endpoints"] = {name: each["version"]}
                yield each["data"]["members"] if "data" in each else []


async def members_by_stream(mode: ModeUnderTest, url: str, name: str) -> AsyncGenerator[list[str], None]:
    query = {"endpoint": name, "data": "true"}
    async with mode.system.http.stream("GET", url, params=query, headers=EVENTS) as response:
        async for line in response.aiter_lines():
            if line.startswith('data: {"type":"update"'):
                event = orjson.loads(line[6:])
                yield event["data"]["members"] if "data" in event else []


async def until_members(found: AsyncGenerator[list[str], None], expected: list[str]) -> None:
    async for members in found:
        if members == expected:
            return


async def test_a_collection_is_live_by_poll_and_stream(mode: ModeUnderTest) -> None:
    (parent,) = mode.fresh()
    name = f"{parent}/"
    url = (await mode.owner(name)).replace("ws", "http", 1).replace("/ws", "/v1/updates")
    members = [f"{parent}/{each}" for each in "abc"]
    async with (
        asyncio.timeout(PATIENCE_S),
        contextlib.aclosing(members_by_poll(mode, url, name)) as polled,
        contextlib.aclosing(members_by_stream(mode, url, name)) as streamed,
    ):
        for count in (1, 2, 3):
            await mode.put(members[count - 1])
            await asyncio.gather(*(until_members(way, members[:count]) for way in (polled, streamed)))
        await mode.delete(members[0])
        await asyncio.gather(*(until_members(way, members[1:]) for way in (polled, streamed)))


async def test_who_holds_the_retained_version_is_told_nothing_before_the_next(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    version = (await mode.put(name))[name]
    async with mode.raw(name) as first:
        await first.answer(await first.send("subscribe", {name: None}))
        await first.update(name, version)
        async with mode.raw(name) as second:
            answer = await second.answer(await second.send("subscribe", {name: version}))
            assert answer["endpoints"][name] in {version, None}
            # Another server or proxy than the first one's may just be getting it: a repeat is legal, and no news.
            assert await second.receives_nothing(but=version)
            later = (await mode.put(name))[name]
            await second.update(name, later)


async def test_an_endpoint_that_does_not_exist_yet_is_registered(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    async with mode.raw(name) as client:
        answer = await client.answer(await client.send("subscribe", {name: None}))
        assert answer["endpoints"] == {name: None}
        version = (await mode.put(name))[name]
        await client.update(name, version)


async def test_a_deletion_is_an_update_with_gone_and_what_comes_back_is_told(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    version = (await mode.put(name))[name]
    async with mode.raw(name) as client:
        await client.answer(await client.send("subscribe", {name: None}))
        await client.update(name, version)
        gone = await mode.delete(name)
        assert (await client.update(name, gone))["gone"] is True
        again = (await mode.put(name))[name]
        assert "gone" not in await client.update(name, again)


async def test_after_unsubscribed_nothing_comes(mode: ModeUnderTest) -> None:
    kept, left = await mode.together(2)
    async with mode.raw(kept) as client:
        number = await client.send("subscribe", {kept: None, left: None})
        named: set[str] = set()
        while named != {kept, left}:
            named |= set((await client.answer(number))["endpoints"])
        assert await client.answer(await client.send("unsubscribe", [left])) == {
            "type": "unsubscribed",
            "id": number + 1,
            "endpoints": [left],
        }
        if mode.name == "all-to-all":
            client.named.discard(left)
        await mode.put(left)
        version = (await mode.put(kept))[kept]
        assert (await client.receive())["version"] == version
        assert await client.receives_nothing()


async def test_a_duplicate_subscribe_takes_the_new_known_version(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    version = (await mode.put(name))[name]
    async with mode.raw(name) as client:
        await client.answer(await client.send("subscribe", {name: None}))
        await client.update(name, version)
        await client.answer(await client.send("subscribe", {name: version}))
        await client.answer(await client.send("subscribe", {name: None}))
        await client.update(name, version)
        later = (await mode.put(name))[name]
        await client.update(name, later)
        assert await client.receives_nothing(), "subscribed three times, told once"


async def test_bad_input_has_its_stated_answers_and_the_connection_stays(mode: ModeUnderTest) -> None:
    (name,) = await mode.together(1)
    async with mode.raw(name) as client:
        for sent, code in ((b"no json", "bad_json"), (b'{"type":"sing","id":7}', "bad_message")):
            await client.connection.send(sent, text=True)
            message = await client.receive()
            assert (message["type"], message["code"]) == ("error", code)
        number = await client.send("subscribe", dict.fromkeys([f"/too/many/{index}" for index in range(101)]))
        assert (await client.answer(number))["code"] == "too_many"
        number = await client.send("subscribe", {name: None, "bad name": None, "/..": None})
        registered, rejected = set[str](), dict[str, str]()
        while registered | rejected.keys() != {name, "bad name", "/.."}:
            answer = await client.answer(number)
            registered |= set(answer["endpoints"])
            rejected |= {each: why["code"] for each, why in answer.get("rejected", {}).items()}
        assert (registered, rejected) == ({name}, {"bad name": "bad_name", "/..": "bad_name"})
        version = (await mode.put(name))[name]
        await client.update(name, version)


async def test_a_message_that_is_too_long_ends_the_connection(mode: ModeUnderTest) -> None:
    (name,) = mode.fresh()
    async with mode.raw(name) as client:
        await client.connection.send('{"type":"subscribe","id":1,"endpoints":{"/' + 33_000 * "a" + '":null}}')
        assert await client.closed() == 1009


async def test_after_a_burst_everybody_is_at_the_latest_versions(mode: ModeUnderTest) -> None:
    names = mode.fresh(50)
    async with mode.client() as first, mode.client() as second:
        for client in (first, second):
            await client.subscribe(dict.fromkeys(names))
        latest: dict[str, int] = {}
        for _ in range(20):
            latest = await mode.put(*names)
        for client in (first, second):
            await told(client, latest)


async def test_a_client_that_does_not_read_holds_nobody_up_and_ends_at_the_latest(mode: ModeUnderTest) -> None:
    names = await mode.together(30)
    async with mode.raw(names[0], slow=True) as slow, mode.client() as other:
        number = await slow.send("subscribe", dict.fromkeys(names))
        answered: set[str] = set()
        while answered != set(names):
            answered |= set((await slow.answer(number))["endpoints"])
        await other.subscribe(dict.fromkeys(names))
        latest: dict[str, int] = {}
        loop = asyncio.get_running_loop()
        began = loop.time()
        for _ in range(60):
            latest = await mode.put(*names)
            if loop.time() - began > NOT_READING:
                break
        await told(other, latest)
        behind = dict(latest)
        try:
            while behind:
                message = await slow.receive()
                if message["version"] == behind.get(message["endpoint"]):
                    del behind[message["endpoint"]]
        except ConnectionClosed:
            # A busy machine wrote for longer than servers wait for a client that does not read.
            assert loop.time() - began > STALL_TIMEOUT_S


async def test_clients_come_back_after_their_edge_was_killed_and_learn_what_they_missed(mode: ModeUnderTest) -> None:
    names = mode.fresh(12)
    async with mode.client() as client:
        await client.subscribe(dict.fromkeys(names))
        await told(client, await mode.put(*names))
        for edge in mode.edges:
            mode.system.kill(edge)
        await told(client, await mode.put(*names))
        await told(client, await mode.put(*names))


async def told(client: BaseClient, versions: dict[str, int], within: float = PATIENCE_S) -> None:
    """Wait until the client was told of each of these versions."""
    behind = dict(versions)
    event: Event | None = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within):
            async for event in client:
                if event.kind == "update" and event.version == behind.get(event.endpoint or ""):
                    del behind[event.endpoint or ""]
                if not behind:
                    return
    raise AssertionError(f"{len(behind)} of {len(versions)} not told within {within:.0f} s; the last event was {event}")
