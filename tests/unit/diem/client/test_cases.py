"""The cases that the Python client and the SDK share (``tests/cases``); the SDK runs them in ``cases.test.ts``."""

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from diem.client import CompletedEvents, Event, UpdatesClient
from diem.client.backoff import (
    ReconnectBackoff,
    Timing,
    TokenBuckets,
    retry_after_s,
    retry_window_s,
    silence_limit_s,
)
from diem.client.link import SubscriptionSet
from diem.client.routes import trusted_url
from diem.client.tokens import NoToken, RefusedTokens, lifetime, refresh_delay_s
from diem.links.epochs import EpochGuard
from diem.protocol import codes, endpoints
from diem.protocol.messages import (
    BadMessage,
    ErrorReply,
    MovedMessage,
    OtherMessage,
    ResyncMessage,
    ServerMessage,
    StatusMessage,
    SubscribedReply,
    UnsubscribedReply,
    parse_server,
)
from tests.support.patience import until
from tests.unit.diem.client.fakes import QUICK, FakeServer, seeing, unsigned
from tests.unit.diem.client.test_fetches import Service, Source, complete

CASES: Final = Path(__file__).parents[3] / "cases"
Step = Mapping[str, Any]


def load(name: str) -> dict[str, Any]:
    data = orjson.loads((CASES / f"{name}.json").read_bytes())
    assert isinstance(data, dict)
    return data


def steps_of(name: str, key: str = "steps") -> list[Any]:
    """One parameter for each case with a name."""
    return [pytest.param(case[key], id=case["name"]) for case in load(name)["cases"]]


class Drawn(random.Random):
    """Draws the same share of every range."""

    def __init__(self, share: float = 1.0) -> None:
        super().__init__()
        self.share = share

    def uniform(self, a: float, b: float) -> float:
        return a + (b - a) * self.share


def test_every_file_has_a_runner() -> None:
    run = {"owner_urls", "epochs", "reconnect", "close", "retry_after", "message_rate", "subscription_set"}
    run |= {"endpoint_names", "lost_versions", "server_messages", "silence", "tokens"}
    index = load("index")
    listed = [Path(each["file"]).stem for each in index["files"]]
    # The routes are the SDK's alone: the Python client knows no metadata service.
    assert {*listed} - {"routes"} == run
    assert sorted([*listed, "index"]) == sorted(path.stem for path in CASES.glob("*.json"))
    assert {each["level"] for each in index["files"]} == index["levels"].keys()


# Delays and rates


@pytest.mark.parametrize("steps", steps_of("reconnect"))
def test_reconnect(steps: Sequence[Step]) -> None:
    drawn = Drawn()
    delays = ReconnectBackoff(Timing(), drawn)
    now = 0.0
    delays.begin(now)
    for number, step in enumerate(steps):
        drawn.share = step.get("draw", 1)
        open_s = None if step["open_ms"] is None else step["open_ms"] / 1000
        now += open_s or 0
        at_least_s = step.get("retry_after_ms", 0) / 1000
        delay_s = delays.delay_s(now, open_s, step["code"], step.get("reason", ""), at_least_s)
        assert delay_s * 1000 == pytest.approx(step["delay_ms"]), (number, step)
        now += delay_s


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in load("message_rate")["cases"]])
def test_message_rate(case: Mapping[str, Any]) -> None:
    buckets = TokenBuckets()
    for number, step in enumerate(case["steps"]):
        now = step["at"] / 1000
        for names in step.get("charge", ()):
            buckets.charge("server", names, now)
        if step.get("drain"):
            buckets.drain("server", case["subscriptions"], now)
        wait_s = buckets.wait_s("server", case["subscriptions"], now)
        assert wait_s * 1000 == pytest.approx(step["wait_ms"]), (number, step)


