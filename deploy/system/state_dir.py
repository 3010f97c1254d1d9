"""The state directory of a ``diem up``: its lock, keys and files, and the list of its processes."""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from diem.errors import ConfigurationError, DiemError
from diem.process.auth import SharedKey, foreign_owner
from diem.process.key_ring import KeyRing, KeyRole
from diem.process.private_files import replace_private

MAX_SOCKET_PATH_BYTES: Final = 100
"""Systems allow 104 to 108 bytes, including the terminating zero."""


@dataclass(eq=False)
class AlreadyUp(DiemError):
    """Another ``diem up`` has locked the state directory."""

    path: Path
    pid: int | None

    def __str__(self) -> str:
        """Return the text."""
        who = f" (process {self.pid})" if self.pid else ""
        return f"diem is already up in {self.path}{who}: stop it first, or choose another --state-dir"


@dataclass(eq=False)
class NotUp(DiemError):
    """No ``diem up`` runs in the state directory."""

    template = "diem is not up in {path}: start it with `diem up`, or give its --state-dir"

    path: Path


@dataclass(eq=False)
class BadStateDir(ConfigurationError):
    """The state directory cannot be used."""

    template = "state directory {path}: {reason}"

    path: Path
    reason: str


class StateDir:
    """Paths and content of the files of one state directory."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.internal_key_file = self.path / "internal.key"
        self.metrics_key_file = self.path / f"{KeyRole.METRICS}.key"
        self.write_key_file = self.path / "write.key"
        self.operator_key_file = self.path / "operator.key"
        self.traffic_salt_file = self.path / "traffic.salt"
        self.logs = self.path / "logs"
        self.targets_file = self.path / "targets.json"
        self._processes = self.path / "processes.json"
        self._lock_file = self.path / "lock"
        self._short_socket = self.path / "control.path"

    def check(self) -> None:
        """Check that no other user could replace keys in the directory, or the URLs they are sent to.

        Raises:
            BadStateDir: another user owns it, or others may write to it. A missing directory passes.
        """
        try:
            status = self.path.stat()
        except OSError:
            return
        if owner := foreign_owner(status):
            reason = f"it belongs to user {owner}: run this as {owner}, or choose another --state-dir"
            raise BadStateDir(self.path, reason)
        if status.st_mode & 0o022:
            reason = f"others may write it: run chmod go-w {self.path}, or choose another --state-dir"
            raise BadStateDir(self.path, reason)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Create the directory with its keys and lock it, at most until the process ends.

        Raises:
            AlreadyUp: another process has locked it.
            BadStateDir: it cannot be created or written, or another user owns or may write it.
            BadKeyFile: a key in it is invalid.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.check()
            self.logs.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BadStateDir(self.path, error.strerror or str(error)) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise AlreadyUp(self.path, self.read_processes().get("pid")) from None
            self.remove_processes()  # left behind by a killed ``diem up``
            for stale in (self.path / "sockets").glob("*.sock"):
                stale.unlink(missing_ok=True)
            self.create_keys()
            SharedKey.create(self.operator_key_file)
            yield
        finally:
            os.close(descriptor)

    @property
    def shared_key_files(self) -> tuple[Path, ...]:
        """The files of shared secrets, on one machine or on several."""
        return self.internal_key_file, self.metrics_key_file, self.write_key_file, self.traffic_salt_file

    @property
    def role_key_files(self) -> tuple[Path, ...]:
        """The files of keys for processes without the internal key: of two roles, and for the metadata service."""
        return tuple(self.path / f"{name}.key" for name in (KeyRole.FEED, KeyRole.METADATA, "plans"))

    def create_keys(self, *, with_roles: bool = False) -> list[Path]:
        """Create missing files of :attr:`shared_key_files`, and return them; check the others.

        Args:
            with_roles: those of :attr:`role_key_files`, too.

        Raises:
            BadStateDir: the directory cannot be created or written, or another user owns or may write it.
            BadKeyFile: a file in it is invalid.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.check()
            # During a key's replacement, its file has two.
            wanted = self.shared_key_files + (self.role_key_files if with_roles else ())
            made = [file for file in wanted if not file.exists()]
            for file in made:
                if file == self.traffic_salt_file:
                    from diem.traffic.salt import create_salt  # noqa: PLC0415  # most commands create none

                    create_salt(file, time.time_ns() // 1_000_000)
                else:
                    SharedKey.create(file)
        except OSError as error:
            raise BadStateDir(self.path, error.strerror or str(error)) from error
        KeyRing.load(self.internal_key_file)
        for file in (self.write_key_file, self.traffic_salt_file):
            SharedKey.load(file)
        if with_roles:
            for file in self.role_key_files:
                KeyRing.load(file)
        return made

    def log_of(self, name: str) -> Path:
        """Return the log file of a process."""
        return self.logs / f"{name}.log"

    def write_processes(self, processes: dict[str, Any]) -> None:
        """Replace ``processes.json`` atomically."""
        replace_private(self._processes, f"{json.dumps(processes, indent=2)}\n".encode())

    def read_processes(self) -> dict[str, Any]:
        """Return the last list of processes, possibly of a killed ``diem up``; empty without one."""
        try:
            read = json.loads(self._processes.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return read if isinstance(read, dict) else {}

    def remove_processes(self) -> None:
        """Remove ``processes.json``, and the addresses for Prometheus: nothing runs here."""
        self._processes.unlink(missing_ok=True)
        self.targets_file.unlink(missing_ok=True)

    def new_socket(self) -> Path:
        """Return the path for a new control socket, in a temporary directory if ours is too long for a socket."""
        self.remove_socket()
        plain = self.path / "control.sock"
        if len(os.fsencode(plain)) <= MAX_SOCKET_PATH_BYTES:
            return plain
        short = Path(tempfile.mkdtemp(prefix="diem-")) / "control.sock"  # mode 0700
        self._short_socket.write_text(f"{short}\n", encoding="utf-8")
        return short

    def socket(self) -> Path:
        """Return the path of the control socket of the running ``diem up``."""
        try:
            return Path(self._short_socket.read_text(encoding="utf-8").strip())
        except OSError:
            return self.path / "control.sock"

    def remove_socket(self) -> None:
        """Remove the control socket, possibly of a killed ``diem up``."""
        current = self.socket()
        current.unlink(missing_ok=True)
        if current.parent != self.path:
            if current.parent.exists():
                current.parent.rmdir()
            self._short_socket.unlink(missing_ok=True)
