"""Keys that do not match are loud on the side that dials: which peer, why, and what to do; a warning a minute."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from diem.links import refused_keys
from diem.links.feed_reader import FeedReader
from diem.links.internal import InternalListener
from diem.links.internal_client import fetch_status, internal_client
from diem.links.mutual_auth import PeerNotAuthenticated
from diem.links.refused_keys import MAX_PEERS, WARN_EVERY_S, RefusedKeys
from diem.links.service import _with_refused_keys
from diem.process import security_log
from diem.process.auth import SharedKey
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.unit.diem.links.test_feed_reader import Sink

OURS, THEIRS = SharedKey("ours" * 10), SharedKey("theirs" * 10)
WRONG = PeerNotAuthenticated("10.0.0.2:9101", "HTTP 401; it has another key")


@pytest.fixture(autouse=True)
def of_process(monkeypatch: pytest.MonkeyPatch) -> RefusedKeys:
    made = RefusedKeys()
    monkeypatch.setattr(refused_keys, "_of_process", made)
    monkeypatch.setattr(refused_keys, "refuse", made.refuse)
    monkeypatch.setattr(refused_keys, "accept", made.accept)
    return made


def listener(port: int) -> InternalListener:
    return InternalListener("127.0.0.1", port, key=THEIRS, ready=lambda: None, status=lambda: {"clients": 3})


async def test_a_reader_with_another_key_warns_although_nobody_listened_at_first(of_process: RefusedKeys) -> None:
    port = free_port()
    url = f"ws://127.0.0.1:{port}/feed"
    reader = asyncio.create_task(FeedReader(url, OURS, Sink()).run())
    # What tests before this one have left is summarised, and forgotten.
    security_log.summarise()
    security_log.summarise()
    with capture_logs() as lines:
        async with asyncio.timeout(PATIENCE_S):
            while not lines:
                await asyncio.sleep(0.01)
            assert not of_process.peers
            theirs = listener(port)
            await theirs.start()
            while not of_process.peers:
                await asyncio.sleep(0.01)
    theirs.stop()
    reader.cancel()
    (warning,) = [line for line in lines if "keys do not match" in line["event"]]
    assert (warning["log_level"], warning["peer"]) == ("warning", url)
    assert f"127.0.0.1:{port}" in warning["event"]
    assert "DIEM_INTERNAL_KEY_FILE" in warning["event"]
    # The other side says so, too.
    refusals = [line for line in lines if line.get("kind") == "wrong_internal_key"]
    assert refusals[0]["detail"] == "/challenge: this listener does not have that key"


async def test_a_poll_of_a_listener_with_another_key_is_reported_until_the_keys_match(of_process: RefusedKeys) -> None:
    port = free_port()
    theirs = listener(port)
    await theirs.start()
    url = f"http://127.0.0.1:{port}"
    for key, peers in ((OURS, [url]), (THEIRS, [])):
        async with internal_client(key, PATIENCE_S, reports_keys=True) as http:
            answer = await fetch_status(http, url)
        assert (answer is None, list(of_process.peers)) == (bool(peers), peers)
    theirs.stop()


def test_each_peer_has_a_warning_a_minute_as_long_as_it_lasts(
    of_process: RefusedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("diem.links.refused_keys.time", SimpleNamespace(monotonic=lambda: clock.now))
    with capture_logs() as lines:
        for _ in range(3 * int(WARN_EVERY_S)):
            assert of_process.refuse("a", WRONG)
            assert of_process.refuse("b", WRONG)
            clock.now += 1.0
    assert [line["peer"] for line in lines] == ["a", "b"] * 3
    assert refused_keys.current() == {"a": str(WRONG), "b": str(WRONG)}
    of_process.accept("a")
    assert list(of_process.peers) == ["b"]


@pytest.mark.parametrize(("status", "is_about_keys"), [(401, True), (403, True), (503, False)])
def test_only_failures_about_keys_are_reported(of_process: RefusedKeys, status: int, *, is_about_keys: bool) -> None:
    error = InvalidStatus(cast("Response", SimpleNamespace(status_code=status)))
    assert of_process.refuse("a", error) is is_about_keys
    assert not of_process.refuse("a", ConnectionRefusedError())
    assert bool(of_process.peers) is is_about_keys


def test_peers_are_bounded(of_process: RefusedKeys) -> None:
    for number in range(2 * MAX_PEERS):
        of_process.refuse(str(number), WRONG)
    assert len(of_process.peers) == MAX_PEERS


def test_readiness_mentions_keys_only_where_they_do_not_match(of_process: RefusedKeys) -> None:
    assert _with_refused_keys("not caught up") == "not caught up"
    of_process.refuse("ws://10.0.0.2:9101/ws", WRONG)
    assert _with_refused_keys(None) is None
    why = _with_refused_keys("not caught up")
    assert why is not None
    assert "keys of peers do not match" in why
    assert "10.0.0.2" not in why
