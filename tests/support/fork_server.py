"""Fork server: starts ``diem``, its processes and load clients without importing their modules again.

Imports are three quarters of the CPU time that a process takes to start, and a run of all tests starts a thousand. So
one process of a run has imported everything, and forks. In tests, ``asyncio`` starts ``python -m deploy ...`` and the
others of ``MODULES`` this way, and so do processes that were started this way; whatever else is run is executed as
usual. A forked process has its own environment, directory, standard streams and signal handlers, and all that it shares
with the others are imported modules. It is a child of the fork server, which reports its end.

Tests of the start itself take the fixture ``executed_processes``.
"""

import asyncio
import asyncio.subprocess
import contextlib
import gc
import os
import runpy
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module, metadata
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import orjson
import pytest

from diem.process.imports import skip_sniffio
from tests.support import installed  # noqa: F401  # forked processes know what it has found

ROOT: Final = Path(__file__).parents[2]
DIEM: Final = "deploy"
FAKED_COMPOSITE: Final = "tests.unit.services.composite.faked_composite"
FILE_WORKER: Final = "services.data.files.worker"
MODULES: Final = frozenset(
    {
        *(DIEM, FILE_WORKER),
        *(FAKED_COMPOSITE, "tests.load.attackers", "tests.load.clients", "tests.support.swallowing"),
    }
)
"""What ``diem up``, composites, Data Services and tests start."""
_more: Final[set[str]] = set()
"""Further modules that are forked: those that the server was started for."""
_WITH_PARENT: Final = (sys.executable, "-m", "deploy.system.pdeathsig")
"""What starts a command that is to end with its parent; it is left out, because a forked one is no child of that."""
_NUMBER: Final = struct.Struct("i")
_STREAMS: Final = 3

_execute: Final = asyncio.create_subprocess_exec
_address: str | None = None
"""Socket of the fork server; None: processes are executed."""


# In the processes that start others


class _Forked:
    """A child of the fork server, as asyncio's transport expects it of ``subprocess.Popen``."""

    def __init__(self, connection: socket.socket, pid: int, ends: Mapping[int, IO[bytes]]) -> None:
        self.connection = connection
        self.pid = pid
        self.returncode: int | None = None
        self.stdin, self.stdout, self.stderr = (ends.get(stream) for stream in range(_STREAMS))

    def poll(self) -> int | None:
        """Return the exit code, if it is known."""
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.returncode is None:
            # The server has waited for it, and its exit code may not have been read yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


class _Transport(BaseSubprocessTransport):
    """Transport of a process that the fork server starts."""

    _loop: asyncio.AbstractEventLoop
    _proc: Any

    def _start(  # noqa: PLR0917  # asyncio calls it
        self, args: Any, shell: bool, stdin: Any, stdout: Any, stderr: Any, bufsize: int, **options: Any
    ) -> None:
        ends: dict[int, IO[bytes]] = {}
        opened: list[int] = []
        passed: list[int] = []
        try:
            for stream, wanted in enumerate((stdin, stdout, stderr)):
                if wanted == subprocess.PIPE:
                    reading, writing = os.pipe()
                    own, other = (writing, reading) if stream == 0 else (reading, writing)
                    ends[stream] = os.fdopen(own, "wb" if stream == 0 else "rb", buffering=0)
                    opened.append(other)
                    passed.append(other)
                elif wanted == subprocess.DEVNULL:
                    opened.append(os.open(os.devnull, os.O_RDWR))
                    passed.append(opened[-1])
                elif wanted == subprocess.STDOUT:
                    passed.append(passed[1])
                else:
                    passed.append(stream if wanted is None else wanted if isinstance(wanted, int) else wanted.fileno())
            connection, pid = _request(args, passed, options)
        except BaseException:
            for end in ends.values():
                end.close()
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)
        self._proc = _Forked(connection, pid, ends)
        self._loop.add_reader(connection.fileno(), self._ended)

    def _ended(self) -> None:
        connection = self._proc.connection
        self._loop.remove_reader(connection.fileno())
        with connection:
            answer = connection.recv(_NUMBER.size)
        # Without an answer, the fork server has ended.
        self._process_exited(_NUMBER.unpack(answer)[0] if answer else -signal.SIGKILL)


