"""Refused peers, with another key or other versions: a line a minute says which, why, and what to do; and status."""

import asyncio
import logging
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus
from websockets.http11 import Response

from diem.links import refused_peers
from diem.links.feed_reader import FeedReader
from diem.links.internal import InternalListener
from diem.links.internal_client import fetch_status, internal_client
from diem.links.mutual_auth import PeerNotAuthenticated
from diem.links.refused_peers import LOG_EVERY_S, MAX_PEERS, RefusedPeers
from diem.links.service import _with_refused_keys
from diem.process import security_log
from diem.process.auth import SharedKey
from diem.protocol import compatibility
from diem.protocol.compatibility import Versions
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port
from tests.unit.diem.links.test_feed_reader import Sink

OURS, THEIRS = SharedKey("ours" * 10), SharedKey("theirs" * 10)
LATER = Versions(compatibility.OURS.newest + 1, compatibility.OURS.newest + 1)
WRONG = PeerNotAuthenticated("10.0.0.2:9101", "HTTP 401; it has another key")


class Refused:
    """Refused peers with a clock of their own."""

    def __init__(self) -> None:
        self.now = 0.0
        self.peers = RefusedPeers(logging.WARNING, lambda: self.now)

    def lines(self, peer: str, *times: float) -> int:
        """Refuse a peer at these times, and return the number of lines about it."""
        with capture_logs() as logs:
            for self.now in times:
                self.peers.refuse(peer, "a reason", "a line")
        assert all((line["log_level"], line["event"], line["peer"]) == ("warning", "a line", peer) for line in logs)
        return len(logs)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_peers, "_other_keys", RefusedPeers(logging.WARNING))
    monkeypatch.setattr(refused_peers, "_other_versions", RefusedPeers(logging.ERROR))


def listener(port: int) -> InternalListener:
    return InternalListener("127.0.0.1", port, key=THEIRS, ready=lambda: None, status=lambda: {"clients": 3})


async def test_a_reader_with_another_key_warns_although_nobody_listened_at_first() -> None:
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
            assert not refused_peers.keys_refused()
            theirs = listener(port)
            theirs.start()
            while not refused_peers.keys_refused():
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


async def test_a_poll_of_a_listener_with_another_key_is_reported_until_the_keys_match() -> None:
    port = free_port()
    theirs = listener(port)
    theirs.start()
    url = f"http://127.0.0.1:{port}"
    for key, peers in ((OURS, [url]), (THEIRS, [])):
        async with internal_client(key, PATIENCE_S, reports_keys=True) as http:
            answer = await fetch_status(http, url)
        assert (answer is None, list(refused_peers.keys_refused())) == (bool(peers), peers)
    theirs.stop()


def test_a_peer_has_one_line_a_minute() -> None:
    refused = Refused()
    assert refused.lines("a", 0, 5, 30, 59) == 1
    assert refused.lines("a", LOG_EVERY_S, 65, 119) == 1
    assert refused.lines("b", 119, 119) == 1


def test_a_peer_is_listed_until_it_is_accepted_or_for_a_minute_after_the_last_refusal() -> None:
    refused = Refused()
    refused.lines("a", 0, 10)
    refused.lines("b", 10)
    refused.peers.accept("b")
    refused.now = 10 + LOG_EVERY_S
    assert refused.peers.reasons() == {"a": "a reason"}
    refused.now += 1
    assert not refused.peers.reasons()


def test_peers_are_bounded_and_those_that_are_gone_make_room() -> None:
    refused = Refused()
    assert sum(refused.lines(f"peer-{number}", 0) for number in range(2 * MAX_PEERS)) == MAX_PEERS
    assert len(refused.peers.reasons()) == MAX_PEERS
    assert not refused.peers.refuse("later", "a reason", "a line")
    assert refused.lines("later", LOG_EVERY_S + 1) == 1
    assert list(refused.peers.reasons()) == ["later"]


@pytest.mark.parametrize(("status", "is_about_keys"), [(401, True), (403, True), (503, False)])
def test_only_failures_about_keys_are_reported(status: int, *, is_about_keys: bool) -> None:
    error = InvalidStatus(cast("Response", SimpleNamespace(status_code=status)))
    assert refused_peers.refuse_key("a", error) is is_about_keys
    assert not refused_peers.refuse_key("a", ConnectionRefusedError())
    assert bool(refused_peers.keys_refused()) is is_about_keys


def test_readiness_mentions_keys_only_where_they_do_not_match() -> None:
    assert _with_refused_keys("not caught up") == "not caught up"
    refused_peers.refuse_key("ws://10.0.0.2:9101/ws", WRONG)
    assert _with_refused_keys(None) is None
    why = _with_refused_keys("not caught up")
    assert why is not None
    assert "keys of peers do not match" in why
    assert "10.0.0.2" not in why


def test_a_peer_of_another_version_is_an_error_with_both_versions_and_in_the_status() -> None:
    ours = compatibility.OURS
    assert refused_peers.protocol() == ours._asdict()
    with capture_logs() as logs:
        refused_peers.refuse_versions("a", LATER)
    (line,) = logs
    assert line["log_level"] == "error"
    assert f"a speaks version {LATER} of the internal protocol, this process {ours}" in line["event"]
    assert refused_peers.protocol() == {**ours._asdict(), "refused": {"a": LATER.announcement}}
