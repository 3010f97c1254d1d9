"""Connections are accepted in batches, and after a pause when the process runs out of descriptors."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator

import pytest

from diem.links import listener as listener_module
from diem.links.listener import ACCEPT_BATCH, SPARE_FILES, BatchAcceptor
from diem.process.listeners import bind
from tests.support.patience import PATIENCE_S, until


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
    return [await asyncio.to_thread(socket.create_connection, address, PATIENCE_S) for _ in range(count)]


async def until_made(count: int) -> None:
    await until(lambda: Counting.made >= count)


async def test_a_bounded_number_is_opened_in_a_turn_and_the_newest_first(listener: socket.socket) -> None:
    opened = list[str]()

    class Named(Counting):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            opened.append(transport.get_extra_info("peername")[1])
            super().connection_made(transport)

    clients = await dial(listener, ACCEPT_BATCH + 5)
    acceptor = BatchAcceptor(listener, Named)
    acceptor._accept()
    assert len(acceptor._opening) == ACCEPT_BATCH
    await until_made(ACCEPT_BATCH + 5)
    assert opened == [client.getsockname()[1] for client in reversed(clients)]
    acceptor.stop()
    for client in clients:
        client.close()


async def test_beyond_a_number_others_wait_in_the_queue_and_take_the_places_of_those_that_gave_up(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "ACCEPT_BATCH", 1)
    monkeypatch.setattr(listener_module, "MAX_WAITING", 4)
    counted = Listener(listener)
    clients = await dial(listener, 7)
    acceptor = BatchAcceptor(counted, Counting)  # type: ignore[arg-type]  # it has what is needed
    acceptor._accept()
    assert (counted.accepts, len(acceptor._waiting)) == (4, 3)
    for gone in clients[:2]:
        gone.close()
    acceptor._accept()
    assert (counted.accepts, len(acceptor._waiting)) == (7, 3)
    await until_made(5)
    acceptor.stop()
    for client in clients:
        client.close()
    assert Counting.made == 5


async def test_those_that_wait_leave_files_to_the_rest_of_the_process(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = await dial(listener, 7)
    next_file = socket.socket()
    limit = next_file.fileno() + 3 + SPARE_FILES
    next_file.close()
    monkeypatch.setattr("resource.getrlimit", lambda _which: (limit, limit))
    monkeypatch.setattr(listener_module, "ACCEPT_BATCH", 1)
    acceptor = BatchAcceptor(listener, Counting)
    acceptor._accept()
    assert len(acceptor._waiting) == 3
    await until_made(7)
    acceptor.stop()
    for client in clients:
        client.close()


async def test_those_that_wait_are_closed_at_the_end(listener: socket.socket) -> None:
    clients = await dial(listener, ACCEPT_BATCH + 1)
    acceptor = BatchAcceptor(listener, Counting)
    acceptor._accept()
    acceptor.stop()
    assert not clients[0].recv(1)
    await until_made(ACCEPT_BATCH)
    for client in clients:
        client.close()


async def test_clients_that_gave_up_while_they_waited_are_closed_unserved_beside_a_batch_of_others(
    listener: socket.socket,
) -> None:
    clients = await dial(listener, ACCEPT_BATCH - 12)
    for gone in await dial(listener, 3 * ACCEPT_BATCH):
        gone.close()
    acceptor = BatchAcceptor(listener, Counting)
    acceptor._accept()
    assert (len(acceptor._opening), len(acceptor._waiting)) == (ACCEPT_BATCH - 12, 0)
    await until_made(ACCEPT_BATCH - 12)
    acceptor.stop()
    for client in clients:
        # In a thread: a transport closes its socket in a later turn of the loop.
        assert await asyncio.to_thread(client.recv, 1) == b""
        client.close()
    assert Counting.made == ACCEPT_BATCH - 12


async def test_connections_wait_in_the_queue_while_the_process_has_enough(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_module, "BUSY_PAUSE_S", 0.001)
    looks = iter([True, True])
    acceptor = BatchAcceptor(listener, Counting, is_busy=lambda: next(looks, False))
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