def _request(argv: Sequence[str], streams: Sequence[int], options: Mapping[str, Any]) -> tuple[socket.socket, int]:
    env = options["env"]
    request = {
        "argv": list(map(os.fspath, argv)),
        "cwd": os.fspath(options["cwd"] or Path.cwd()),
        "env": dict(os.environ if env is None else env),
        "session": options["start_new_session"],
    }
    assert _address is not None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(_address)
        text = orjson.dumps(request)
        socket.send_fds(connection, [_NUMBER.pack(len(text))], streams)
        connection.sendall(text)
        answer = connection.recv(_NUMBER.size)
        if not answer:
            raise ConnectionError("the fork server has ended")
        return connection, _NUMBER.unpack(answer)[0]
    except BaseException:
        connection.close()
        raise


async def _create_subprocess(
    *argv: Any,
    stdin: Any = None,
    stdout: Any = None,
    stderr: Any = None,
    limit: int = 1 << 16,
    **options: Any,
) -> asyncio.subprocess.Process:
    """Start a process as :func:`asyncio.create_subprocess_exec` does."""
    if _address is None or not _is_forked(argv) or not options.keys() <= {"cwd", "env", "start_new_session"}:
        return await _execute(*argv, stdin=stdin, stdout=stdout, stderr=stderr, limit=limit, **options)
    loop = asyncio.get_running_loop()
    protocol = asyncio.subprocess.SubprocessStreamProtocol(limit=limit, loop=loop)
    waiter = loop.create_future()
    transport = _Transport(
        *(loop, protocol, _program(argv), False, stdin, stdout, stderr, 0),
        waiter=waiter,
        **{"cwd": None, "env": None, "start_new_session": False} | options,
    )
    await waiter
    return asyncio.subprocess.Process(transport, protocol, loop)


def _is_forked(argv: Sequence[Any]) -> bool:
    program = _program(argv)
    return program[:2] == (sys.executable, "-m") and program[2] in MODULES | _more


def _program(argv: Sequence[Any]) -> Sequence[Any]:
    return argv[len(_WITH_PARENT) :] if argv[: len(_WITH_PARENT)] == _WITH_PARENT else argv


@contextmanager
def running(modules: Collection[str] = (), imports: Collection[str] = ()) -> Iterator[str]:
    """Run a fork server; yields its address.

    Args:
        modules: are forked besides ``MODULES``; not imported before, so that each runs as a program.
        imports: what these import.
    """
    _more.update(modules)
    directory = tempfile.mkdtemp(prefix="diem-fork-")
    address = f"{directory}/socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        more = f"{sorted(modules)}, {sorted(imports)}"
        code = f"from tests.support import fork_server; fork_server.serve({listener.fileno()}, {address!r}, {more})"
        server = subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            # Ctrl-C is for the tests, which end what they have started.
            start_new_session=True,
        )
    try:
        yield address
    finally:
        assert server.stdin is not None
        server.stdin.close()
        server.wait()


def install(address: Callable[[], str]) -> None:
    """Let ``asyncio`` in this process start ``MODULES`` by a fork server; ``address`` is called when one is needed."""

    async def create_subprocess(*argv: Any, **options: Any) -> asyncio.subprocess.Process:
        global _address  # noqa: PLW0603
        if _address is None and _is_forked(argv):
            _address = await asyncio.to_thread(address)
        return await _create_subprocess(*argv, **options)

    asyncio.create_subprocess_exec = create_subprocess


@pytest.fixture
def executed_processes() -> Iterator[None]:
    """Execute all processes, as users do."""
    with executing():
        yield


