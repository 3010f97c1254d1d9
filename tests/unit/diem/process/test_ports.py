"""Free ports, their reservation among processes, and the persisted ports of a composite."""

import asyncio
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from diem.process import ports as module
from diem.process.addresses import Ports
from diem.process.listeners import PortInUse, bind
from diem.process.ports import PersistedPorts, PortReservations, is_free
from tests.support.other_users import intruder
from tests.support.patience import PATIENCE_S
from tests.support.ports import free_port, free_ports
from tests.support.simultaneous import print_simultaneously


def test_port_is_free_until_somebody_listens() -> None:
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)


def test_port_is_reserved_once_until_it_is_released() -> None:
    port = free_port()
    with PortReservations() as one, PortReservations() as other:
        assert one.reserve(port)
        assert not other.reserve(port)
        assert not one.reserve(port)
        one.release()
        assert other.reserve(port)
    with PortReservations() as third:
        assert third.reserve(port)


@pytest.mark.parametrize("port", [65_536, -1])
def test_number_that_is_no_port_is_not_reserved(port: int) -> None:
    with PortReservations() as reservations:
        assert not reservations.reserve(port)


def test_port_with_a_listener_is_not_reserved() -> None:
    with bind("127.0.0.1", free_port()) as listener, PortReservations() as reservations:
        assert not reservations.reserve(listener.getsockname()[1])


def test_reserved_port_is_left_to_its_listener_again_and_again() -> None:
    port = free_port()
    with PortReservations() as reservations, PortReservations() as other:
        assert reservations.reserve(port)
        for _ in range(2):
            with bind("127.0.0.1", port) as listener, socket.create_connection(("127.0.0.1", port)) as client:
                listener.setblocking(True)
                listener.accept()[0].close()
                assert client.recv(1) == b""
            assert not other.reserve(port)


def test_connections_that_have_just_ended_are_in_nobodys_way() -> None:
    with bind("127.0.0.1", free_port()) as listener:
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            listener.setblocking(True)
            listener.accept()[0].close()  # the first to close waits in TIME_WAIT, with our port
            assert client.recv(1) == b""
    with PortReservations() as reservations:
        assert reservations.reserve(port)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the listener would be kept away as well")
def test_reserved_port_is_no_longer_the_kernels_to_give() -> None:
    with PortReservations() as reservations, socket.socket() as other:
        port = free_port()
        assert reservations.reserve(port)
        # What the kernel looks for before it gives a port to a connection: that nobody has bound it.
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the kernel shares ports with other users, too")
def test_nobody_else_listens_on_a_protected_port_before_between_and_after_its_listeners() -> None:
    port = free_port()
    with PortReservations() as reservations:
        reservations.protect(port)
        with intruder([port]) as other:
            assert other.ports() == [port], "it is not reserved"
        assert reservations.reserve(port)
        with intruder([port]) as other:
            assert other.ports() == [port], "nor is it protected"
        reservations.protect(port)
        with intruder([port]) as other:
            for _ in range(2):
                with bind("127.0.0.1", port, reserved=True) as listener:
                    listener.setblocking(True)
                    # The first to close has the port until the peer has, too.
                    with socket.create_connection(("127.0.0.1", port)), listener.accept()[0]:
                        pass
            assert other.ports() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reservation does not bind the port itself")
@pytest.mark.parametrize("public", ["0.0.0.0", "127.0.0.9", "::"])
def test_protected_port_is_protected_on_the_public_address_too(public: str) -> None:
    port = free_port()
    with PortReservations(public) as reservations:
        assert reservations.reserve(port)
        reservations.protect(port)
        for host in ("127.0.0.1", public, "::1"):
            with pytest.raises(PortInUse):
                bind(host, port)
            bind(host, port, reserved=True).close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reservation does not bind the port itself")
def test_connections_to_a_protected_port_are_refused_while_nobody_listens_and_all_the_listeners_then() -> None:
    port = free_port()
    with PortReservations() as reservations:
        assert reservations.reserve(port)
        reservations.protect(port)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with bind("127.0.0.1", port, reserved=True) as listener:
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
            listener.setblocking(True)
            for client in clients:
                client.close()
                listener.accept()[0].close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reservation does not bind the port itself")
def test_protected_port_has_no_second_listener_that_is_not_its_child() -> None:
    port = free_port()
    with PortReservations() as reservations, PortReservations() as others:
        assert reservations.reserve(port)
        reservations.protect(port)
        with bind("127.0.0.1", port, reserved=True):
            for _ in range(2):
                with pytest.raises(PortInUse):
                    bind("127.0.0.1", port)
                assert not others.reserve(port)
                reservations.release()


