"""Services of a whole test run, started on demand: one Kafka broker, one PostgreSQL server, one fork server.

The main process of the run owns them. Its workers (pytest-xdist) request them over a Unix socket, so that the end of
one worker does not affect the others. A run without workers does the same.
"""

import asyncio
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest

from deploy.kafka.program import prepare
from diem.errors import DiemError
from tests.support import fork_server, postgres
from tests.support.local_cluster import LocalCluster
from tests.support.patience import FACTOR, PATIENCE_S

_ADDRESS = "diem_shared_services"
"""Key of a worker's input under which it is given the socket's path."""


class Unavailable(Exception):
    """A service is not available on this machine."""


class SharedServices:
    """Owner of the services of one run; its one thread starts them, serves requests and stops them again."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="diem-tests-"))
        self.address = str(self._directory / "socket")
        self._starters: dict[str, Callable[[ExitStack, Path], dict[str, Any]]] = {
            "fork server": _start_fork_server,
            "kafka": _start_kafka,
            "postgres": _start_postgres,
        }
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen()
        # Brokers end with the thread that started them, so it lives as long as the run.
        self._thread = threading.Thread(target=self._serve, name="shared services", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop every service and remove its data; blocks until that is done."""
        _ask(self.address, "")
        self._thread.join()
        self._listener.close()
        shutil.rmtree(self._directory)

    def _serve(self) -> None:
        answers: dict[str, dict[str, Any]] = {}
        with ExitStack() as running:
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    name = connection.recv(64).decode().strip()
                    if not name:
                        break
                    if name not in answers:
                        answers[name] = self._start(name, running)
                    connection.sendall(orjson.dumps(answers[name]))

    def _start(self, name: str, running: ExitStack) -> dict[str, Any]:
        try:
            return self._starters[name](running, self._directory / name)
        except (DiemError, postgres.NoPostgres, OSError, RuntimeError) as error:
            return {"error": str(error)}


def _start_fork_server(running: ExitStack, _directory: Path) -> dict[str, Any]:
    return {"address": running.enter_context(fork_server.running())}


def _start_kafka(running: ExitStack, directory: Path) -> dict[str, Any]:
    cluster = LocalCluster(directory, prepare=prepare, time_factor=FACTOR)
    on_own_loop(cluster.start())
    running.callback(lambda: on_own_loop(cluster.stop()))
    return {"bootstrap_servers": cluster.bootstrap_servers}


def _start_postgres(running: ExitStack, _directory: Path) -> dict[str, Any]:
    server = running.enter_context(postgres.running())
    return {"directory": str(server.directory), "port": server.port}


def on_own_loop(work: Coroutine[object, object, None]) -> None:
    """Run on a separate loop: the tests' loops live only for a test."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work)
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


def _ask(address: str, name: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(2 * PATIENCE_S)
        connection.connect(address)
        connection.sendall(f"{name}\n".encode())
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


class SharedServicesPlugin:
    """Pytest hooks that give each worker the address of the services."""

    def __init__(self, config: pytest.Config) -> None:
        worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        self._services: SharedServices | None = None
        if worker is None:
            self._services = SharedServices()
            self.address = self._services.address
        else:
            self.address = str(worker[_ADDRESS])

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass the address to a new worker."""
        node.workerinput[_ADDRESS] = self.address

    def pytest_unconfigure(self) -> None:
        """Stop the services when the process that owns them ends."""
        if self._services is not None:
            self._services.close()

    def ask(self, name: str) -> dict[str, Any]:
        """Return the address of a service, starting it if necessary. Raises ``Unavailable``."""
        answer: dict[str, Any] = orjson.loads(_ask(self.address, name))
        if "error" in answer:
            raise Unavailable(answer["error"])
        return answer
