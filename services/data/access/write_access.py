"""Write permissions: the write key in the key file, and write keys in the store with their prefixes and rates."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from diem.errors import DiemError
from diem.process.auth import SharedKey
from diem.process.clock import Clock
from diem.protocol.endpoints import coverage
from services.data.access.access import Access
from services.data.access.keys import Key, bearer_key
from services.data.access.quota import RateWindow
from services.data.store.write_plan import EndpointBound

KEY_FILE: Final = "write.key"
"""Name of the file's key in the log, whatever the file's name."""


class WriteReason(StrEnum):
    """Reason to refuse a write; the values are the codes of problem documents."""

    INVALID = "key_invalid"
    """The key was revoked or has expired since the request began."""
    PREFIX = "not_in_key"
    """An endpoint is not below a prefix of the key."""
    RATE = "rate"
    """The key has used up its changes of this minute."""
    OVER_RATE = "over_rate"
    """A single request exceeds the key's changes per minute."""


@dataclass(eq=False)
class WriteRefused(DiemError):
    """A write that its key does not allow."""

    template = "the write key {key_name} does not allow it: {reason}"

    reason: WriteReason
    key_name: str
    endpoint: str = ""
    """The endpoint not covered."""
    wait_s: int = 0
    """Seconds to wait before a retry; 0 when waiting does not help."""


class WriteRights:
    """Rights of a writer: holder of the key file, with all rights (``key`` is None), or of a write key in the store.

    A request is checked twice: before its body is read (:meth:`begin`), for one change, and once its endpoints are
    known (:meth:`confirm`), for the others; a key invalidated in between is refused.
    """

    def __init__(self, access: Access, clock: Clock, key: Key | None = None) -> None:
        self.id, self.name = ("", KEY_FILE) if key is None else (key.id, key.name)
        """Id of the write key of the store, empty for the key file; name for the log."""
        self.bound = EndpointBound(key.prefixes, key.max_endpoints) if key and key.max_endpoints is not None else None
        """Bound of the key for new endpoints; None: only the store's."""
        self.window = RateWindow()
        """Changes within a minute."""
        self._covers = coverage(key.prefixes) if key and key.prefixes else None
        self._per_minute = None if key is None else key.per_minute
        self._key = key
        self._access = access
        self._clock = clock

    def begin(self, endpoint: str = "") -> None:
        """Count a request as one change; ``endpoint`` is that in its path, if any. Raises ``WriteRefused``."""
        if self._covers is not None and endpoint and not self._covers(endpoint):
            raise WriteRefused(WriteReason.PREFIX, self.name, endpoint)
        if self._per_minute is not None:
            self._count(1, self._per_minute)

    def confirm(self, endpoints: Sequence[str] = ()) -> None:
        """Count the changes beyond the first of the endpoints in a body, all or none. Raises ``WriteRefused``."""
        self.check(endpoints)
        if self._per_minute is not None and len(endpoints) > 1:
            self._count(len(endpoints) - 1, self._per_minute)

    def check(self, endpoints: Sequence[str]) -> None:
        """Check the endpoints in a body without counting them. Raises ``WriteRefused``."""
        if self._per_minute is not None and len(endpoints) > self._per_minute:
            raise WriteRefused(WriteReason.OVER_RATE, self.name)
        if self._key is not None and self._access.refusal(self._key) is not None:
            raise WriteRefused(WriteReason.INVALID, self.name)
        outside = [] if self._covers is None else [each for each in endpoints if not self._covers(each)]
        if outside:
            raise WriteRefused(WriteReason.PREFIX, self.name, outside[0])

    def _count(self, changes: int, most: int) -> None:
        now = self._clock.monotonic()
        if self.window.count(now) + changes > most:
            wait_s = max(1, -int(-self.window.wait_s(now) // 1))
            raise WriteRefused(WriteReason.RATE, self.name, wait_s=wait_s)
        self.window.add(now, changes)


class WriteAccess:
    """Identifies writers; used on the event loop only. What it remembers is bounded by the number of keys."""

    def __init__(self, write_key: SharedKey, access: Access, clock: Clock) -> None:
        self._write_key = write_key
        self._access = access
        self._clock = clock
        self._owner = WriteRights(access, clock)
        self._writers: dict[str, WriteRights] = {}

    def identify(self, header: str, *, writes: bool) -> WriteRights | None:
        """Return the writer of an ``Authorization`` header; None without a valid write key.

        ``writes``: the request changes something; keys of the store are for nothing else.
        """
        if self._write_key.matches(header):
            return self._owner
        text = bearer_key(header) if writes else None
        key = None if text is None else self._access.verify(text, writes=True)
        return None if key is None else self._writers.get(key.id) or self._remember(key)

    def _remember(self, key: Key) -> WriteRights:
        # Only a key that was not used lately costs this: keys come and go, and their counts must not stay.
        now = self._clock.monotonic()
        self._writers = {id_: writer for id_, writer in self._writers.items() if writer.window.count(now)}
        writer = self._writers[key.id] = WriteRights(self._access, self._clock, key)
        return writer
