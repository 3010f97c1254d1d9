"""Deadlines of connections, and the attempts to authenticate that are counted."""

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from diem.links.client_auth import (
    AUTH_TIMEOUT_S,
    EXPIRY_GRACE_S,
    AuthorisedConnection,
    AuthOutcome,
    AuthRefused,
    ClientAuth,
    Deadlines,
    OriginRefused,
    bearer_tokens,
)
from diem.process.clock import ManualClock
from diem.protocol.codes import Close
from diem.tokens.claims import Claims
from diem.tokens.key_set import KeySet
from diem.tokens.verifier import Verifier
from tests.support.patience import until
from tests.support.tokens import NOW, Issuer

ISSUER = Issuer()


class Connection:
    """A fake connection."""

    def __init__(self) -> None:
        self.claims: Claims | None = None
        self.auth_due = 0

    def close(self, code: int, reason: str = "") -> None:
        raise AssertionError("closed by the edge, not by this")


class Keys:
    """A fake location of keys, polled all the time."""

    name, poll_s = "memory", 0.0

    def __init__(self) -> None:
        self.content = KeySet((ISSUER.key,))
        self._polls = 0

    async def poll(self) -> KeySet:
        self._polls += 1
        return self.content

    async def polled(self) -> None:
        """Wait until the present content has been read."""
        before = self._polls
        await until(lambda: self._polls >= before + 2)


class World:
    """The authentication of an edge, on a manual clock whose wall time is that of the tokens."""

    def __init__(self, *keys: Keys) -> None:
        self.clock = ManualClock(5.5, int(NOW * 1000))
        self.verifier = Verifier([ISSUER.key])
        self.auth = ClientAuth(self.clock, self.verifier, keys)
        self.open: set[AuthorisedConnection] = set()

    def accept(self, connection: Connection, **claims: Any) -> None:
        self.auth.accept(connection, self.auth.verify(ISSUER.token(self.clock.wall_ms() / 1000, **claims), None))

    def due(self) -> list[tuple[object, int]]:
        return [(connection, int(code)) for connection, code, _ in self.auth.pop_due(self.open)]


@pytest.fixture
def world() -> World:
    return World()


def test_members_are_due_once_at_their_second_and_never_early() -> None:
    deadlines: Deadlines[str] = Deadlines(100.9)
    for member, at in (("past", 50.0), ("now", 100.95), ("soon", 101.2), ("later", 105.0)):
        deadlines.add(member, at)
    assert deadlines.pop_due(100.99) == []
    assert sorted(deadlines.pop_due(101.0)) == ["now", "past"]
    assert deadlines.pop_due(101.9) == []
    assert deadlines.pop_due(102.0) == ["soon"]
    assert len(deadlines) == 1
    assert deadlines.pop_due(3600.0) == ["later"], "the loop stood still meanwhile"
    assert len(deadlines) == 0


def test_removed_member_leaves_no_second_behind() -> None:
    deadlines: Deadlines[str] = Deadlines(0.0)
    second = deadlines.add("a", 10.0)
    deadlines.add("b", 10.0)
    deadlines.discard("a", second)
    deadlines.discard("a", second)
    assert deadlines.pop_due(10.0) == ["b"]
    deadlines.discard("b", second)
    deadlines.discard("c", deadlines.add("c", 20.0))
    assert not deadlines._members


def test_connection_without_a_token_is_due_after_ten_seconds(world: World) -> None:
    connection = Connection()
    world.auth.wait(connection)
    world.clock.advance(AUTH_TIMEOUT_S - 0.1)
    assert world.due() == []
    world.clock.advance(1.1)
    assert world.due() == [(connection, Close.AUTH_TIMEOUT)]
    world.auth.forget(connection)
    assert world.auth.counts(0) == {"anonymous": 0, "authenticated": 0, "pending": 0}
    assert world.auth.outcomes == {AuthOutcome.TIMEOUT: 1}


def test_token_that_comes_while_others_are_closed_is_not_too_late(world: World) -> None:
    refreshed, silent = Connection(), Connection()
    for connection in (refreshed, silent):
        world.accept(connection)
    world.clock.advance(3600)
    assert {connection for connection, _ in world.due()} == {refreshed, silent}
    world.accept(refreshed)
    assert not world.auth.is_due(refreshed)
    assert world.auth.is_due(silent)


def test_token_in_time_ends_the_deadline_and_starts_that_of_its_expiry(world: World) -> None:
    connection = Connection()
    world.auth.wait(connection)
    world.clock.advance(9)
    world.accept(connection, exp=int(NOW) + 100)
    assert world.auth.counts(1) == {"anonymous": 0, "authenticated": 1, "pending": 0}
    world.clock.advance(91 + EXPIRY_GRACE_S - 0.1)
    assert world.due() == []
    world.clock.advance(1.1)
    assert world.due() == [(connection, Close.TOKEN_EXPIRED)]


def test_refresh_moves_the_expiry(world: World) -> None:
    connection = Connection()
    world.accept(connection, exp=int(NOW) + 100)
    world.clock.advance(110)
    world.accept(connection, exp=int(NOW) + 200)
    world.clock.advance(50)
    assert world.due() == []
    world.clock.advance(90)
    assert world.due() == [(connection, Close.TOKEN_EXPIRED)]
    assert world.auth.outcomes == {AuthOutcome.ACCEPTED: 1, AuthOutcome.REFRESHED: 1}


def test_step_of_the_wall_clock_does_not_close_a_connection(world: World) -> None:
    connection = Connection()
    world.accept(connection, exp=int(NOW) + 100)
    world.clock.step_wall(3600)
    world.clock.advance(100)
    assert world.due() == []


