"""Watches on a loopback listener: questions, changes, limits."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

import orjson
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from diem.links.acceptor import Listener
from diem.links.gate import Gate, GateRules
from diem.process.listeners import bind
from metadata import watch
from metadata.directory import Directory
from metadata.locate import Answers
from metadata.watch import Watcher
from metadata.watching import Watching
from tests.support.patience import PATIENCE_S
from tests.unit.metadata.made import Said, a_map, clone, server

MANY = [f"/{'x' * 200}/{number}" for number in range(1000)]


class Served:
    """A listener for watches."""

    def __init__(self, *, ready: bool = True, held: int = 1 << 20, **rules: Any) -> None:
        self.directory = Directory([1, 2])
        if ready:
            self.directory.take_map(a_map())
            self.take(clone(1))
        self.said = Said(s1=0, s2=0)
        answers = Answers(self.directory, self.said, random.Random(1))
        self.watching = Watching(answers, Gate(GateRules(page_port=8080, **rules)), most=1000, held=held)
        self.directory.on_changed.append(self.watching.changed)
        self.free = held
        self.listener = Listener(bind("127.0.0.1", 0), lambda: Watcher(self.watching))

    def take(self, group: Any, number: int = 1) -> None:
        self.directory.take_group(number, group, 0, 0.0)

    @contextlib.asynccontextmanager
    async def watch(self, *names: str, **more: Any) -> AsyncIterator[ClientConnection]:
        url = f"ws://127.0.0.1:{self.listener.port}{more.pop('path', '/v1/watch')}"
        async with connect(url, proxy=None, **more) as socket:
            if names:
                await ask(socket, *names)
            yield socket


@contextlib.asynccontextmanager
async def serving(**how: Any) -> AsyncIterator[Served]:
    served = Served(**how)
    await served.listener.start()
    running = asyncio.create_task(served.watching.run())
    try:
        yield served
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        served.listener.stop()


async def ask(socket: ClientConnection, *names: str, **more: Any) -> None:
    await socket.send(orjson.dumps({"endpoints": names, **more}).decode())


async def heard(socket: ClientConnection) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE_S):
        result: dict[str, Any] = orjson.loads(await socket.recv())
        return result


async def closed(socket: ClientConnection) -> tuple[int, str]:
    with pytest.raises(ConnectionClosed) as ended:
        while True:
            await heard(socket)
    assert ended.value.rcvd is not None
    return ended.value.rcvd.code, ended.value.rcvd.reason


async def refused(served: Served, **more: Any) -> int:
    with pytest.raises(InvalidStatus) as answer:
        async with served.watch(**more):
            pass
    return answer.value.response.status_code


async def test_a_question_is_answered_and_every_other_answer_follows() -> None:
    async with serving() as served, served.watch("/a") as socket:
        assert (await heard(socket))["endpoints"] == {"/a": {"owner": server(1).public}}
        served.take(clone(2))
        answer = await heard(socket)
        assert answer["endpoints"] == {"/a": {"owner": server(2).public}}
        assert answer["servers"] == [server(2).public]


async def test_what_changes_no_answer_is_not_told() -> None:
    async with serving() as served:
        served.take(clone(1, 2))
        served.said.clients[server(2).public] = 5
        async with served.watch("/a") as socket:
            first = await heard(socket)
            served.said.clients[server(1).public] = 9
            served.take(clone(1, 2, state="rebalancing"))
            await (await socket.ping())
            served.directory.take_map(a_map(epoch=5))
            second = await heard(socket)
            assert second["epoch"] == 5
            assert second["servers"] == first["servers"][::-1], "another order came with it, and was not told before"


async def test_a_new_question_takes_the_place_of_the_old_one() -> None:
    async with serving() as served, served.watch("/a") as socket:
        await heard(socket)
        await ask(socket, "/b")
        assert list((await heard(socket))["endpoints"]) == ["/b"]
        served.take(clone(2))
        assert list((await heard(socket))["endpoints"]) == ["/b"]


async def test_the_same_question_is_answered_again() -> None:
    async with serving() as served, served.watch("/a") as socket:
        first = await heard(socket)
        await ask(socket, "/a")
        assert await heard(socket) == first


async def test_a_watcher_stays_with_the_clone_that_was_chosen() -> None:
    async with serving() as served, served.watch("/a") as socket:
        assert (await heard(socket))["clone"] == 1
        served.said.clients[server(1).public] = 1000
        served.take(clone(2), number=2)
        served.take(clone(1, 2))
        assert (await heard(socket))["clone"] == 1


async def test_a_bad_question_is_an_error_and_the_old_one_stays() -> None:
    async with serving() as served, served.watch("/a") as socket:
        await heard(socket)
        for text, code in (("{", "bad_json"), ("[]", "bad_message"), (orjson.dumps({"endpoints": ["/a"] * 1001}), "")):
            await socket.send(text if isinstance(text, str) else text.decode())
            assert await heard(socket) == {"type": "error", "code": code or "too_many", "message": mock.ANY}
        served.take(clone(2))
        assert (await heard(socket))["endpoints"] == {"/a": {"owner": server(2).public}}


async def test_a_client_that_makes_nothing_but_errors_is_sent_away() -> None:
    async with serving() as served, served.watch() as socket:
        for _ in range(20):
            await socket.send("{")
        assert (await closed(socket))[0] == 4509


async def test_a_client_that_asks_too_often_is_told_to_wait() -> None:
    async with serving() as served, served.watch() as socket:
        for _ in range(21):
            await ask(socket, "/a")
        code, reason = await closed(socket)
        assert code == 4003
        assert reason.startswith("retry=")


async def test_names_are_charged_as_questions_are() -> None:
    async with serving() as served, served.watch() as socket:
        await ask(socket, *MANY)
        assert len((await heard(socket))["endpoints"]) == 1000
        await ask(socket, "/a")
        code, reason = await closed(socket)
        assert code == 4003
        assert reason.startswith("retry=")


async def test_a_flood_of_pings_ends_the_watch() -> None:
    async with serving() as served, served.watch() as socket:
        with contextlib.suppress(ConnectionClosed):
            for _ in range(300):
                await socket.ping()
        assert await closed(socket) == (4003, "retry=1000")


async def test_text_that_is_not_utf_8_and_binary_end_the_watch() -> None:
    async with serving() as served:
        async with served.watch() as socket:
            await socket.send(b"\xff", text=True)
            assert (await closed(socket))[0] == 1007
        async with served.watch() as socket:
            await socket.send(b"{}")
            assert (await closed(socket))[0] == 1003


async def test_a_question_that_is_too_long_ends_the_watch() -> None:
    async with serving() as served, served.watch() as socket:
        await socket.send(" " * 300_000)
        assert (await closed(socket))[0] == 1009


async def test_before_anything_is_known_and_while_draining_no_watch_is_taken() -> None:
    async with serving(ready=False) as served:
        assert await refused(served) == 503
    async with serving() as served, served.watch("/a") as socket:
        await heard(socket)
        served.watching.close("retry=1")
        assert await closed(socket) == (1012, "retry=1")
        assert await refused(served) == 503


async def test_pages_of_other_origins_and_other_paths_are_refused() -> None:
    async with serving() as served:
        assert await refused(served, origin="http://evil.test") == 403
        assert await refused(served, path="/v1/locate") == 404
        async with served.watch("/a", origin="http://localhost:8080") as socket:
            assert (await heard(socket))["clone"] == 1


async def test_watches_are_bounded_by_address_and_together() -> None:
    async with serving(per_address=1) as served, served.watch():
        assert await refused(served) == 429
    async with serving(capacity=1) as served:
        async with served.watch():
            assert await refused(served) == 503
        async with served.watch("/a") as socket:
            assert (await heard(socket))["clone"] == 1


async def test_what_all_questions_hold_together_is_bounded_and_given_back() -> None:
    async with serving(held=400) as served:
        async with served.watch("/a" * 60) as first:
            await heard(first)
            async with served.watch("/b" * 100) as second:
                assert (await heard(second))["code"] == "limit"
                await ask(first, "/a")
                await heard(first)
                await ask(second, "/b" * 100)
                assert "clone" in await heard(second)
        async with asyncio.timeout(PATIENCE_S):
            while served.watching.watches:
                await asyncio.sleep(0.01)
        assert served.watching.free == served.free


async def test_a_watcher_that_reads_nothing_is_closed_and_others_hear_everything() -> None:
    with mock.patch.object(watch, "SLOW_AFTER", 0.3):
        async with serving(held=1 << 22) as served, served.watch("/a") as other:
            await heard(other)
            async with served.watch(max_queue=1, max_size=None) as slow:
                slow.transport.pause_reading()
                await ask(slow, *MANY)
                epoch = 0
                async with asyncio.timeout(PATIENCE_S):
                    while len(served.watching.watches) == 2:
                        epoch += 1
                        served.directory.take_map(a_map(epoch=epoch))
                        assert (await heard(other))["epoch"] == epoch
                slow.transport.abort()


async def test_a_watcher_that_was_slow_gets_the_latest_answer() -> None:
    async with (
        serving(held=1 << 22) as served,
        served.watch("/a") as other,
        served.watch(max_queue=1, max_size=None) as slow,
    ):
        await heard(other)
        slow.transport.pause_reading()
        await ask(slow, *MANY)
        epoch = 0
        async with asyncio.timeout(PATIENCE_S):
            while not any(watch._stall for watch in served.watching.watches):
                epoch += 1
                served.directory.take_map(a_map(epoch=epoch))
                await heard(other)
        for later in (epoch + 1, epoch + 2):
            served.directory.take_map(a_map(epoch=later))
            assert (await heard(other))["epoch"] == later
        slow.transport.resume_reading()
        told: list[int] = []
        while not told or told[-1] < epoch + 2:
            told.append((await heard(slow))["epoch"])
        assert epoch + 1 not in told