@contextmanager
def executing() -> Iterator[None]:
    """Execute all processes that are started in the context, and what these start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio, "create_subprocess_exec", _execute)
        yield


# In the fork server


def serve(descriptor: int, address: str, modules: Collection[str], imports: Collection[str]) -> None:
    """Fork a process for each request, until the end of standard input."""
    global _address  # noqa: PLW0603
    _address = address
    _more.update(modules)
    skip_sniffio()
    _import(imports)
    # Supervisors among the forked processes find this function.
    asyncio.create_subprocess_exec = _create_subprocess
    gc.collect()
    gc.freeze()
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno())
    children: dict[int, socket.socket] = {}
    with socket.socket(fileno=descriptor) as listener, selectors.DefaultSelector() as selector:
        for readable in (listener, woken, sys.stdin):
            selector.register(readable, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if listener in ready:
                connection, _ = listener.accept()
                if pid := _fork(connection):
                    children[pid] = connection
                    with suppress(OSError):
                        connection.sendall(_NUMBER.pack(pid))
                else:
                    connection.close()
            if woken in ready:
                woken.recv(4096)
            while ended := _ended():
                pid, code = ended
                with children.pop(pid) as connection, suppress(OSError):
                    connection.sendall(_NUMBER.pack(code))
            if sys.stdin in ready:
                shutil.rmtree(Path(address).parent)
                return


def _import(more: Collection[str]) -> None:
    from deploy.cli.commands import ENTRY_POINTS  # noqa: PLC0415
    from diem.process.program import program  # noqa: PLC0415
    from diem.process.settings import PROCESSES  # noqa: PLC0415

    for point in metadata.entry_points(group=ENTRY_POINTS):
        point.load()
    for name in PROCESSES:
        program(name)
    for name in (*_LATE, *more):
        import_module(name)
    # Other threads do not exist in forked processes.
    assert len(list(Path("/proc/self/task").iterdir())) == 1


_LATE: Final = (
    "anyio._backends._asyncio",
    "asyncpg",
    "aiosqlite",
    "certifi",
    "cryptography.hazmat.primitives.asymmetric.ed25519",
    "cryptography.x509",
    "deploy.admin.app",
    "deploy.admin.server",
    "deploy.admin.sessions",
    "tools.check.facts",
    "deploy.kafka.program",
    "deploy.kafka.users",
    "deploy.nginx",
    "deploy.system.up",
    "diem.traffic.kafka_sink",
    "encodings.idna",
    "encodings.utf_8_sig",
    "httpcore",
    "pydantic.type_adapter",
    "services.data.files.convert",
    "services.data.files.suggest",
    "services.data.publisher.publisher",
    "services.data.store.postgres",
    "services.data.store.sqlite",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.http.h11_impl",
    "uvicorn.protocols.websockets.auto",
    "uvloop",
)
"""What processes import when they need it."""


def _ended() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, os.waitstatus_to_exitcode(status)) if pid else None


def _fork(connection: socket.socket) -> int | None:
    """Return the pid of a new process; None when the process that requested it was killed meanwhile."""
    size, streams, _, _ = socket.recv_fds(connection, _NUMBER.size, _STREAMS)
    try:
        text = connection.recv(_NUMBER.unpack(size)[0], socket.MSG_WAITALL) if size else b""
        try:
            request = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        # As of an executed process: who has its pid finds its session and its streams. It closes all other files then.
        waiting, begun = os.pipe()
        if pid := os.fork():
            os.close(begun)
            with os.fdopen(waiting, "rb") as until:
                until.read()
            return pid
        _run(request, streams)
    finally:
        for descriptor in streams:
            os.close(descriptor)


def _run(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    code = 1
    try:
        _become(request, streams)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter does
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(request: Mapping[str, Any], streams: Sequence[int]) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request["session"]:
        os.setsid()
    # Above all others first: a stream may have the number of another one.
    for stream, descriptor in enumerate([os.dup(descriptor) for descriptor in streams]):
        os.dup2(descriptor, stream)
    os.closerange(_STREAMS, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    tempfile.tempdir = None
    from deploy.cli import app  # noqa: PLC0415

    module, *arguments = request["argv"][2:]
    sys.argv = [module, *arguments]
    if module == DIEM:
        app()
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit()
