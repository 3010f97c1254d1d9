"""An event loop in virtual time: its clock jumps to the next timer, its connections are in memory.

It runs the real code: protocols, tasks, time-outs. A walk of minutes takes milliseconds and is reproducible.
"""

import asyncio
import errno
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

LATENCY_S: Final = 0.001
"""Latency from one end of a connection to the other."""

T = TypeVar("T")
Factory = Callable[[], asyncio.BaseProtocol]


class _Selector(selectors.DefaultSelector):
    """Advances the clock instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            if timeout is None:
                raise RuntimeError("nothing is scheduled: the loop would wait for ever")
            self.now += max(0.0, timeout)
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """``listening`` maps ports to factories of servers; connections to other ports are refused."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)
        self.listening: dict[int, Factory] = {}
        self._accepted: dict[int, list[_End]] = {}

    def time(self) -> float:
        return self._virtual.now

    def end_process(self, port: int) -> None:
        """Stop listening on a port and cut its connections, including new ones without data."""
        self.listening.pop(port, None)
        for end in self._accepted.pop(port, []):
            end.abort()

    async def create_connection(  # type: ignore[override] # the part of it that the clients use
        self, protocol_factory: Factory, host: str, port: int, **_options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        await asyncio.sleep(LATENCY_S)
        accept = self.listening.get(port)
        if accept is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed ({host}, {port})")
        near, far = protocol_factory(), accept()
        ours, theirs = _End(self, near), _End(self, far)
        ours.peer, theirs.peer = theirs, ours
        self._accepted[port] = [end for end in self._accepted.get(port, []) if not end.is_closing()] + [theirs]
        far.connection_made(theirs)
        near.connection_made(ours)
        return ours, near


class _End(asyncio.Transport):
    """One end of a connection: data arrives at the peer in order, unless the peer has paused."""

    def __init__(self, loop: VirtualLoop, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.peer: _End
        self._loop = loop
        self._protocol = cast("asyncio.Protocol", protocol)
        self._arrived: deque[bytes | None] = deque()
        """Received data that was not delivered; None = end of the stream."""
        self._reading = True
        self._closing = False
        self._lost = False
        self._eof_sent = False
        self._high = 64 * 1024
        self._is_full = False

    # Writing

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._eof_sent or not data:
            return
        self.peer._arrived.append(bytes(data))
        self._loop.call_later(LATENCY_S, self.peer._deliver)
        if not self._is_full and self.get_write_buffer_size() > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._closing and not self._eof_sent:
            self._eof_sent = True
            self.peer._arrived.append(None)
            self._loop.call_later(LATENCY_S, self.peer._deliver)

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else self._high

    def get_write_buffer_size(self) -> int:
        return sum(len(data) for data in self.peer._arrived if data)

    # Reading

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._deliver)

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def _deliver(self) -> None:
        while self._arrived and self._reading and not self._lost:
            data = self._arrived.popleft()
            if data is not None:
                self._protocol.data_received(data)
            elif not self._protocol.eof_received():
                self.close()
            self.peer._drained()

    def _drained(self) -> None:
        if self._is_full and self.get_write_buffer_size() <= self._high // 4:
            self._is_full = False
            self._protocol.resume_writing()

    # The end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.peer._arrived.append(None)
            self._loop.call_later(LATENCY_S, self.peer._deliver)
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        """Cut the connection: nothing more arrives at either end."""
        for end in (self, self.peer):
            if not end._lost:
                end._closing = True
                end._arrived.clear()
                self._loop.call_soon(end._end, ConnectionResetError())

    def _end(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(error)


def run_virtual(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main` on a new virtual loop."""
    loops: list[VirtualLoop] = []

    def make() -> VirtualLoop:
        loops.append(VirtualLoop())
        return loops[-1]

    with asyncio.Runner(loop_factory=make) as runner:
        runner.get_loop()
        return runner.run(main(loops[0]))
