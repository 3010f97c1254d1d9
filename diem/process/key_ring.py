"""Keys of internal connections: one for everything, and keys of roles; reread when their files change."""

import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import structlog

from diem.process.auth import MAX_CHARACTERS, BadKeyFile, SharedKey, check_key, read_private, shared_key_remedy

MAX_KEYS: Final = 2
"""Maximum number of keys in a file: the one this process proves, and its predecessor or successor."""
CHECK_EVERY_S: Final = 1.0
"""Shortest time between two checks of the files."""


class KeyRole(StrEnum):
    """Rights of a key's holders. The key of a role is in the file ``<role>.key`` beside the internal key."""

    FEED = "feed"
    """Read feeds and subscribe at servers."""
    METADATA = "metadata"
    """Read and follow the partition map with its owners; poll servers for their status."""
    METRICS = "metrics"
    """Read metrics and status. For monitoring systems: no process proves a key for this role."""
    ADMIN = "admin"
    """Everything, such as API keys, plans and scaling."""


EVERY_ROLE: Final = frozenset(KeyRole)
_Stamp = tuple[int, int, int] | None
"""Inode, size and time of change of a file; None if there is none."""


class KeyRing:
    """The keys in the internal key's file, with every role, and those in role files beside it.

    A process proves the first key of the role's file, or of the internal key's if there is none. It accepts all keys of
    both. A key is replaced without a restart: add the new one as a second line everywhere, then make it the first line
    everywhere, then remove the old one. A file unusable after a change is reported, and its last keys stay.

    Args:
        path: the internal key's file; None for keys that never change.
        clock: returns monotonic seconds.

    Raises:
        BadKeyFile: from the constructor: a file is unreadable, another user's, readable by others, or has no keys.
    """

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._path = path
        self._files = {} if path is None else {role: path.with_name(f"{role}.key") for role in KeyRole}
        self._stamps: dict[Path, _Stamp] = {}
        self._every: tuple[SharedKey, ...] = ()
        self._of_role: dict[KeyRole, tuple[SharedKey, ...]] = {}
        self._by_id: dict[str, tuple[SharedKey, frozenset[KeyRole]]] = {}
        self._checked_at = clock()
        if path is not None:
            self._every = self._read(path)
            for role, file in self._files.items():
                if _stamp(file) is not None:
                    self._of_role[role] = self._read(file)
            self._index()

    @classmethod
    def of(cls, keys: "KeyRing | SharedKey") -> "KeyRing":
        """Wrap a single key, with every role; return a key ring unchanged."""
        if isinstance(keys, KeyRing):
            return keys
        made = cls(None)
        made._every = (keys,)
        made._index()
        return made

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the keys. Raises ``BadKeyFile``."""
        return cls(path)

    def key(self, role: KeyRole) -> SharedKey:
        """Return the key to prove for a role."""
        self._refresh()
        return (self._of_role.get(role) or self._every)[0]

    def find(self, key_id: str) -> tuple[SharedKey, frozenset[KeyRole]] | None:
        """Return the key with an id and its roles; None if it is not accepted."""
        self._refresh()
        return self._by_id.get(key_id)

    def roles_of_bearer(self, header: str) -> frozenset[KeyRole]:
        """Return the roles of the key in an ``Authorization`` header; none if it is not accepted."""
        self._refresh()
        # No early exit: the time must not reveal a nearly matching key.
        found = [roles for key, roles in self._by_id.values() if key.matches(header)]
        return frozenset().union(*found)

    def _refresh(self) -> None:
        if self._path is None or self._clock() - self._checked_at < CHECK_EVERY_S:
            return
        self._checked_at = self._clock()
        changed = False
        for role, file in ((None, self._path), *self._files.items()):
            stamp = _stamp(file)
            if stamp == self._stamps.get(file):
                continue
            changed = True
            if role is not None and stamp is None:
                self._stamps[file] = None
                self._of_role.pop(role, None)
                continue
            try:
                keys = self._read(file)
            except BadKeyFile as error:
                self._stamps[file] = stamp
                structlog.get_logger("keys").warning(
                    "keys were not read again: the previous ones stay in use", error=str(error)
                )
                continue
            if role is None:
                self._every = keys
            else:
                self._of_role[role] = keys
        if changed:
            self._index()
            structlog.get_logger("keys").info("keys of internal connections read again", ids=sorted(self._by_id))

    def _read(self, path: Path) -> tuple[SharedKey, ...]:
        self._stamps[path] = _stamp(path)
        missing = shared_key_remedy(path)
        lines = read_private(path, MAX_KEYS * (MAX_CHARACTERS + 2), missing=missing).splitlines()
        keys = tuple(SharedKey(check_key(path, line)) for line in lines if line.strip())
        if not 1 <= len(keys) <= MAX_KEYS:
            raise BadKeyFile(path, f"it has {len(keys)} keys; one or two, each on a line, are needed")
        return keys

    def _index(self) -> None:
        held = [(key, EVERY_ROLE) for key in self._every]
        held += [(key, frozenset({role})) for role, keys in self._of_role.items() for key in keys]
        self._by_id = {}
        for key, roles in held:
            self._by_id[key.id] = (key, roles | self._by_id.get(key.id, (key, frozenset()))[1])


def _stamp(path: Path) -> _Stamp:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