def test_close() -> None:
    cases = load("close")
    assert {code: codes.reconnects(int(code)) for code in cases["reconnects"]} == cases["reconnects"]
    assert {str(int(code)) for code in codes.Close} <= cases["reconnects"].keys()
    for reason, window_ms in cases["windows_ms"].items():
        window_s = retry_window_s(reason)
        assert (None if window_s is None else window_s * 1000) == window_ms, reason


def test_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = load("retry_after")
    monkeypatch.setattr("time.time", lambda: cases["now_ms"] / 1000)
    assert {header: retry_after_s(header) * 1000 for header in cases["cases"]} == cases["cases"]
    assert retry_after_s(None) == 0


# Tokens


@pytest.mark.parametrize("case", load("tokens")["refresh"])
def test_refresh(case: Mapping[str, float]) -> None:
    delay_s = refresh_delay_s(case["life_ms"] / 1000, case["left_ms"] / 1000, case["draw"])
    assert delay_s * 1000 == pytest.approx(case["delay_ms"])


@pytest.mark.parametrize("case", load("tokens")["lifetimes"])
def test_lifetimes(case: Mapping[str, Any]) -> None:
    token = case["token"] if "token" in case else unsigned(case["claims"])
    if case["life_ms"] is None:
        with pytest.raises(NoToken):
            lifetime(token, case["wall_ms"] / 1000)
    else:
        found = lifetime(token, case["wall_ms"] / 1000)
        assert [1000 * seconds for seconds in found] == pytest.approx([case["life_ms"], case["left_ms"]])


@pytest.mark.parametrize("steps", [pytest.param(case["steps"], id=case["name"]) for case in load("tokens")["refusals"]])
def test_refusals(steps: Sequence[Step]) -> None:
    refusals = RefusedTokens()
    for step in steps:
        if "accepted" in step:
            refusals.accepted(step["accepted"])
        else:
            assert refusals.refused(step["refused"], held=step["held"]) == step["final"], step


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case["code"])) for case in load("tokens")["closes"]])
async def test_closes(case: Mapping[str, Any]) -> None:
    server = await FakeServer().start()
    server.token_reply = None  # a token that was accepted begins the count anew
    requests: list[float] = []

    def token() -> str:
        requests.append(time.time())
        return unsigned({"iat": time.time(), "exp": time.time() + 600, "jti": len(requests)})

    client = UpdatesClient(server.url, timing=QUICK, token=token)
    async with seeing(client) as seen:
        for attempt, expected in enumerate(filter(None, [case["first"], case.get("again")]), 1):
            await until(partial(was_presented, server, attempt))
            before = len(requests)
            await server.kick(case["code"])
            if expected["reconnects"]:
                await until(partial(was_presented, server, attempt + 1))
                assert len(requests) - before == expected["new_token"]
            else:
                await until(lambda: seen.ended)
                assert seen.of("closed")[-1].code == case["code"]
                assert server.dials == attempt
    await server.stop()


def was_presented(server: FakeServer, times: int) -> bool:
    return len(server.tokens) == times


# Metadata service


@pytest.mark.parametrize("case", [pytest.param(case, id=case["url"]) for case in load("owner_urls")["cases"]])
def test_owner_urls(case: Mapping[str, Any]) -> None:
    assert trusted_url(case["url"], case["base"], frozenset(load("owner_urls")["hosts"])) == case["dial"]


@pytest.mark.parametrize("answers", steps_of("epochs", "answers"))
def test_epochs(answers: Sequence[Step]) -> None:
    epochs = EpochGuard()
    for answer in answers:
        assert epochs.admits(answer["epoch"], answer["at"] / 1000) == answer["admitted"], answer


# Subscriptions


