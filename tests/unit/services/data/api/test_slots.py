"""Room for readers: so many are worked on at once, in turn, and writes do not wait for it."""

import asyncio
from dataclasses import dataclass, field

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from services.data.api import guard
from services.data.api.guard import Slots
from tests.support.patience import PATIENCE_S
from tests.unit.services.data.conftest import Rest


@dataclass
class Slow:
    """An application whose answers wait until they may begin, and until they may end."""

    may_begin: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    begun: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.begun.append(scope["path"])
        await self.may_begin.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await self.may_end.wait()
        await send({"type": "http.response.body", "body": b"done"})


def client(app: Slots) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def until(app: Slow, count: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(app.begun) < count:
            await asyncio.sleep(0)


async def test_so_many_are_worked_on_at_once_and_the_others_in_turn() -> None:
    app = Slow()
    async with client(Slots(app, 2)) as http:
        asked = [asyncio.create_task(http.get(f"/{number}")) for number in range(5)]
        await until(app, 2)
        for _ in range(20):
            await asyncio.sleep(0)
        assert app.begun == ["/0", "/1"]
        # A slot is free when the answer begins, however slowly it is taken.
        app.may_begin.set()
        await until(app, 5)
        assert app.begun == ["/0", "/1", "/2", "/3", "/4"]
        app.may_end.set()
        assert [answer.text for answer in await asyncio.gather(*asked)] == ["done"] * 5


async def test_who_waits_too_long_is_told_when_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "WAIT_S", 0.01)
    app = Slow()
    async with client(Slots(app, 1)) as http:
        first = asyncio.create_task(http.get("/first"))
        await until(app, 1)
        refused = await http.get("/second")
        assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (503, "busy", "2")
        app.may_begin.set()
        app.may_end.set()
        assert (await first).status_code == 200
        assert (await http.get("/third")).status_code == 200


async def test_a_failing_answer_frees_its_slot() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/broken":
            raise ZeroDivisionError
        await PlainTextResponse("fine")(scope, receive, send)

    async with client(Slots(broken, 1)) as http:
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await http.get("/broken")
        assert (await http.get("/")).text == "fine"


async def test_a_write_does_not_wait_behind_reads(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"unit": "MW", "resolution": "PT1H", "points": [{"time": "2026-01-01T00:00:00Z", "value": 5}]}
    http = rest.make(options={"concurrent_reads": 1})
    key = {"Authorization": rest.writer.headers["authorization"]}
    assert (await http.put("/v1/data/a", json=body, headers=key)).status_code == 200
    go, begun, read = asyncio.Event(), asyncio.Event(), rest.store.reads.current

    async def stalled(endpoint: str) -> object:
        begun.set()
        await go.wait()
        return await read(endpoint)

    monkeypatch.setattr(rest.store.reads, "current", stalled)
    reads = [asyncio.create_task(http.get("/v1/data/a")) for _ in range(20)]
    await begun.wait()
    assert (await http.put("/v1/data/b", json=body, headers=key)).status_code == 200
    assert not any(one.done() for one in reads)
    go.set()
    assert {answer.status_code for answer in await asyncio.gather(*reads)} == {200}