async def test_connections_of_a_revoked_api_key_are_due_in_the_next_second() -> None:
    keys = Keys()
    world = World(keys)
    running = asyncio.create_task(world.auth.run())
    await keys.polled()
    one, other, without, anonymous = (Connection() for _ in range(4))
    world.accept(one, key="k3v9x0ab")
    world.accept(other, key="another0")
    world.accept(without, key=None)
    world.open |= {one, other, without, anonymous}
    keys.content = KeySet(keys.content.keys, {"k3v9x0ab": NOW})
    await keys.polled()
    world.clock.advance(1)
    assert world.due() == [(one, Close.LOGGED_OUT)]
    world.clock.advance(1)
    assert world.due() == []
    running.cancel()


async def test_connections_are_due_in_the_next_second_when_the_key_of_their_token_is_withdrawn() -> None:
    keys, second = Keys(), Issuer("k2")
    keys.content = KeySet((ISSUER.key, second.key))
    world = World(keys)
    running = asyncio.create_task(world.auth.run())
    await keys.polled()
    one, other, refreshed, anonymous = (Connection() for _ in range(4))
    for connection in (one, refreshed):
        world.accept(connection)
    for connection in (other, refreshed):
        world.auth.accept(connection, world.auth.verify(second.token(NOW), None))
    world.open |= {one, other, refreshed, anonymous}
    keys.content = KeySet((second.key,))
    await keys.polled()
    world.clock.advance(1)
    assert world.due() == [(one, Close.TOKEN_EXPIRED)]
    assert world.auth.outcomes[AuthOutcome.WITHDRAWN] == 1
    world.clock.advance(1)
    assert world.due() == []
    running.cancel()


def test_closed_connection_is_not_due_and_not_counted(world: World) -> None:
    pending, accepted = Connection(), Connection()
    world.auth.wait(pending)
    world.accept(accepted)
    for connection in (pending, accepted):
        world.auth.forget(connection)
        world.auth.forget(connection)
    world.clock.advance(100_000)
    assert world.due() == []
    assert world.auth.counts(0) == {"anonymous": 0, "authenticated": 0, "pending": 0}


@pytest.mark.parametrize(
    ("token", "code", "outcome"),
    [
        ("no token", Close.UNAUTHORISED, AuthOutcome.INVALID),
        (Issuer("k1").token(), Close.UNAUTHORISED, AuthOutcome.INVALID),
        (ISSUER.token(exp=int(NOW) - 31), Close.TOKEN_EXPIRED, AuthOutcome.EXPIRED),
        (ISSUER.token(key="revoked0"), Close.LOGGED_OUT, AuthOutcome.REVOKED),
    ],
    ids=["no token", "foreign", "expired", "revoked"],
)
def test_refused_token_has_the_code_of_its_fault(world: World, token: str, code: Close, outcome: AuthOutcome) -> None:
    world.verifier.replace_keys([ISSUER.key], {"revoked0": NOW})
    with pytest.raises(AuthRefused) as caught:
        world.auth.verify(token, None)
    assert caught.value.code is code
    assert token not in str(caught.value)
    assert world.auth.outcomes == {outcome: 1}


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "https://app.example:444", "http://app.example", "null", ""]
)
def test_token_for_some_pages_is_refused_to_others_and_to_nobody_else(world: World, origin: str) -> None:
    token = ISSUER.token(origins=["https://app.example", "https://two.example"])
    for allowed in ("https://app.example", "https://two.example", None):
        assert world.auth.verify(token, allowed).subject == "alice"
    with pytest.raises(OriginRefused) as caught:
        world.auth.verify(token, origin)
    assert caught.value.code is Close.UNAUTHORISED
    assert world.auth.verify(ISSUER.token(), origin).origins is None
    with pytest.raises(OriginRefused):
        world.auth.verify(ISSUER.token(origins=[]), "https://app.example")
    assert world.auth.outcomes == {AuthOutcome.ORIGIN: 2}


async def test_before_the_keys_are_read_a_client_is_told_to_come_again() -> None:
    keys = Keys()
    world = World(keys)
    world.verifier.replace_keys(())
    with pytest.raises(AuthRefused) as caught:
        world.auth.verify(ISSUER.token(), None)
    assert (caught.value.code, caught.value.close_reason) == (Close.OVERLOAD, "retry=2000")
    running = asyncio.create_task(world.auth.run())
    await keys.polled()
    assert world.auth.verify(ISSUER.token(), None).subject == "alice"
    with pytest.raises(AuthRefused) as caught:
        world.auth.verify("x.y.z", None)
    assert caught.value.code is Close.UNAUTHORISED
    running.cancel()


def test_tokens_are_found_among_the_offered_subprotocols() -> None:
    assert bearer_tokens(["diem.v1.json, bearer.a.b.c", "bearer.d"]) == ["a.b.c", "d"]
    assert bearer_tokens(["diem.v1.json", "Bearer.a", "xbearer.a"]) == []


_LOADED = """
import sys
from diem.links.client_auth import ClientAuth
from diem.process.clock import SystemClock
from diem.process.edge_settings import PublicSettings

keys = ["/nonexistent/keys.json"]
for settings in (
    dict(host="127.0.0.1", token_keys=keys),
    dict(host="0.0.0.0", anonymous="on"),
    dict(host="127.0.0.1", token_keys=keys, anonymous="off"),
):
    ClientAuth.of(PublicSettings(**settings), SystemClock())
    print("jwt" in sys.modules)
"""


def test_the_library_of_tokens_is_loaded_at_the_start_only_where_clients_need_tokens() -> None:
    ran = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "False", "True"]