def test_address_that_the_machine_does_not_have_prevents_no_reservation() -> None:
    with PortReservations("192.0.2.1") as reservations:
        port = free_port()
        assert reservations.reserve(port)
        reservations.protect(port)
        bind("127.0.0.1", port, reserved=True).close()


def test_choose_skips_excluded_ports_and_fails_when_none_is_left() -> None:
    both = free_ports(2)
    with PortReservations() as reservations:
        assert reservations.choose(both, {both[1]}) == both[0]
        with pytest.raises(PortInUse):
            reservations.choose(both[:1])


def test_processes_that_choose_at_once_choose_different_ports() -> None:
    ninety = free_ports(90)
    chosen = print_simultaneously(
        f"""
import sys
from diem.process.ports import PortReservations
reservations = PortReservations()
input()
print(*(reservations.choose({ninety}) for _ in range(20)))
""",
        4,
    )
    assert len(chosen) == len(set(chosen)) == 80


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ports.json"


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.socket() as busy:
        busy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        busy.bind(("127.0.0.1", port))
        busy.listen()
        yield busy.getsockname()[1]


@contextmanager
def composite(file: Path) -> Iterator[PersistedPorts]:
    """Yield the ports of one composite, which ends with the block."""
    with PortReservations() as reservations:
        yield PersistedPorts(reservations, file)


def numbers(ports: Ports) -> tuple[int | None, int | None]:
    return ports.public, ports.internal


def test_child_keeps_the_ports_that_it_was_given_and_shares_none(file: Path) -> None:
    with composite(file) as ports:
        given = {name: ports.of(name) for name in ("a", "b", "c")}
        assert len({port for ports_of in given.values() for port in numbers(ports_of)}) == 6
        assert all(ports.of(name) == pair for name, pair in given.items())


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the reservation does not bind the port itself")
def test_ports_of_a_composite_and_its_children_are_for_its_own_listeners(file: Path) -> None:
    port = free_port()
    with composite(file) as ports:
        ports.reserve(port)
        for each in (port, *numbers(ports.of("one"))):
            with pytest.raises(PortInUse):
                bind("127.0.0.1", each or 0)
            bind("127.0.0.1", each or 0, reserved=True).close()


def test_port_in_use_is_not_assigned(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = free_ports(2)
    monkeypatch.setattr(module, "CHILD_RANGE", both)
    with listening(both[1]), composite(file) as ports, pytest.raises(PortInUse):
        ports.of("one")
    with composite(file) as ports:
        assert set(numbers(ports.of("one"))) == set(both)


def test_next_composite_has_the_same_ports_except_those_in_use(file: Path) -> None:
    with composite(file) as before:
        one, other = before.of("one"), before.of("other")
    with listening(other.internal or 0), composite(file) as after:
        assert after.of("one") == one
        assert not set(numbers(after.of("other"))) & {*numbers(one), other.internal}
        given = after.of("other")
    with composite(file) as last:
        assert last.of("other") == given


@pytest.mark.parametrize("content", ["", "[]", "3", '{"one": 3}', '{"one": [1, 2, 3]}', '{"one": ["a", 2]}'])
def test_file_that_cannot_be_read_is_as_good_as_none(file: Path, content: str) -> None:
    file.write_text(content)
    with composite(file) as ports:
        given = ports.of("one")
    with composite(file) as ports:
        assert ports.of("one") == given


async def test_ports_of_children_that_are_about_to_end_are_waited_for_but_not_for_ever(file: Path) -> None:
    with composite(file) as before:
        one = before.of("one")
    with composite(file) as after:
        with listening(one.public or 0):
            await after.wait_until_free(0.1)
            waiting = asyncio.create_task(after.wait_until_free(10))
            await asyncio.sleep(0)
            assert not waiting.done()
        async with asyncio.timeout(PATIENCE_S):
            await waiting
        assert after.of("one") == one


def test_composites_that_start_together_cannot_choose_the_same_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight = free_ports(8)
    monkeypatch.setattr(module, "CHILD_RANGE", eight)
    with composite(tmp_path / "1") as one, composite(tmp_path / "2") as other:
        given = [port for each in (one, other) for name in ("a", "b") for port in numbers(each.of(name))]
    assert sorted(port or 0 for port in given) == list(eight)


def test_ports_of_the_composite_itself_are_given_to_no_child(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(module, "CHILD_RANGE", range(port, port + 1))
    with composite(file) as ports:
        ports.reserve(port)
        with pytest.raises(PortInUse):
            ports.of("one")
