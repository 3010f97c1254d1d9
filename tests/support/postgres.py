"""A real PostgreSQL for tests: one cluster for a whole run, with separate databases."""

import contextlib
import ctypes
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.ports import free_port

USER = "diem"
PASSWORD = "p%w/d: of tests"
START_WITHIN_S = 60.0
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


class NoPostgres(Exception):
    """PostgreSQL's programs are not installed."""

    def __str__(self) -> str:
        return "No PostgreSQL here: run deploy/install/postgres.sh as root (on Debian: apt install postgresql)"


def programs() -> Path:
    """Return the directory of PostgreSQL's programs, the newest of several. Raises ``NoPostgres``."""
    if found := shutil.which("initdb"):
        return Path(found).resolve().parent
    # Debian keeps all but the clients' programs out of the path.
    kept = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not kept:
        raise NoPostgres
    return max(kept, key=lambda path: float(path.parent.name))


class Cluster:
    """A cluster in a directory of its own, on a free port of this machine, with fsync as in production."""

    def __init__(self, bin_: Path, directory: Path | None = None, port: int | None = None) -> None:
        self._bin = bin_
        # It refuses to be root.
        self._user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        # Those of a server that another process of the run owns, or its own.
        self.directory = directory or Path(tempfile.mkdtemp(prefix="diem-postgres-"))
        self.port = port or free_port()
        self._server: subprocess.Popen[bytes] | None = None
        self._empty: list[str] = []

    def make(self) -> None:
        """Create the cluster."""
        password = self.directory / "password"
        password.write_text(PASSWORD + "\n")
        if self._user is not None:
            for path in (self.directory, password):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)
        options = [
            "--auth=scram-sha-256",
            f"--username={USER}",
            f"--pwfile={password}",
            "--encoding=UTF8",
            "--locale=C",
        ]
        made = self._start("initdb", "-D", str(self.data), *options, stdout=subprocess.PIPE)
        output = made.communicate()[0]
        if made.returncode:
            raise RuntimeError(f"initdb failed: {output.decode()[-2000:]}")

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def start(self, **settings: str) -> None:
        """Start the server and wait until it accepts sessions."""
        options = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "fsync": "on",
            # For sources that read a publication.
            "wal_level": "logical",
            "max_connections": "200",
            "shared_buffers": "64MB",
            **settings,
        }
        told = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        log = (self.directory / "log").open("ab")
        with log:
            self._server = self._start("postgres", "-D", str(self.data), "-p", str(self.port), *told, stdout=log)
        deadline = time.monotonic() + START_WITHIN_S
        while self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)).returncode:
            if self._server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.directory / "log").read_text()[-2000:])
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        assert self._server is not None
        return self._server.pid

    def stop(self, number: signal.Signals = signal.SIGINT) -> None:
        """Stop the server with SIGINT, its fast shutdown."""
        server, self._server = self._server, None
        if server is not None:
            server.send_signal(number)
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.send_signal(signal.SIGQUIT)
                server.wait(30)

    def remove(self) -> None:
        """Stop the server and remove its data."""
        self.stop()
        shutil.rmtree(self.directory)

    def sql(self, statement: str, database: str = "postgres") -> list[str]:
        """Run statements; return the rows as psql prints them."""
        done = self._run("psql", "-qAtX", "-v", "ON_ERROR_STOP=1", "-d", self.dsn(database), "-c", statement)
        if done.returncode:
            raise RuntimeError(done.stderr.decode())
        return done.stdout.decode().splitlines()

    def dsn(self, database: str) -> str:
        """Connection string for PostgreSQL's own programs."""
        return f"host=127.0.0.1 port={self.port} user={USER} password='{PASSWORD}' dbname={database}"

    def url(self, database: str) -> str:
        """Return the URL for the store; the password has characters that a URL must escape."""
        quoted = "".join(f"%{ord(c):02X}" if not c.isalnum() else c for c in PASSWORD)
        return f"postgresql://{USER}:{quoted}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Return the name of an empty database: of an emptied one, because creating one takes 0.4 s of CPU time."""
        if self._empty:
            return self._empty.pop()
        name = f"t{secrets.token_hex(6)}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def empty(self, database: str) -> None:
        """End all sessions of a database, and remove what it contains, so that another test can use it."""
        sessions = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        removal = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        # Waits for their end: one of them may have the lock of a store, which the next test needs.
        self.sql(f"SELECT pg_terminate_backend(pid, 30000) {sessions}; {removal}", database)
        self._empty.append(database)

    def drop(self, database: str) -> None:
        """Drop a database, even with open sessions."""
        self.sql(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")

    def cut(self, database: str) -> int:
        """Terminate all sessions of a database, as an administrator would; return their number."""
        which = f"datname = '{database}'"
        found = self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {which}")  # ours
        return len(found)

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([self._bin / program, *arguments], capture_output=True, check=False, timeout=60)

    def _start(self, program: str, *arguments: str, stdout: object) -> subprocess.Popen[bytes]:
        command = [str(self._bin / program), *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        options = {"stdout": stdout, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL, "env": environment}
        who = {} if self._user is None else {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return subprocess.Popen(  # type: ignore[call-overload, no-any-return]
            command,
            cwd=self.directory,
            preexec_fn=_end_with_parent,  # noqa: PLW1509  # one system call, after the change of user
            **options,
            **who,
        )


def _end_with_parent() -> None:
    # A run that is killed leaves no server behind.
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGINT), 0, 0, 0)


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """Run a cluster. Raises ``NoPostgres``."""
    cluster = Cluster(programs())
    try:
        cluster.make()
        cluster.start()
        yield cluster
    finally:
        cluster.remove()
