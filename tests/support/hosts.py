"""Hosts as network namespaces around one bridge, and connections between them and this process.

Each namespace lives as long as a process that waits for the end of its standard input: nothing is left behind, however
the tests end. Addresses are 10.77.0.N; the bridge, where clients are, has 10.77.0.100.
"""

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

import pytest

from tests.support.patience import PATIENCE_S, until

ROOT: Final = Path(__file__).parents[2]
PYTHON: Final = sys.executable
OUTSIDE: Final = "10.77.0.100"
NEEDED: Final = ("unshare", "nsenter", "ip", "mount")
BRIDGE_MAC: Final = "02:00:00:00:00:64"
CLONE_NEWNET: Final = 0x40000000
CHUNK_BYTES: Final = 64 * 1024
ANSWER_S: Final = 1.0
KEEPALIVE: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 11_000),
)
"""Options of accepted connections: those that the store asks PostgreSQL for."""


class NetworkNamespace:
    """The network namespace of a process, in which sockets can be made."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._descriptor = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        # A thread stays in the namespace that it has entered.
        self._inside = ThreadPoolExecutor(1, initializer=self._enter)

    def _enter(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(self._descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")

    async def open(self) -> socket.socket:
        """Return a socket of this namespace."""
        made = await asyncio.get_running_loop().run_in_executor(self._inside, socket.socket)
        made.setblocking(False)
        return made

    async def listen(self, address: tuple[str, int]) -> socket.socket:
        """Return a listening socket."""
        listener = await self.open()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(64)
        return listener

    async def connect(self, address: tuple[str, int]) -> socket.socket:
        """Return a connected socket."""
        made = await self.open()
        try:
            await asyncio.get_running_loop().sock_connect(made, address)
        except BaseException:
            made.close()
            raise
        return made

    async def get(self, address: tuple[str, int], path: str) -> int:
        """Return the HTTP status of an answer. Raises ``OSError`` without one within a second."""
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(sock=await self.connect(address))
                try:
                    writer.write(f"GET {path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n\r\n".encode())
                    return int((await reader.readline()).split()[1])
                finally:
                    writer.close()
        except (TimeoutError, LookupError) as error:
            raise OSError(f"{address} does not answer") from error

    async def kill(self) -> None:
        """Kill every process in this namespace, first the one that would start others again."""
        inode = os.fstat(self._descriptor).st_ino
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        while inside := [pid for pid in _processes() if _network_of(pid) == inode]:
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.01)

    async def run(self, *command: str) -> None:
        """Run a command in this namespace. Raises ``OSError`` if it fails."""
        await _run("nsenter", "-t", str(self.process.pid), "-n", *command)

    def close(self) -> None:
        """End the process, which ends the namespace."""
        self._inside.shutdown()
        os.close(self._descriptor)


class Network:
    """A bridge with hosts, as an asynchronous context manager."""

    def __init__(self) -> None:
        self._closing = contextlib.AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ports: dict[NetworkNamespace, str] = {}

    async def __aenter__(self) -> Self:
        if os.geteuid() != 0 or any(shutil.which(program) is None for program in NEEDED):
            pytest.skip(f"network namespaces need root, and {', '.join(NEEDED)}")
        self._closing.push_async_callback(self._end_tasks)
        try:
            self.outside = await self.start("cat")
            await self.outside.run("ip", "link", "set", "lo", "up")
            # Otherwise it has the address of one of its ports, which is then taken for it even when it is cut off.
            await self.outside.run("ip", "link", "add", "bridge", "address", BRIDGE_MAC, "type", "bridge")
            await self.outside.run("ip", "addr", "add", f"{OUTSIDE}/24", "dev", "bridge")
            await self.outside.run("ip", "link", "set", "bridge", "up")
        except OSError as error:
            await self._closing.aclose()
            pytest.skip(f"no network namespaces here: {error}")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._closing.aclose()

    async def start(self, *command: str, mounts: Sequence[str] = (), **pipes: object) -> NetworkNamespace:
        """Start a process in namespaces of its own; its standard input is a pipe, whose end ends it."""
        inside = " && ".join([*mounts, 'exec "$@"'])
        process = await asyncio.create_subprocess_exec(
            *("unshare", "--net", "--mount", "sh", "-c", inside, "sh", *command),
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            **pipes,  # type: ignore[arg-type]  # of the same function
        )
        own = Path("/proc/self/ns/net").stat().st_ino
        await until(lambda: process.returncode is not None or Path(f"/proc/{process.pid}/ns/net").stat().st_ino != own)
        if process.returncode is not None:
            raise OSError(f"unshare ended with {process.returncode}")
        found = NetworkNamespace(process)
        self._closing.push_async_callback(_end, found)
        return found

    async def attach(self, host: NetworkNamespace, number: int) -> None:
        """Connect a host to the bridge, with an address."""
        port = self._ports[host] = f"port{number}"
        peer = ("peer", "name", "eth0", "netns", str(host.process.pid))
        await self.outside.run("ip", "link", "add", port, "type", "veth", *peer)
        await self.outside.run("ip", "link", "set", port, "master", "bridge", "up")
        await host.run("ip", "link", "set", "lo", "up")
        await host.run("ip", "addr", "add", f"{address(number)}/24", "dev", "eth0")
        await host.run("ip", "link", "set", "eth0", "up")

    async def detach(self, host: NetworkNamespace) -> None:
        """Take a host off the bridge: what it sends, and what is sent to it, is lost."""
        await self.outside.run("ip", "link", "set", self._ports[host], "nomaster")

    @contextlib.asynccontextmanager
    async def cut(self, host: NetworkNamespace) -> AsyncIterator[None]:
        """Take a host off the bridge for a time."""
        await self.detach(host)
        try:
            yield
        finally:
            await self.outside.run("ip", "link", "set", self._ports[host], "master", "bridge")

    def forward(self, listener: socket.socket, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        """Forward each connection of a listener to a new one."""
        self._begin(self._accept(listener, connect))

    async def _accept(self, listener: socket.socket, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        with listener:
            while True:
                near, _ = await asyncio.get_running_loop().sock_accept(listener)
                # A service that keeps its connections alive, as PostgreSQL does, notices that a host has vanished.
                for level, option, value in KEEPALIVE:
                    near.setsockopt(level, option, value)
                self._begin(self._relay(near, connect))

    async def _relay(self, near: socket.socket, connect: Callable[[], Awaitable[socket.socket]]) -> None:
        with near, contextlib.suppress(OSError), await connect() as far:
            ways = [asyncio.ensure_future(way) for way in (_pump(near, far), _pump(far, near))]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def address(number: int) -> str:
    """Return the address of a host."""
    return f"10.77.0.{number}"


async def connect_here(port: int) -> socket.socket:
    """Return a socket that is connected to a port of this machine."""
    made = socket.socket()
    made.setblocking(False)
    await asyncio.get_running_loop().sock_connect(made, ("127.0.0.1", port))
    return made


def listen_here(port: int) -> socket.socket:
    """Return a listening socket on a port of this machine."""
    listener = socket.create_server(("127.0.0.1", port))
    listener.setblocking(False)
    return listener


def _processes() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit())


def _network_of(pid: int) -> int:
    """Return the inode of the network namespace of a process; 0 if it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return 0


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, CHUNK_BYTES):
        await loop.sock_sendall(target, data)


async def _end(namespace: NetworkNamespace) -> None:
    process = namespace.process
    assert process.stdin is not None
    process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), PATIENCE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
    namespace.close()


async def _run(*command: str) -> None:
    done = await asyncio.create_subprocess_exec(*command, stderr=subprocess.PIPE)
    _, error = await done.communicate()
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {error.decode().strip()}")
