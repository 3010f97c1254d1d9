"""Who may write what: the write key of the file, and write keys of the store with their prefixes and rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from diem.process.auth import SharedKey
from diem.process.clock import Clock
from diem.protocol.endpoints import coverage
from services.data.access.access import Access
from services.data.access.keys import Key, bearer_key
from services.data.access.quota import RateWindow
from services.data.store.write_plan import EndpointBound

KEY_FILE: Final = "write.key"
"""Name of the file's key in the log, whatever its file is called."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes: the holder of a write key of the store, or of the key file (``key`` is None), who may write all."""

    key: Key | None = None

    @property
    def id(self) -> str:
        """Id of the write key of the store; empty for the key file."""
        return "" if self.key is None else self.key.id

    @property
    def bound(self) -> EndpointBound | None:
        """Bound of the key for new endpoints; None: that of the store alone."""
        key = self.key
        return None if key is None or key.max_endpoints is None else EndpointBound(key.prefixes, key.max_endpoints)

    @property
    def name(self) -> str:
        """Name for the log."""
        return KEY_FILE if self.key is None else self.key.name


class WriteReason(StrEnum):
    """Why a write is refused; the values are the codes of the problem documents."""

    INVALID = "key_invalid"
    """The key was revoked or has expired since the request began."""
    PREFIX = "not_in_key"
    """An endpoint is not below a prefix of the key."""
    RATE = "rate"
    """The key has made as many changes in this minute as it may."""
    OVER_RATE = "over_rate"
    """One request has more changes than the key may make in a minute."""


class WriteRefusal(NamedTuple):
    """A refusal, and what it is about."""

    reason: WriteReason
    endpoint: str = ""
    """The endpoint that is not covered."""
    wait_s: int = 0
    """Seconds after which to try again; 0 when waiting does not help."""


class WriteAccess:
    """Decides on writes; used on the event loop only. Its counts are bounded by the number of keys.

    A request is checked twice: before its body is read, when it costs one change, and once its endpoints are known,
    when it costs the other changes. A key that became invalid in between is refused, too.
    """

    def __init__(self, write_key: SharedKey, access: Access, clock: Clock) -> None:
        self._write_key = write_key
        self._access = access
        self._clock = clock
        self._windows: dict[str, RateWindow] = {}

    def identify(self, header: str | None) -> Writer | None:
        """Return who writes with an ``Authorization`` header; None without a valid write key."""
        if self._write_key.matches(header):
            return Writer()
        text = bearer_key(header)
        key = None if text is None else self._access.verify_writer(text)
        return None if key is None else Writer(key)

    def begin(self, writer: Writer, endpoints: Sequence[str] = ()) -> WriteRefusal | None:
        """Return why a request is refused, or count it as one change; ``endpoints`` are those in its path."""
        return self._refusal(writer, endpoints, 1)

    def confirm(self, writer: Writer, endpoints: Sequence[str]) -> WriteRefusal | None:
        """Return why a request is refused, or count the changes of its endpoints beyond the first; all or none."""
        key = writer.key
        if key is not None and key.per_minute is not None and len(endpoints) > key.per_minute:
            return WriteRefusal(WriteReason.OVER_RATE)
        return self._refusal(writer, endpoints, len(endpoints) - 1)

    def _refusal(self, writer: Writer, endpoints: Sequence[str], changes: int) -> WriteRefusal | None:
        key = writer.key
        if key is None:
            return None
        if self._access.refusal(key) is not None:
            self._windows.pop(key.id, None)
            return WriteRefusal(WriteReason.INVALID)
        if key.prefixes:
            may_write = coverage(key.prefixes)
            for endpoint in endpoints:
                if not may_write(endpoint):
                    return WriteRefusal(WriteReason.PREFIX, endpoint)
        if key.per_minute is None:
            return None
        now = self._clock.monotonic()
        window = self._windows.get(key.id)
        if window is None:
            self._forget_unused(now)
            window = self._windows[key.id] = RateWindow()
        if window.count(now) + changes > key.per_minute:
            return WriteRefusal(WriteReason.RATE, wait_s=max(1, -int(-window.wait_s(now) // 1)))
        if changes:
            window.add(now, changes)
        return None

    def _forget_unused(self, now: float) -> None:
        # Only a key that was never used before costs this: keys come and go, and their counts must not stay.
        for key_id in [key_id for key_id, window in self._windows.items() if not window.count(now)]:
            del self._windows[key_id]
