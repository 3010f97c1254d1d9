import socket
import sys

import pytest

from diem.process.listeners import PortTaken, bind
from diem.process.ports import PortReservations, is_free
from tests.support.ports import free_port, free_ports
from tests.support.together import printed_together


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


def test_choice_leaves_out_what_it_is_told_to_and_ends_when_nothing_is_left() -> None:
    both = free_ports(2)
    with PortReservations() as reservations:
        assert reservations.choose(both, {both[1]}) == both[0]
        with pytest.raises(PortTaken):
            reservations.choose(both[:1])


def test_processes_that_choose_at_once_choose_different_ports() -> None:
    ninety = free_ports(90)
    chosen = printed_together(
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
