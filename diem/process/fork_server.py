"""Forks processes from one that has imported their code: they start at once and share its memory (docs/adr/0044).

The supervisor starts the fork server before it opens anything, and requests processes from it. A forked process is its
child, so the supervisor sees the end by a descriptor of the process (pidfd_open(2)), and requests the exit code from
the fork server. If that dies or hangs, its children live on, and later ones are started as programs.
"""

import asyncio
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn, Self

import orjson
from setproctitle import setproctitle

from diem.errors import DiemError
from diem.process import lifecycle, log
from diem.process.imports import prepare_imports
from diem.process.program import main_module, start

ANSWER_WITHIN_S: Final = 10.0
"""Time for the fork server to answer, its imports included; after that it is killed."""
EXIT_UNKNOWN: Final = 255
"""In place of the exit code of a process that outlived the fork server."""
_MAX_REQUEST: Final = 1 << 17
"""Bytes of a request, most of which is the environment; the kernel accepts 200 KB."""
_LATER: Final = (
    "uvloop",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "encodings.idna",
    "services.data.store.sqlite",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""Modules that processes import only once they need them, as most systems do."""
_HANDLED: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
"""Signals that a process with an event loop handles, as a supervisor does."""
_FIRST_OTHER: Final = 3
"""First file descriptor after the standard ones."""


class NotForked(DiemError):
    """The fork server is gone, or cannot fork; nothing was started."""

    template = "the fork server starts no processes"


class ForkedProcess:
    """A process started by the fork server, as ``asyncio.subprocess.Process`` has it."""

    def __init__(self, server: "ForkServer", pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._descriptor = os.pidfd_open(pid)

    def send_signal(self, number: int) -> None:
        """Send a signal. Raises ``ProcessLookupError`` after the end."""
        if self.returncode is not None:
            raise ProcessLookupError(self.pid)
        signal.pidfd_send_signal(self._descriptor, number)

    async def wait(self) -> int:
        """Wait for the end; return the exit code, or the negative number of a signal. Called once."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        loop.add_reader(self._descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._descriptor)
        self.returncode = await self._server.exit_code(self.pid)
        os.close(self._descriptor)
        return self.returncode


class ForkServer:
    """The supervisor's end of the fork server."""

    def __init__(self, link: socket.socket, pid: int) -> None:
        self.pid = pid
        self._link = link
        self._link.setblocking(False)
        self._turn = asyncio.Lock()

    @classmethod
    def start(cls, processes: Iterable[str]) -> Self | None:
        """Start the fork server, which imports the programs of ``processes``; None on systems without pidfd.

        Called by a process without threads, whose descriptors it does not keep.
        """
        if not _has_pidfd():
            return None
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _serve_apart(theirs, processes)
        theirs.close()
        return cls(ours, pid)

    def close(self) -> None:
        """End the fork server, not its children."""
        if self._link.fileno() >= 0:
            self._link.close()
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)

    async def spawn(self, process: str, env: Mapping[str, str], stdin: int, output: int) -> ForkedProcess:
        """Start a process in a session of its own; ``output`` is for both of its outputs.

        Args:
            process: its kind, as of ``diem run``.
            env: its whole environment.
            stdin: descriptor of its standard input.
            output: descriptor of its outputs.

        Raises:
            NotForked: use another way.
        """
        request = orjson.dumps({"process": process, "env": dict(env)})
        answer = await self._request(request, [stdin, output])
        try:
            return ForkedProcess(self, int(answer))
        except (ValueError, OSError):
            raise NotForked from None

    async def exit_code(self, pid: int) -> int:
        """Return the exit code of a process that has ended."""
        try:
            return int(await self._request(orjson.dumps({"pid": pid}), []))
        except (NotForked, ValueError):
            return EXIT_UNKNOWN

    async def _request(self, request: bytes, descriptors: list[int]) -> bytes:
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    socket.send_fds(self._link, [request], descriptors)
                    if answer := await asyncio.get_running_loop().sock_recv(self._link, 64):
                        return answer
                    raise NotForked
            except (OSError, NotForked):  # TimeoutError is an OSError
                self.close()
                raise NotForked from None
            except asyncio.CancelledError:
                self.close()  # the next request would get this one's answer
                raise


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _serve_apart(link: socket.socket, processes: Iterable[str]) -> NoReturn:
    try:
        os.setsid()  # Ctrl-C is for the supervisor
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
        os.closerange(_FIRST_OTHER, link.fileno())
        os.closerange(link.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        _set_standard(os.open(os.devnull, os.O_RDWR), os.open(os.devnull, os.O_RDWR))
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__  # what has replaced them stays with the supervisor
        setproctitle("diem fork server")
        log.rewrite_failures(str)
        prepare_imports()
        for module in (*map(main_module, processes), *_LATER):
            # What is missing, a process reports itself.
            with suppress(Exception):
                import_module(module)
        # A collection in a child would otherwise write to every page that it shares.
        gc.freeze()
        _serve(link)
    finally:
        os._exit(lifecycle.EXIT_OK)


def _serve(link: socket.socket) -> None:
    while True:
        data, descriptors, _, _ = socket.recv_fds(link, _MAX_REQUEST, 2)
        if not data:
            return
        request = orjson.loads(data)
        answer = _exit_code(request["pid"]) if "pid" in request else _fork(link, request, *descriptors)
        link.send(b"%d" % answer)


def _exit_code(pid: int) -> int:
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return EXIT_UNKNOWN


def _fork(link: socket.socket, request: Mapping[str, Any], stdin: int, output: int) -> int:
    pid = os.fork()
    if pid == 0:
        link.close()
        _become(request["process"], request["env"], stdin, output)
    os.close(stdin)
    os.close(output)
    return pid


def _become(process: str, env: Mapping[str, str], stdin: int, output: int) -> NoReturn:
    code = lifecycle.EXIT_UNEXPECTED
    try:
        os.setsid()
        _set_standard(stdin, output)
        os.environ.clear()
        os.environ.update(env)
        time.tzset()
        code = start(process)
    finally:
        # Without unwinding: the frames below are the supervisor's.
        log.flush()
        os._exit(code)


def _set_standard(stdin: int, output: int) -> None:
    for number, descriptor in enumerate((stdin, output, output)):
        os.dup2(descriptor, number)
    os.close(stdin)
    os.close(output)
