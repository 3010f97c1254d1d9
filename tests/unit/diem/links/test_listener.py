"""Connections are accepted in batches, and after a pause when the process runs out of descriptors."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from diem.links import listener as listener_module
from diem.links.listener import ACCEPT_BATCH, BatchAcceptor
from diem.process.listeners import bind
from tests.support.patience import until


class Counting(asyncio.Protocol):
    """Counts the connections that were made."""

    made = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        Counting.made += 1
        transport.close()


class Listener:
    """A listening socket that counts the calls of ``accept``, of which the first fails."""

    def __init__(self, inner: socket.socket, *failures: int) -> None:
        self.inner = inner
        self.failures = list(failures)
        self.accepts = 0

    def fileno(self) -> int:
        return self.inner.fileno()

    def accept(self) -> tuple[socket.socket, object]:
        self.accepts += 1
        if self.failures:
            raise OSError(self.failures.pop(0), "not now")
        return self.inner.accept()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    Counting.made = 0
    with contextlib.closing(bind("127.0.0.1", 0)) as found:
        yield found


async def dial(listener: socket.socket, count: int) -> list[socket.socket]:
    address = listener.getsockname()
    return [await asyncio.to_thread(socket.create_connection, address) for _ in range(count)]


async def until_made(count: int) -> None:
    await until(lambda: Counting.made >= count)


async def test_many_that_wait_are_accepted_in_one_turn_and_a_bounded_number(listener: socket.socket) -> None:
    counted = Listener(listener)
    clients = await dial(listener, ACCEPT_BATCH + 5)
    acceptor = BatchAcceptor(counted, Counting)  # type: ignore[arg-type]  # it has what is needed
    acceptor._accept()
    assert counted.accepts == ACCEPT_BATCH
    await until_made(ACCEPT_BATCH + 5)
    acceptor.stop()
    for client in clients:
        client.close()


async def test_clients_that_gave_up_in_the_queue_are_closed_unserved_beside_a_batch_of_others(
    listener: socket.socket,
) -> None:
    for gone in await dial(listener, 3 * ACCEPT_BATCH):
        gone.close()
    clients = await dial(listener, ACCEPT_BATCH - 12)
    counted = Listener(listener)
    acceptor = BatchAcceptor(counted, Counting)  # type: ignore[arg-type]  # it has what is needed
    acceptor._accept()
    assert counted.accepts == 4 * ACCEPT_BATCH - 12
    await until_made(ACCEPT_BATCH - 12)
    acceptor.stop()
    for client in clients:
        assert not client.recv(1)
        client.close()
    assert Counting.made == ACCEPT_BATCH - 12


async def test_connections_wait_in_the_queue_while_the_process_has_enough(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "BUSY_PAUSE_S", 0.001)
    looks = iter([True, True])
    counted = Listener(listener)
    acceptor = BatchAcceptor(counted, Counting, is_busy=lambda: next(looks, False))  # type: ignore[arg-type]  # as above
    (client,) = await dial(listener, 1)
    await until_made(1)
    assert next(looks, None) is None
    acceptor.stop()
    client.close()


async def test_without_descriptors_it_is_tried_again_later(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "EXHAUSTED_PAUSE_S", 0.01)
    acceptor = BatchAcceptor(Listener(listener, errno.EMFILE, errno.ECONNABORTED), Counting)  # type: ignore[arg-type]
    (client,) = await dial(listener, 1)
    await until_made(1)
    acceptor.stop()
    client.close()