@pytest.mark.parametrize("steps", steps_of("subscription_set"))
def test_subscription_set(steps: Sequence[Step]) -> None:
    subscriptions = SubscriptionSet()
    for number, step in enumerate(steps):
        names = step.get("names") or [f"/e/{n}" for n in range(step.get("many", 0))]
        match step["do"]:
            case "add":
                subscriptions.add(names)
            case "remove":
                subscriptions.remove(names)
            case "reset":
                subscriptions.reset()
            case "next":
                message = subscriptions.next(step.get("known", {}).get)
                if "count" in step:
                    assert message is not None
                    assert len(message["endpoints"]) == step["count"], (number, step)
                else:
                    assert message == step["message"], (number, step)
            case "confirmed":
                assert subscriptions.confirmed(step["id"], names) == step["returns"], (number, step)
            case "rejected":
                assert subscriptions.rejected(step["id"], names) == step["returns"], (number, step)
            case "failed":
                assert subscriptions.requested_by(step["id"]) == step["returns"], (number, step)
                subscriptions.failed(step["id"])
            case other:
                pytest.fail(f"unknown step {other}")


def name_of(case: Mapping[str, Any]) -> str:
    name = str(case["name"])
    return name.replace("{a}", "a" * (case.get("length", 0) - len(name) + 3))


def test_endpoint_names() -> None:
    cases = load("endpoint_names")
    assert [case for case in cases["valid"] if not endpoints.is_valid(name_of(case))] == []
    assert [case for case in cases["invalid"] if endpoints.is_valid(name_of(case))] == []


TYPES: Final = {
    SubscribedReply: "subscribed",
    UnsubscribedReply: "unsubscribed",
    StatusMessage: "status",
    MovedMessage: "moved",
    ResyncMessage: "resync",
    ErrorReply: "error",
}
FIELDS: Final = {"versions": "endpoints", "elsewhere": "rejected"}


def frame_of(message: ServerMessage) -> dict[str, Any] | None:
    """Return what a proxy reads from a message, with the field names of the protocol."""
    if isinstance(message, OtherMessage):
        return None
    return {"type": TYPES[type(message)]} | {FIELDS.get(key, key): value for key, value in asdict(message).items()}


def test_server_messages_at_a_proxy() -> None:
    cases = load("server_messages")
    for case in cases["frames"]:
        assert frame_of(parse_server(case["text"].encode())) == case["frame"]
    for text in cases["ignored"]:
        assert frame_of(parse_server(text.encode())) is None
    for text in cases["malformed"]:
        with pytest.raises(BadMessage):
            parse_server(text.encode())


async def test_server_messages_at_a_client() -> None:
    """A malformed message is an error that closes the connection; the SDK ignores it."""
    cases = load("server_messages")
    client = UpdatesClient("ws://127.0.0.1:1/ws")
    for text in cases["ignored"]:
        client._link._receive(orjson.loads(text))
    for text in cases["malformed"]:
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            client._link._receive(orjson.loads(text))
    assert client._events._events == {}


# Silence


@pytest.mark.parametrize("case", load("silence")["cases"], ids=str)
def test_silence_limit(case: dict[str, int]) -> None:
    assert silence_limit_s(case["heartbeat_ms"], case["usual_ms"] / 1000) == case["limit_ms"] / 1000


# Lost versions


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in load("lost_versions")["cases"]])
async def test_lost_versions(case: dict[str, Any]) -> None:
    service, source = Service(case["store"]), Source()
    shown = 0
    async with CompletedEvents(aiter(source), service.fetch, service.correct, service.sleep) as events:
        reading = asyncio.ensure_future(anext(events))
        for step in case["steps"]:
            version = step["version"]
            held = complete(version) if step["do"] == "data" else Event("update", "/a", version)
            await source.send(Event("subscribed", "/a", version) if step["do"] == "subscribed" else held)
            service.sleep_once()  # fetches start; what is repeated later waits
            for _ in range(20):
                await asyncio.sleep(0)
                if reading.done():
                    event = reading.result()
                    shown = event.value["of"] if event.has_value else shown
                    reading = asyncio.ensure_future(anext(events))
            assert (step, shown) == (step, step["shown"])
        reading.cancel()
